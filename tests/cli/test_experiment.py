"""`epicrisis experiment`, `probe` and `evaluate` over a real library, with a simulated reader at a real endpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.test_bad_input import assert_one_line
from tests.support.position_biased_reader import KeyPassage, PositionCurve, position_biased_reader, u_curve
from tests.support.served_models import served

pytestmark = pytest.mark.models

N = 24
TOPICS = ("gout", "asthma", "anaemia", "measles", "scurvy", "rickets", "eczema", "migraine")


def document_text(i: int) -> str:
    return f"Trial number {i} of {TOPICS[i % 8]} found the answer on drug {i}x and tells it here in one sentence."


def question_row(i: int) -> dict[str, Any]:
    return {
        "id": str(i),
        "text": f"Does drug {i}x help in {TOPICS[i % 8]}, as trial number {i} found?",
        "options": ["yes", "no", "maybe"],
        "gold": "ABC"[i % 3],
        "gold_documents": [f"d{i}"],
    }


@pytest.fixture(scope="module")
def question_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of questions with their key documents in the library."""
    path = tmp_path_factory.mktemp("set") / "asked.jsonl"
    path.write_text("".join(json.dumps(question_row(i)) + "\n" for i in range(N)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, model_home: Path) -> Path:
    from typer.testing import CliRunner

    from epicrisis.cli.program import app

    folder = tmp_path_factory.mktemp("lib")
    rows = [{"id": f"d{i}", "text": document_text(i), "date": f"{2000 + i % 20}"} for i in range(N)]
    rows += [{"id": f"o{i}", "text": f"Study {i} saw {TOPICS[i % 8]} in {i + 3} towns."} for i in range(N)]
    (folder / "papers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = CliRunner().invoke(app, ["library", "add", str(folder / "library"), str(folder / "papers.jsonl")])
    assert result.exit_code == 0, result.stderr
    return folder / "library"


@pytest.fixture(autouse=True)
def _working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run each test in its own folder, without cached replies of other tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "off")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "100000")


def make_reader(curve: PositionCurve) -> Any:
    return position_biased_reader(
        {question_row(i)["text"]: KeyPassage(document_text(i), question_row(i)["gold"]) for i in range(N)}, curve
    )


def table_rows(findings: list[dict[str, Any]], title: str) -> list[dict[str, Any]]:
    tables = [table for finding in findings for table in finding["tables"]]
    (table,) = [table for table in tables if table["title"] == title]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


@pytest.mark.long
def test_positions_shows_accuracy_by_place_and_repeats_no_call(
    run: Run, library: Path, question_file: Path, tmp_path: Path
) -> None:
    """The reader sees only the ends: RAG is correct only there, BriefContext with parts of two everywhere."""
    with served(make_reader(lambda place, documents: float(place in (0, documents - 1)))) as server:
        command = (
            "experiment",
            "positions",
            "--library",
            library,
            "--set",
            question_file,
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
    position_rows = table_rows(shown["findings"], "Accuracy by the place of the key document (percentile)")
    shares = {(row["arm"], row["place"]): row["share right"]["value"] for row in position_rows}
    assert [shares["rag", place] for place in (0, 50, 100)] == [1.0, 0.0, 1.0]
    assert shown["manifest"]["complete"] is True
    assert [entry["experiment"] for entry in shown["findings"]] == ["positions", "conflicts", "cost"]
    for first, second in zip(shown["findings"], json.loads(again.stdout)["findings"], strict=True):
        assert first["tables"] == second["tables"]


@pytest.mark.long
def test_attention_bias_shows_tables_and_folder_of_the_run(
    run: Run, library: Path, question_file: Path, tmp_path: Path
) -> None:
    with served(make_reader(u_curve())) as server:
        result = run(
            "experiment",
            "attention-bias",
            "--library",
            library,
            "--set",
            question_file,
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


@pytest.mark.long
def test_probe_answers_both_questions(run: Run, library: Path, question_file: Path, tmp_path: Path) -> None:
    with served(make_reader(lambda place, documents: float(documents <= 4 or place in (0, documents - 1)))) as server:
        result = run(
            "probe",
            "--library",
            library,
            "--set",
            question_file,
            "-n",
            N,
            "-k",
            8,
            "--model",
            f"{server.url}#reader",
            "--yes",
        )
    assert result.exit_code == 0, result.stderr
    assert "Yes: at the ends it is right more often than in the middle" in " ".join(result.stdout.split())
    assert "Yes, it answers better" in " ".join(result.stdout.split())


@pytest.mark.long
def test_evaluate_scores_set_and_leak_guard_hides_source_documents(
    run: Run, library: Path, question_file: Path, tmp_path: Path
) -> None:
    with served(make_reader(lambda place, documents: 1.0)) as server:
        model = f"{server.url}#reader"
        common = ("--library", library, "--strategy", "rag", "--model", model, "--yes", "--json", "-k", 8)
        plain = run("evaluate", question_file, *common, "-o", tmp_path / "plain")
        hidden = run("evaluate", question_file, *common, "-o", tmp_path / "hidden", "--leak-guard", "source-hidden")
        other_guard = run("evaluate", question_file, *common, "-o", tmp_path / "plain", "--leak-guard", "source-hidden")
        undated = run("evaluate", question_file, *common, "-o", tmp_path / "before", "--leak-guard", "before-source")
        scope = ("--setting", "scope.types=Review", "--setting", "scope.journals=Gut")
        narrowed = json.loads(run("evaluate", question_file, *common, "-o", tmp_path / "narrowed", *scope).stdout)[
            "manifest"
        ]
    assert plain.exit_code == hidden.exit_code == 0, plain.stderr + hidden.stderr
    assert json.loads(plain.stdout)["manifest"]["states"].get("answered", 0) > N / 2
    assert json.loads(hidden.stdout)["manifest"]["states"] == {"abstained": N}
    assert undated.exit_code == 0, undated.stderr
    recorded_scope = narrowed["plan"]["recipe"]["settings"]["scope"]
    assert (recorded_scope["types"], recorded_scope["journals"]) == (["Review"], ["Gut"])
    assert narrowed["states"] == {"abstained": N}, "no document of the library is a review"
    assert_one_line(other_guard)
    assert "holds another run, which differs in arguments (guard)" in other_guard.stderr


@pytest.mark.long
def test_experiment_with_invalid_arguments_reports_one_line(run: Run, library: Path, question_file: Path) -> None:
    common = ("--library", library, "--set", question_file, "--model", "http://127.0.0.1:9/v1#m", "--yes")
    for arguments, message in (
        (("experiment", "nonsense", *common), "no experiment is called nonsense: known are positions"),
        (("experiment", "positions", *common, "-n", 999), "has 24 questions"),
        (("experiment", "positions", *common, "-n", 5, "--arm", "magic"), "no arm is called magic"),
        (("experiment", "positions", *common, "-n", 5, "--arm", "reranked"), "needs a reranker"),
        (("experiment", "positions", "--set", question_file, "-n", 5), "give one with --library"),
        (("evaluate", "mirage/nothing", "--library", library), "is neither a question set"),
    ):
        result = run(*arguments)
        assert_one_line(result)
        assert message in result.stderr


def test_experiment_names_match_the_registry() -> None:
    from epicrisis.evaluation.experiments.registry import NAMES, load_experiments

    assert {*NAMES} == {*load_experiments()}


def test_experiment_with_unused_options_is_refused(
    run: Run, library: Path, question_file: Path, tmp_path: Path
) -> None:
    common = ("--library", library, "--set", question_file)
    ranked = run("experiment", "preflight", *common, "-n", 5, "--protocol", "corrected")
    assert_one_line(ranked, "asks no model: of the options on what is compared, use only --set and --reranker")
    cloze = run("experiment", "preflight", "--library", library, "--set", "cloze")
    assert_one_line(cloze, "cloze makes questions from sentences of the library", "choose another set, or a file")
    assert_one_line(
        run("experiment", "cost", *common, "--reranker", "medcpt"),
        "--reranker is for the arm `reranked`: add --arm reranked",
    )
    assert_one_line(run("experiment", "open-ended", *common, "--repeats", 2), "leave --repeats out")
    assert_one_line(
        run("evaluate", question_file), "the strategy brief-context reads a library: give one with --library"
    )
    foreign_folder = run("experiment", "preflight", *common, "-o", library)
    assert_one_line(foreign_folder, "contains other files", "choose an empty or new folder")
    assert not list(library.glob("rankings*"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_evaluate_with_empty_library_reports_one_line(run: Run, question_file: Path, tmp_path: Path) -> None:
    document = tmp_path / "papers.jsonl"
    document.write_text(json.dumps({"id": "d0", "text": document_text(0)}) + "\n", encoding="utf-8")
    assert run("library", "add", tmp_path / "empty", document).exit_code == 0
    assert run("library", "delete", tmp_path / "empty", "d0").exit_code == 0
    refused = run("evaluate", question_file, "--library", tmp_path / "empty", "--model", "http://127.0.0.1:9/v1#m")
    assert_one_line(refused, "empty contains no document: add some with `epicrisis library add")


@pytest.mark.long
def test_preflight_experiment_repeated_continues_in_its_folder(
    run: Run, library: Path, question_file: Path, tmp_path: Path
) -> None:
    command = (
        "experiment",
        "preflight",
        "--library",
        library,
        "--set",
        question_file,
        "-o",
        tmp_path / "ranked",
        "--json",
    )
    first, again = run(*command), run(*command)
    assert first.exit_code == again.exit_code == 0, first.stderr + again.stderr
    assert json.loads(first.stdout) == json.loads(again.stdout)


@pytest.mark.long
def test_evaluate_without_confirmation_creates_no_folder(
    run: Run, library: Path, question_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__PRICE", '{"input": 5000, "output": 5000}')
    with served(make_reader(u_curve())) as server:
        common = (
            "evaluate",
            question_file,
            "--library",
            library,
            "--strategy",
            "rag",
            "--model",
            f"{server.url}#reader",
        )
        refused = run(*common, "-o", tmp_path / "run", "-k", 8)
        assert_one_line(refused, "are expected to cost $", "): add --yes to run it")
        assert not (tmp_path / "run").exists()
        assert server.ledger.calls == 0
        other = run(*common, "-o", tmp_path / "run", "-k", 4, "--yes")
        assert other.exit_code == 0, other.stderr
        assert_one_line(run(*common, "-o", tmp_path / "run", "-k", 8, "--yes"), "holds another run")


@pytest.mark.long
def test_cost_experiment_ignores_cached_replies(
    run: Run, library: Path, question_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "on")
    with served(make_reader(lambda place, documents: 1.0)) as server:
        common = ("experiment", "cost", "--library", library, "--set", question_file, "-n", 3, "-k", 8)
        command = (*common, "--model", f"{server.url}#reader", "--json")
        cached = run(*command, "-o", tmp_path / "kept", "--setting", "cache.mode=on")
        before = server.ledger.calls
        result = run(*command, "-o", tmp_path / "measured")
        repeated_calls = server.ledger.calls - before
    assert cached.exit_code == result.exit_code == 0, cached.stderr + result.stderr
    shown = json.loads(result.stdout)
    assert repeated_calls == shown["manifest"]["usage"]["calls"] > 0
    assert [row["not counted"] for row in table_rows(shown["findings"], "What it took")] == [0, 0, 0, 0]
    assert "gold" not in shown["manifest"]["plan"]["arguments"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [("evaluate",), ("experiment",), ("probe",), ("preflight", "calibrate")],
)
def test_help_has_an_example_with_a_library(command: tuple[str, ...], run: Run) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    shown = " ".join(result.stdout.split())
    assert f"epicrisis {' '.join(command).removesuffix(' run')} " in shown.rpartition("Example")[2]
    assert "--library ~/lib" in shown.rpartition("Example")[2]


@pytest.mark.slow
def test_positions_with_missing_gold_document_fails_before_first_call(run: Run, library: Path, tmp_path: Path) -> None:
    path = tmp_path / "strange.jsonl"
    path.write_text(json.dumps({**question_row(0), "gold_documents": ["nowhere"]}) + "\n", encoding="utf-8")
    with served(make_reader(u_curve())) as server:
        model = f"{server.url}#reader"
        result = run("experiment", "positions", "--library", library, "--set", path, "-n", 1, "--model", model, "--yes")
        assert_one_line(result)
        assert "gold documents that the library does not hold" in result.stderr
        assert server.ledger.calls == 0
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)


@pytest.mark.long
def test_open_ended_experiment_refuses_protocol_and_k(run: Run, library: Path, tmp_path: Path) -> None:
    path = tmp_path / "open.jsonl"
    rows = [{"id": str(i), "text": question_row(i)["text"], "gold": "It does."} for i in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with served(make_reader(lambda place, documents: 1.0)) as server:
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


@pytest.mark.slow
def test_ensembles_with_two_models_share_tables(run: Run, question_file: Path, tmp_path: Path) -> None:
    """The experiment `ensembles` needs no library."""
    with served(make_reader(u_curve())) as first, served(make_reader(u_curve())) as second:
        combined = run(
            "experiment",
            "ensembles",
            "--set",
            question_file,
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
    assert combined.exit_code == 0, combined.stderr
    data = json.loads(combined.stdout)
    assert len(data["runs"]) == 2
    assert len({entry["folder"] for entry in data["runs"]}) == 2
    cost_rows = table_rows(data["findings"], "What it took")
    assert len({entry["model"] for entry in cost_rows}) == 2
    assert {entry["arm"] for entry in cost_rows} == {"chain-of-thought", "self-consistency"}


@pytest.mark.parametrize(
    "command",
    [
        ("experiment", "ensembles", "--arm", "zero-shot", "--arm", "chain-of-thought", "-n", 3, "--set"),
        ("evaluate", "--strategy", "zero-shot"),
        ("ask", "LIBRARY", "--strategy", "zero-shot", "--file"),
    ],
    ids=["experiment", "evaluate", "ask"],
)
def test_zero_shot_without_log_probabilities_ends_before_the_first_case(
    run: Run, library: Path, question_file: Path, tmp_path: Path, command: tuple[object, ...]
) -> None:
    output = tmp_path / "output"
    words = [library if word == "LIBRARY" else word for word in command]
    with served(make_reader(u_curve())) as server:
        result = run(*words, question_file, "--model", f"{server.url}#plain", "-o", output, "--yes")
        assert server.ledger.calls == 1
    assert result.exit_code == 2
    assert_one_line(result)
    assert "zero-shot cannot be asked: the model at" in result.stderr
    assert "reports no token probabilities" in result.stderr
    assert not output.exists()


def focused_command(folder: Path, model: str, *options: object) -> tuple[object, ...]:
    arms: list[object] = []
    for arm in ("rag", "brief-context", "focused", "rotations"):
        arms += ["--arm", arm]
    fixed = ("--prompt-tokens", 2000, "--model", model, "--yes", "-o", folder, "--json")
    return ("experiment", "focused", *arms, *fixed, *options)


@pytest.mark.long
def test_focused_compares_arms_at_equal_tokens_and_repeats_no_call(
    run: Run, library: Path, question_file: Path, tmp_path: Path
) -> None:
    with served(make_reader(lambda place, documents: 1.0)) as server:
        command = focused_command(
            tmp_path / "run", f"{server.url}#reader", "--library", library, "--set", question_file, "-n", 8
        )
        result = run(*command)
        assert result.exit_code == 0, result.stderr
        calls = server.ledger.calls
        again = run(*command)
        assert server.ledger.calls == calls, "a finished run asks nothing"
    shown = json.loads(result.stdout)
    accuracy = table_rows(shown["findings"], f"Accuracy at equal tokens: {question_file.name}")
    assert [row["arm"] for row in accuracy] == ["rag", "rotations", "brief-context", "focused"]
    for row in accuracy:
        assert row["prompt tokens"] == 2000
        assert row["above the limit"] == 0
        assert 0 < row["spent"]["value"] <= 2000
    (frontier,) = [table for table in shown["findings"][0]["tables"] if table["title"].startswith("Accuracy and cost")]
    assert "yes" in [row[frontier["columns"].index("on the frontier")] for row in frontier["rows"]]
    assert shown["findings"][0]["tables"] == json.loads(again.stdout)["findings"][0]["tables"]


@pytest.mark.slow
def test_focused_without_library_refuses_sets_without_documents(
    run: Run, library: Path, question_file: Path, tmp_path: Path
) -> None:
    with served(make_reader(u_curve())) as server:
        model = f"{server.url}#reader"
        missing = run(*focused_command(tmp_path / "run", model, "--set", "med-evidence", "--data", tmp_path))
        assert_one_line(missing, "build it from https://github.com/zy-f/med-evidence", "--data")
        without = run(*focused_command(tmp_path / "run", model, "--set", question_file, "-n", 1))
        assert_one_line(without, "brings no documents: give a library that holds them with --library")
        other = run("experiment", "positions", "--library", library, "--prompt-tokens", 2000, "--model", model)
        assert_one_line(other, "positions does not vary that: leave --prompt-tokens out")
        assert server.ledger.calls == 0


@pytest.mark.long
def test_focused_without_library_makes_one_of_the_documents_of_its_set(
    run: Run, data_folder: Path, tmp_path: Path
) -> None:
    with served(make_reader(u_curve())) as server:
        options = ("--set", "med-evidence", "--data", data_folder, "-n", 2)
        result = run(*focused_command(tmp_path / "run", f"{server.url}#reader", *options))
        assert result.exit_code == 0, result.stderr
        (made,) = (tmp_path / "runs").iterdir()
        assert made.name == "library-med-evidence-minilm"
        assert "166 documents" in result.stderr
        calls = server.ledger.calls
        again = run(*focused_command(tmp_path / "run", f"{server.url}#reader", *options))
        assert server.ledger.calls == calls > 0
        assert "166 documents" not in again.stderr
