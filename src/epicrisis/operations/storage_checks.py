"""Check a library on object storage: conditional writes, the lock of the writer, and the objects of its version."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from epicrisis.core.errors import SettingsError
from epicrisis.core.printable import count_noun
from epicrisis.library.object_storage import shared_version, writer_lease
from epicrisis.library.object_storage.object_store import ConditionFailed, ObjectStore
from epicrisis.operations.cluster_parts import ClusterCheck, ClusterPart

_PROBE = "doctor-{}"


def check_storage(part: ClusterPart, url: str) -> Iterator[ClusterCheck]:
    """Yield the checks of a library on object storage.

    Raise LibraryError, SettingsError or StorageError if it cannot be reached.
    """
    objects = ObjectStore(url)
    stored = objects.read(shared_version.NAME)
    if stored is None:
        message = f"no library is there: check the URL, or create one with `epicrisis library add {part.name} FILES`"
        yield ClusterCheck(part.name, "library", "problem", message)
        return
    version = shared_version.parse_version(stored.data, part.name)
    names = set(objects.list_names(shared_version.FOLDER))
    missing = sorted({file.key for file in version.files.values()} - names)
    if missing:
        message = f"{count_noun(len(missing), 'object')} of the library missing: restore the folder from a backup"
        yield ClusterCheck(part.name, "library", "problem", message)
    else:
        size = sum(file.bytes for file in version.files.values()) / 1e6
        message = f"version {version.number}, {count_noun(len(version.files), 'object')}, {size:.1f} MB, all present"
        yield ClusterCheck(part.name, "library", "ok", message)
    yield _check_lease(part, objects)
    yield _check_conditions(part, objects)


def _check_lease(part: ClusterPart, objects: ObjectStore) -> ClusterCheck:
    stored = objects.read(writer_lease.NAME)
    if stored is None:
        return ClusterCheck(part.name, "writer", "ok", "nobody is writing")
    try:
        record: Any = json.loads(stored.data)
        active, host, seconds = bool(record["active"]), str(record["host"]), float(record["seconds"])
    except (ValueError, KeyError, TypeError):
        message = f"{writer_lease.NAME} cannot be read: make sure that nobody writes, then remove this object"
        return ClusterCheck(part.name, "writer", "problem", message)
    if not active:
        return ClusterCheck(part.name, "writer", "ok", "nobody is writing")
    if stored.age < seconds:
        return ClusterCheck(part.name, "writer", "ok", f"a process on {host} is writing")
    message = f"a process on {host} stopped without an end: run its command again, which continues"
    return ClusterCheck(part.name, "writer", "note", message)


def _check_conditions(part: ClusterPart, objects: ObjectStore) -> ClusterCheck:
    """Write an object twice under conditions that the second write does not meet, and remove it."""
    name = _PROBE.format(secrets.token_hex(8))
    topic = "conditional writes"
    try:
        objects.create(name, b"1")
    except SettingsError:
        return ClusterCheck(part.name, topic, "unknown", "this key may not write: run the check with that of a writer")
    ignored = []
    try:
        with suppress(ConditionFailed):
            objects.create(name, b"2")
            ignored.append("If-None-Match")
        with suppress(ConditionFailed):
            objects.replace(name, b"3", '"00000000000000000000000000000000"')
            ignored.append("If-Match")
    finally:
        objects.delete([name])
    if ignored:
        message = f"{objects.host} ignores {' and '.join(ignored)}, so two writers can destroy the library: use another"
        return ClusterCheck(part.name, topic, "problem", f"{message} server")
    return ClusterCheck(part.name, topic, "ok", "the server keeps the conditions")
