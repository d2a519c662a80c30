"""Which files of a watched folder are ready."""

from __future__ import annotations

import os
from pathlib import Path

from epicrisis.cli.library_watch import FolderWatch
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import FileFingerprint
from epicrisis.corpus.readers.sources import read_sources


def write(path: Path, text: str, modified: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (modified, modified))
    return path


def watch(folder: Path, now: float = 1_000_000.0) -> FolderWatch:
    return FolderWatch([folder], settle_seconds=2, now=lambda: now)


def test_old_files_are_ready_at_once_and_new_ones_when_they_rest(tmp_path: Path) -> None:
    old, new = write(tmp_path / "a/old.txt", "x", 999_000), write(tmp_path / "new.txt", "x", 999_999.5)
    watched = watch(tmp_path)
    assert watched.scan() == [old]
    watched.take([old])
    assert watched.waiting == 1
    assert watched.scan() == [new]
    watched.take([new])
    assert watched.scan() == []
    assert watched.waiting == 0


def test_growing_file_is_ready_after_it_has_stopped(tmp_path: Path) -> None:
    path = tmp_path / "large.pdf"
    watched = watch(tmp_path)
    for number in range(3):
        write(path, "x" * (number + 1), 1_000_000 + number)
        assert watched.scan() == []
    assert watched.scan() == [path]


def test_changed_file_is_ready_again_and_untaken_one_stays_ready(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "x", 999_000)
    watched = watch(tmp_path)
    assert watched.scan() == [path]
    assert watched.scan() == [path], "the library was busy, so it was not taken"
    watched.take([path])
    write(path, "y", 999_500)
    assert watched.scan() == []
    assert watched.scan() == [path]


def test_hidden_and_empty_files_are_not_ready(tmp_path: Path) -> None:
    for name in (".part", ".hidden/a.txt"):
        write(tmp_path / name, "x", 999_000)
    write(tmp_path / "empty.txt", "", 999_000)
    watched = watch(tmp_path)
    assert watched.scan() == []
    assert watched.waiting == 0


def test_deleted_file_is_gone_and_comes_back(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "x", 999_000)
    watched = watch(tmp_path)
    watched.take(watched.scan())
    path.unlink()
    assert watched.scan() == []
    assert watched.gone == {path}
    write(path, "x", 999_000)
    assert watched.scan() == [], "the same file as before"
    assert watched.gone == set()


def test_files_of_office_and_windows_are_skipped_silently(tmp_path: Path) -> None:
    report = write(tmp_path / "report.txt", "Fever.", 999_000)
    write(tmp_path / "~$report.docx", "lock", 999_000)
    write(tmp_path / "a/~$b.txt", "lock", 999_000)
    for name in ("Thumbs.db", "desktop.ini", "a/~WRL0001.tmp"):
        write(tmp_path / name, "x", 999_000)
    assert watch(tmp_path).scan() == [report]
    document, fingerprint = read_sources([tmp_path])
    assert isinstance(document, Document)
    assert isinstance(fingerprint, FileFingerprint)
    assert (document.id, fingerprint.name) == ("file:report.txt", "report.txt")
