"""`epicrisis report`: the page, its JSON, and refusals."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from selectolax.lexbor import LexborHTMLParser

from epicrisis.core.errors import StorageError
from epicrisis.report import saved_answers
from tests.cli.conftest import Run
from tests.support.run_folders import answers, folder, recipe


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return two plain runs, and an experiment that was interrupted."""
    parent = tmp_path_factory.mktemp("runs")
    conditions = [
        {"arm": arm, "k": 8, "place": place, "repeat": 0} for arm in ("rag", "brief-context") for place in (0, 50, 100)
    ]
    return (
        folder(parent / "rag", lambda i, _: i < 24),
        answers(parent / "brief.jsonl", lambda i: i >= 8, made_with=recipe(strategy="brief-context")),
        folder(
            parent / "positions",
            lambda i, at: i % 2 == 0 or at["place"] != 50,
            conditions=conditions,
            name="positions",
            arguments={"protocol": "corrected"},
            unasked=6,
        ),
    )


@pytest.mark.long
def test_report_of_runs_writes_one_page(runs: tuple[Path, ...], run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = run("report", *runs, "-o", page, "--title", "Mine")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"2 experiments written to {page}\n"
    tree = LexborHTMLParser(page.read_text(encoding="utf-8"))
    assert [node.text() for node in tree.css("h1, h2")] == ["Mine", "Compare", "Positions"]
    assert [node.text() for node in tree.css(".unfinished")] == [
        "Not finished: qwen. The tables show the cases recorded so far."
    ]
    assert len(tree.css(".chart")) > 3
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.slow
def test_report_overwrites_only_its_own_page(runs: tuple[Path, ...], run: Run, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run("report", runs[0], "-o", page, "--no-plots").exit_code == 0
    before = page.read_bytes()
    assert b"<svg" not in before
    assert run("report", runs[0], "-o", page, "--no-plots").exit_code == 0
    assert page.read_bytes() == before
    records = runs[0] / "records.jsonl"
    content = records.read_bytes()
    result = run("report", runs[0], "-o", records)
    assert result.exit_code == 2
    assert result.stderr == f"epicrisis: {records} exists and is not a report of this program: choose another file\n"
    assert records.read_bytes() == content


@pytest.mark.slow
def test_report_as_json_has_findings(runs: tuple[Path, ...], run: Run) -> None:
    result = run("report", runs[2], "--json")
    assert result.exit_code == 0, result.stderr
    (findings,) = json.loads(result.stdout)
    assert findings["experiment"] == "positions"
    assert findings["sources"][0]["complete"] is False
    assert "NaN" not in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{run}"], "give the file of the page with -o report.html, or add --json"),
        (["{none}", "-o", "{page}"], "give the folder of a run"),
        (["{run}", "-o", "{none}/report.html"], "is not a folder"),
        (["{run}", "-o", "{run}"], "is not a report of this program"),
    ],
)
def test_report_with_invalid_output_reports_one_line(
    arguments: list[str], message: str, runs: tuple[Path, ...], run: Run, tmp_path: Path
) -> None:
    paths = {"run": runs[0], "none": tmp_path / "none", "page": tmp_path / "report.html"}
    result = run("report", *(argument.format(**paths) for argument in arguments))
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_write_page_is_readable_by_owner_only(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    before = os.umask(0)
    try:
        for text in ("old", "new"):
            page.touch()
            page.chmod(0o644)
            saved_answers.write_private_text(page, text)
            assert stat.S_IMODE(page.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_write_page_on_full_disk_leaves_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "report.html"
    page.write_text("old")

    def fail_to_sync(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail_to_sync)
    with pytest.raises(StorageError, match="No space left"):
        saved_answers.write_private_text(page, "new")
    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]


def test_report_help_shows_example(run: Run) -> None:
    result = run("report", "--help")
    assert result.exit_code == 0
    assert "epicrisis report runs/positions -o report.html" in result.stdout
