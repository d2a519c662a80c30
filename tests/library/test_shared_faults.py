"""Libraries on object storage in rare moments, with a server in the memory of the test."""

from __future__ import annotations

import errno
import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from epicrisis.core.errors import LibraryBusy, LibraryDamaged, SettingsError, StorageError
from epicrisis.core.types import Scope
from epicrisis.library.base.manifest import sync_path
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.checksums import sha256
from epicrisis.library.object_storage import replica as replicas
from epicrisis.library.object_storage import shared_writer
from epicrisis.library.object_storage.object_store import ConditionFailed, ObjectStore, ObjectUnchanged, StoredObject
from epicrisis.library.object_storage.shared_library import open_snapshot
from epicrisis.library.object_storage.shared_version import NAME, parse_version
from epicrisis.system import remote_libraries
from epicrisis.system.remote_libraries import library_folder
from epicrisis.testing.stores import build_stored_document
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
        self.before_download: Callable[[], None] | None = None
        self.loses_replies = False
        self.deletion_error: StorageError | None = None
        self.now = 1e9
        self._lock = threading.Lock()

    def read(self, name: str, known: str = "") -> StoredObject | None:
        stored = self.objects.get(name)
        if stored is None:
            return None
        if stored[1] == known:
            raise ObjectUnchanged(name, self.now)
        return StoredObject(*stored, age=3600.0, read_at=self.now)

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
            if self.loses_replies and name == NAME:
                raise StorageError("s3://bucket/lib: 127.0.0.1 cannot be reached")
            return self.objects[name][1]

    def upload(self, path: Path, name: str) -> None:
        self.objects[name] = (path.read_bytes(), uuid.uuid4().hex)

    def download(self, name: str, path: Path) -> None:
        if self.download_error is not None:
            raise self.download_error
        hook, self.before_download = self.before_download, None
        if hook is not None:
            hook()
        if name not in self.objects:
            raise FileNotFoundError(name)
        path.write_bytes(self.objects[name][0])

    def list_names(self, folder: str) -> list[str]:
        hook, self.before_list = self.before_list, None
        if hook is not None:
            hook()
        return [name for name in self.objects if name.startswith(f"{folder}/")]

    def delete(self, names: Sequence[str]) -> None:
        if self.deletion_error is not None and names:
            raise self.deletion_error
        for name in names:
            self.objects.pop(name, None)

    def abort_uploads(self, folder: str) -> None:
        """Do nothing: no upload has parts."""


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryObjects:
    memory = MemoryObjects()
    monkeypatch.setattr(replicas, "ObjectStore", lambda url: memory)
    monkeypatch.setattr(replicas, "_FRESH_SECONDS", 0.0)
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "first"))
    with create_library(URL) as library:
        library.add([build_stored_document("a", "aspirin")])
    return memory


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_addition_after_a_lost_reply_to_a_commit_goes_on_from_it(
    objects: MemoryObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_writer, "_ATTEMPTS", 1)
    with LibraryStore.open(library_folder(URL), write=True) as library:
        objects.loses_replies = True
        with pytest.raises(StorageError, match="cannot be reached"):
            library.add([build_stored_document("b", "warfarin")])
        objects.loses_replies = False
        library.add([build_stored_document("c", "metformin")])
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "second"))
    with LibraryStore.open(library_folder(URL)) as reader:
        assert sorted(row["id"] for row in reader.open_table().rows(["id"])) == ["a#0", "b#0", "c#0"]
        assert reader.info().problems == ()


@pytest.mark.slow
def test_lost_reply_to_a_commit_does_not_hide_another_writer(
    objects: MemoryObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_writer, "_ATTEMPTS", 1)
    library = LibraryStore.open(library_folder(URL), write=True)
    objects.loses_replies = True
    with pytest.raises(StorageError):
        library.add([build_stored_document("b", "warfarin")])
    objects.loses_replies = False
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "second"))
    LibraryStore.open(library_folder(URL), write=True).close()
    with pytest.raises(LibraryBusy, match="another writer has taken"):
        library.add([build_stored_document("c", "metformin")])
    library.close()


@pytest.mark.slow
def test_refused_removal_of_old_objects_is_announced_once_and_tried_again(
    objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences: list[str] = []
    monkeypatch.setattr(remote_libraries, "_listeners", [sentences.append])
    monkeypatch.setattr(shared_writer, "_GRACE_SECONDS", -1.0)
    with LibraryStore.open(library_folder(URL), write=True) as library:
        objects.deletion_error = StorageError("127.0.0.1 refuses the key (AccessDenied)")
        for id_ in "bcd":
            library.add([build_stored_document(id_, "warfarin")])
        assert sentences == [
            "objects of earlier versions stay in the bucket and take room: 127.0.0.1 refuses the key (AccessDenied)"
        ]
        objects.deletion_error = None
        library.add([build_stored_document("e", "warfarin")])
        keys = {file.key for file in parse_version(objects.objects[NAME][0], URL).files.values()}
        assert set(objects.list_names("files")) == keys


@pytest.mark.slow
def test_object_that_the_server_does_not_delete_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    store = _connect(monkeypatch)
    replies = iter(
        [
            {"Errors": [{"Key": "lib/a", "Code": "AccessDenied"}, {"Key": "lib/b", "Code": "NoSuchKey"}]},
            {"Errors": [{"Key": "lib/b", "Code": "NoSuchKey"}]},
            {},
        ]
    )
    monkeypatch.setattr(store._client, "delete_objects", lambda **arguments: next(replies))
    with pytest.raises(SettingsError, match=r"refuses the key .AccessDenied."):
        store.delete(["a", "b"])
    store.delete(["b"])
    store.delete(["b"])


@pytest.mark.slow
@pytest.mark.parametrize("address", ["http://me:pa55word@bad host/", "me:pa55word@host", "http://me:pa55word@[::1"])
def test_password_in_the_address_of_the_server_is_not_shown(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    with pytest.raises(
        SettingsError, match=r"the address of the server is no URL.: check .* AWS_ENDPOINT_URL"
    ) as error:
        _connect(monkeypatch, address)
    assert "pa55word" not in error.value.message


def _connect(monkeypatch: pytest.MonkeyPatch, address: str = "http://127.0.0.1:9") -> ObjectStore:
    for name, value in (("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_ENDPOINT_URL", address)):
        monkeypatch.setenv(name, value)
    return ObjectStore("s3://bucket/lib")


def test_files_are_durable_before_they_are_put_in_place(
    objects: MemoryObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    original_place = replicas.Replica._place

    def sync(path: Path) -> None:
        synced.add(path.stat().st_ino)
        sync_path(path)

    def place(self: replicas.Replica, name: str, file: object) -> None:
        original_place(self, name, file)  # type: ignore[arg-type]
        assert (self.folder / name).stat().st_ino in synced, name

    monkeypatch.setattr(replicas, "sync_path", sync)
    monkeypatch.setattr(replicas.Replica, "_place", place)
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "second"))
    folder = library_folder(URL)
    LibraryStore.open(folder).close()
    for path in (folder, folder / "words", folder / "passages.lance" / "data", folder / "journal.sqlite"):
        assert path.stat().st_ino in synced, path


def test_files_of_earlier_versions_go_by_the_clock_of_the_server(
    objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = library_folder(URL)
    with LibraryStore.open(folder, write=True) as library:
        library.delete(["a"])
    monkeypatch.setattr(time, "time", lambda: 9e9)
    replicas.refresh_replica(folder)
    version = parse_version(objects.objects[NAME][0], URL)
    assert find_other_files(folder, version.files)
    objects.now += replicas._RETIRED_SECONDS + 1
    # There is no newer version.
    replicas.refresh_replica(folder)
    assert not find_other_files(folder, version.files)


def find_other_files(folder: Path, names: Collection[str]) -> list[str]:
    """Return the files of the table that are none of these."""
    files = []
    for path in (folder / "passages.lance").rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in names:
            files.append(path.name)
    return files


@pytest.mark.slow
def test_download_that_is_slower_than_a_writer_ends_with_the_newest_version(
    objects: MemoryObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_writer, "_GRACE_SECONDS", -1.0)
    monkeypatch.setattr(replicas, "_CONNECTIONS", 1)
    writer = LibraryStore.open(library_folder(URL), write=True)
    replaced = 0

    def publish() -> None:
        # In the middle of each attempt the writer replaces the version, whose objects are removed at once.
        nonlocal replaced
        replaced += 1
        writer.add([build_stored_document(f"new{replaced}", "warfarin")])
        if replaced < 9:
            objects.before_download = publish

    objects.before_download = publish
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "second"))
    with LibraryStore.open(library_folder(URL)) as reader:
        assert reader.count() == (10, 10)
    writer.close()


def test_lost_object_ends_a_download(objects: MemoryObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects.delete([parse_version(objects.objects[NAME][0], URL).files["manifest.json"].key])
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "second"))
    with pytest.raises(LibraryDamaged, match="names objects that do not exist"):
        LibraryStore.open(library_folder(URL))


@pytest.mark.slow
@pytest.mark.parametrize("has_new_tag", [True, False])
def test_blocks_of_a_killed_refresh_are_compared_again(
    objects: MemoryObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_new_tag: bool
) -> None:
    for module in (replicas, shared_writer):
        monkeypatch.setattr(module, "BLOCK_BYTES", 4096)
    writer = LibraryStore.open(library_folder(URL), write=True)
    writer.add([build_stored_document(f"d{i}", "aspirin") for i in range(300)])
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "second"))
    folder = library_folder(URL)
    assert replicas.refresh_replica(folder)
    before = objects.objects[NAME]
    writer.delete([f"d{i}" for i in range(300)])
    original = replicas.Replica._write_state

    def fail(self: replicas.Replica, state: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(replicas.Replica, "_write_state", fail)
    with pytest.raises(KeyboardInterrupt):
        replicas.refresh_replica(folder)
    monkeypatch.setattr(replicas.Replica, "_write_state", original)
    # The version is the earlier one again: what the state says is no longer in the blocks.
    objects.objects[NAME] = (before[0], "restored") if has_new_tag else before
    assert replicas.refresh_replica(folder)
    version = parse_version(before[0], URL)
    content = (folder / "blocks" / "journal.sqlite").read_bytes()
    for index, file in enumerate(version.blocks_of("journal.sqlite").values()):
        assert hashlib.sha256(content[index * 4096 : (index + 1) * 4096]).hexdigest() == file.sha256
    writer.close()


@pytest.mark.slow
def test_snapshot_stays_as_it_is_while_a_writer_publishes(objects: MemoryObjects) -> None:
    folder = library_folder(URL)
    with open_snapshot(folder) as snapshot:
        with pytest.raises(LibraryBusy, match="another process is copying s3://bucket/lib: wait until it ends"):
            open_snapshot(folder).__enter__()
        with LibraryStore.open(folder, write=True) as writer:
            writer.add([build_stored_document("b", "warfarin")])
            writer.delete(["a"])
        objects.now += 3600
        replicas.refresh_replica(folder)
        assert [hit.id for hit in snapshot.search_words("aspirin warfarin", 5, Scope())] == ["a#0"]
        assert [passage.text for passage in snapshot.fetch(["a#0", "b#0"], Scope())] == ["aspirin"]
        assert snapshot.info().problems == ()
    assert not (folder / "snapshot").exists()


@pytest.mark.slow
def test_purge_leaves_nothing_of_deleted_documents_in_the_bucket(
    objects: MemoryObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LibraryStore.open(library_folder(URL), write=True) as library:
        library.add([build_stored_document(f"d{i}", f"aspirin {i}") for i in range(300)])
        library.add([build_stored_document("secretname", "xylophon quartz", patient="secretpatient")])
        library.compact()
        library.delete(["secretname"])
    assert find_in_objects(objects, b"xylophon")
    assert find_in_objects(objects, b"secretname")
    with LibraryStore.open(library_folder(URL), write=True) as library:
        library.purge(lambda step: None)
        library.optimize()
    for secret in (b"xylophon", b"secretname", b"secretpatient"):
        assert find_in_objects(objects, secret) == []
    keys = {file.key for file in parse_version(objects.objects[NAME][0], URL).files.values()}
    assert set(objects.list_names("files")) == keys
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "second"))
    with LibraryStore.open(library_folder(URL)) as reader:
        assert reader.count() == (301, 301)
        assert reader.info().problems == ()
        assert reader.search_words("aspirin 7", 2, Scope())[0].id == "d7#0"


def find_in_objects(objects: MemoryObjects, text: bytes) -> list[str]:
    return [name for name, (data, _) in objects.objects.items() if text in data]


@pytest.mark.slow
def test_many_additions_are_published_together(objects: MemoryObjects) -> None:
    def number() -> int:
        return parse_version(objects.objects[NAME][0], URL).number

    with LibraryStore.open(library_folder(URL), write=True) as library:
        first = number()
        library.prepare_bulk()
        for i in range(5):
            library.add([build_stored_document(f"d{i}", "aspirin")])
        assert number() == first
        library.optimize()
        assert number() == first + 1
        library.add([build_stored_document("last", "warfarin")])
        assert number() == first + 2
