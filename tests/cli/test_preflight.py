"""`epicrisis preflight calibrate` as a user meets it, on a small library and on rankings whose rule is known."""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from epicrisis.cli.app import app
from epicrisis.configuration import load_settings
from epicrisis.corpus.questions import read_questions
from epicrisis.evaluation.experiments.recorded_rankings import DEPTH, QuestionRankings, RankingStore, open_rankers
from epicrisis.library.ingest import add_documents, open_or_create
from epicrisis.protocols import Encoder
from epicrisis.types import Document, Question
from tests.cli.test_bad_input import assert_one_line

K = 16
N = 60


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["preflight", "calibrate", *map(str, arguments)])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, encoder: Encoder) -> Path:
    path = tmp_path_factory.mktemp("calibrate") / "library"
    with open_or_create(path, encoder, "minilm") as made:
        add_documents(made, [Document(f"d{i}", f"Trial {i} of aspirin and of stroke.") for i in range(K)], encoder)
    return path


def written(path: Path, n: int = N, **more: Any) -> Path:
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


def planted(file: Path, rankings: Path, library: Path, home: Path) -> None:
    """Rankings in which the lead of the first dense score, and nothing else, tells where the key document is lost."""
    dice, names = random.Random(5), [f"d{i}#0" for i in range(K)]
    with open_rankers(load_settings({"home": str(home)}), library) as (_, recipe):
        kept = RankingStore(rankings, recipe)
        for number, question in enumerate(read_questions(file)):
            assert isinstance(question, Question)
            gold, lost = question.gold_documents[0], number % 3 == 0
            others = [name for name in dice.sample(names, K) if name != f"{gold}#0"]
            place = dice.randrange(4, K) if lost else dice.randrange(3)
            read = [*others[:place], f"{gold}#0", *others[place:]]
            scores = [dice.uniform(0.1, 0.2) if lost else dice.uniform(0.3, 0.4), *(-i / 1000 for i in range(1, K))]
            words = tuple((name, 1.0) for name in dice.sample(names, K))
            kept.append_rankings(
                QuestionRankings(
                    question.key,
                    str(file),
                    tuple(zip(read, scores, strict=True)),
                    words,
                    None,
                    tuple(read),
                    (gold,),
                    (gold,),
                )
            )


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory, library: Path, model_home: Path) -> tuple[Path, Path]:
    """The file of questions and that of their rankings."""
    folder = tmp_path_factory.mktemp("planted")
    file, rankings = written(folder / "own.jsonl"), folder / "rankings.jsonl"
    planted(file, rankings, library, model_home)
    return file, rankings


@pytest.mark.models
def test_it_ends_with_the_lines_for_the_settings_file(
    asked: tuple[Path, Path], library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    file, rankings = asked
    before = rankings.read_bytes()
    said = run(
        "--library", library, "--file", file, "-o", rankings, "--recall", "0.9", "--usd-per-million-tokens", "1", "4"
    )
    assert said.exit_code == 0, said.stderr
    assert rankings.read_bytes() == before, "what is recorded is not ranked again"
    for word in ("missed where needed", "run where not needed", "papers' rule", "held out", "McNemar", "as given"):
        assert word in said.stdout
    lines = said.stdout[said.stdout.index("[preflight]") :]
    check = tomllib.loads(lines)["preflight"]
    assert check["signal"] == "dense-gap"
    assert 0.1 < check["threshold"] < 0.45
    config = tmp_path / "epicrisis.toml"
    config.write_text(lines, encoding="utf-8")
    assert load_settings(config=config).preflight.model_dump(exclude={"enabled", "rule"}) == check


@pytest.mark.models
def test_json_has_both_errors_and_what_is_saved(asked: tuple[Path, Path], library: Path) -> None:
    file, rankings = asked
    said = run(
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
    assert said.exit_code == 0, said.stderr
    told = json.loads(said.stdout)
    assert tomllib.loads(told["settings"])["preflight"]["signal"] == told["rule"]["signal"]["kind"] == "dense-gap"
    errors, saving = (
        [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]] for table in told["tables"]
    )
    papers, fitted = errors[0], errors[1]
    for each in (papers, fitted):
        assert each["missed where needed"]["n"] == N // 3
        assert each["run where not needed"]["n"] == N - N // 3
        for name in ("missed where needed", "run where not needed"):
            assert each[name]["interval"]["low"] <= each[name]["value"] <= each[name]["interval"]["high"]
    assert fitted["run where not needed"]["value"] < 0.1 < papers["run where not needed"]["value"]
    always, never = saving[0], saving[-1]
    mine = next(row for row in saving if row["rule"] == "fitted, held out")
    assert [row["calls"] for row in (always, never)] == [5, 1]
    assert mine["skipped"] == fitted["skipped"]["value"]
    assert mine["calls"] == pytest.approx(5 - 4 * mine["skipped"])
    between = (always["input tokens"] - mine["input tokens"]) / (always["input tokens"] - never["input tokens"])
    assert between == pytest.approx(mine["skipped"])
    dollars = "US dollars for 1,000 questions"
    expected = (mine["input tokens"] * 1 + mine["output tokens"] * 4) / 1000
    assert mine[dollars] == pytest.approx(expected, rel=0.001)
    assert mine["US dollars saved"] == pytest.approx(always[dollars] - mine[dollars])


@pytest.mark.models
def test_a_recall_that_leaves_nothing_to_skip(asked: tuple[Path, Path], library: Path, tmp_path: Path) -> None:
    """One question with the issue whose every signal is at its height."""
    file, rankings = asked
    lines = rankings.read_text(encoding="utf-8").splitlines()
    row = json.loads(lines[0])
    ids = [name for name, _ in row["dense"]]
    sure = {"dense": [[name, 9.0 - 8.9 * (i > 0)] for i, name in enumerate(ids)]}
    sure["bm25"] = sure["dense"]
    changed = tmp_path / "rankings.jsonl"
    changed.write_text("\n".join([json.dumps({**row, **sure}), *lines[1:]]) + "\n", encoding="utf-8")
    said = run("--library", library, "--file", file, "-o", changed, "--recall", "1", "--json")
    assert said.exit_code == 0, said.stderr
    told = json.loads(said.stdout)
    assert tomllib.loads(told["settings"]) == {"preflight": {"enabled": False}}
    assert told["rule"]["threshold"] >= 1


@pytest.mark.models
def test_under_a_guard_the_rules_are_told_and_not_fitted(asked: tuple[Path, Path], library: Path) -> None:
    file, rankings = asked
    plain = json.loads(run("--library", library, "--file", file, "-o", rankings, "--json").stdout)
    said = run("--library", library, "--file", file, "-o", rankings, "--guard", "source-hidden", "--json")
    assert said.exit_code == 0, said.stderr
    told = json.loads(said.stdout)
    assert told["settings"] == plain["settings"]
    guards = told["tables"][-1]
    rows = [dict(zip(guards["columns"], row, strict=True)) for row in guards["rows"]]
    assert [(row["guard"], row["no key to find"]) for row in rows] == [("none", 0)] * 2 + [("source-hidden", N)] * 2
    hidden = rankings.with_name("rankings-source-hidden.jsonl")
    assert len(hidden.read_text(encoding="utf-8").splitlines()) == N


@pytest.mark.models
def test_it_ranks_what_is_not_recorded_and_says_what_is_missing(library: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "own.jsonl", 6, gold_documents=["absent"])
    rankings = tmp_path / "deeper" / "rankings.jsonl"
    said = run("--library", library, "--file", file, "-o", rankings)
    assert_one_line(said, "0 questions with the issue and 0 without", "gold documents the library holds")
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
def test_what_is_wrong_is_said_in_one_line(arguments: list[str], word: str, tmp_path: Path) -> None:
    files = {"BARE": written(tmp_path / "bare.jsonl", 3, gold_documents=[]), "OWN": written(tmp_path / "own.jsonl", 3)}
    said = run("--library", tmp_path / "nothing", *(files.get(each, each) for each in arguments))
    assert_one_line(said, word)


def test_help_names_the_ways_to_define_the_issue() -> None:
    said = run("--help")
    assert said.exit_code == 0
    assert "epicrisis preflight calibrate --library ~/lib" in " ".join(said.stdout.split())
    for word in ("--recall", "--definition", "--guard", "several-beyond-3", "--json"):
        assert word in said.stdout
