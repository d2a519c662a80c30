"""`epicrisis library list`, `show`, `delete --file` and `export`, with the boundary between patients."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Run

NOTES = (
    "subject_id,charttime,note_type,text,note_id\n"
    "7,2150-01-02 10:00,Progress note,Aspirin was started.,41\n"
    "8,2150-03-04 09:00,Progress note,Fever and cough.,43\n"
)
COLUMNS = [
    "--column=patient=subject_id",
    "--column=time=charttime",
    "--column=type=note_type",
    "--column=text=text",
    "--column=note-id=note_id",
]


@pytest.fixture
def library(tmp_path: Path, run: Run, model_home: Path) -> Path:
    lines = [{"id": f"d:{number}", "text": f"Text {number}.", "title": f"Title {number}"} for number in range(3)]
    (tmp_path / "three.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "one.txt").write_text("Zinc for colds.")
    assert run("library", "add", tmp_path / "lib", tmp_path / "three.jsonl", tmp_path / "one.txt").exit_code == 0
    return tmp_path / "lib"


@pytest.fixture
def ward(tmp_path: Path, run: Run, model_home: Path) -> Path:
    (tmp_path / "notes.csv").write_text(NOTES)
    assert run("library", "add", tmp_path / "ward", tmp_path / "notes.csv", *COLUMNS).exit_code == 0
    return tmp_path / "ward"


def test_list_shows_files_with_their_documents(library: Path, run: Run) -> None:
    data = json.loads(run("library", "list", library, "--json").stdout)
    counts = {Path(file["path"]).name: file["documents"] for file in data["files"]}
    assert counts == {"three.jsonl": 3, "one.txt": 1}
    assert all(file["added"] for file in data["files"])
    assert (data["documents"], data["documents_without_file"]) == (4, 0)


@pytest.mark.parametrize("home", ["", "/"])
def test_list_in_a_deleted_folder_shows_whole_paths(
    home: str, library: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", home)
    folder.rmdir()
    result = run("library", "list", library)
    assert result.exit_code == 0, result.exception
    assert f"  {tmp_path.resolve()}/one.txt\n" in result.stdout


def test_list_says_how_many_were_left_out(library: Path, run: Run) -> None:
    output = run("library", "list", library, "--documents", "--limit", 1).stdout
    assert output.endswith("3 documents left out: --limit 4 lists more\n")
    of_file = json.loads(run("library", "list", library, "--file", library.parent / "one.txt", "--json").stdout)
    assert [row["id"] for row in of_file["documents"]] == ["file:one.txt"]


def test_title_with_a_full_stop_is_listed_with_one(tmp_path: Path, run: Run, model_home: Path) -> None:
    row = {"id": "d:1", "text": "Zinc shortened colds.", "title": "Zinc for colds.", "source": "BMJ"}
    (tmp_path / "one.jsonl").write_text(json.dumps(row))
    assert run("library", "add", tmp_path / "lib", tmp_path / "one.jsonl").exit_code == 0
    assert "d:1  Zinc for colds. BMJ\n" in run("library", "list", tmp_path / "lib", "--documents").stdout


def test_show_accepts_the_beginning_of_an_id(library: Path, run: Run) -> None:
    output = run("library", "show", library, "file:o").stdout
    assert "  | Zinc for colds." in output
    assert str(library.parent / "one.txt") in output
    several = run("library", "show", library, "d:")
    assert several.exit_code == 2
    assert "d:0, d:1, d:2" in several.stderr


@pytest.mark.long
def test_delete_of_a_file_asks_first_and_the_file_can_be_added_again(library: Path, run: Run) -> None:
    file = library.parent / "three.jsonl"
    refused = run("library", "delete", library, "--file", file)
    assert (refused.exit_code, "add --yes" in refused.stderr) == (2, True)
    assert "3 documents" in run("library", "delete", library, "--file", file, "--yes").stdout
    assert json.loads(run("library", "list", library, "--json").stdout)["documents"] == 1
    assert "3 documents added" in run("library", "add", library, file).stdout


@pytest.mark.parametrize("arguments", [(), ("d:0", "--file", "x")])
def test_delete_needs_either_ids_or_a_file(arguments: tuple[str, ...], library: Path, run: Run) -> None:
    assert run("library", "delete", library, *arguments).exit_code == 2


def test_notes_are_listed_shown_and_exported_with_their_patient_only(ward: Path, run: Run, tmp_path: Path) -> None:
    assert json.loads(run("library", "list", ward, "--documents", "--json").stdout)["documents"] == []
    rows = json.loads(run("library", "list", ward, "--patient", 7, "--json").stdout)["documents"]
    assert [row["id"] for row in rows] == ["note:41"]
    for patient in ([], ["--patient", 8]):
        result = run("library", "show", ward, "note:41", *patient)
        assert (result.exit_code, "Aspirin" in result.output) == (2, False)
    assert "Aspirin" in run("library", "show", ward, "note:41", "--patient", 7).stdout
    assert "Aspirin" not in run("library", "export", ward).output
    exported = run("library", "export", ward, "--patient", 8, "-o", tmp_path / "8.jsonl")
    assert exported.exit_code == 0
    assert [json.loads(line)["patient"] for line in (tmp_path / "8.jsonl").read_text().splitlines()] == ["8"]
    assert stat.S_IMODE((tmp_path / "8.jsonl").stat().st_mode) == 0o600


def test_export_refuses_an_existing_file(library: Path, run: Run) -> None:
    existing = library.parent / "three.jsonl"
    before = existing.read_text()
    result = run("library", "export", library, "-o", existing)
    assert (result.exit_code, "exists" in result.stderr, existing.read_text() == before) == (2, True, True)
    unknown = run("library", "export", library, "-o", library.parent / "x.xyz")
    assert (unknown.exit_code, ".jsonl, .bib, .ris or .csl.json" in unknown.stderr) == (2, True)


def test_delete_of_a_notes_file_forgets_its_patients(ward: Path, run: Run, tmp_path: Path) -> None:
    assert "2 documents" in run("library", "delete", ward, "--file", tmp_path / "notes.csv", "--yes").stdout
    assert json.loads(run("library", "patients", ward, "--json").stdout) == []


def test_references_are_saved_from_library_and_search(library: Path, run: Run) -> None:
    for suffix in ("bib", "ris", "csl.json"):
        exported, found = library.parent / f"lib.{suffix}", library.parent / f"found.{suffix}"
        data = json.loads(run("library", "export", library, "-o", exported, "--json").stdout)
        assert (data["documents"], data["left_out"]) == (4, 0)
        assert run("search", library, "Zinc", "--by", "bm25", "-o", found).exit_code == 0
        assert ("Title 2" in exported.read_text(), "Title 2" in found.read_text()) == (True, False)
        assert stat.S_IMODE(found.stat().st_mode) == 0o600
        assert run("search", library, "Zinc", "--by", "bm25", "-o", found).exit_code == 2


@pytest.mark.parametrize("suffix", ["md", "html", "docx"])
def test_search_is_saved_to_read_with_references_in_a_style(suffix: str, library: Path, run: Run) -> None:
    file = library.parent / f"found.{suffix}"
    for _ in range(2):
        result = run("search", library, "Title", "--by", "bm25", "-o", file, "--cite", "ama")
        assert (result.exit_code, "References (AMA)" in result.stdout) == (0, True)
    if suffix != "docx":
        assert "References (AMA)" in file.read_text()


def test_answer_is_saved_as_sources_and_cited_in_a_style(library: Path, run: Run) -> None:
    file = library.parent / "answer.ris"
    result = run("ask", library, "Does zinc help with colds?", "-o", file, "--cite", "vancouver")
    assert result.exit_code == 0, result.output
    assert "References (Vancouver)" in result.stdout
    assert "TI  - one" in file.read_text()
    assert run("ask", library, "Zinc?", "--json", "--cite", "apa").exit_code == 2
