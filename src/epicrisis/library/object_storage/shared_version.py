"""The current version of a library on object storage: one object that names all files of the library.

A writer replaces this object only if it is the one that it read before (If-Match). This is the commit: before it no
reader sees a new file, after it every reader does.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epicrisis.core.errors import LibraryDamaged
from epicrisis.library.base import manifest
from epicrisis.library.core import journal, patient_identities
from epicrisis.library.engines import lance_table, vector_index, word_index
from epicrisis.library.object_storage.writer_lease import MOST_WRITERS

NAME = "library.json"
FORMAT = 1
FOLDER = "files"
"""The folder of all other objects of a library. Each has a random name, so none is ever written twice."""
DATABASES = (journal.NAME, patient_identities.NAME)
"""The SQLite files of a library. They are stored in blocks, since every batch changes a small part of them."""
_KEY = re.compile(rf"{FOLDER}/[0-9a-f]{{32}}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-]")
"""A part of a path: no `..`, no separator, and no file that only one process uses."""
_BLOCK = re.compile(r"(.+)#[0-9]{6}")


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file of a library, or a block of one, and the object that holds it."""

    key: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SharedVersion:
    """One version of a library on object storage."""

    library_id: str
    number: int
    """Grows by one with every commit."""
    token: int
    """The fencing token of the writer that wrote this object last. A later writer has a higher one."""
    commit: str
    """A random id of this object, by which a writer recognises its own commit after a lost reply."""
    deletions: int
    """The number of deletions on request. When it grows, readers remove the cached replies that may quote documents."""
    files: Mapping[str, SharedFile]
    """The files by path within the library. Blocks of databases are named `journal.sqlite#000000`."""

    def to_json(self) -> bytes:
        """Return the content of the object."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, separators=(",", ":")).encode()

    def blocks_of(self, database: str) -> dict[str, SharedFile]:
        """Return the blocks of a database, in order. Empty if the library has no such database."""
        return {name: file for name, file in sorted(self.files.items()) if name.startswith(f"{database}#")}


def parse_version(data: bytes, place: str) -> SharedVersion:
    """Return the version in this object. Raise LibraryDamaged for anything else, with `place` in the message."""
    try:
        values: Any = json.loads(data)
        number = values.pop("format")
        if number > FORMAT:
            raise LibraryDamaged(
                f"{place} has format {number} of object storage, this program reads up to {FORMAT}: install a newer "
                "epicrisis"
            )
        files = {name: SharedFile(**file) for name, file in values.pop("files").items()}
        version = SharedVersion(files=files, **values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise LibraryDamaged(
            f"{place}/{NAME} cannot be read: restore this object from a backup of the bucket"
        ) from None
    numbers = (version.number, version.token, version.deletions)
    is_valid = all(type(number) is int and 0 <= number <= MOST_WRITERS for number in numbers)
    is_valid = is_valid and all(isinstance(text, str) for text in (version.library_id, version.commit))
    for name, file in files.items():
        is_valid = is_valid and _is_allowed(name) and type(file.bytes) is int and file.bytes >= 0
        is_valid = is_valid and _KEY.fullmatch(str(file.key)) is not None
        is_valid = is_valid and _DIGEST.fullmatch(str(file.sha256)) is not None
    if not is_valid:
        raise LibraryDamaged(f"{place}/{NAME} is not valid: restore this object from a backup of the bucket")
    return version


def _is_allowed(name: str) -> bool:
    """Return whether the name is a path of a library's file. A bucket must not write anywhere else."""
    block = _BLOCK.fullmatch(name)
    if block is not None:
        return block[1] in DATABASES
    first, *rest = name.split("/")
    if not rest:
        return first in (manifest.NAME, vector_index.NAME)
    return first in (lance_table.NAME, word_index.NAME) and all(_PART.fullmatch(item) for item in rest)
