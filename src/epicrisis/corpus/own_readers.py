"""The readers of files that other installed packages offer, see `extensions`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from epicrisis.core.extensions import list_extensions, make_extension
from epicrisis.core.protocols import FileReader
from epicrisis.core.types import Document
from epicrisis.corpus.reader_base import Skipped, skip


@cache
def find_own_reader(name: str) -> FileReader | None:
    """Return the reader that an installed package offers for this format, or None."""
    reader: FileReader | None = make_extension("reader", name)
    return reader


def list_own_readers() -> Iterator[tuple[str, FileReader]]:
    """Yield the formats of installed packages with their readers."""
    for name in list_extensions("reader"):
        reader = find_own_reader(name)
        if reader is not None:
            yield name, reader


def find_own_format(path: Path) -> str | None:
    """Return the format of an installed package for a file with this ending, or None."""
    for name, reader in list_own_readers():
        if path.name.lower().endswith(tuple(reader.suffixes)):
            return name
    return None


def read_own(reader: FileReader, path: Path, name: str) -> Iterator[Document | Skipped]:
    """Yield what the reader of another package finds. A reader that fails skips the file."""
    try:
        for item in reader.read(path, name):
            yield item if isinstance(item, Document) else skip(path, "", item)
    except Exception as error:  # noqa: BLE001 - a reader's error costs one file only
        # The message may quote the file.
        yield skip(path, "", f"its reader failed ({type(error).__name__}); report it to the reader's author")
