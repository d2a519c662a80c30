"""Copies of libraries between folders and PostgreSQL: complete, compared, and continued after a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from epicrisis.core.errors import LibraryDamaged, LibraryError
from epicrisis.core.types import Origin, Scope
from epicrisis.corpus.base.reader_base import ArticleStatement, PatientIdentity
from epicrisis.library.core import patient_identities as registry
from epicrisis.library.core.journal import DocumentRow, IngestedFile, open_journal
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import Roster
from epicrisis.library.write import copying
from epicrisis.library.write.copying import copy_library
from epicrisis.system.remote_libraries import library_folder
from epicrisis.testing.stores import DIMENSIONS, build_stored_document
from tests.postgresql.conftest import LibraryDatabase, close_connections
from tests.support.postgresql_server import OWNER, READER, WRITER

pytestmark = pytest.mark.postgresql


def create_folder(path: Path, documents: int = 40) -> Path:
    """Create a library in a folder with literature, notes, files, deletions, marks and patients."""
    with LibraryStore.create(
        path, encoder_fingerprint="check", encoder_name="check", dimensions=DIMENSIONS, max_tokens=64, overlap=8
    ) as library:
        registry.record_identities(path, [PatientIdentity("anna", names=("Anna Muster",), born="1950")])
        registry.declare_literature(path)
        stored = [
            build_stored_document("note", "aspirin was given", "and more", patient="anna", date="2015-06"),
            build_stored_document("a\n'", "warfarin \0 thins", title="T", metadata={"journal": "Blood"}),
        ]
        for number in range(documents):
            stored.append(build_stored_document(f"paper {number:04}", f"aspirin {number}", date="2015"))
        library.add(stored)
        library.set_origins({"paper 0001": Origin("/data/\udcff.pdf", ".pdf", "0" * 64)})
        library.add_source(IngestedFile("1" * 64, "papers.jsonl", 10, "2026-01-01T00:00:00+00:00"))
        library.delete(["gone"], {"gone": "2"})
        library.replace_statements(["notice"], [ArticleStatement("notice", ("paper 0002",), "retracted", 20200101)])
        library.update_due_marks()
    return path


def list_everything(folder: Path) -> list[object]:
    """Return what a library holds, for comparison."""
    with LibraryStore.open(folder) as library, open_journal(library.path) as journal:
        scope = Scope(patient="anna")
        ids = [hit.id for hit in library.search_words("aspirin warfarin", 2000, scope)]
        return [
            library.count(),
            library.fetch(sorted(ids), scope),
            sorted(ids),
            journal.sources(),
            journal.origins(),
            journal.deletions(),
            journal.statements(),
            list(journal.documents()),
            Roster(library).patients(),
            Roster(library).is_mixed(),
        ]


def test_copy_into_database_and_back_holds_the_same(database: LibraryDatabase, tmp_path: Path) -> None:
    source = create_folder(tmp_path / "source")
    there, back = library_folder(database.url(OWNER)), tmp_path / "back"
    report = copy_library(source, there)
    assert (report.documents, report.passages, report.copied, report.deleted) == (42, 43, 42, 0)
    assert copy_library(there, back).copied == 42
    assert list_everything(source) == list_everything(there) == list_everything(back)


def test_second_copy_brings_the_first_up_to_date(database: LibraryDatabase, tmp_path: Path) -> None:
    source, there = create_folder(tmp_path / "source"), library_folder(database.url(OWNER))
    copy_library(source, there)
    assert copy_library(source, there).copied == 0
    with LibraryStore.open(source, write=True) as library:
        library.delete(["note"])
        library.add([build_stored_document("paper 0003", "aspirin anew", version="2")])
    report = copy_library(source, there)
    assert (report.documents, report.copied, report.deleted) == (41, 1, 1)
    assert list_everything(source) == list_everything(there)


def test_copy_into_another_library_is_refused(database: LibraryDatabase, tmp_path: Path) -> None:
    source = create_folder(tmp_path / "source", 1)
    with database.create() as library:
        library.add([build_stored_document("x", "aspirin")])
    with pytest.raises(LibraryError, match=r"holds documents and is no copy of .*source"):
        copy_library(source, library_folder(database.url(WRITER)))
    with pytest.raises(LibraryError, match="cannot replace its source"):
        copy_library(source, source)


def test_copy_by_reader_is_refused_instead_of_incomplete(database: LibraryDatabase, tmp_path: Path) -> None:
    copy_library(create_folder(tmp_path / "source"), library_folder(database.url(OWNER)))
    close_connections()
    with pytest.raises(LibraryError, match="sees 41 of 42 documents: copy as a member of epicrisis_writer"):
        copy_library(library_folder(database.url(READER)), tmp_path / "back")


def test_copy_that_differs_is_reported(
    database: LibraryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, there = create_folder(tmp_path / "source"), library_folder(database.url(OWNER))
    copy_library(source, there)
    database.server.execute("UPDATE epicrisis.passages SET text = 'x' WHERE id = 'note#0'", database=database.name)
    with pytest.raises(LibraryDamaged, match="differs from its source in the passages: repeat the command"):
        copy_library(source, there)


def test_killed_copy_continues(database: LibraryDatabase, tmp_path: Path) -> None:
    """The command is killed after its first batches; what it has copied is not copied again."""
    source = create_folder(tmp_path / "source", 300)
    killer = (
        "import os, signal, sys; from epicrisis.library.write import copying\n"
        "from epicrisis.library.postgresql.store import PostgresqlLibrary\n"
        "copying._CHECK_DOCUMENTS = 50; add = PostgresqlLibrary.add; calls = []\n"
        "def count(self, documents):\n"
        "    add(self, documents); calls.append(1)\n"
        "    if len(calls) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "PostgresqlLibrary.add = count\n"
        "from epicrisis.cli.program import app; sys.argv[0] = 'epicrisis'; app()\n"
    )
    command = ["library", "copy", str(source), database.url(OWNER), "--json"]
    killed = subprocess.run([sys.executable, "-c", killer, *command], capture_output=True, text=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = subprocess.run([sys.executable, "-m", "epicrisis", *command], capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    report = json.loads(again.stdout)
    assert (report["documents"], report["copied"]) == (302, 302 - 150)
    assert list_everything(source) == list_everything(library_folder(database.url(OWNER)))


def test_document_changed_during_the_copy_is_reported(
    database: LibraryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = create_folder(tmp_path / "source", 3)
    monkeypatch.setattr(copying, "_find_outdated", lambda original, copy, rows: change_first(source, rows))
    with pytest.raises(LibraryError, match="was changed during the copy: repeat the command"):
        copy_library(source, library_folder(database.url(OWNER)))


def change_first(source: Path, rows: list[DocumentRow]) -> list[DocumentRow]:
    with LibraryStore.open(source, write=True) as library:
        library.add([build_stored_document(rows[0].id, "other", version="9")])
    return rows
