"""The lock of a library on object storage: a lease with an expiry and a fencing token, in one object.

The owner renews the lease while it lives. The process that takes over an expired lease gets a higher token, and writes
it into the library's current version. An earlier owner that wakes up can then commit nothing, since the version is not
the one that it read (see `shared_version`). The lease only spares writers useless work; that comparison is what
protects data.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from epicrisis.core.errors import EpicrisisError, LibraryBusy, LibraryDamaged, LibraryError
from epicrisis.library.object_storage.object_store import ConditionFailed, ObjectStore

NAME = "writer.json"
SECONDS = 60.0
"""How long a lease lasts without renewal. The server's clock counts."""
MAX_SECONDS = 3600.0
"""The longest lease that another process may have written. A longer one would lock the library for ever."""
MOST_WRITERS = 2**53
"""The highest token: integers up to it are the same for all readers of JSON."""


@dataclass(frozen=True, slots=True)
class _Record:
    """The content of the object."""

    token: Annotated[int, Field(ge=1, le=MOST_WRITERS)]
    owner: Annotated[str, Field(min_length=1, max_length=200)]
    """A random id of the owner's folder. One process at a time writes in it, which a lock of the system ensures."""
    host: Annotated[str, Field(max_length=300)]
    seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)]
    active: bool

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


_RECORD = TypeAdapter(_Record)


class WriterLease:
    """The lease of one writer. A thread renews it until `release`."""

    def __init__(self, objects: ObjectStore, record: _Record, etag: str) -> None:
        """Use `acquire` instead."""
        self._objects = objects
        self._record = record
        self._etag = etag
        self.is_lost = False
        """Whether another writer has taken the lease over."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_ended, daemon=True)
        self._thread.start()

    @property
    def token(self) -> int:
        """The fencing token, higher than that of every earlier writer."""
        return self._record.token

    @classmethod
    def acquire(cls, objects: ObjectStore, owner: str) -> WriterLease:
        """Take the lease, and return it. Raise LibraryBusy while another writer has it.

        An `owner` takes its own lease over at once: the caller holds the lock of that folder, so the process that had
        the lease has ended.
        """
        stored = objects.read(NAME)
        token, busy = 1, _busy(objects.url, "another process")
        if stored is not None:
            old = _parse(stored.data, objects.url)
            token = old.token + 1
            if old.active and old.owner != owner and stored.age < old.seconds:
                rest = old.seconds - stored.age
                busy = _busy(objects.url, f"a process on {old.host}")
                raise LibraryBusy(f"{busy}. If it was killed, its lock expires in {rest:.0f} s")
        record = _Record(token, owner, socket.gethostname(), SECONDS, active=True)
        try:
            if stored is None:
                etag = objects.create(NAME, record.to_json())
                _check_conditions(objects, record)
            else:
                etag = objects.replace(NAME, record.to_json(), stored.etag)
        except ConditionFailed:
            stored = objects.read(NAME)
            # The reply to the first attempt may have been lost.
            if stored is None or _parse(stored.data, objects.url) != record:
                raise LibraryBusy(busy) from None
            etag = stored.etag
        return cls(objects, record, etag)

    def release(self) -> None:
        """End the lease, so that the next writer need not wait. Without the server it ends by its expiry."""
        self._ended.set()
        self._thread.join()
        if not self.is_lost:
            record = _Record(self.token, self._record.owner, self._record.host, self._record.seconds, active=False)
            with suppress(EpicrisisError, ConditionFailed):
                self._objects.replace(NAME, record.to_json(), self._etag)

    def _renew_until_ended(self) -> None:
        while not self.is_lost and not self._ended.wait(self._record.seconds / 3):
            # Without the server there is nothing to write either. The next attempt follows.
            with suppress(EpicrisisError):
                self._renew()

    def _renew(self) -> None:
        try:
            self._etag = self._objects.replace(NAME, self._record.to_json(), self._etag)
        except ConditionFailed:
            stored = self._objects.read(NAME)
            # The reply to the last renewal may have been lost.
            if stored is not None and _parse(stored.data, self._objects.url) == self._record:
                self._etag = stored.etag
            else:
                self.is_lost = True


def _parse(data: bytes, url: str) -> _Record:
    try:
        return _RECORD.validate_json(data, strict=True)
    except ValidationError:
        raise LibraryDamaged(
            f"{url}/{NAME} cannot be read: make sure that nobody writes to the library, then remove this object"
        ) from None


def _check_conditions(objects: ObjectStore, record: _Record) -> None:
    """Raise LibraryError if the server ignores the conditions of a write. Two writers would then destroy a library."""
    is_ignored = 0
    with suppress(ConditionFailed):
        objects.create(NAME, record.to_json())
        is_ignored += 1
    with suppress(ConditionFailed):
        objects.replace(NAME, record.to_json(), '"00000000000000000000000000000000"')
        is_ignored += 1
    if is_ignored:
        raise LibraryError(
            f"{objects.host} ignores the conditions of writes (If-Match, If-None-Match), which the lock of a library "
            "needs: use a server that supports them"
        )


def _busy(url: str, writer: str) -> str:
    return f"{writer} is writing to {url}: wait until it ends, or stop it. Reading works meanwhile"
