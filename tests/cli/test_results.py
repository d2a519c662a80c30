"""`compare`, `rescore` and `sample-size` on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.run_folders import answers, folder, recipe


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Return a run and a file of answers: 24 and 32 of 40 correct, with another strategy and else the same recipe."""
    return (
        folder(tmp_path / "rag", lambda i, _: i < 24),
        answers(tmp_path / "brief.jsonl", lambda i: i >= 8, made_with=recipe(strategy="brief-context")),
    )


def test_compare_shows_tables_intervals_and_conclusions(runs: tuple[Path, Path], run: Run) -> None:
    result = run("compare", *runs)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "Do these runs differ" in lines[0]
    (row,) = (line for line in lines if line.startswith("brief  rag"))
    assert row.split()[2:] == ["40", "0", "0", "0", "16", "8", "McNemar", "+0.200", "[-0.025,", "+0.425]", "0.15"]
    assert any("├" in line and "●" in line for line in lines)
    assert "brief and rag differ in one thing: strategy." in result.stdout
    assert "No difference between brief and rag was shown: +20 points" in " ".join(lines[-3:])


def test_compare_with_ascii_in_narrow_terminal_fits_and_is_ascii(
    runs: tuple[Path, Path], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = run("compare", *runs, "--ascii")
    assert result.stdout.isascii()
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "|---" in result.stdout


def test_compare_json_has_tables_and_sources(runs: tuple[Path, Path], run: Run) -> None:
    comparison = json.loads(run("compare", *runs, "--measure", "right-of-answered", "--json").stdout)
    assert comparison["experiment"] == "compare"
    assert comparison["tables"][0]["title"] == "The runs"
    assert comparison["sources"][0]["facts"]["questions"]["name"] == "own"
    assert comparison["tables"][-1]["rows"][0][-2]["value"] == 0.2


def test_compare_with_one_run_fails(runs: tuple[Path, Path], run: Run) -> None:
    result = run("compare", runs[0])
    assert result.exit_code == 2
    assert "a comparison needs two or more runs: give the folder of each" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_compare_in_terminal_without_utf8_replaces_characters(
    encoding: str, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    """Run a real process: names with characters outside its encoding do not end it."""
    renamed_run = runs[0].rename(tmp_path / "πρώτο")
    process = subprocess.run(
        [sys.executable, "-m", "epicrisis", "compare", str(renamed_run), str(runs[1])],
        env={**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "90"},
        capture_output=True,
        check=True,
    )
    text = process.stdout.decode(encoding)
    assert ("●" in text) == (encoding == "utf-8")
    assert ("πρώτο" in text) == (encoding == "utf-8")
    assert "+0.200" in text


@pytest.mark.long
@pytest.mark.data
@pytest.mark.parametrize("names_dataset", [True, False])
def test_rescore_of_mirage_replies_reproduces_published_figures(
    names_dataset: bool, data_folder: Path, run: Run
) -> None:
    figures = {"pubmedqa": ("36.00", "36.00"), "bioasq": ("74.27", "74.11")}
    for name, (early, now) in figures.items():
        file = data_folder / "mirage" / f"gpt35_cot_{name}.jsonl"
        dataset = ("--dataset", f"mirage/{name}") if names_dataset else ()
        result = run("rescore", file, *dataset, "--data", data_folder)
        assert result.exit_code == 0, result.stderr
        rows = {line.split()[1]: line for line in result.stdout.splitlines() if line.startswith(f"gpt35_cot_{name}  ")}
        assert f" {early} % [" in rows["mirage-2024"]
        assert f" {now} % [" in rows["mirage-head"]
        assert list(rows) == ["ours", "mirage-2024", "mirage-head"]


@pytest.mark.slow
@pytest.mark.data
def test_rescore_json_with_one_scoring_has_counts(data_folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_DATA", str(data_folder))
    file = data_folder / "mirage" / "gpt35_cot_bioasq.jsonl"
    (data,) = json.loads(run("rescore", file, "--scoring", "mirage-2024", "--json").stdout)
    (score,) = data["scores"]
    assert (score["right"], score["n"], score["by_default"]) == (459, 618, 3)


def test_rescore_of_own_run_shows_its_accuracy(runs: tuple[Path, Path], run: Run) -> None:
    result = run("rescore", *runs)
    assert result.exit_code == 0, result.stderr
    assert "60.00 % [" in result.stdout
    assert "record the letter that was read" in result.stdout
    rejected = run("rescore", runs[0], "--dataset", "mirage/bioasq")
    assert (rejected.exit_code, "leave --dataset out" in rejected.stderr) == (2, True)


def test_sample_size_shows_needed_and_detectable(run: Run) -> None:
    result = run("sample-size", "--difference", 5, "--comparisons", 5, "--available", 105)
    assert result.exit_code == 0, result.stderr
    sentences = " ".join(result.stdout.split())
    assert "932 questions are needed" in sentences
    assert sentences.endswith("the smallest difference found at this power is 14.7 points.")
    data = json.loads(run("sample-size", "--available", 3, "--json").stdout)
    assert (data["questions"], data["smallest"]) == (626, None)
    impossible = run("sample-size", "--difference", 30)
    assert (impossible.exit_code, "discordant" in impossible.stderr) == (2, True)
