"""The copy of a library on object storage that this machine reads: an ordinary library folder.

    refresh_replica(folder)     bring the copy to the newest version; nothing for other folders

Files are downloaded first and put in place in the order in which a writer makes them, so that running searches read the
copy as they read a folder with a writer at work. `manifest.json` is the last file of a new copy. After a kill the next
refresh continues.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from epicrisis.core.errors import EpicrisisError, LibraryDamaged
from epicrisis.library.base import manifest
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.base.manifest import sync_path
from epicrisis.library.engines import lance_table, vector_index, word_index
from epicrisis.library.engines.checksums import sha256, table_version
from epicrisis.library.object_storage.object_store import ObjectStore, ObjectUnchanged
from epicrisis.library.object_storage.shared_version import DATABASES, NAME, SharedFile, SharedVersion, parse_version
from epicrisis.system.local_only import open_private, restrict_to_owner
from epicrisis.system.remote_libraries import LibraryAddress, announce, find_address, record_address
from epicrisis.system.telemetry import span

BLOCK_BYTES = 1 << 20
"""Size of the blocks of databases."""
WRITING = "writing"
"""The folder in which a writer of this machine prepares the next version."""
REPLIES = "replies.sqlite"
_STATE = "replica.json"
_LOCK = "replica.lock"
_INCOMING = "incoming"
_BLOCKS = "blocks"
_FOLDERS = (lance_table.NAME, word_index.NAME)
_CONNECTIONS = 8
_FRESH_SECONDS = 2.0
"""A command asks for the newest version once, although several of its steps begin with a refresh."""
_LARGE_BYTES = 50_000_000
"""Downloads of this size are announced."""
_POLL_SECONDS = 10.0
"""How often a long-lived reader asks for a newer version."""
_PAUSE_SHARE = 10.0
"""A reader pauses so many times as long as its last refresh took, however often a writer publishes."""
_LONGEST_PAUSE_SECONDS = 120.0
"""A deleted document stays in the copies of running servers for at most this long and one refresh."""
_LOCK_SECONDS = 5.0
_RETIRED_SECONDS = 600.0
"""How long files of earlier versions stay for searches in progress, as after a compaction."""
_VERSIONS = f"{lance_table.NAME}/_versions/"
_LAST = (f"{word_index.NAME}/{word_index.META}", vector_index.NAME, manifest.NAME)
_LOGGER = logging.getLogger("epicrisis.server")
_replicas: dict[Path, Replica] = {}


@dataclass(slots=True)
class _State:
    """What the copy holds."""

    etag: str
    version: SharedVersion
    retired: dict[str, float] = field(default_factory=dict)
    """Files of no version that are still in the folder, and when they were first seen so, by the server's clock."""


def find_replica(folder: Path) -> Replica | None:
    """Return the copy in this folder, or None if the folder represents no library on object storage."""
    folder = folder.absolute()
    if folder not in _replicas:
        address = find_address(folder)
        if address is None or address.scheme != "s3":
            return None
        _replicas[folder] = Replica(folder, address)
    return _replicas[folder]


def refresh_replica(folder: Path) -> bool:
    """Bring the copy in this folder to the newest version. Return False if the library is missing on the server.

    Return True without doing anything for other folders, and if this process did it a moment ago. Raise StorageError
    if the server cannot be reached, and the other errors of `ObjectStore`.
    """
    replica = find_replica(folder)
    return replica is None or replica.refresh()


class Replica:
    """The copy of one library on this machine. It is thread-safe."""

    def __init__(self, folder: Path, address: LibraryAddress) -> None:
        self.folder = folder
        self.address = address
        self.writing = folder / WRITING
        self._objects: ObjectStore | None = None
        self._checked = float("-inf")
        self._exists = False
        self._has_failed = False
        self._refresh_seconds = 0.0
        self._mutex = threading.Lock()
        self._poller: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The URL of the library."""
        return self.address.public

    @property
    def objects(self) -> ObjectStore:
        """The library's objects on the server."""
        with self._mutex:
            if self._objects is None:
                self._objects = ObjectStore(self.url)
            return self._objects

    def make_folder(self) -> None:
        """Create the folder, private to its user, with the address in it."""
        with translate_errors(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            record_address(self.folder, self.address)

    def refresh(self, *, force: bool = False, wait: bool = False) -> bool:
        """Bring the copy to the newest version, see `refresh_replica`.

        If another process does it for long, an older copy stays in use, unless `wait` is True. Raise StorageError or
        LibraryDamaged for errors of this machine's disk.
        """
        if not force and time.monotonic() - self._checked < _FRESH_SECONDS:
            return self._exists
        self.make_folder()
        # Without a complete copy there is nothing to read, however long another process takes to download it.
        timeout = -1 if wait or self.version() is None else _LOCK_SECONDS
        with translate_errors(self.folder):
            try:
                with FileLock(self.folder / _LOCK, timeout=timeout, thread_local=False), span("refresh copy"):
                    self._exists = self._refresh()
            except Timeout:
                self._exists = True
        self._checked = time.monotonic()
        return self._exists

    def poll(self) -> None:
        """Refresh in the background if the last refresh was a while ago. Searches read the copy meanwhile."""
        pause = min(max(_POLL_SECONDS, _PAUSE_SHARE * self._refresh_seconds), _LONGEST_PAUSE_SECONDS)
        if time.monotonic() - self._checked < pause:
            return
        with self._mutex:
            if self._poller is None or not self._poller.is_alive():
                self._poller = threading.Thread(target=self._poll, daemon=True)
                self._poller.start()

    def _poll(self) -> None:
        try:
            began = time.monotonic()
            self.refresh(force=True)
            self._refresh_seconds = time.monotonic() - began
            self._has_failed = False
        except EpicrisisError as error:
            # One line for each failure of the server, however long it lasts.
            if not self._has_failed:
                _LOGGER.warning("searches go on with the copy of this machine: %s", error.message)
            self._has_failed = True
        self._checked = time.monotonic()

    def forget_state(self) -> None:
        """Make the next refresh compare every file with its checksum and download damaged ones again."""
        with translate_errors(self.folder):
            (self.folder / _STATE).unlink(missing_ok=True)

    def version(self) -> SharedVersion | None:
        """Return the version of the copy, or None without a complete copy."""
        state = self._read_state()
        return None if state is None else state.version

    def _refresh(self) -> bool:
        incomplete = ""
        while True:
            state = self._read_state()
            # A killed refresh may have changed blocks. A backup that was restored since has the earlier entity tag.
            is_whole = not any(self._mark_of_change(name).exists() for name in DATABASES)
            try:
                stored = self.objects.read(NAME, state.etag if state is not None and is_whole else "")
            except ObjectUnchanged as unchanged:
                if state is not None and state.retired:
                    retired = self._retire(state.version, state.retired, unchanged.read_at)
                    if retired != state.retired:
                        self._write_state(dataclasses.replace(state, retired=retired))
                return True
            if stored is None:
                return False
            version = parse_version(stored.data, self.url)
            with suppress(FileNotFoundError):
                self._apply(version, state)
                retired = self._retire(version, {} if state is None else state.retired, stored.read_at)
                self._write_state(_State(stored.etag, version, retired))
                return True
            # In a download of many minutes, a writer may replace the version and remove the objects of this one. What
            # was downloaded stays, so each attempt has less to do.
            if version.commit == incomplete:
                raise LibraryDamaged(
                    f"{self.url} names objects that do not exist: restore them from a backup of the bucket, or create "
                    "the library again"
                )
            incomplete = version.commit

    def _apply(self, version: SharedVersion, state: _State | None) -> None:
        """Download the missing files of the version and put them in place. Raise FileNotFoundError if one is lost."""
        if state is not None and not _continues(version, state.version):
            self._remove()
            state = None
        missing, changed = self._download_missing(version, {} if state is None else state.version.files)
        with translate_errors(self.folder):
            for name in sorted(missing, key=_placing_order):
                if name == manifest.NAME:
                    break
                self._place(name, version.files[name])
            for name in DATABASES:
                is_current = state is not None and state.version.blocks_of(name) == version.blocks_of(name)
                is_whole = (self.folder / name).exists() and not self._mark_of_change(name).exists()
                if not (is_current and is_whole):
                    self._install_database(name, version, changed[name])
            if state is not None and version.deletions > state.version.deletions:
                self.remove_replies()
            for folder in {(self.folder / name).parent for name in missing}:
                sync_path(folder)
            if manifest.NAME in missing:
                self._place(manifest.NAME, version.files[manifest.NAME])
            shutil.rmtree(self.folder / _INCOMING, ignore_errors=True)
            restrict_to_owner(self.folder)

    def _download_missing(
        self, version: SharedVersion, old: Mapping[str, SharedFile]
    ) -> tuple[list[str], dict[str, dict[str, SharedFile]]]:
        """Download what this machine lacks. Return the names of the files, and the blocks of each database."""
        with translate_errors(self.folder):
            for folder in (_INCOMING, _BLOCKS):
                (self.folder / folder).mkdir(mode=0o700, exist_ok=True)
        missing = [name for name, file in version.files.items() if "#" not in name and not self._has(name, file, old)]
        changed = {name: self._find_changed_blocks(name, version, old) for name in DATABASES}
        needed = {name: version.files[name] for name in missing}
        for blocks in changed.values():
            needed |= blocks
        size = sum(file.bytes for name, file in needed.items() if not (self.writing / name).exists())
        if size >= _LARGE_BYTES:
            announce(f"downloading {size / 1e6:,.0f} MB of {self.url} to {self.folder}")
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            for _ in pool.map(self._download, needed.keys(), needed.values()):
                pass
        return missing, changed

    def _has(self, name: str, file: SharedFile, old: Mapping[str, SharedFile]) -> bool:
        """Return whether the file is in place. A file of a killed refresh is compared by its content."""
        path = self.folder / name
        if not path.is_file() or path.stat().st_size != file.bytes:
            return False
        return old.get(name) == file or sha256(path) == file.sha256

    def _find_changed_blocks(
        self, database: str, version: SharedVersion, old: Mapping[str, SharedFile]
    ) -> dict[str, SharedFile]:
        """Return the blocks of a database that differ from the last downloaded ones, those of the `old` files."""
        path = self.folder / _BLOCKS / database
        digests = {}
        if path.is_file():
            if old and not self._mark_of_change(database).exists():
                digests = {name: file.sha256 for name, file in old.items()}
            else:
                with path.open("rb") as stream:
                    for name in version.blocks_of(database):
                        digests[name] = hashlib.sha256(stream.read(BLOCK_BYTES)).hexdigest()
        return {name: file for name, file in version.blocks_of(database).items() if digests.get(name) != file.sha256}

    def _download(self, name: str, file: SharedFile) -> None:
        """Download a file to the folder of incoming ones. Raise FileNotFoundError without the object."""
        target = self._incoming(file)
        if target.is_file() and sha256(target) == file.sha256:
            return
        part = target.with_suffix(".part")
        prepared = self.writing / name
        with suppress(OSError):
            part.unlink(missing_ok=True)
            # A writer of this machine has the files that it has just uploaded. It may replace one at any moment.
            if prepared.is_file() and prepared.stat().st_size == file.bytes:
                link_or_copy(prepared, part)
                if sha256(part) == file.sha256:
                    sync_path(part)
                    part.replace(target)
                    return
                part.unlink()
        self.objects.download(file.key, part)
        if sha256(part) != file.sha256:
            raise LibraryDamaged(
                f"{self.url}/{file.key} differs from its checksum: restore this object from a backup of the bucket"
            )
        # Once the state names the file, nothing reads it again to compare it.
        with translate_errors(self.folder):
            sync_path(part)
            part.replace(target)

    def _incoming(self, file: SharedFile) -> Path:
        return self.folder / _INCOMING / file.key.rpartition("/")[2]

    def _place(self, name: str, file: SharedFile) -> None:
        target = self.folder / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._incoming(file).replace(target)

    def _install_database(self, name: str, version: SharedVersion, changed: Mapping[str, SharedFile]) -> None:
        """Write the changed blocks, and replace the content of the database in one transaction."""
        blocks = version.blocks_of(name)
        source, target = self.folder / _BLOCKS / name, self.folder / name
        if not blocks:
            target.unlink(missing_ok=True)
            source.unlink(missing_ok=True)
            return
        # After a kill the file may have blocks of both versions.
        self._mark_of_change(name).touch()
        sync_path(source.parent)
        with os.fdopen(open_private(source, os.O_RDWR), "r+b") as stream:
            for index, (block, file) in enumerate(blocks.items()):
                if block in changed:
                    stream.seek(index * BLOCK_BYTES)
                    stream.write(self._incoming(file).read_bytes())
            stream.truncate(sum(file.bytes for file in blocks.values()))
            stream.flush()
            os.fsync(stream.fileno())
        copy = self.folder / _INCOMING / name
        shutil.copyfile(source, copy)
        if not target.exists():
            sync_path(copy)
            copy.replace(target)
            return
        with closing(sqlite3.connect(copy)) as new, closing(sqlite3.connect(target, timeout=60)) as current:
            new.backup(current)

    def _mark_of_change(self, database: str) -> Path:
        """Return the path of a file that exists while the blocks are changed, until the state names the new ones."""
        return self.folder / _BLOCKS / f"{database}.changing"

    def remove_retired(self) -> None:
        """Remove the files of earlier versions at once. A search in progress may fail, and is repeated by its user."""
        with translate_errors(self.folder), FileLock(self.folder / _LOCK, thread_local=False):
            state = self._read_state()
            if state is not None:
                self._retire(state.version, {}, 0.0, seconds=0.0)
                self._write_state(dataclasses.replace(state, retired={}))
            shutil.rmtree(self.folder / _INCOMING, ignore_errors=True)

    def _retire(
        self, version: SharedVersion, retired: Mapping[str, float], now: float, seconds: float = _RETIRED_SECONDS
    ) -> dict[str, float]:
        """Remove files that no version has had for so long, and return the others that the version lacks.

        `now` is by the clock of the server. That of this machine may be corrected while a search reads a file.
        """
        remaining = {}
        for folder in _FOLDERS:
            for path in (self.folder / folder).rglob("*"):
                name = path.relative_to(self.folder).as_posix()
                if not path.is_file() or name in version.files or path.suffix == ".lock":
                    continue
                since = min(retired.get(name, now), now)
                if now - since >= seconds:
                    path.unlink(missing_ok=True)
                else:
                    remaining[name] = since
        return remaining

    def check_out(self, folder: Path) -> None:
        """Make a new folder with the files of this version: a library of its own. No other process may use it."""
        with translate_errors(folder), FileLock(self.folder / _LOCK, thread_local=False):
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(mode=0o700)
            version = self.version()
            if version is None:
                return
            for name in version.files:
                if "#" in name:
                    continue
                target = folder / name
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # The engines rewrite the descriptions. The other files never change.
                if target.suffix == ".json":
                    shutil.copyfile(self.folder / name, target)
                else:
                    link_or_copy(self.folder / name, target)
            for name in DATABASES:
                if version.blocks_of(name):
                    shutil.copyfile(self.folder / _BLOCKS / name, folder / name)
            restrict_to_owner(folder)

    def remove_replies(self) -> None:
        """Remove the cached replies of this machine, since they may quote deleted documents."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            (self.folder / f"{REPLIES}{suffix}").unlink(missing_ok=True)

    def _remove(self) -> None:
        """Remove the copy of another library that had this URL."""
        with translate_errors(self.folder):
            (self.folder / _STATE).unlink(missing_ok=True)
            (self.folder / manifest.NAME).unlink(missing_ok=True)
            for name in (*_FOLDERS, _BLOCKS, _INCOMING):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            for name in (*DATABASES, vector_index.NAME):
                for suffix in ("", "-wal", "-shm"):
                    (self.folder / f"{name}{suffix}").unlink(missing_ok=True)
            self.remove_replies()

    def _read_state(self) -> _State | None:
        try:
            values: Any = json.loads((self.folder / _STATE).read_bytes())
            version = parse_version(json.dumps(values["version"]).encode(), self.url)
            return _State(str(values["etag"]), version, dict(values["retired"]))
        except (OSError, ValueError, TypeError, KeyError, LibraryDamaged):
            # Without a state the next refresh compares all files.
            return None

    def _write_state(self, state: _State) -> None:
        values = {**dataclasses.asdict(state), "version": json.loads(state.version.to_json())}
        new = self.folder / f"{_STATE}.new"
        with translate_errors(self.folder):
            with os.fdopen(open_private(new, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
                json.dump(values, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.folder / _STATE)
            sync_path(self.folder)
            for name in DATABASES:
                self._mark_of_change(name).unlink(missing_ok=True)


def link_or_copy(source: Path, target: Path) -> None:
    """Make the content of a file available under another path, as a copy where links are impossible."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def _continues(version: SharedVersion, old: SharedVersion) -> bool:
    """Return whether a version may follow the old one: neither of another library, nor restored from a backup."""
    is_newer = table_version(version.files) >= table_version(old.files)
    return version.library_id == old.library_id and version.number >= old.number and is_newer


def _placing_order(name: str) -> int:
    """Return when a file is put in place: data first, then the descriptions that name them."""
    if name in _LAST:
        return 2 + _LAST.index(name)
    return int(name.startswith(_VERSIONS))
