"""Libraries on object storage in rare moments, with a server in the memory of the test."""

from __future__ import annotations

import errno
import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from epicrisis.errors import LibraryBusy, StorageError
from epicrisis.library.checksums import sha256
from epicrisis.library.library import LibraryStore
from epicrisis.library.object_storage import replica as replicas
from epicrisis.library.object_storage.object_store import ConditionFailed, ObjectUnchanged, StoredObject
from epicrisis.library.object_storage.shared_version import NAME, parse_version
from epicrisis.remote_libraries import library_folder
from epicrisis.testing.stores import build_stored_document
from epicrisis.types import Scope
from tests.support.shared_writer_child import create_library

URL = "s3://bucket/lib"


class MemoryObjects:
    """The objects of one library. Leases expire and grace ends at once, because every object is an hour old."""

    url = URL
    host = "127.0.0.1"
    is_local = True

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.before_list: Callable[[], None] | None = None
        self.download_error: OSError | None = None
        self._lock = threading.Lock()

    def read(self, name: str, known: str = "") -> StoredObject | None:
        stored = self.objects.get(name)
        if stored is None:
            return None
        if stored[1] == known:
            raise ObjectUnchanged(name)
        return StoredObject(*stored, age=3600.0)

    def create(self, name: str, data: bytes) -> str:
        return self._write(name, data, None)

    def replace(self, name: str, data: bytes, etag: str) -> str:
        return self._write(name, data, etag)

    def _write(self, name: str, data: bytes, expected: str | None) -> str:
        with self._lock:
            stored = self.objects.get(name)
            if (None if stored is None else stored[1]) != expected:
                raise ConditionFailed(name)
            self.objects[name] = (data, uuid.uuid4().hex)
            return self.objects[name][1]

    def upload(self, path: Path, name: str) -> None:
        self.objects[name] = (path.read_bytes(), uuid.uuid4().hex)

    def download(self, name: str, path: Path) -> None:
        if self.download_error is not None:
            raise self.download_error
        if name not in self.objects:
            raise FileNotFoundError(name)
        path.write_bytes(self.objects[name][0])

    def list_names(self, folder: str) -> list[str]:
        hook, self.before_list = self.before_list, None
        if hook is not None:
            hook()
        return [name for name in self.objects if name.startswith(f"{folder}/")]

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.objects.pop(name, None)


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryObjects:
    memory = MemoryObjects()
    monkeypatch.setattr(replicas, "ObjectStore", lambda url: memory)
    monkeypatch.setattr(replicas, "_FRESH_SECONDS", 0.0)
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "first"))
    with create_library(URL) as library:
        library.add([build_stored_document("a", "aspirin")])
    return memory


def test_writer_suspended_before_the_removal_removes_nothing_of_a_later_writer(
    objects: MemoryObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_elsewhere() -> None:
        monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "second"))
        with LibraryStore.open(library_folder(URL), write=True) as library:
            library.add([build_stored_document("b", "warfarin")])

    folder = library_folder(URL)
    objects.before_list = write_elsewhere
    with pytest.raises(LibraryBusy, match="another writer has taken s3://bucket/lib over: wait until it ends"):
        LibraryStore.open(folder, write=True)
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "third"))
    with LibraryStore.open(library_folder(URL)) as reader:
        assert [hit.id for hit in reader.search_words("warfarin aspirin", 5, Scope())] == ["a#0", "b#0"]


def test_full_disk_in_a_download_is_one_line(
    objects: MemoryObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "second"))
    objects.download_error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(StorageError, match="no room left to write; free disk space"):
        LibraryStore.open(library_folder(URL))
    objects.download_error = None
    with LibraryStore.open(library_folder(URL)) as reader:
        assert reader.count() == (1, 1)


def test_full_disk_leaves_an_open_reader_at_work_and_is_logged(
    objects: MemoryObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = library_folder(URL)
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "second"))
    monkeypatch.setattr(replicas, "_POLL_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING), LibraryStore.open(library_folder(URL)) as reader:
        monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "first"))
        with LibraryStore.open(first, write=True) as writer:
            writer.add([build_stored_document("b", "warfarin")])
        objects.download_error = OSError(errno.ENOSPC, "No space left on device")
        deadline = time.monotonic() + 20
        while "no room left" not in caplog.text and time.monotonic() < deadline:
            assert [hit.id for hit in reader.search_words("aspirin", 5, Scope())] == ["a#0"]
            time.sleep(0.02)
    assert "searches go on with the copy of this machine" in caplog.text
    assert "no room left to write" in caplog.text


def test_file_that_a_writer_replaces_during_a_refresh_is_the_published_one(
    objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = library_folder(URL)
    original = replicas.link_or_copy
    replaced = []

    def replace_first(source: Path, target: Path) -> None:
        if source.parts[-3:] == ("writing", "words", "meta.json"):
            new = source.with_name("meta.new")
            new.write_bytes(source.read_bytes()[::-1])
            new.replace(source)
            replaced.append(source)
        original(source, target)

    writer = LibraryStore.open(folder, write=True)
    writer.add([build_stored_document("b", "warfarin")])
    version = parse_version(objects.objects[NAME][0], URL)
    monkeypatch.setattr(replicas, "link_or_copy", replace_first)
    assert replicas.refresh_replica(folder)
    assert replaced
    for name, file in version.files.items():
        if "#" not in name:
            assert sha256(folder / name) == file.sha256, name
    original_meta = (folder / "words" / "meta.json").read_bytes()
    new = replaced[0].with_name("meta.new")
    new.write_bytes(original_meta)
    new.replace(replaced[0])
    writer.close()
