"""Test the report of a real run of each experiment, made by its own command."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser
from typer.testing import CliRunner, Result

from epicrisis.cli.program import app
from epicrisis.core.protocols import ChatModel
from epicrisis.core.types import Document
from epicrisis.evaluation.datasets.patient_records.recordset import load_records
from epicrisis.evaluation.experiments.registry import NAMES, load_experiments
from epicrisis.testing.chat import ScriptedModel
from tests.support.grading import said
from tests.support.position_biased_reader import KeyPassage, find_key_passages, position_biased_reader, u_curve
from tests.support.replies import schema_reply
from tests.support.served_models import served

pytestmark = pytest.mark.models

N = 12
TOPICS = ("gout", "asthma", "anaemia")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run_command(*arguments: object) -> Result:
    """Run the command, which must succeed."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


def make_text(i: int) -> str:
    return f"Trial number {i} of {TOPICS[i % 3]} found the answer on drug {i}x and tells it here in one sentence."


def make_question(i: int) -> dict[str, Any]:
    return {
        "id": str(i),
        "text": f"Does drug {i}x help in {TOPICS[i % 3]}, as trial number {i} found?",
        "options": {"A": "yes", "B": "no", "C": "maybe"},
        "gold": "ABC"[i % 3],
        "gold_documents": [f"d{i}"],
    }


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Workspace:
    """Hold the paths that the commands read and write."""

    folder: Path

    @property
    def library(self) -> Path:
        return self.folder / "library"

    @property
    def choices(self) -> Path:
        return self.folder / "choices.jsonl"

    @property
    def open(self) -> Path:
        return self.folder / "open.jsonl"

    @property
    def solved(self) -> Path:
        return self.folder / "solved"

    @property
    def records(self) -> Path:
        return self.folder / "records"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, model_home: Path) -> Workspace:
    """Write a library of papers with questions, solved questions, and a patient record."""
    workspace = Workspace(tmp_path_factory.mktemp("real"))
    papers = [{"id": f"d{i}", "text": make_text(i), "date": f"{2000 + i}"} for i in range(N)]
    run_command("library", "add", workspace.library, write_rows(workspace.folder / "papers.jsonl", papers))
    write_rows(workspace.choices, [make_question(i) for i in range(N)])
    write_rows(workspace.open, [{"id": str(i), "text": make_question(i)["text"], "gold": "It does."} for i in range(N)])
    solved = [{"id": "1", "question": "What stops bleeding?", "answer": "Vitamin K."}]
    run_command("examples", "add", workspace.solved, write_rows(workspace.folder / "solved.jsonl", solved))
    run_command(
        "synthesize-record",
        "-o",
        workspace.records,
        "--patients",
        1,
        "--tokens",
        "4000",
        "--questions-each",
        7,
        "--seed",
        3,
    )
    return workspace


@pytest.fixture(autouse=True)
def disable_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "off")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "100000")


def make_reader() -> ChatModel:
    """Reads the ends of a prompt better than its middle."""
    keys = {make_question(i)["text"]: KeyPassage(make_text(i), make_question(i)["gold"]) for i in range(N)}
    return position_biased_reader(keys, u_curve())


def make_record_reader(workspace: Workspace) -> ChatModel:
    records = load_records(workspace.records)
    texts = {item.id: item.text for item in records.notes() if isinstance(item, Document)}
    return position_biased_reader(find_key_passages(records.questions, texts), u_curve())


def make_writer() -> ChatModel:
    """Answers whatever it is asked in the form that is asked for."""

    def script(request: Any) -> str:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        schema = {"response_format": {"json_schema": {"schema": request.schema}}} if request.schema else {}
        return schema_reply({"messages": messages, **schema})

    return ScriptedModel(script, context_tokens=100_000)


def make_judge(verdict: str) -> ChatModel:
    return ScriptedModel(lambda _: said(verdict), context_tokens=100_000)


RunMaker = Callable[[Workspace, Path], None]
"""Makes a run in the folder."""


def make_experiment(*arguments: object, papers: bool = True, open: bool = False) -> RunMaker:
    """Return a function that runs the command, over the library if `papers`."""

    def make_run(workspace: Workspace, folder: Path) -> None:
        library = ("--library", workspace.library) if papers else ()
        sets = ("--set", workspace.open if open else workspace.choices)
        with served(make_writer() if open else make_reader()) as server:
            model = ("--model", f"{server.url}#reader")
            ended = invoke(*arguments, *library, *sets, *model, "-o", folder, "--yes")
        assert ended.exit_code == 0, ended.stderr

    return make_run


def run_evaluate(workspace: Workspace, folder: Path) -> None:
    with served(make_reader()) as server:
        run_command(
            "evaluate",
            workspace.choices,
            "--library",
            workspace.library,
            "--strategy",
            "rag",
            "-k",
            4,
            "-n",
            6,
            "--model",
            f"{server.url}#reader",
            "-o",
            folder,
            "--yes",
        )


def run_preflight(workspace: Workspace, folder: Path) -> None:
    run_command(
        "experiment", "preflight", "--library", workspace.library, "--set", workspace.choices, "-o", folder, "--json"
    )


def make_examples_experiment(name: str, *arguments: object, open: bool = False) -> RunMaker:
    """Return a function that runs an experiment with solved questions as examples."""

    def make_run(workspace: Workspace, folder: Path) -> None:
        command = ("experiment", name, "--examples", workspace.solved, *arguments)
        make_experiment(*command, papers=False, open=open)(workspace, folder)

    return make_run


def run_open_ended(workspace: Workspace, folder: Path) -> None:
    make_experiment("experiment", "open-ended", "-n", 4, open=True)(workspace, folder)
    run_command("grade", "pairs", folder, "-o", folder / "judging")
    with served(make_judge("1")) as server:
        run_command("grade", "preference", folder / "judging", "--model", f"{server.url}#judge")


def run_openmedprompt(workspace: Workspace, folder: Path) -> None:
    make_examples_experiment("openmedprompt", "-n", 3, "--votes", 2, "-k", 1, open=True)(workspace, folder)
    with served(make_judge("correct")) as server:
        run_command("grade", "correctness", folder, "--model", f"{server.url}#judge")


def run_record_experiment(name: str, *arguments: object, workspace: Workspace, folder: Path) -> None:
    with served(make_record_reader(workspace)) as server:
        run_command(
            "experiment",
            name,
            "--data",
            workspace.records,
            "--library",
            workspace.folder / "ward",
            "--model",
            f"{server.url}#reader",
            "-o",
            folder,
            "--yes",
            "--json",
            *arguments,
        )


def make_record_experiment(name: str, *arguments: object) -> RunMaker:
    return lambda workspace, folder: run_record_experiment(name, *arguments, workspace=workspace, folder=folder)


_VOTED = ("--arm", "chain-of-thought", "--arm", "self-consistency", "--votes", 1, "--votes", 3)
_VOTING_ARMS = ("--arm", "self-consistency+shuffling", "--arm", "medprompt")
"""Arms of `models` that need no probabilities of tokens, which the server does not report."""
_FEW = ("-n", 6, "-k", 4, "--place", 0, "--place", 50, "--place", 100)
RUNS: Mapping[str, tuple[RunMaker, int]] = {
    "evaluate": (run_evaluate, 0),
    "probe": (make_experiment("probe", "-n", 6, "-k", 4), 1),
    "positions": (make_experiment("experiment", "positions", *_FEW), 1),
    "integration": (make_experiment("experiment", "integration", "-n", 6, "-k", 4), 1),
    "conflicts": (make_experiment("experiment", "conflicts", *_FEW), 1),
    "context-length": (make_experiment("experiment", "context-length", "-n", 6, "-k", 2, "-k", 4), 1),
    "focused": (make_experiment("experiment", "focused", "-n", 3, "--prompt-tokens", 3000), 1),
    "preflight": (run_preflight, 1),
    "attention-bias": (make_experiment("experiment", "attention-bias", "-n", 6, "-k", 4), 1),
    "cost": (make_experiment("experiment", "cost", "-n", 4, "-k", 4), 1),
    "open-ended": (run_open_ended, 1),
    "ensembles": (make_experiment("experiment", "ensembles", "-n", 3, *_VOTED, papers=False), 1),
    "medprompt": (make_examples_experiment("medprompt", "-n", 3, "--votes", 2), 1),
    "models": (make_examples_experiment("models", "-n", 2, "--votes", 2, *_VOTING_ARMS), 1),
    "openmedprompt": (run_openmedprompt, 1),
    "ehr-context": (make_record_experiment("ehr-context", "-n", 2), 1),
    "ehr-retrieval": (make_record_experiment("ehr-retrieval", "-n", 2), 1),
    "ehr-extractive": (make_record_experiment("ehr-extractive", "-n", 2), 1),
    "ehr-metrics": (make_record_experiment("ehr-metrics", "-n", 2), 1),
    "ehr": (make_record_experiment("ehr", "-n", 2), 1),
}
"""By the experiment: what makes a small run of it, and the fewest plots that its page has."""


def test_every_experiment_has_a_run() -> None:
    assert RUNS.keys() == {*NAMES, *load_experiments(), "evaluate"}


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_report_of_real_run_has_tables_and_plots(name: str, workspace: Workspace, tmp_path: Path) -> None:
    make_run, plots = RUNS[name]
    folder, page = tmp_path / "run", tmp_path / "report.html"
    make_run(workspace, folder)
    findings = json.loads(run_command("report", folder, "-o", page, "--json").stdout)
    assert findings[0]["experiment"] == name
    assert any(table["rows"] for table in findings[0]["tables"])
    tree = LexborHTMLParser(page.read_text(encoding="utf-8"))
    captions = [node.text() for node in tree.css("caption")]
    for table in (table for finding in findings for table in finding["tables"]):
        assert any(table["title"] in caption for caption in captions), table["title"]
    section = tree.css_first("section")
    assert section is not None
    assert len(section.css(".chart")) >= plots
    assert len(section.css("tbody tr")) >= sum(len(table["rows"]) for table in findings[0]["tables"])
