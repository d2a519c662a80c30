"""The manifest of a library: format, encoder, splitter and software versions. This file makes a folder a library."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, get_args

from epicrisis.core.errors import EncoderMismatch, InputError, LibraryDamaged, LibraryMissing
from epicrisis.core.printable import quote_for_shell
from epicrisis.core.types import SplitterName
from epicrisis.library.base.engine_errors import REPAIR, translate_errors
from epicrisis.library.base.remote_store import is_in_database, load_database_engine, load_object_storage
from epicrisis.system.local_only import HAS_OWNERS
from epicrisis.system.remote_libraries import show_library

FORMAT = 3
PRECOMPUTED = "precomputed:"
"""Prefix of the fingerprint of precomputed vectors, such as those of PubMed by NCBI."""
NAME = "manifest.json"
TEMPORARY = "manifest.json.tmp"
MAX_NUMBER = 1_000_000
"""Upper limit of dimensions and of tokens per passage. A higher number means damage and would exhaust the memory."""
_MAX_TEXT = 1000
_SOFTWARE = ("epicrisis", "lancedb", "tantivy", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryManifest:
    """The content of `manifest.json`."""

    format: int
    library_id: str
    encoder_fingerprint: str
    encoder_name: str
    dimensions: int
    splitter: str
    max_tokens: int
    """Maximum length of a passage for the splitter `tokens`."""
    overlap: int
    """Tokens shared by adjacent passages for the splitter `tokens`."""
    software: Mapping[str, str]
    created: str
    """ISO 8601, UTC."""
    complete: bool = False
    """False until all parts of the library exist."""


def build_manifest(
    encoder_fingerprint: str, encoder_name: str, dimensions: int, *, max_tokens: int, overlap: int, splitter: str
) -> LibraryManifest:
    """Return the manifest of a new library, whose parts do not exist yet. Raise InputError for impossible numbers."""
    if not max_tokens > overlap >= 0:
        raise InputError(
            f"passages of {max_tokens} tokens cannot share {overlap} with their neighbours: set --overlap to less "
            f"than {max_tokens}"
        )
    if not 1 <= dimensions <= MAX_NUMBER:
        raise InputError(f"a library cannot have vectors of {dimensions} dimensions: check the encoder")
    return LibraryManifest(
        format=FORMAT,
        library_id=uuid.uuid4().hex,
        encoder_fingerprint=encoder_fingerprint,
        encoder_name=encoder_name,
        dimensions=dimensions,
        max_tokens=max_tokens,
        overlap=overlap,
        splitter=splitter,
        software=list_software(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def list_software() -> dict[str, str]:
    """Return the versions of the installed packages that write libraries."""
    versions = {"sqlite": sqlite3.sqlite_version}
    for name in _SOFTWARE:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def write_manifest(folder: Path, manifest: LibraryManifest) -> None:
    """Write the manifest atomically and durably. Raise StorageError."""
    data = json.dumps(dataclasses.asdict(manifest), indent=2, sort_keys=True) + "\n"
    with translate_errors(folder):
        with (folder / TEMPORARY).open("w", encoding="utf-8") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        (folder / TEMPORARY).replace(folder / NAME)
        sync_path(folder)


def mark_complete(manifest: LibraryManifest) -> LibraryManifest:
    """Return the manifest of a library whose parts exist."""
    return dataclasses.replace(manifest, complete=True)


def sync_path(path: Path) -> None:
    """Make the content of a file, or the new and renamed entries of a folder, durable.

    Windows opens no folders, writes their entries itself, and writes only files that are open for writing.
    """
    if not HAS_OWNERS and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY if HAS_OWNERS else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_manifest(folder: Path) -> LibraryManifest:
    """Return the manifest of the library in `folder`. Raise LibraryMissing or LibraryDamaged."""
    if is_in_database(folder):
        manifest: LibraryManifest = load_database_engine().read_manifest(folder)
        return manifest
    path = folder / NAME
    if not _refresh(folder) or not path.exists():
        name = show_library(folder)
        if folder.is_file():
            command = f"epicrisis library add LIBRARY {quote_for_shell(name)}"
            raise LibraryMissing(f"{name} is a file, not a library: add it to one with `{command}`")
        command = f"epicrisis library add {quote_for_shell(name)} FILES"
        raise LibraryMissing(f"no library at {name}: check the path, or create one with `{command}`")
    with translate_errors(folder):
        data = path.read_bytes()
    try:
        values: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LibraryDamaged(f"{path} is not JSON: {REPAIR.split(',')[0]}, or restore this file") from error
    number = values.get("format") if isinstance(values, dict) else None
    if isinstance(number, int) and number != FORMAT:
        cure = "install a newer epicrisis" if number > FORMAT else "create it again with `epicrisis library add`"
        raise LibraryDamaged(f"{folder} has format {number}, this program reads format {FORMAT}: {cure}")
    if number != FORMAT or not _is_valid(values):
        raise LibraryDamaged(f"{path} is not a valid manifest: {REPAIR.split(',')[0]}, or restore this file")
    return LibraryManifest(**values)


def _refresh(folder: Path) -> bool:
    """Bring the copy of a library on object storage to its newest version. Return False if it is missing there."""
    module = load_object_storage(folder)
    return module is None or bool(module.refresh_replica(folder))


def complete_manifest(folder: Path) -> LibraryManifest | None:
    """Return the manifest of the library in `folder`, or None without a library or after an interrupted creation.

    Raise LibraryDamaged if the manifest cannot be read.
    """
    if not is_in_database(folder) and not (_refresh(folder) and (folder / NAME).is_file()):
        return None
    try:
        manifest = read_manifest(folder)
    except LibraryMissing:
        return None
    return manifest if manifest.complete else None


def _is_valid(values: Mapping[str, Any]) -> bool:
    kinds = {"format": int, "dimensions": int, "max_tokens": int, "overlap": int, "software": dict, "complete": bool}
    if set(values) != {field.name for field in dataclasses.fields(LibraryManifest)}:
        return False
    if any(type(value) is not kinds.get(name, str) for name, value in values.items()):
        return False
    software = values["software"]
    texts = [*software.keys(), *software.values(), *(value for value in values.values() if isinstance(value, str))]
    return (
        1 <= values["dimensions"] <= MAX_NUMBER
        and 0 <= values["overlap"] < values["max_tokens"] <= MAX_NUMBER
        and values["splitter"] in get_args(SplitterName)
        and all(isinstance(text, str) and len(text) <= _MAX_TEXT and text.isprintable() for text in texts)
    )


def check_encoder(folder: Path, manifest: LibraryManifest, fingerprint: str) -> None:
    """Raise EncoderMismatch unless the library was created with this encoder.

    Precomputed vectors are accepted, because their encoder's files are unknown. See `ingest.check_vectors`.
    """
    if fingerprint != manifest.encoder_fingerprint and not manifest.encoder_fingerprint.startswith(PRECOMPUTED):
        raise EncoderMismatch(
            f"{folder} was created with {manifest.encoder_name} ({manifest.encoder_fingerprint}), and {fingerprint} is "
            f"selected: pass --encoder {quote_for_shell(manifest.encoder_name)}, or create another library"
        )
