"""Who can read what a library and a run keep: their owner alone, whatever was there before and whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.system.local_only import restrict_to_owner
from tests.support.patient_records import ENCODER

NOTE = Document("n:1", "Fever since a week.", patient="p1")
PAPER = Document("p:1", "Aspirin lowers fever.")


@pytest.fixture(params=[0o000, 0o022], ids=oct)
def open_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def list_open_modes(folder: Path) -> dict[str, str]:
    """Return the modes that grant access to others, by path in the folder."""
    everything = [folder, *folder.rglob("*")]
    held = {path: stat.S_IMODE(path.lstat().st_mode) for path in everything}
    return {str(path.relative_to(folder)): oct(mode) for path, mode in held.items() if mode & 0o077}


def make_open_folder(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("open_umask")
def test_library_in_open_folder_becomes_private(tmp_path: Path) -> None:
    folder = make_open_folder(tmp_path / "ward")
    with open_or_create(folder, ENCODER, "hashing", overlap=0) as library:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        add_documents(library, [NOTE], ENCODER)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    ledger = RemovalLog(keep_texts=True)
    ledger.write_to(folder)
    source = ledger.begin_source(Path(__file__), "notes.csv")
    ledger.record(source, "duplicate", "n:1", ["Fever"])
    ledger.close()
    assert (folder / "removed.jsonl").exists()
    assert list_open_modes(folder) == {}


@pytest.mark.usefixtures("open_umask")
def test_open_library_of_notes_becomes_private_when_written(tmp_path: Path) -> None:
    folder = tmp_path / "ward"
    with open_or_create(folder, ENCODER, "hashing", overlap=0) as library:
        add_documents(library, [NOTE], ENCODER)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with LibraryStore.open(folder):
        assert list_open_modes(folder), "a reader changes nothing"
    with LibraryStore.open(folder, write=True):
        assert list_open_modes(folder) == {}


def test_open_library_of_papers_becomes_private_when_notes_are_added(tmp_path: Path) -> None:
    folder = tmp_path / "papers"
    with open_or_create(folder, ENCODER, "hashing", overlap=0) as library:
        add_documents(library, [PAPER], ENCODER)
    assert list_open_modes(folder) == {}
    folder.chmod(0o755)
    with LibraryStore.open(folder, write=True) as opened:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
        add_documents(opened, [NOTE], ENCODER)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list_open_modes(folder) == {}


def test_restrict_to_owner_keeps_modes_of_link_targets(tmp_path: Path) -> None:
    folder, outside = make_open_folder(tmp_path / "ward"), tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o644)
    (folder / "link").symlink_to(outside)
    (tmp_path / "named").symlink_to(folder)
    restrict_to_owner(tmp_path / "named")
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
