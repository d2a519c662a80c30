"""`epicrisis preflight calibrate`, on a small library and on rankings with a known rule."""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from epicrisis.cli.program import app
from epicrisis.core.protocols import Encoder
from epicrisis.core.types import Document, Question
from epicrisis.corpus.readers.question_files import read_questions
from epicrisis.evaluation.experiments.recorded_rankings import DEPTH, QuestionRankings, RankingStore, open_rankers
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.settings.configuration import load_settings
from tests.cli.test_bad_input import assert_one_line

K = 16
N = 60


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["preflight", "calibrate", *map(str, arguments)])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, encoder: Encoder) -> Path:
    path = tmp_path_factory.mktemp("calibrate") / "library"
    with open_or_create(path, encoder, "minilm") as new_library:
        add_documents(
            new_library, [Document(f"d{i}", f"Trial {i} of aspirin and of stroke.") for i in range(K)], encoder
        )
    return path


def write_questions(path: Path, n: int = N, **more: Any) -> Path:
    rows = [
        {
            "id": str(i),
            "text": f"What did trial {i} find?",
            "options": {"A": "yes", "B": "no"},
            "gold": "A",
            "gold_documents": [f"d{i % K}"],
            **more,
        }
        for i in range(n)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_rankings(file: Path, rankings: Path, library: Path, home: Path) -> None:
    """Write rankings in which only the lead of the first dense score shows whether the key document is lost."""
    dice, names = random.Random(5), [f"d{i}#0" for i in range(K)]
    with open_rankers(load_settings({"home": str(home)}), library) as (_, recipe):
        store = RankingStore(rankings, recipe)
        for number, question in enumerate(read_questions(file)):
            assert isinstance(question, Question)
            gold, lost = question.gold_documents[0], number % 3 == 0
            others = [name for name in dice.sample(names, K) if name != f"{gold}#0"]
            place = dice.randrange(4, K) if lost else dice.randrange(3)
            read = [*others[:place], f"{gold}#0", *others[place:]]
            scores = [dice.uniform(0.1, 0.2) if lost else dice.uniform(0.3, 0.4), *(-i / 1000 for i in range(1, K))]
            words = tuple((name, 1.0) for name in dice.sample(names, K))
            store.append_rankings(
                QuestionRankings(
                    key=question.key,
                    dataset=str(file),
                    dense=tuple(zip(read, scores, strict=True)),
                    bm25=words,
                    reranked=None,
                    read=tuple(read),
                    gold=(gold,),
                    held=(gold,),
                )
            )


@pytest.fixture(scope="module")
def calibration_files(tmp_path_factory: pytest.TempPathFactory, library: Path, model_home: Path) -> tuple[Path, Path]:
    """Return a file of questions and a file of their rankings."""
    folder = tmp_path_factory.mktemp("planted")
    file, rankings = write_questions(folder / "own.jsonl"), folder / "rankings.jsonl"
    write_rankings(file, rankings, library, model_home)
    return file, rankings


@pytest.mark.long
@pytest.mark.models
def test_calibrate_prints_lines_for_settings_file(
    calibration_files: tuple[Path, Path], library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    file, rankings = calibration_files
    before = rankings.read_bytes()
    result = run(
        "--library", library, "--file", file, "-o", rankings, "--recall", "0.9", "--usd-per-million-tokens", "1", "4"
    )
    assert result.exit_code == 0, result.stderr
    assert rankings.read_bytes() == before, "recorded questions are not ranked again"
    for word in ("missed where needed", "run where not needed", "papers' rule", "held out", "McNemar", "as given"):
        assert word in result.stdout
    lines = result.stdout[result.stdout.index("[preflight]") :]
    check = tomllib.loads(lines)["preflight"]
    assert check["signal"] == "dense-gap"
    assert 0.1 < check["threshold"] < 0.45
    config = tmp_path / "epicrisis.toml"
    config.write_text(lines, encoding="utf-8")
    assert load_settings(config=config).preflight.model_dump(exclude={"enabled", "rule"}) == check


@pytest.mark.slow
@pytest.mark.models
def test_calibrate_json_reports_errors_and_savings(calibration_files: tuple[Path, Path], library: Path) -> None:
    file, rankings = calibration_files
    result = run(
        "--library",
        library,
        "--file",
        file,
        "-o",
        rankings,
        "--usd-per-million-tokens",
        "1",
        "4",
        "--definition",
        "published",
        "-k",
        K,
        "--setting",
        "partition=4",
        "--json",
    )
    assert result.exit_code == 0, result.stderr
    output = json.loads(result.stdout)
    assert tomllib.loads(output["settings"])["preflight"]["signal"] == output["rule"]["signal"]["kind"] == "dense-gap"
    errors, saving = (
        [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]] for table in output["tables"]
    )
    papers, fitted = errors[0], errors[1]
    for rule in (papers, fitted):
        assert rule["missed where needed"]["n"] == N // 3
        assert rule["run where not needed"]["n"] == N - N // 3
        for name in ("missed where needed", "run where not needed"):
            assert rule[name]["interval"]["low"] <= rule[name]["value"] <= rule[name]["interval"]["high"]
    assert fitted["run where not needed"]["value"] < 0.1 < papers["run where not needed"]["value"]
    always, never = saving[0], saving[-1]
    fitted_row = next(row for row in saving if row["rule"] == "fitted, held out")
    assert [row["calls"] for row in (always, never)] == [5, 1]
    assert fitted_row["skipped"] == fitted["skipped"]["value"]
    assert fitted_row["calls"] == pytest.approx(5 - 4 * fitted_row["skipped"])
    between = (always["input tokens"] - fitted_row["input tokens"]) / (always["input tokens"] - never["input tokens"])
    assert between == pytest.approx(fitted_row["skipped"])
    dollars = "US dollars for 1,000 questions"
    expected = (fitted_row["input tokens"] * 1 + fitted_row["output tokens"] * 4) / 1000
    assert fitted_row[dollars] == pytest.approx(expected, rel=0.001)
    assert fitted_row["US dollars saved"] == pytest.approx(always[dollars] - fitted_row[dollars])


@pytest.mark.slow
@pytest.mark.models
def test_calibrate_with_unreachable_recall_disables_check(
    calibration_files: tuple[Path, Path], library: Path, tmp_path: Path
) -> None:
    """Every signal of one question with the issue has its maximum."""
    file, rankings = calibration_files
    lines = rankings.read_text(encoding="utf-8").splitlines()
    row = json.loads(lines[0])
    ids = [name for name, _ in row["dense"]]
    changed_scores = {"dense": [[name, 9.0 - 8.9 * (i > 0)] for i, name in enumerate(ids)]}
    changed_scores["bm25"] = changed_scores["dense"]
    changed = tmp_path / "rankings.jsonl"
    changed.write_text("\n".join([json.dumps({**row, **changed_scores}), *lines[1:]]) + "\n", encoding="utf-8")
    result = run("--library", library, "--file", file, "-o", changed, "--recall", "1", "--json")
    assert result.exit_code == 0, result.stderr
    output = json.loads(result.stdout)
    assert tomllib.loads(output["settings"]) == {"preflight": {"enabled": False}}
    assert output["rule"]["threshold"] >= 1


@pytest.mark.long
@pytest.mark.models
def test_calibrate_with_guard_reports_rules_without_fitting(
    calibration_files: tuple[Path, Path], library: Path
) -> None:
    file, rankings = calibration_files
    plain = json.loads(run("--library", library, "--file", file, "-o", rankings, "--json").stdout)
    result = run("--library", library, "--file", file, "-o", rankings, "--guard", "source-hidden", "--json")
    assert result.exit_code == 0, result.stderr
    output = json.loads(result.stdout)
    assert output["settings"] == plain["settings"]
    guards = output["tables"][-1]
    rows = [dict(zip(guards["columns"], row, strict=True)) for row in guards["rows"]]
    assert [(row["guard"], row["no key to find"]) for row in rows] == [("none", 0)] * 2 + [("source-hidden", N)] * 2
    hidden = rankings.with_name("rankings-source-hidden.jsonl")
    assert len(hidden.read_text(encoding="utf-8").splitlines()) == N


@pytest.mark.slow
@pytest.mark.models
def test_calibrate_without_gold_documents_reports_one_line(library: Path, tmp_path: Path) -> None:
    file = write_questions(tmp_path / "own.jsonl", 6, gold_documents=["absent"])
    rankings = tmp_path / "deeper" / "rankings.jsonl"
    result = run("--library", library, "--file", file, "-o", rankings)
    assert_one_line(result, "0 questions with the issue and 0 without", "gold documents are in the library")
    rows = [json.loads(line) for line in rankings.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 6
    assert rows[0]["recipe"]["depth"] == DEPTH
    assert len(rows[0]["dense"]) == K
    other = run("--library", library, "--file", file, "-o", rankings, "--setting", "by=bm25")
    assert_one_line(other, "made with other settings (by)")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--file", "BARE"], "names no gold documents"),
        (["--file", "OWN", "--recall", "most"], "--recall most: give a share"),
        (["--file", "OWN", "--recall", "0"], "--recall 0"),
        (["--file", "OWN", "--usd-per-million-tokens", "-1", "1"], "two prices of 0 or more"),
        (["--set", "no-such-set"], "no-such-set is neither a question set"),
        (["--file", "OWN"], "no library"),
    ],
)
def test_calibrate_with_invalid_arguments_reports_one_line(arguments: list[str], word: str, tmp_path: Path) -> None:
    files = {
        "BARE": write_questions(tmp_path / "bare.jsonl", 3, gold_documents=[]),
        "OWN": write_questions(tmp_path / "own.jsonl", 3),
    }
    result = run("--library", tmp_path / "nothing", *(files.get(argument, argument) for argument in arguments))
    assert_one_line(result, word)


def test_calibrate_help_names_definitions() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "epicrisis preflight calibrate --library ~/lib" in " ".join(result.stdout.split())
    for word in ("--recall", "--definition", "--guard", "several-beyond-3", "--json"):
        assert word in result.stdout
