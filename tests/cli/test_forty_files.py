"""Forty files of many kinds added at once: what is read, what is refused, and with which line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.forty_files import READ, REFUSED, write_forty_files

KINDS = 15


@pytest.mark.long
@pytest.mark.models
def test_forty_files_are_read_or_refused_with_a_line(tmp_path: Path, run: Run, model_home: Path) -> None:
    folder, library = tmp_path / "files", tmp_path / "library"
    write_forty_files(folder)
    files = sorted(folder.iterdir())
    assert len(files) >= 40
    assert len({path.name.partition(".")[2] for path in files}) >= KINDS
    result = run("library", "add", library, folder)
    assert result.exit_code == 0, result.stderr
    skipped = [json.loads(line) for line in (library / "skipped.jsonl").read_text().splitlines()]
    reasons = {Path(item["path"]).name: item["reason"] for item in skipped}
    assert set(reasons) == set(REFUSED)
    assert len(files) - len(REFUSED) == READ
    for name, reason in REFUSED.items():
        assert reason in reasons[name], name
        assert reason in result.stderr, "the summary has a line for each reason"
    for line in (
        "2 files read as cp1252, not as UTF-8",
        "1 page without text: ",
        "2 pieces of hidden text left out",
        "1 reference without an abstract and a PDF beside it",
    ):
        assert f"note: {line}" in result.stderr
    assert "running-line" in result.stdout
    shown = json.loads(run("library", "show", library, "file:m.pdf", "--json").stdout)
    assert shown["document"]["title"] == "Described", "the entry with its DOI describes the file"
