"""kill -9 of the program: the same command, run again, completes the work."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from epicrisis.library.base.manifest import read_manifest
from epicrisis.library.core import journal
from epicrisis.library.core.library_parts import remove_parts
from epicrisis.library.core.library_store import LibraryStore
from tests.cli.conftest import Program
from tests.library.conftest import Killer, killer

__all__ = ["killer"]

pytestmark = pytest.mark.models


def has_three_documents(folder: Path) -> bool:
    """Return whether the library has the three documents and no problem."""
    with LibraryStore.open(folder) as library:
        info = library.info()
    return (info.documents, info.passages, info.problems) == (3, 3, ())


@pytest.mark.parametrize("number", [2, 6, 24])
def test_add_killed_during_creation_continues(number: int, program: Program, papers: Path, tmp_path: Path) -> None:
    """The kills come before the lock is written, after the manifest, and among the parts."""
    folder = tmp_path / "library"
    code = program.run("library", "add", folder, papers, kill_at=number, folder=str(folder))
    assert code == -signal.SIGKILL
    assert program.run("library", "add", folder, papers) == 0, program.output
    assert has_three_documents(folder)


def test_repair_of_incomplete_library_completes_it(program: Program, papers: Path, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    assert program.run("library", "add", folder, papers, kill_at=24, folder=str(folder)) == -signal.SIGKILL
    assert not read_manifest(folder).complete
    assert program.run("library", "repair", folder) == 0, program.output
    assert "0 documents" in program.output
    assert program.run("library", "add", folder, papers) == 0, program.output
    assert has_three_documents(folder)


def test_rollback_journal_of_killed_creation_is_removed(tmp_path: Path) -> None:
    """Otherwise SQLite would apply it to the new file of the same name."""
    beside = tmp_path / f"{journal.NAME}-journal"
    beside.write_bytes(b"left by a kill")
    remove_parts(tmp_path, journal.NAME)
    assert not beside.exists()


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["table-deleted", "words-committed"])
def test_delete_killed_after_commit_completes_when_repeated(
    moment: str, program: Program, killer: Killer, small_library: Path
) -> None:
    """Between the kill and the second command, searches do not return the document."""
    killer.kill("delete", small_library, moment, 0)
    assert program.run("search", small_library, "aspirin", "--by", "bm25", "--json") == 0, program.output
    assert '"a#0"' not in program.output
    assert program.run("library", "delete", small_library, "a", "--json") == 0, program.output
    assert '"deleted": [\n    "a"\n  ]' in program.output
    with LibraryStore.open(small_library) as library:
        info = library.info()
    assert (info.documents, info.open_batches, info.problems) == (2, 0, ())


@pytest.mark.slow
def test_temporary_files_of_killed_writer_are_removed(program: Program, papers: Path, small_library: Path) -> None:
    (small_library / "passages.lance").mkdir()
    leftovers = [small_library / "passages.lance" / ".tmpAbC123", small_library / "words" / ".tmpXyZ789"]
    leftovers.append(small_library / "journal.sqlite.new")
    for path in leftovers:
        path.write_bytes(b"half")
    assert program.run("library", "add", small_library, papers) == 0, program.output
    assert not [path for path in leftovers if path.exists()]
