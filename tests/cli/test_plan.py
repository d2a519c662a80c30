"""`epicrisis plan`: a table that fits 80 columns, JSON, and errors in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.test_bad_input import assert_one_line

STRATEGIES = ["brief-context", "rag", "closed-book", "chain-of-thought"]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Write three questions, one of them with options."""
    rows: list[dict[str, Any]] = [
        {"text": "Does aspirin lower the risk of preterm pre-eclampsia?", "options": {"A": "yes", "B": "no"}},
        {"text": "What does simvastatin do to mortality in coronary disease?"},
        {"text": "Does zinc shorten acute diarrhoea in children?"},
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.slow
def test_plan_help_shows_example(run: Run) -> None:
    result = run("plan", "--help")
    assert result.exit_code == 0
    assert "epicrisis plan ~/lib --file questions.jsonl" in " ".join(result.stdout.split())
    for option in ("--strategy", "--sample", "--time", "--json"):
        assert option in result.stdout


@pytest.mark.long
@pytest.mark.models
def test_plan_of_all_strategies_fits_80_columns(
    small_library: Path, questions: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = run("plan", small_library, "--file", questions, "-k", 3)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "3 questions on smollm2-135m"
    assert [line.split()[0] for line in lines if "least " in line and line[0] != " "][:4] == STRATEGIES
    for word in ("expected", "most", "none", "(--time)", "Not included: retries"):
        assert word in result.stdout
    whole = " ".join(result.stdout.split())
    assert "Prompt tokens are exact for" in whole
    assert "…" not in result.stdout


@pytest.mark.long
@pytest.mark.models
def test_plan_of_sample_warns_about_skipped_line(tmp_path: Path, questions: Path, run: Run, model_home: Path) -> None:
    with questions.open("a", encoding="utf-8") as file:
        file.write("no JSON\n")
    result = run("plan", tmp_path, "--file", questions, "--strategy", "closed-book", "--sample", 2)
    assert result.exit_code == 0, result.stderr
    first, last = (line for line in result.stderr.splitlines() if line.startswith("warning: "))
    assert first.startswith(f"warning: {questions}, line 4: ")
    assert last == f"warning: 1 line of {questions} was skipped, as listed above"
    assert "3 questions on" in result.stdout
    assert "Planned from a random sample of 2 of 3 questions" in result.stdout
    assert "exact" not in result.stdout


@pytest.mark.long
@pytest.mark.models
def test_plan_of_one_question_as_json(small_library: Path, run: Run) -> None:
    question = ("Does aspirin lower the risk of preterm pre-eclampsia?", "--options", "yes,no")
    result = run("plan", small_library, *question, "--strategy", "rag", "--strategy", "closed-book", "-k", 2, "--json")
    assert result.exit_code == 0, result.stderr
    plan = json.loads(result.stdout)
    assert (plan["questions"], plan["planned"], plan["models"]) == (1, 1, ["smollm2-135m"])
    assert [row["strategy"] for row in plan["strategies"]] == ["rag", "closed-book"]
    for row in plan["strategies"]:
        assert row["exact"]
        assert row["calls"] == {"least": 1, "expected": 1, "most": 1, "margin": 0.0}
        assert row["usd"]["most"] == 0
        assert row["seconds"] is None
    assert plan["strategies"][0]["prompt_tokens"]["most"] > plan["strategies"][1]["prompt_tokens"]["most"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "give either a question, or --file"),
        (["Why?", "--file", "QUESTIONS"], "give either a question, or --file"),
        (["--file", "QUESTIONS", "--options", "yes,no"], "--options"),
        (["--file", "none.jsonl"], "none.jsonl"),
        (["--file", "EMPTY"], "contains no readable question"),
        (["--file", "QUESTIONS", "--strategy", "closed-book", "--sample", "1"], "--sample"),
        (["Why?"], "library"),
        (["Why?", "--strategy", "oracle"], "no strategy is called oracle: known are brief-context"),
        (["Why?", "--strategy", "closed-book", "--model", "no-such-model"], "no-such-model"),
        (["Why?", "--strategy", "closed-book", "--model", "http://127.0.0.1:1/v1#m"], "127.0.0.1:1"),
        ([" "], "empty"),
        (["Why?", "-k", "0"], "k"),
    ],
)
@pytest.mark.models
def test_plan_with_invalid_arguments_reports_one_line(
    arguments: list[str],
    word: str,
    questions: Path,
    tmp_path: Path,
    run: Run,
    model_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__TRIES", "1")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("{}\n", encoding="utf-8")
    files = {"QUESTIONS": str(questions), "EMPTY": str(empty)}
    assert_one_line(run("plan", tmp_path / "nothing", *(files.get(argument, argument) for argument in arguments)), word)
