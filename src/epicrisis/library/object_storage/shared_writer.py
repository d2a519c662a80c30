"""The writer of a library on object storage: it prepares the next version in a folder of its own, and publishes it.

A version is published in two steps. All new files are uploaded under new names, where no reader looks. Then one
conditional write replaces the current version (`shared_version`). A kill before it loses nothing acknowledged.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

from filelock import FileLock

from epicrisis.core.errors import EpicrisisError, LibraryBusy, LibraryError, LibraryMissing, StorageError
from epicrisis.core.protocols import StoredDocument
from epicrisis.library.base import manifest
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.core import journal, patient_identities
from epicrisis.library.core.library_parts import acquire_lock
from epicrisis.library.engines import word_index
from epicrisis.library.engines.checksums import list_current_files, sha256
from epicrisis.library.object_storage.object_store import ConditionFailed
from epicrisis.library.object_storage.replica import BLOCK_BYTES, Replica, link_or_copy
from epicrisis.library.object_storage.shared_version import (
    DATABASES,
    FOLDER,
    NAME,
    SharedFile,
    SharedVersion,
    parse_version,
)
from epicrisis.library.object_storage.writer_lease import WriterLease
from epicrisis.system.local_only import open_private
from epicrisis.system.remote_libraries import announce

_OWNER = "owner"
_STAGE = "publishing"
_MANAGED = ".managed.json"
"""tantivy's list of the files that it may remove."""
_CONNECTIONS = 8
_ATTEMPTS = 6
_GRACE_SECONDS = 600.0
"""How long the objects of earlier versions stay for readers that are downloading them."""
_LOCAL_FILES = ("skipped.jsonl", "removed.jsonl")
"""Lists that belong to this machine. They lie beside the copy, and in the writer's folder while it works."""


class SharedWriter:
    """The only writer of a library. Use `open`, and `release` at the end."""

    def __init__(self, replica: Replica, lock: FileLock, lease: WriterLease) -> None:
        """Use `open` instead."""
        self._replica = replica
        self._objects = replica.objects
        self._lock = lock
        self._lease = lease
        self._version: SharedVersion | None = None
        self._etag = ""
        self._retired: dict[str, float] = {}
        """Objects of earlier versions of this writer, and when they were replaced."""
        self._deletions = 0
        self._unconfirmed: SharedVersion | None = None
        """The last version whose commit failed. It is the current one if only the replies of the server were lost."""
        self._must_remove = False
        self._has_announced = False
        self.folder = replica.writing

    @classmethod
    def open(cls, replica: Replica, *, new: bool = False) -> SharedWriter:
        """Take the lock, and copy the newest version into the writer's folder; `new`: nothing, for a new library.

        Raise LibraryBusy, LibraryMissing, LibraryError if a new library exists, and the errors of `ObjectStore`.
        """
        replica.make_folder()
        lock = acquire_lock(replica.folder)
        lease = None
        try:
            lease = WriterLease.acquire(replica.objects, _read_owner(replica.folder))
            writer = cls(replica, lock, lease)
            writer._take_over(new)
        except BaseException:
            if lease is not None:
                lease.release()
            lock.release()
            raise
        return writer

    def _take_over(self, new: bool) -> None:
        stored = self._objects.read(NAME)
        if stored is None and not new:
            raise LibraryMissing(
                f"no library at {self._replica.url}: check the URL, or create one with `epicrisis library add "
                f"{self._replica.url} FILES`"
            )
        if stored is not None and new:
            raise LibraryError(f"{self._replica.url} holds a library already: open it, or choose another URL")
        if stored is not None:
            version = parse_version(stored.data, self._replica.url)
            # From here on no earlier writer can commit: the version that it read is no longer the current one.
            self._commit(version, version.files, version.number, stored.etag)
            self._replica.refresh(force=True, wait=True)
            copy = self._replica.version()
            assert self._version is not None
            if copy is None or copy.commit != self._version.commit:
                raise self._describe_takeover()
            if stored.age > _GRACE_SECONDS:
                self.remove_unused_objects()
        self._move_local_files(self.folder, self._replica.folder)
        if new:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(mode=0o700)
        else:
            self._replica.check_out(self.folder)
        self._move_local_files(self._replica.folder, self.folder)

    def request_deletion(self) -> None:
        """Remove the cached replies, and those of all readers with the next version."""
        self._deletions += 1
        self._replica.remove_replies()

    def request_removal(self) -> None:
        """Make the next publication remove the objects of all earlier versions, without waiting for slow readers."""
        self._must_remove = True

    def publish(self) -> None:
        """Publish the content of the writer's folder as the next version, durably. Without changes do nothing.

        Raise LibraryBusy if another writer has taken over, LibraryError for patients' notes on another machine, and
        StorageError if the server cannot be reached. The version is then not acknowledged.
        """
        self._refuse_notes()
        if self._lease.is_lost:
            raise self._describe_loss()
        self._adopt_unconfirmed()
        old = self._version
        stage = self.folder / _STAGE
        try:
            with translate_errors(self.folder):
                shutil.rmtree(stage, ignore_errors=True)
                stage.mkdir(mode=0o700)
                paths, unchanged = self._stage_files(stage)
            files = self._upload(paths) | unchanged
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        if old is not None and old.files == files and not self._deletions and not self._must_remove:
            return
        self._commit(old, files, 0 if old is None else old.number + 1, self._etag)
        self._deletions = 0
        if self._must_remove:
            self.remove_unused_objects()
            self._must_remove = False
        elif old is not None:
            self._retire(old)
            self._remove_retired()

    def _adopt_unconfirmed(self) -> None:
        """Go on from the last version whose commit failed, if the server has it."""
        new, old = self._unconfirmed, self._version
        if new is not None and self._has_committed(new):
            self._version = new
            if old is not None:
                self._retire(old)
        self._unconfirmed = None

    def release(self) -> None:
        """Give the lock back, and leave the new files to the copy that this machine reads."""
        try:
            if not self._lease.is_lost:
                # Where that fails, the next reader does it.
                with suppress(EpicrisisError):
                    self._replica.refresh(force=True)
            self._move_local_files(self.folder, self._replica.folder)
            shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            self._lease.release()
            self._lock.release()

    def _stage_files(self, stage: Path) -> tuple[dict[str, Path], dict[str, SharedFile]]:
        """Link all files of the library, at one moment, and return their paths by name.

        Databases are in blocks. Those that the current version has already are returned with their objects.
        """
        paths = {name: self.folder / name for name in sorted(list_current_files(self.folder)) if name != manifest.NAME}
        paths[manifest.NAME] = self.folder / manifest.NAME
        names = set(paths)
        paths |= self._stage_words(stage)
        old = {} if self._version is None else self._version.files
        unchanged = {}
        for database in DATABASES:
            if (self.folder / database).exists():
                copy = stage / database
                _copy_database(self.folder / database, copy)
                if database == journal.NAME:
                    _forget_other_files(copy, names)
                for index, block in enumerate(_read_blocks(copy)):
                    name = f"{database}#{index:06d}"
                    if name in old and old[name].sha256 == hashlib.sha256(block).hexdigest():
                        unchanged[name] = old[name]
                    else:
                        paths[name] = stage / name
                        paths[name].write_bytes(block)
        return paths, unchanged

    def _stage_words(self, stage: Path) -> dict[str, Path]:
        """Link the files of one commit of the word index. A merge in the background may remove them meanwhile."""
        folder = self.folder / word_index.NAME
        target = stage / word_index.NAME
        for _ in range(_ATTEMPTS):
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            with suppress(FileNotFoundError):
                meta = (folder / word_index.META).read_bytes()
                segments = {segment["segment_id"].replace("-", "") for segment in json.loads(meta)["segments"]}
                for path in folder.iterdir():
                    if path.name.partition(".")[0] in segments or path.name == _MANAGED:
                        link_or_copy(path, target / path.name)
                if (folder / word_index.META).read_bytes() == meta:
                    (target / word_index.META).write_bytes(meta)
                    return {f"{word_index.NAME}/{path.name}": path for path in target.iterdir()}
        raise StorageError(f"{folder} changes all the time: run the same command again")

    def _upload(self, paths: Mapping[str, Path]) -> dict[str, SharedFile]:
        """Upload the new files, several at a time, and return the objects of all files by name."""
        old = {} if self._version is None else self._version.files

        def upload(name: str, path: Path) -> SharedFile:
            size = path.stat().st_size
            if name in old and old[name].bytes == size and (_is_immutable(name) or old[name].sha256 == sha256(path)):
                return old[name]
            file = SharedFile(f"{FOLDER}/{uuid.uuid4().hex}", size, sha256(path))
            self._objects.upload(path, file.key)
            return file

        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            return dict(zip(paths, pool.map(upload, paths.keys(), paths.values()), strict=True))

    def _commit(self, old: SharedVersion | None, files: Mapping[str, SharedFile], number: int, etag: str) -> None:
        """Replace the current version, if it is still the one with this entity tag."""
        library_id = manifest.read_manifest(self.folder).library_id if old is None else old.library_id
        deletions = self._deletions + (0 if old is None else old.deletions)
        new = SharedVersion(library_id, number, self._lease.token, uuid.uuid4().hex, deletions, files)
        for attempt in range(_ATTEMPTS):
            try:
                # The reply to an earlier attempt may have been lost.
                if not (attempt and self._has_committed(new)):
                    if old is None:
                        self._etag = self._objects.create(NAME, new.to_json())
                    else:
                        self._etag = self._objects.replace(NAME, new.to_json(), etag)
                break
            except ConditionFailed:
                if self._has_committed(new):
                    break
                raise self._describe_loss() from None
            except StorageError:
                if attempt == _ATTEMPTS - 1:
                    self._unconfirmed = new
                    raise
                time.sleep(2**attempt / 4)
        self._version = new

    def _describe_takeover(self) -> LibraryBusy:
        return LibraryBusy(
            f"another writer has taken {self._replica.url} over: wait until it ends, then run the same command again"
        )

    def _describe_loss(self) -> LibraryBusy:
        return LibraryBusy(
            f"another writer has taken {self._replica.url} over, so the last changes were not saved: run the same "
            "command again"
        )

    def _has_committed(self, new: SharedVersion) -> bool:
        """Return whether the current version is this one."""
        stored = self._objects.read(NAME)
        if stored is None or parse_version(stored.data, self._replica.url).commit != new.commit:
            return False
        self._etag = stored.etag
        return True

    def _retire(self, old: SharedVersion) -> None:
        """Note the objects of the old version that the current one lacks."""
        assert self._version is not None
        now = time.monotonic()
        current = {file.key for file in self._version.files.values()}
        for file in old.files.values():
            if file.key not in current:
                self._retired[file.key] = now

    def _remove_retired(self) -> None:
        """Remove the objects that no version has had for a while. Where that fails, a later publication does it."""
        now = time.monotonic()
        due = [key for key, since in self._retired.items() if now - since > _GRACE_SECONDS]
        try:
            self._objects.delete(due)
        except EpicrisisError as error:
            # The version is published, so the caller's changes are saved.
            if not self._has_announced:
                announce(f"objects of earlier versions stay in the bucket and take room: {error.message}")
            self._has_announced = True
            return
        for key in due:
            del self._retired[key]

    def remove_unused_objects(self) -> None:
        """Remove the objects that the current version lacks: of earlier versions, and of killed writers.

        Raise LibraryBusy if another writer has taken over: its objects may be among those in the folder.
        """
        assert self._version is not None
        current = {file.key for file in self._version.files.values()}
        names = self._objects.list_names(FOLDER)
        # A later writer uploads only after its takeover. Before it, the names are those of earlier writers alone.
        if not self._has_committed(self._version):
            raise self._describe_takeover()
        self._objects.delete([name for name in names if name not in current])
        if self._must_remove:
            self._objects.abort_uploads(FOLDER)

    def _refuse_notes(self) -> None:
        """Raise LibraryError before notes, or names of patients, reach another machine."""
        if not self._objects.is_local and patient_identities.read_identities(self.folder):
            raise LibraryError(describe_refusal(self._replica.url))

    def check_documents(self, documents: Sequence[StoredDocument]) -> None:
        """Raise LibraryError for patients' notes, unless the server is this machine."""
        if self._objects.is_local:
            return
        for document in documents:
            if any(passage.patient is not None for passage in document.passages):
                raise LibraryError(describe_refusal(self._replica.url))

    def _move_local_files(self, source: Path, target: Path) -> None:
        for name in _LOCAL_FILES:
            with suppress(FileNotFoundError):
                (source / name).replace(target / name)


def describe_refusal(url: str) -> str:
    """Return why patients' notes are refused."""
    return (
        f"{url} is on another machine, and patients' notes are not stored there: put them into a library in a folder "
        "of this machine, or on PostgreSQL"
    )


def _is_immutable(name: str) -> bool:
    """Return whether a file of this name never changes. The engines give new files new names."""
    folder, _, rest = name.partition("/")
    return bool(rest) and not (folder == word_index.NAME and rest.endswith(".json"))


def _copy_database(source: Path, target: Path) -> None:
    """Copy a database at one moment, with the writes that are still in its log."""
    with closing(sqlite3.connect(source, timeout=60)) as current, closing(sqlite3.connect(target)) as copy:
        # The copy lives until its blocks are uploaded.
        copy.execute("PRAGMA synchronous=OFF")
        current.backup(copy)


def _forget_other_files(database: Path, names: Iterable[str]) -> None:
    """Remove the checksums of files that are not published: those of earlier versions of the table."""
    with closing(sqlite3.connect(database)) as copy, copy:
        copy.execute("PRAGMA synchronous=OFF")
        copy.execute(
            "DELETE FROM data_files WHERE path NOT IN (SELECT value FROM json_each(?))", (json.dumps([*names]),)
        )


def _read_blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            yield block


def _read_owner(folder: Path) -> str:
    """Return the random id of this folder, which is made once."""
    path = folder / _OWNER
    with translate_errors(folder):
        if not path.exists():
            with os.fdopen(open_private(path, os.O_WRONLY | os.O_TRUNC), "w", encoding="ascii") as file:
                file.write(uuid.uuid4().hex)
        return path.read_text(encoding="ascii", errors="replace")
