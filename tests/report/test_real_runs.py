"""From a real run of each experiment, made by its own command over a real library, to the page of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser
from typer.testing import CliRunner, Result

from epicrisis.cli.app import app
from epicrisis.evaluation.datasets.patient_records.recordset import load_records
from epicrisis.evaluation.experiments.registry import NAMES, load_experiments
from epicrisis.protocols import ChatModel
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.reader import KeyPassage, find_key_passages, position_biased_reader, u_curve
from epicrisis.testing.replies import schema_reply
from epicrisis.types import Document
from tests.support.grading import said
from tests.support.served_models import served

pytestmark = pytest.mark.models

N = 12
TOPICS = ("gout", "asthma", "anaemia")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments: object) -> Result:
    """Run the command, which must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


def text(i: int) -> str:
    return f"Trial number {i} of {TOPICS[i % 3]} found the answer on drug {i}x and tells it here in one sentence."


def question(i: int) -> dict[str, Any]:
    return {
        "id": str(i),
        "text": f"Does drug {i}x help in {TOPICS[i % 3]}, as trial number {i} found?",
        "options": {"A": "yes", "B": "no", "C": "maybe"},
        "gold": "ABC"[i % 3],
        "gold_documents": [f"d{i}"],
    }


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Place:
    """What the commands read, and where they write."""

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
def place(tmp_path_factory: pytest.TempPathFactory, model_home: Path) -> Place:
    """A library of papers with questions that they answer, solved questions, and the record of a patient."""
    place = Place(tmp_path_factory.mktemp("real"))
    papers = [{"id": f"d{i}", "text": text(i), "date": f"{2000 + i}"} for i in range(N)]
    done("library", "add", place.library, written(place.folder / "papers.jsonl", papers))
    written(place.choices, [question(i) for i in range(N)])
    written(place.open, [{"id": str(i), "text": question(i)["text"], "gold": "It does."} for i in range(N)])
    solved = [{"id": "1", "question": "What stops bleeding?", "answer": "Vitamin K."}]
    done("examples", "add", place.solved, written(place.folder / "solved.jsonl", solved))
    done(
        "synthesize-record",
        "-o",
        place.records,
        "--patients",
        1,
        "--tokens",
        "4000",
        "--questions-each",
        7,
        "--seed",
        3,
    )
    return place


@pytest.fixture(autouse=True)
def _own_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "off")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "100000")


def reader() -> ChatModel:
    """Reads the ends of a prompt better than its middle."""
    keys = {question(i)["text"]: KeyPassage(text(i), question(i)["gold"]) for i in range(N)}
    return position_biased_reader(keys, u_curve())


def reader_of_records(place: Place) -> ChatModel:
    records = load_records(place.records)
    texts = {item.id: item.text for item in records.notes() if isinstance(item, Document)}
    return position_biased_reader(find_key_passages(records.questions, texts), u_curve())


def writer() -> ChatModel:
    """Answers whatever it is asked in the form that is asked for."""

    def script(request: Any) -> str:
        messages = [{"role": each.role, "content": each.content} for each in request.messages]
        schema = {"response_format": {"json_schema": {"schema": request.schema}}} if request.schema else {}
        return schema_reply({"messages": messages, **schema})

    return ScriptedModel(script, context_tokens=100_000)


def judge(verdict: str) -> ChatModel:
    return ScriptedModel(lambda _: said(verdict), context_tokens=100_000)


Made = Callable[[Place, Path], None]
"""Makes the run in the folder."""


def asked(*arguments: object, papers: bool = True, open: bool = False, fails: bool = False) -> Made:
    """The command over the library of papers or without a library; `fails`: the server tells no probabilities of
    tokens, so the cases that need them fail."""

    def made(place: Place, folder: Path) -> None:
        library = ("--library", place.library) if papers else ()
        sets = ("--set", place.open if open else place.choices)
        with served(writer() if open else reader()) as server:
            model = ("--model", f"{server.url}#reader")
            ended = run(*arguments, *library, *sets, *model, "-o", folder, "--yes")
        assert ended.exit_code == (2 if fails else 0), ended.stderr
        assert ("cases failed" in ended.stderr) == fails

    return made


def evaluated(place: Place, folder: Path) -> None:
    with served(reader()) as server:
        done(
            "evaluate",
            place.choices,
            "--library",
            place.library,
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


def ranked(place: Place, folder: Path) -> None:
    done("experiment", "preflight", "--library", place.library, "--set", place.choices, "-o", folder, "--json")


def shown(name: str, *more: object, open: bool = False, fails: bool = False) -> Made:
    """An experiment that shows solved questions."""

    def made(place: Place, folder: Path) -> None:
        command = ("experiment", name, "--examples", place.solved, *more)
        asked(*command, papers=False, open=open, fails=fails)(place, folder)

    return made


def judged(place: Place, folder: Path) -> None:
    asked("experiment", "open-ended", "-n", 4, open=True)(place, folder)
    done("grade", "pairs", folder, "-o", folder / "judging")
    with served(judge("1")) as server:
        done("grade", "preference", folder / "judging", "--model", f"{server.url}#judge")


def marked(place: Place, folder: Path) -> None:
    shown("openmedprompt", "-n", 3, "--votes", 2, "-k", 1, open=True)(place, folder)
    with served(judge("correct")) as server:
        done("grade", "correctness", folder, "--model", f"{server.url}#judge")


def of_records(name: str, *more: object, place: Place, folder: Path) -> None:
    with served(reader_of_records(place)) as server:
        done(
            "experiment",
            name,
            "--data",
            place.records,
            "--library",
            place.folder / "ward",
            "--model",
            f"{server.url}#reader",
            "-o",
            folder,
            "--yes",
            "--json",
            *more,
        )


def recorded(name: str, *more: object) -> Made:
    return lambda place, folder: of_records(name, *more, place=place, folder=folder)


_VOTED = ("--arm", "chain-of-thought", "--arm", "self-consistency", "--votes", 1, "--votes", 3)
_FEW = ("-n", 6, "-k", 4, "--place", 0, "--place", 50, "--place", 100)
RUNS: Mapping[str, tuple[Made, int]] = {
    "evaluate": (evaluated, 0),
    "probe": (asked("probe", "-n", 6, "-k", 4), 1),
    "positions": (asked("experiment", "positions", *_FEW), 1),
    "integration": (asked("experiment", "integration", "-n", 6, "-k", 4), 1),
    "conflicts": (asked("experiment", "conflicts", *_FEW), 1),
    "context-length": (asked("experiment", "context-length", "-n", 6, "-k", 2, "-k", 4), 1),
    "preflight": (ranked, 1),
    "attention-bias": (asked("experiment", "attention-bias", "-n", 6, "-k", 4), 1),
    "cost": (asked("experiment", "cost", "-n", 4, "-k", 4), 1),
    "open-ended": (judged, 1),
    "ensembles": (asked("experiment", "ensembles", "-n", 3, *_VOTED, papers=False), 1),
    "medprompt": (shown("medprompt", "-n", 3, "--votes", 2), 1),
    "models": (shown("models", "-n", 2, "--votes", 2, fails=True), 1),
    "openmedprompt": (marked, 1),
    "ehr-context": (recorded("ehr-context", "-n", 2), 1),
    "ehr-retrieval": (recorded("ehr-retrieval", "-n", 2), 1),
    "ehr-extractive": (recorded("ehr-extractive", "-n", 2), 1),
    "ehr-metrics": (recorded("ehr-metrics", "-n", 2), 1),
    "ehr": (recorded("ehr", "-n", 2), 1),
}
"""By the experiment: what makes a small run of it, and the fewest plots that its page has."""


def test_every_experiment_that_there_is_has_a_run_here() -> None:
    assert RUNS.keys() == {*NAMES, *load_experiments(), "evaluate"}


@pytest.mark.parametrize("name", RUNS)
def test_a_real_run_of_each_experiment_becomes_a_page_with_its_tables_and_plots(
    name: str, place: Place, tmp_path: Path
) -> None:
    made, plots = RUNS[name]
    folder, page = tmp_path / "run", tmp_path / "report.html"
    made(place, folder)
    findings = json.loads(done("report", folder, "-o", page, "--json").stdout)
    assert findings[0]["experiment"] == name
    assert any(table["rows"] for table in findings[0]["tables"])
    tree = LexborHTMLParser(page.read_text(encoding="utf-8"))
    captions = [node.text() for node in tree.css("caption")]
    for table in (table for each in findings for table in each["tables"]):
        assert any(table["title"] in caption for caption in captions), table["title"]
    section = tree.css_first("section")
    assert section is not None
    assert len(section.css(".chart")) >= plots
    assert len(section.css("tbody tr")) >= sum(len(table["rows"]) for table in findings[0]["tables"])
