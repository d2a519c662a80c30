"""Find the code of libraries that are not in their folder.

It is found by name, because it builds on the modules that ask for it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from epicrisis.core.errors import LibraryError
from epicrisis.system.remote_libraries import find_address

_POSTGRESQL = "epicrisis.library.postgresql.engine"
_OBJECT_STORAGE = "epicrisis.library.object_storage.shared_library"


def is_in_database(folder: Path) -> bool:
    """Return whether this folder represents a library in PostgreSQL."""
    address = find_address(folder)
    return address is not None and address.scheme == "postgresql"


def load_database_engine() -> Any:
    """Return the module whose functions take the folder of a library in PostgreSQL."""
    return import_module(_POSTGRESQL)


def load_object_storage(folder: Path) -> Any:
    """Return the module that opens libraries on object storage if this folder represents such a library, or None."""
    address = find_address(folder)
    return import_module(_OBJECT_STORAGE) if address is not None and address.scheme == "s3" else None


def load_engine(folder: Path) -> Any:
    """Return the module for creating and opening the library of this folder. None if it is the library."""
    return load_database_engine() if is_in_database(folder) else load_object_storage(folder)


def check_in_folder(folder: Path, command: str, advice: str) -> None:
    """Raise LibraryError if this command, which is for libraries in folders, is given one in a database."""
    if is_in_database(folder):
        raise LibraryError(f"{command} is for libraries in folders: {advice}")
