"""`epicrisis experiment`, `probe`, `evaluate`: real commands over a real library, with a reader whose blind spot is
known behind a real endpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epicrisis.testing.reader import KeyPassage, PositionCurve, position_biased_reader, u_curve
from tests.cli.conftest import Run
from tests.cli.test_bad_input import assert_one_line
from tests.support.served_models import served

pytestmark = pytest.mark.models

N = 24
TOPICS = ("gout", "asthma", "anaemia", "measles", "scurvy", "rickets", "eczema", "migraine")


def text_of(i: int) -> str:
    return f"Trial number {i} of {TOPICS[i % 8]} found the answer on drug {i}x and tells it here in one sentence."


def row_of(i: int) -> dict[str, Any]:
    return {
        "id": str(i),
        "text": f"Does drug {i}x help in {TOPICS[i % 8]}, as trial number {i} found?",
        "options": ["yes", "no", "maybe"],
        "gold": "ABC"[i % 3],
        "gold_documents": [f"d{i}"],
    }


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions whose key documents the library holds."""
    path = tmp_path_factory.mktemp("set") / "asked.jsonl"
    path.write_text("".join(json.dumps(row_of(i)) + "\n" for i in range(N)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, model_home: Path) -> Path:
    from typer.testing import CliRunner

    from epicrisis.cli.app import app

    folder = tmp_path_factory.mktemp("lib")
    rows = [{"id": f"d{i}", "text": text_of(i), "date": f"{2000 + i % 20}"} for i in range(N)]
    rows += [{"id": f"o{i}", "text": f"Study {i} saw {TOPICS[i % 8]} in {i + 3} towns."} for i in range(N)]
    (folder / "papers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = CliRunner().invoke(app, ["library", "add", str(folder / "library"), str(folder / "papers.jsonl")])
    assert result.exit_code == 0, result.stderr
    return folder / "library"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder of its own for each test's runs, and replies that are not kept from one test to the next."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "off")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "100000")
    return iter([tmp_path])


def reader(curve: PositionCurve) -> Any:
    return position_biased_reader(
        {row_of(i)["text"]: KeyPassage(text_of(i), row_of(i)["gold"]) for i in range(N)}, curve
    )


def rows(findings: list[dict[str, Any]], title: str) -> list[dict[str, Any]]:
    (table,) = [each for found in findings for each in found["tables"] if each["title"] == title]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def test_positions_end_to_end(run: Run, library: Path, asked: Path, tmp_path: Path, seen: Iterator[Path]) -> None:
    """Only the ends are read: RAG is right there and nowhere else, BriefContext with parts of two everywhere."""
    with served(reader(lambda place, documents: float(place in (0, documents - 1)))) as server:
        command = (
            "experiment",
            "positions",
            "--library",
            library,
            "--set",
            asked,
            "-n",
            N,
            "-k",
            4,
            "--place",
            0,
            "--place",
            50,
            "--place",
            100,
            "--arm",
            "rag",
            "--arm",
            "brief-context",
            "--arm",
            "closed-book",
            "--model",
            f"{server.url}#reader",
            "--yes",
            "-o",
            tmp_path / "run",
            "--json",
        )
        result = run(*command)
        assert result.exit_code == 0, result.stderr
        calls = server.ledger.calls
        again = run(*command)
        assert again.exit_code == 0
        assert server.ledger.calls == calls, "a finished run asks nothing"
    shown = json.loads(result.stdout)
    by_place = rows(shown["findings"], "Accuracy by the place of the key document (percentile)")
    shares = {(row["arm"], row["place"]): row["share right"]["value"] for row in by_place}
    assert [shares["rag", place] for place in (0, 50, 100)] == [1.0, 0.0, 1.0]
    assert shown["manifest"]["complete"] is True
    assert [each["experiment"] for each in shown["findings"]] == ["positions", "conflicts", "cost"]
    for first, second in zip(shown["findings"], json.loads(again.stdout)["findings"], strict=True):
        assert first["tables"] == second["tables"]


def test_the_tables_and_what_they_come_to_are_shown_to_people(
    run: Run, library: Path, asked: Path, tmp_path: Path, seen: Iterator[Path]
) -> None:
    with served(reader(u_curve())) as server:
        result = run(
            "experiment",
            "attention-bias",
            "--library",
            library,
            "--set",
            asked,
            "-n",
            12,
            "-k",
            4,
            "--model",
            f"{server.url}#reader",
            "--yes",
        )
    assert result.exit_code == 0, result.stderr
    assert "among random" in result.stdout or "random" in result.stdout
    assert "saved in runs/attention-bias-" in result.stdout
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_the_probe_answers_its_two_questions(
    run: Run, library: Path, asked: Path, tmp_path: Path, seen: Iterator[Path]
) -> None:
    with served(reader(lambda place, documents: float(documents <= 4 or place in (0, documents - 1)))) as server:
        result = run(
            "probe", "--library", library, "--set", asked, "-n", N, "-k", 8, "--model", f"{server.url}#reader", "--yes"
        )
    assert result.exit_code == 0, result.stderr
    assert "Yes: at the ends it is right more often than in the middle" in " ".join(result.stdout.split())
    assert "Yes, it answers better" in " ".join(result.stdout.split())


def test_evaluate_scores_a_set_and_a_guard_hides_the_source(
    run: Run, library: Path, asked: Path, tmp_path: Path, seen: Iterator[Path]
) -> None:
    with served(reader(lambda place, documents: 1.0)) as server:
        model = f"{server.url}#reader"
        common = ("--library", library, "--strategy", "rag", "--model", model, "--yes", "--json", "-k", 8)
        plain = run("evaluate", asked, *common, "-o", tmp_path / "plain")
        hidden = run("evaluate", asked, *common, "-o", tmp_path / "hidden", "--leak-guard", "source-hidden")
        changed = run("evaluate", asked, *common, "-o", tmp_path / "plain", "--leak-guard", "source-hidden")
        undated = run("evaluate", asked, *common, "-o", tmp_path / "before", "--leak-guard", "before-source")
        scope = ("--setting", "scope.types=Review", "--setting", "scope.journals=Gut")
        narrowed = json.loads(run("evaluate", asked, *common, "-o", tmp_path / "narrowed", *scope).stdout)["manifest"]
    assert plain.exit_code == hidden.exit_code == 0, plain.stderr + hidden.stderr
    assert json.loads(plain.stdout)["manifest"]["states"].get("answered", 0) > N / 2
    assert json.loads(hidden.stdout)["manifest"]["states"] == {"abstained": N}
    assert undated.exit_code == 0, undated.stderr
    asked_within = narrowed["plan"]["recipe"]["settings"]["scope"]
    assert (asked_within["types"], asked_within["journals"]) == (["Review"], ["Gut"])
    assert narrowed["states"] == {"abstained": N}, "no document of the library is a review"
    assert_one_line(changed)
    assert "holds another run, which differs in arguments (guard)" in changed.stderr


def test_bad_input_is_one_line(run: Run, library: Path, asked: Path, seen: Iterator[Path]) -> None:
    common = ("--library", library, "--set", asked, "--model", "http://127.0.0.1:9/v1#m", "--yes")
    for arguments, said in (
        (("experiment", "nonsense", *common), "no experiment is called nonsense: known are positions"),
        (("experiment", "positions", *common, "-n", 999), "has 24 questions"),
        (("experiment", "positions", *common, "-n", 5, "--arm", "magic"), "no arm is called magic"),
        (("experiment", "positions", *common, "-n", 5, "--arm", "reranked"), "needs a reranker"),
        (("experiment", "positions", "--set", asked, "-n", 5), "name one with --library"),
        (("evaluate", "mirage/nothing", "--library", library), "is neither a question set"),
    ):
        result = run(*arguments)
        assert_one_line(result)
        assert said in result.stderr


def test_names_of_experiments_are_those_there_are() -> None:
    from epicrisis.evaluation.experiments.registry import NAMES, load_experiments

    assert {*NAMES} == {*load_experiments()}


def test_what_an_experiment_has_no_use_for_is_refused(
    run: Run, library: Path, asked: Path, tmp_path: Path, seen: Iterator[Path]
) -> None:
    common = ("--library", library, "--set", asked)
    ranked = run("experiment", "preflight", *common, "-n", 5, "--protocol", "corrected")
    assert_one_line(ranked, "asks no model: of the options on what is compared, use only --set and --reranker")
    own = run("experiment", "preflight", "--library", library, "--set", "cloze")
    assert_one_line(own, "cloze makes questions from sentences of the library", "choose another set, or a file")
    assert_one_line(
        run("experiment", "cost", *common, "--reranker", "medcpt"),
        "--reranker is for the arm `reranked`: add --arm reranked",
    )
    assert_one_line(run("experiment", "open-ended", *common, "--repeats", 2), "leave --repeats out")
    assert_one_line(run("evaluate", asked), "the strategy brief-context reads a library: name one with --library")
    elsewhere = run("experiment", "preflight", *common, "-o", library)
    assert_one_line(elsewhere, "contains other files", "choose an empty or new folder")
    assert not list(library.glob("rankings*"))
    assert not (tmp_path / "runs").exists()


def test_an_empty_library_answers_nothing(run: Run, asked: Path, tmp_path: Path, seen: Iterator[Path]) -> None:
    document = tmp_path / "papers.jsonl"
    document.write_text(json.dumps({"id": "d0", "text": text_of(0)}) + "\n", encoding="utf-8")
    assert run("library", "add", tmp_path / "empty", document).exit_code == 0
    assert run("library", "delete", tmp_path / "empty", "d0").exit_code == 0
    refused = run("evaluate", asked, "--library", tmp_path / "empty", "--model", "http://127.0.0.1:9/v1#m")
    assert_one_line(refused, "empty contains no document: add some with `epicrisis library add")


def test_rankings_are_gone_on_with_in_their_folder(
    run: Run, library: Path, asked: Path, tmp_path: Path, seen: Iterator[Path]
) -> None:
    command = ("experiment", "preflight", "--library", library, "--set", asked, "-o", tmp_path / "ranked", "--json")
    first, again = run(*command), run(*command)
    assert first.exit_code == again.exit_code == 0, first.stderr + again.stderr
    assert json.loads(first.stdout) == json.loads(again.stdout)


def test_what_is_not_agreed_to_leaves_nothing_behind(
    run: Run, library: Path, asked: Path, tmp_path: Path, seen: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__PRICE", '{"input": 5000, "output": 5000}')
    with served(reader(u_curve())) as server:
        common = ("evaluate", asked, "--library", library, "--strategy", "rag", "--model", f"{server.url}#reader")
        refused = run(*common, "-o", tmp_path / "run", "-k", 8)
        assert_one_line(refused, "are expected to cost $", "): add --yes to run it")
        assert not (tmp_path / "run").exists()
        assert server.ledger.calls == 0
        other = run(*common, "-o", tmp_path / "run", "-k", 4, "--yes")
        assert other.exit_code == 0, other.stderr
        assert_one_line(run(*common, "-o", tmp_path / "run", "-k", 8, "--yes"), "holds another run")


def test_cost_is_measured_and_not_kept(
    run: Run, library: Path, asked: Path, tmp_path: Path, seen: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "on")
    with served(reader(lambda place, documents: 1.0)) as server:
        common = ("experiment", "cost", "--library", library, "--set", asked, "-n", 3, "-k", 8)
        command = (*common, "--model", f"{server.url}#reader", "--json")
        kept = run(*command, "-o", tmp_path / "kept", "--setting", "cache.mode=on")
        before = server.ledger.calls
        result = run(*command, "-o", tmp_path / "measured")
        asked_again = server.ledger.calls - before
    assert kept.exit_code == result.exit_code == 0, kept.stderr + result.stderr
    shown = json.loads(result.stdout)
    assert asked_again == shown["manifest"]["usage"]["calls"] > 0
    assert [row["not counted"] for row in rows(shown["findings"], "What it took")] == [0, 0, 0, 0]
    assert "gold" not in shown["manifest"]["plan"]["arguments"]


@pytest.mark.parametrize(
    "command",
    [("evaluate",), ("experiment",), ("probe",), ("preflight", "calibrate")],
)
def test_help_has_an_example_that_is_the_command(command: tuple[str, ...], run: Run) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    shown = " ".join(result.stdout.split())
    assert f"epicrisis {' '.join(command).removesuffix(' run')} " in shown.rpartition("Example")[2]
    assert "--library ~/lib" in shown.rpartition("Example")[2]


def test_a_key_document_that_is_missing_ends_it_before_the_first_call(
    run: Run, library: Path, tmp_path: Path, seen: Iterator[Path]
) -> None:
    path = tmp_path / "strange.jsonl"
    path.write_text(json.dumps({**row_of(0), "gold_documents": ["nowhere"]}) + "\n", encoding="utf-8")
    with served(reader(u_curve())) as server:
        model = f"{server.url}#reader"
        result = run("experiment", "positions", "--library", library, "--set", path, "-n", 1, "--model", model, "--yes")
        assert_one_line(result)
        assert "gold documents that the library does not hold" in result.stderr
        assert server.ledger.calls == 0
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)


def test_open_answers_go_by_the_settings_and_no_protocol(
    run: Run, library: Path, tmp_path: Path, seen: Iterator[Path]
) -> None:
    path = tmp_path / "open.jsonl"
    rows = [{"id": str(i), "text": row_of(i)["text"], "gold": "It does."} for i in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with served(reader(lambda place, documents: 1.0)) as server:
        common = ("experiment", "open-ended", "--library", library, "--set", path, "--model", f"{server.url}#reader")
        result = run(*common, "--yes", "--json", "-o", tmp_path / "run")
        by_protocol = run(*common, "--yes", "--protocol", "published")
        by_k = run(*common, "--yes", "-k", 4)
    assert result.exit_code == 0, result.stderr
    shown = json.loads(result.stdout)
    assert "protocol" not in shown["manifest"]["plan"]["arguments"]
    assert not any("Protocol" in note for table in shown["findings"][0]["tables"] for note in table["notes"])
    assert_one_line(by_protocol)
    assert "leave --protocol out" in by_protocol.stderr
    assert_one_line(by_k)
    assert "leave -k out" in by_k.stderr


def test_two_models_have_a_run_each_and_one_set_of_tables(
    run: Run, asked: Path, tmp_path: Path, seen: Iterator[Path]
) -> None:
    """`ensembles` needs no library."""
    with served(reader(u_curve())) as first, served(reader(u_curve())) as second:
        told = run(
            "experiment",
            "ensembles",
            "--set",
            asked,
            "-n",
            3,
            "--arm",
            "chain-of-thought",
            "--arm",
            "self-consistency",
            "--votes",
            2,
            "--model",
            f"{first.url}#one",
            "--also",
            f"{second.url}#two",
            "-o",
            tmp_path / "two",
            "--yes",
            "--json",
        )
    assert told.exit_code == 0, told.stderr
    data = json.loads(told.stdout)
    assert len(data["runs"]) == 2
    assert len({each["folder"] for each in data["runs"]}) == 2
    took = rows(data["findings"], "What it took")
    assert len({each["model"] for each in took}) == 2
    assert {each["arm"] for each in took} == {"chain-of-thought", "self-consistency"}
