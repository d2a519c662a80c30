"""Files and the documents of a library: no file replaces another's document, and none is there twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import ReaderItem
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.library.core import library_parts
from epicrisis.library.core.journal import Journal
from epicrisis.library.core.library_parts import LibraryParts
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.repair import repair_library
from epicrisis.library.write.ingest import add_documents
from epicrisis.library.write.ingest_batches import IngestReport
from tests.support.library_checks import discrepancies
from tests.support.library_documents import create, encoder


@pytest.fixture
def library(tmp_path: Path) -> Iterator[LibraryStore]:
    with create(tmp_path / "library") as new_library:
        yield new_library


def write_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_lines(path: Path, **texts: str) -> Path:
    return write_file(path, "".join(json.dumps({"id": id_, "text": text}) + "\n" for id_, text in texts.items()))


def add(library: LibraryStore, *paths: Path, replace: bool = False) -> IngestReport:
    return add_documents(library, read_sources(list(paths), with_origins=True), encoder(), replace=replace)


def read_checksums(folder: Path) -> Mapping[str, str] | None:
    with closing(Journal(folder)) as journal:
        return journal.files()


def read_texts(library: LibraryStore) -> dict[str, str]:
    """Return the texts of documents with one passage by id."""
    texts = {}
    for batch in library.open_table().batches():
        for stored in batch:
            texts[stored.passage.document_id] = stored.passage.text
    return texts


def get_counts(report: IngestReport) -> tuple[int, int, int, int]:
    return report.added, report.replaced, report.unchanged, report.skipped


# -- documents whose id is made of the file's name --------------------------------------------------------------------


def test_add_file_with_same_name_elsewhere_gets_own_id(tmp_path: Path, library: LibraryStore) -> None:
    first, second = write_file(tmp_path / "A/report.md", "Aspirin."), write_file(tmp_path / "B/report.md", "Warfarin.")
    assert get_counts(add(library, first)) == (1, 0, 0, 0)
    report = add(library, second)
    assert get_counts(report) == (1, 0, 0, 0)
    other = next(id_ for id_ in read_texts(library) if id_ != "file:report.md")
    assert other.startswith("file:report.md~")
    assert len(other) == len("file:report.md~") + 8
    assert read_texts(library) == {"file:report.md": "Aspirin.", other: "Warfarin."}
    (remark,) = report.remarks
    assert remark.startswith(
        f"{second}: file:report.md is another file, so this one is {other}; if it is a new version"
    )
    for path in (first, second):
        assert get_counts(add(library, path)) == (0, 0, 1, 0), "again, nothing changes"
    write_file(second, "Warfarin, edited.")
    assert get_counts(add(library, second)) == (0, 1, 0, 0)
    assert read_texts(library) == {"file:report.md": "Aspirin.", other: "Warfarin, edited."}
    assert discrepancies(library, {}) == []


def test_add_two_files_with_same_name_keeps_both(tmp_path: Path, library: LibraryStore) -> None:
    first, second = write_file(tmp_path / "A/report.md", "Aspirin."), write_file(tmp_path / "B/report.md", "Warfarin.")
    assert get_counts(add(library, first, second)) == (2, 0, 0, 0)
    before = read_texts(library)
    assert get_counts(add(library, second, first)) == (0, 0, 2, 0), "in any order"
    assert get_counts(add(library, tmp_path / "B", tmp_path / "A")) == (0, 0, 2, 0)
    assert read_texts(library) == before


def test_add_copy_under_other_path_is_existing_document(tmp_path: Path, library: LibraryStore) -> None:
    first, copy = write_file(tmp_path / "A/report.md", "Aspirin."), write_file(tmp_path / "B/other.md", "Aspirin.")
    add(library, first)
    report = add(library, copy)
    assert get_counts(report) == (0, 0, 1, 0)
    assert report.already_there == 1
    assert report.remarks == (f"{copy}: already there as file:report.md",)
    assert read_texts(library) == {"file:report.md": "Aspirin."}
    write_file(copy, "Aspirin, another dose.")
    assert get_counts(add(library, copy)) == (1, 0, 0, 0), "the edited copy is no successor of the first"
    assert read_texts(library) == {"file:report.md": "Aspirin.", "file:other.md": "Aspirin, another dose."}


def test_add_edited_file_replaces_document(tmp_path: Path, library: LibraryStore) -> None:
    path = write_file(tmp_path / "data/A/report.md", "Aspirin.")
    add(library, path)
    write_file(path, "Aspirin, edited.")
    report = add(library, tmp_path / "data")
    assert (get_counts(report), report.remarks) == ((0, 1, 0, 0), ())
    assert read_texts(library) == {"file:report.md": "Aspirin, edited."}
    link = tmp_path / "link.md"
    link.symlink_to(path)
    assert get_counts(add(library, link)) == (0, 0, 1, 0)


def test_add_moved_folder_keeps_ids_and_replaces_edits(tmp_path: Path, library: LibraryStore) -> None:
    for number in range(5):
        write_file(tmp_path / f"old/{number}.txt", f"Aspirin {number}.")
    add(library, tmp_path / "old")
    before = read_texts(library)
    (tmp_path / "old").rename(tmp_path / "new")
    report = add(library, tmp_path / "new")
    assert (get_counts(report), report.already_there, report.remarks) == ((0, 0, 5, 0), 0, ())
    write_file(tmp_path / "new/3.txt", "Aspirin, edited.")
    assert get_counts(add(library, tmp_path / "new")) == (0, 1, 4, 0)
    assert read_texts(library) == {**before, "file:3.txt": "Aspirin, edited."}


def test_add_moved_and_edited_file_with_replace_replaces_document(tmp_path: Path, library: LibraryStore) -> None:
    path = write_file(tmp_path / "old/report.md", "Aspirin.")
    add(library, path)
    path.unlink()
    moved = write_file(tmp_path / "new/report.md", "Aspirin, edited.")
    assert get_counts(add(library, moved, replace=True)) == (0, 1, 0, 0)
    assert read_texts(library) == {"file:report.md": "Aspirin, edited."}


@pytest.mark.parametrize("order", ["AB", "BA"])
def test_add_moved_file_and_new_file_in_its_place_keeps_both(tmp_path: Path, library: LibraryStore, order: str) -> None:
    path = write_file(tmp_path / "A/report.md", "Aspirin.")
    add(library, path)
    (tmp_path / "B").mkdir()
    path.rename(tmp_path / "B/report.md")
    write_file(path, "Warfarin.")
    report = add(library, *(tmp_path / folder / "report.md" for folder in order))
    assert report.skipped == 0
    assert sorted(read_texts(library).values()) == ["Aspirin.", "Warfarin."]
    again = add(library, tmp_path / "A", tmp_path / "B")
    assert get_counts(again) == (0, 0, 2, 0)


def test_add_after_delete_reuses_id(tmp_path: Path, library: LibraryStore) -> None:
    add(library, write_file(tmp_path / "A/report.md", "Aspirin."))
    library.delete(["file:report.md"])
    add(library, write_file(tmp_path / "B/report.md", "Warfarin."))
    assert read_texts(library) == {"file:report.md": "Warfarin."}


def test_add_articles_of_one_file_share_id_prefix(tmp_path: Path, library: LibraryStore) -> None:
    article = "<article><body><p>{}</p></body></article>"
    pair = "<set>" + article.format("One {0}.") + article.format("Two {0}.") + "</set>"
    add(library, write_file(tmp_path / "A/pair.nxml", pair.format("a")))
    report = add(library, write_file(tmp_path / "B/pair.nxml", pair.format("b")))
    assert (get_counts(report), len(report.remarks)) == ((2, 0, 0, 0), 1)
    ids = sorted(read_texts(library))
    assert ids[:2] == ["file:pair.nxml", "file:pair.nxml#2"]
    assert ids[3] == f"{ids[2]}#2"
    report = add(library, write_file(tmp_path / "C/pair.nxml", pair.format("a")))
    assert (report.already_there, len(report.remarks)) == (2, 1)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["A/r.md", "B/r.md", "C/r.md", "A/s.md"]), st.sampled_from(["one", "two", "three", None])
        ),
        min_size=1,
        max_size=8,
    )
)
def test_add_after_any_edits_holds_all_file_texts(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[tuple[str, str | None]]
) -> None:
    """Write or remove a file, add them all: nothing that a file holds is missing, and adding again changes nothing."""
    folder = tmp_path_factory.mktemp("files")
    with create(folder / "library") as library:
        for name, text in steps:
            path = folder / "data" / name
            if text is None:
                path.unlink(missing_ok=True)
                continue
            write_file(path, f"Aspirin {text}.")
            # By itself, so that its name is that of files in other folders.
            add(library, path)
            add(library, *sorted((folder / "data").glob("*/*.md")))
            file_texts = {file.read_text() for file in (folder / "data").glob("*/*.md")}
            assert file_texts <= set(read_texts(library).values())
            again = add(library, *sorted((folder / "data").glob("*/*.md")))
            assert (again.added, again.replaced) == (0, 0)


# -- documents with ids of their own ----------------------------------------------------------------------------------


def test_add_same_id_from_other_file_is_skipped_without_replace(tmp_path: Path, library: LibraryStore) -> None:
    add(library, write_lines(tmp_path / "may.jsonl", a="Aspirin.", b="Warfarin."))
    june = write_lines(tmp_path / "june.jsonl", a="Aspirin, new.", b="Warfarin.", c="Digoxin.")
    report = add(library, june)
    assert get_counts(report) == (1, 0, 1, 1)
    assert [(skipped.path, skipped.reason) for skipped in report.first_skipped] == [
        (
            "a",
            "same id as a document of another file (may.jsonl), but another text: pass --replace to replace it, or "
            "give this document its own id",
        )
    ]
    assert read_texts(library)["a"] == "Aspirin."
    assert get_counts(add(library, june, replace=True)) == (0, 1, 2, 0)
    assert read_texts(library)["a"] == "Aspirin, new."
    write_lines(june, a="Aspirin, newer.")
    assert get_counts(add(library, june)) == (0, 1, 0, 0), "it is that file's from now on"


def test_add_edited_jsonl_file_replaces_documents(tmp_path: Path, library: LibraryStore) -> None:
    path = write_lines(tmp_path / "a.jsonl", a="Aspirin.")
    add(library, path)
    write_lines(path, a="Aspirin, edited.")
    assert get_counts(add(library, path)) == (0, 1, 0, 0)
    path.rename(tmp_path / "b.jsonl")
    assert get_counts(add(library, tmp_path / "b.jsonl")) == (0, 0, 1, 0)
    write_lines(tmp_path / "b.jsonl", a="Aspirin, edited again.")
    assert get_counts(add(library, tmp_path / "b.jsonl")) == (0, 1, 0, 0), "a renamed file is known by its documents"


def test_add_line_and_file_cannot_take_same_id(tmp_path: Path, library: LibraryStore) -> None:
    add(library, write_file(tmp_path / "report.md", "Aspirin."))
    report = add(library, write_lines(tmp_path / "a.jsonl", **{"file:report.md": "Warfarin.", "file:b.md": "Digoxin."}))
    assert get_counts(report) == (1, 0, 0, 1)
    assert get_counts(add(library, write_file(tmp_path / "b.md", "Heparin."))) == (1, 0, 0, 0)
    assert {"Aspirin.", "Digoxin.", "Heparin."} == set(read_texts(library).values())


# -- kills, repair -----------------------------------------------------------------------------------------------------


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_add_interrupted_after_write_remembers_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = write_file(tmp_path / "A/report.md", "Aspirin."), write_file(tmp_path / "B/report.md", "Warfarin.")
    with create(tmp_path / "library") as library, monkeypatch.context() as patch:
        patch.setattr(LibraryParts, "finish_batch", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            add(library, first)
    with LibraryStore.open(tmp_path / "library", write=True) as library:
        assert read_texts(library) == {"file:report.md": "Aspirin."}
        assert get_counts(add(library, second)) == (1, 0, 0, 0)
        assert get_counts(add(library, first)) == (0, 0, 1, 0)
        assert len(read_texts(library)) == 2


def test_repair_keeps_files_of_documents(tmp_path: Path) -> None:
    first, second = write_file(tmp_path / "A/report.md", "Aspirin."), write_file(tmp_path / "B/report.md", "Warfarin.")
    with create(tmp_path / "library") as library:
        add(library, first, write_lines(tmp_path / "a.jsonl", a="Digoxin."))
    repair_library(tmp_path / "library")
    with LibraryStore.open(tmp_path / "library", write=True) as library:
        assert get_counts(add(library, second)) == (1, 0, 0, 0)
        assert get_counts(add(library, write_lines(tmp_path / "b.jsonl", a="Heparin."))) == (0, 0, 0, 1)


@pytest.mark.parametrize("interrupted_before", ["WordIndex", "Checkpoint"])
def test_repair_after_interrupted_repair_keeps_journal_records(
    interrupted_before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a second one: without the files of documents, `second` would replace `first`."""
    first, second = write_file(tmp_path / "A/report.md", "Aspirin."), write_file(tmp_path / "B/report.md", "Warfarin.")
    folder = tmp_path / "library"
    with create(folder) as library:
        add(library, first, write_lines(tmp_path / "a.jsonl", a="Digoxin."))
        library.delete([], {"pubmed:1": "2020"})
        recorded = read_checksums(folder)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(library_parts, interrupted_before, _interrupt)
            with pytest.raises(KeyboardInterrupt):
                repair_library(folder)
        assert not (folder / "journal.sqlite").exists()
    repair_library(folder)
    with LibraryStore.open(folder, write=True) as library:
        assert read_checksums(folder) == recorded
        assert library.revisions(["pubmed:1"]) == {"pubmed:1": "2020"}
        assert get_counts(add(library, second)) == (1, 0, 0, 0)
        assert len(read_texts(library)) == 3


def test_add_document_without_file_replaces_same_id(library: LibraryStore) -> None:
    items: list[ReaderItem] = [Document("a", "Aspirin.")]
    add_documents(library, items, encoder())
    assert get_counts(add_documents(library, [Document("a", "Aspirin, new.")], encoder())) == (0, 1, 0, 0)


def test_add_to_copied_library_recognizes_files(tmp_path: Path) -> None:
    path = write_file(tmp_path / "A/report.md", "Aspirin.")
    with create(tmp_path / "library") as library:
        add(library, path)
    shutil.copytree(tmp_path / "library", tmp_path / "copy")
    write_file(path, "Aspirin, edited.")
    with LibraryStore.open(tmp_path / "copy", write=True) as copy:
        assert get_counts(add(copy, path)) == (0, 1, 0, 0)


def read_names(library: LibraryStore) -> dict[str, tuple[str, str]]:
    """Return title and source of each document by its id."""
    batches = library.open_table().batches()
    passages = [stored.passage for batch in batches for stored in batch]
    return {passage.document_id: (passage.title, passage.source) for passage in passages}


@pytest.mark.parametrize("place", ["Smith 2019.md", "read/Smith 2019.md"])
def test_renamed_file_gets_its_new_title(tmp_path: Path, library: LibraryStore, place: str) -> None:
    folder = tmp_path / "data"
    old = write_file(folder / "scan001.md", "Ticagrelor.")
    add(library, folder)
    new = folder / place
    new.parent.mkdir(exist_ok=True)
    old.rename(new)
    assert get_counts(add(library, folder)) == (0, 1, 0, 0)
    assert read_names(library) == {"file:scan001.md": ("Smith 2019", place)}
    assert get_counts(add(library, folder)) == (0, 0, 1, 0)
    write_file(new, "Ticagrelor, edited.")
    assert get_counts(add(library, folder)) == (0, 1, 0, 0)
    assert read_names(library) == {"file:scan001.md": ("Smith 2019", place)}


def test_file_with_the_old_name_of_a_renamed_one_keeps_its_title(tmp_path: Path, library: LibraryStore) -> None:
    old = write_file(tmp_path / "data/report.md", "Aspirin.")
    add(library, tmp_path / "data")
    old.rename(tmp_path / "data/report-2019.md")
    write_file(old, "Warfarin.")
    add(library, tmp_path / "data")
    assert sorted(title for title, _ in read_names(library).values()) == ["report", "report-2019"]
