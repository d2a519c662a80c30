"""One door for every source of documents: which reader reads which path. Does not know what becomes of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from epicrisis.errors import InputError
from epicrisis.types import Document

from . import files, jsonl, pubmedqa
from .inputs import Skipped, because, check_file, is_folder, shown

__all__ = ["FORMATS", "Skipped", "read"]

FORMATS = ("jsonl", "text", "pubmedqa")
_IN_FOLDERS = {".jsonl": "jsonl", ".jsonl.gz": "jsonl", ".txt": "text", ".md": "text", ".markdown": "text"}
_NAMED = {**_IN_FOLDERS, ".json": "pubmedqa"}

_Reader: TypeAlias = Callable[[], Iterator[Document | Skipped]]


def read(paths: Sequence[Path], format: str | None = None) -> Iterator[Document | Skipped]:
    """The documents of files and folders, in the order given; what was left out comes as `Skipped`, in its place.

    A folder gives every file below it in the order of its path, hidden ones left out; other endings, and empty files,
    are skipped. `format` (one of FORMATS) reads every file as that, whatever its ending.

    Every path is looked at before this returns, so that a slip in the last one costs nothing. Raises InputError for a
    path that is missing, unreadable or empty, for a folder without a file that can be read, for an ending or format
    that is not known, and where two files would get the same id.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"no format is called {format!r}; the known ones are {', '.join(FORMATS)}")
    if not paths:
        raise InputError("no path was given; name at least one file or folder")
    readers: list[_Reader] = []
    named: dict[str, Path] = {}
    for path in paths:
        found = _below(path, format) if is_folder(path) else [(path, path.name, _format_of(path, format))]
        for file, name, kind in found:
            if kind == "text" and not _first_of_its_name(file, name, named):
                continue
            readers.append(_reader(file, name, kind))
    return itertools.chain.from_iterable(reader() for reader in readers)


def _format_of(path: Path, forced: str | None) -> str:
    check_file(path)
    kind = forced or _by_ending(path.name, _NAMED)
    if kind is None:
        raise InputError(
            f"{shown(path)}: its ending is not one of {', '.join(_NAMED)}; rename it, or name the format "
            f"({', '.join(FORMATS)})"
        )
    return kind


def _by_ending(name: str, endings: dict[str, str]) -> str | None:
    return next((kind for ending, kind in endings.items() if name.lower().endswith(ending)), None)


def _below(folder: Path, forced: str | None) -> list[tuple[Path, str, str | None]]:
    """(path, path relative to the folder, format) of every visible file below; format `None`: cannot be read."""

    def refuse(error: OSError) -> None:
        raise InputError(f"{shown(error.filename)}: {because(error)}; check the folder's permissions") from error

    found: list[tuple[Path, str, str | None]] = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                file = Path(place, name)
                kind = forced or _by_ending(name, _IN_FOLDERS)
                found.append((file, file.relative_to(folder).as_posix(), kind))
    if not any(kind for _, _, kind in found):
        raise InputError(
            f"{shown(folder)}: no file below it that can be read ({', '.join(_IN_FOLDERS)}); check the path"
        )
    return sorted(found, key=lambda item: item[1])


def _first_of_its_name(file: Path, name: str, named: dict[str, Path]) -> bool:
    """False where this very file was met before. Raises InputError where another one has the same name."""
    if name not in named:
        named[name] = file
        return True
    first = named[name]
    if first.resolve() == file.resolve():
        return False
    raise InputError(
        f"{shown(first)} and {shown(file)} would both be the document file:{shown(name)}; "
        "name the folder above both, or rename one"
    )


def _reader(file: Path, name: str, kind: str | None) -> _Reader:
    if kind == "pubmedqa":
        return partial(pubmedqa.documents, file, pubmedqa.load(file))
    if kind is None:
        return partial(_skip, file, f"its ending is not one of {', '.join(_IN_FOLDERS)}")
    try:
        check_file(file)
    except InputError as error:
        return partial(_skip, file, error.message.removeprefix(f"{shown(file)}: "))
    return partial(files.read, file, name) if kind == "text" else partial(jsonl.read, file)


def _skip(file: Path, reason: str) -> Iterator[Skipped]:
    yield Skipped(shown(file), "", reason)
