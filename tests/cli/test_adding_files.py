"""`library add` of files that share a name or an id, and of files that no parser can read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.models
def test_files_of_one_name_and_lines_of_one_id_are_told_apart(tmp_path: Path, run: Run, model_home: Path) -> None:
    library = tmp_path / "library"
    first, second = put(tmp_path / "A/report.md", "Aspirin."), put(tmp_path / "B/report.md", "Warfarin.")
    copy = put(tmp_path / "C/report.md", "Aspirin.")
    assert run("library", "add", library, first).exit_code == 0
    result = run("library", "add", library, second, copy)
    assert result.exit_code == 0
    assert result.stdout.startswith("1 documents added, 0 replaced, 1 unchanged")
    apart, there = (line for line in result.stderr.splitlines() if line.startswith("note: "))
    assert apart.startswith(f"note: {second}: file:report.md is another file, so this one is file:report.md~")
    assert there == f"note: {copy}: already there as file:report.md"
    may = put(tmp_path / "may.jsonl", json.dumps({"id": "a", "text": "Digoxin."}))
    june = put(tmp_path / "june.jsonl", json.dumps({"id": "a", "text": "Heparin."}))
    assert run("library", "add", library, may).exit_code == 0
    refused = run("library", "add", library, june, "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["skipped"]) == (2, 1)
    assert "warning: a: same id as a document of another file (may.jsonl), but another text: pass --replace" in (
        refused.stderr
    )
    assert run("library", "add", library, june, "--replace").exit_code == 0
    ids = {
        hit["passage"]["document_id"] for hit in json.loads(run("search", library, "heparin", "--json").stdout)["hits"]
    }
    assert len(ids) == 3


@pytest.mark.models
def test_a_page_that_no_parser_can_read_is_named_and_the_rest_is_added(
    tmp_path: Path, run: Run, model_home: Path
) -> None:
    put(tmp_path / "data/good.html", "<p>Aspirin.")
    bad = put(tmp_path / "data/bad.html", "<x></y>" * 257_000)
    result = run("library", "add", tmp_path / "library", tmp_path / "data")
    assert result.exit_code == 0
    assert f"warning: {bad}: elements nested deeper than 10,000; save it as text" in result.stderr
    assert result.stdout.startswith("1 documents added")
