"""`library add` of files that share a name or an id, and of files that no parser can read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def write_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.long
@pytest.mark.models
def test_add_with_repeated_file_names_and_ids_keeps_documents_apart(tmp_path: Path, run: Run, model_home: Path) -> None:
    library = tmp_path / "library"
    first, second = write_file(tmp_path / "A/report.md", "Aspirin."), write_file(tmp_path / "B/report.md", "Warfarin.")
    copy = write_file(tmp_path / "C/report.md", "Aspirin.")
    assert run("library", "add", library, first).exit_code == 0
    result = run("library", "add", library, second, copy)
    assert result.exit_code == 0
    assert result.stdout.startswith("1 document added, 1 unchanged")
    renamed_note, copy_note = (line for line in result.stderr.splitlines() if line.startswith("note: "))
    assert renamed_note.startswith(f"note: {second}: file:report.md is another file, so this one is file:report.md~")
    assert copy_note == f"note: {copy}: already there as file:report.md"
    may_file = write_file(tmp_path / "may.jsonl", json.dumps({"id": "a", "text": "Digoxin."}))
    june_file = write_file(tmp_path / "june.jsonl", json.dumps({"id": "a", "text": "Heparin."}))
    assert run("library", "add", library, may_file).exit_code == 0
    refused = run("library", "add", library, june_file, "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["skipped"]) == (2, 1)
    assert "warning: a: same id as a document of another file (may.jsonl), but another text: pass --replace" in (
        refused.stderr
    )
    assert run("library", "add", library, june_file, "--replace").exit_code == 0
    ids = {
        hit["passage"]["document_id"] for hit in json.loads(run("search", library, "heparin", "--json").stdout)["hits"]
    }
    assert len(ids) == 3


@pytest.mark.slow
@pytest.mark.models
def test_add_with_unreadable_page_warns_and_adds_the_others(tmp_path: Path, run: Run, model_home: Path) -> None:
    write_file(tmp_path / "data/good.html", "<p>Aspirin.")
    bad = write_file(tmp_path / "data/bad.html", "<x></y>" * 257_000)
    result = run("library", "add", tmp_path / "library", tmp_path / "data")
    assert result.exit_code == 0
    assert f"warning: {bad}: elements nested deeper than 10,000; save it as text" in result.stderr
    assert result.stdout.startswith("1 document added")
    assert "warning: 1 item was skipped; " in result.stderr


@pytest.mark.slow
@pytest.mark.models
def test_add_with_only_broken_lines_fails_after_warnings(small_library: Path, tmp_path: Path, run: Run) -> None:
    broken = write_file(tmp_path / "broken.jsonl", '{"id": "x"\n[]\n')
    result = run("library", "add", small_library, broken, "--json")
    assert (result.exit_code, json.loads(result.stdout)["skipped"]) == (2, 2)
    *warnings, summary, last = result.stderr.splitlines()
    assert len(warnings) == 2
    assert summary == f"warning: 2 items were skipped; {small_library / 'skipped.jsonl'} lists all"
    assert all(line.startswith(f"warning: {broken}, line ") for line in warnings)
    assert last == "epicrisis: nothing was added: all that was read was skipped, for the reasons above"


@pytest.mark.slow
@pytest.mark.models
def test_add_with_many_unreadable_files_says_one_line_for_each_reason(
    tmp_path: Path, run: Run, model_home: Path
) -> None:
    write_file(tmp_path / "data/good.txt", "Aspirin.")
    for number in range(5):
        write_file(tmp_path / f"data/{number}.xyz", "Something.")
        (tmp_path / f"data/{number}.txt").write_bytes(b"a" * number + b"\x81\x00")
    library = tmp_path / "library"
    result = run("library", "add", library, tmp_path / "data")
    assert result.exit_code == 0, result.stderr
    *reasons, last = (line for line in result.stderr.splitlines() if line.startswith("warning: "))
    assert len(reasons) == 2
    assert all(line.startswith("warning: 5 skipped: ") for line in reasons)
    assert f"({tmp_path}/data/0.xyz; {tmp_path}/data/1.xyz; {tmp_path}/data/2.xyz; 2 more)" in result.stderr
    assert last == f"warning: 10 items were skipped; {library / 'skipped.jsonl'} lists all"
    rows = list(map(json.loads, (library / "skipped.jsonl").read_text().splitlines()))
    assert (len(rows), set(rows[0])) == (10, {"path", "where", "reason"})
    assert (library / "skipped.jsonl").stat().st_mode & 0o777 == 0o600
    (tmp_path / "more.txt").write_text("Warfarin.")
    assert run("library", "add", library, tmp_path / "more.txt").exit_code == 0
    assert not (library / "skipped.jsonl").exists(), "the list is that of the last addition"


@pytest.mark.slow
@pytest.mark.models
def test_add_again_names_files_that_are_gone(small_library: Path, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "data"
    kept, gone = write_file(folder / "a/kept.md", "Aspirin."), write_file(folder / "a/gone.md", "Warfarin.")
    assert run("library", "add", small_library, folder).exit_code == 0
    gone.unlink()
    kept.rename(folder / "renamed.md")
    result = run("library", "add", small_library, folder)
    line = (
        f"1 file no longer there ({gone}); its documents stay: `epicrisis library delete {small_library} --file FILE`"
    )
    assert line in " ".join(result.stdout.split("\n"))
    assert json.loads(run("library", "add", small_library, folder, "--json").stdout)["gone"] == [str(gone)]
    assert "no longer there" not in run("library", "add", small_library, folder / "renamed.md").stdout
    assert run("library", "delete", small_library, "--file", gone, "--yes").exit_code == 0
    assert "no longer there" not in run("library", "add", small_library, folder).stdout
