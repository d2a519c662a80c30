"""What a library says of itself: format, encoder, chunking, versions. It is this file that makes a folder a library.

Knows nothing of the passages.
"""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

from epicrisis.errors import EncoderMismatch, InputError, LibraryDamaged, LibraryMissing
from epicrisis.library.engine_errors import REPAIR, ours
from epicrisis.printable import quote_for_shell
from epicrisis.types import SplitterName

FORMAT = 2
PRECOMPUTED = "precomputed:"
"""Begins the fingerprint of vectors that came ready-made, such as NCBI's of PubMed."""
NAME = "manifest.json"
TEMPORARY = "manifest.json.tmp"
_MOST = 1_000_000
"""Dimensions, and tokens of a passage: more is damage, and would take more memory than there is."""
_LONGEST = 1000
_SOFTWARE = ("epicrisis", "lancedb", "tantivy", "pyarrow")


@dataclass(frozen=True, slots=True)
class LibraryManifest:
    """`splitter` says how documents are cut (see `corpus.splitting`); `max_tokens` and `overlap` (tokens) are those of
    the splitter `tokens`. `created` is ISO 8601, UTC.

    `complete` is False from the first moment of a library's making until its parts are there.
    """

    format: int
    library_id: str
    encoder_fingerprint: str
    encoder_name: str
    dimensions: int
    splitter: str
    max_tokens: int
    overlap: int
    software: Mapping[str, str]
    created: str
    complete: bool = False


def new_manifest(
    *, encoder_fingerprint: str, encoder_name: str, dimensions: int, max_tokens: int, overlap: int, splitter: str
) -> LibraryManifest:
    """Return a manifest for a library that is about to be made. Raises InputError where the numbers make no sense."""
    if not max_tokens > overlap >= 0:
        raise InputError(
            f"passages of {max_tokens} tokens cannot share {overlap} with their neighbours: give less than "
            f"{max_tokens} with --overlap"
        )
    if not 1 <= dimensions <= _MOST:
        raise InputError(f"vectors of {dimensions} dimensions make no library: check the encoder")
    return LibraryManifest(
        format=FORMAT,
        library_id=uuid.uuid4().hex,
        encoder_fingerprint=encoder_fingerprint,
        encoder_name=encoder_name,
        dimensions=dimensions,
        splitter=splitter,
        max_tokens=max_tokens,
        overlap=overlap,
        software={name: version(name) for name in _SOFTWARE},
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def write_manifest(folder: Path, manifest: LibraryManifest) -> None:
    """Whole or not at all, and durable when it returns. Raises StorageError."""
    data = json.dumps(dataclasses.asdict(manifest), indent=2, sort_keys=True) + "\n"
    with ours(folder):
        with (folder / TEMPORARY).open("w", encoding="utf-8") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        (folder / TEMPORARY).replace(folder / NAME)
        sync_folder(folder)


def completed(manifest: LibraryManifest) -> LibraryManifest:
    """The same, saying that its parts are there."""
    return dataclasses.replace(manifest, complete=True)


def sync_folder(folder: Path) -> None:
    """Makes the folder's entries (new names, renames) durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_manifest(folder: Path) -> LibraryManifest:
    """Raises LibraryMissing where there is none, LibraryDamaged where it cannot be understood."""
    path = folder / NAME
    if not path.exists():
        add = f"epicrisis library add {quote_for_shell(folder)} FILES"
        raise LibraryMissing(f"no library at {folder}: check the path, or make one with `{add}`")
    with ours(folder):
        data = path.read_bytes()
    try:
        values: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LibraryDamaged(f"{path} is not JSON: {REPAIR.split(',')[0]}, or restore this file") from error
    found = values.get("format") if isinstance(values, dict) else None
    if isinstance(found, int) and found > FORMAT:
        raise LibraryDamaged(
            f"{folder} has format {found}, this program knows up to {FORMAT}: install a newer epicrisis"
        )
    if isinstance(found, int) and found < FORMAT:
        raise LibraryDamaged(
            f"{folder} has format {found}, this program writes {FORMAT}: make it again with `epicrisis library add`"
        )
    if found != FORMAT or not _fits(values):
        raise LibraryDamaged(f"{path} lacks what a manifest holds: {REPAIR.split(',')[0]}, or restore this file")
    return LibraryManifest(**values)


def complete_manifest(folder: Path) -> LibraryManifest | None:
    """Return the manifest of the library at `folder`, or None where there is none or its creation was interrupted.

    Raises LibraryDamaged where the manifest cannot be understood.
    """
    if not (folder / NAME).is_file():
        return None
    manifest = read_manifest(folder)
    return manifest if manifest.complete else None


def _fits(values: Mapping[str, Any]) -> bool:
    kinds = {"format": int, "dimensions": int, "max_tokens": int, "overlap": int, "software": dict, "complete": bool}
    typed = set(values) == {field.name for field in dataclasses.fields(LibraryManifest)} and all(
        type(value) is kinds.get(name, str) for name, value in values.items()
    )
    return typed and _sensible(values)


def _sensible(values: Mapping[str, Any]) -> bool:
    """Whether the values of a manifest, of the right types, are such as a library is written with."""
    software = values["software"]
    texts = [value for value in values.values() if isinstance(value, str)]
    texts += [*software.keys(), *software.values()]
    return (
        1 <= values["dimensions"] <= _MOST
        and 0 <= values["overlap"] < values["max_tokens"] <= _MOST
        and values["splitter"] in get_args(SplitterName)
        and all(isinstance(text, str) and len(text) <= _LONGEST and text.isprintable() for text in texts)
    )


def check_encoder(folder: Path, manifest: LibraryManifest, fingerprint: str) -> None:
    """Raises EncoderMismatch unless the library was made by this very encoder.

    Of ready-made vectors nobody knows the files they were made with: see `ingest.check_vectors`.
    """
    if fingerprint != manifest.encoder_fingerprint and not manifest.encoder_fingerprint.startswith(PRECOMPUTED):
        raise EncoderMismatch(
            f"{folder} was made by {manifest.encoder_name} ({manifest.encoder_fingerprint}), asked with {fingerprint}: "
            f"name the encoder with --encoder {quote_for_shell(manifest.encoder_name)}, or make another library"
        )
