"""What was taken out of notes, or left out with them: counted for the report, and kept line by line in a private file.

Knows nothing of why something was taken out.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epicrisis.corpus.reader_base import fingerprint_file, os_error_reason, printable_path
from epicrisis.errors import StorageError
from epicrisis.printable import printable_json
from epicrisis.privacy import open_private

REMOVAL_LOG_FILE = "removed.jsonl"
"""The file in a library's folder."""
WHOLE_NOTE_KINDS = frozenset(("duplicate", "marked-as-error", "superseded"))
"""Kinds that are whole notes, left out however notes are taken in; the others are boilerplate."""
_AT_ONCE = 1000
"""Documents a line of a recurring text names; more of them make more lines."""


@dataclass(frozen=True, slots=True)
class RemovalCounts:
    """How much of one kind was taken out: of `notes` notes, so many different `texts` and `characters` in all."""

    notes: int
    texts: int
    characters: int


@dataclass(frozen=True, slots=True)
class RemovalSummary:
    """What became of the notes that were read: plain counts, no text."""

    notes: int
    """Notes given."""
    kinds: Mapping[str, RemovalCounts]
    """Those of `WHOLE_NOTE_KINDS`, `recurring` texts of a template, the others footers."""
    without_time: int
    """Notes whose source gives no time."""
    time_not_read: int
    """Notes whose time could not be read; its words are in the metadata (`time_given`)."""
    other_resources: Mapping[str, int]
    """Of FHIR: resources that hold no note, by type; Patient and Encounter among them where there was no note
    that they could tell of."""


class RemovalLog:
    """Counts what is taken out of notes. `hold`: what is taken out is kept, too, for the file of `into`; without it the
    texts are dropped."""

    def __init__(self, hold: bool = False) -> None:
        self.notes = self.without_time = self.time_not_read = 0
        self.other_resources: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()
        self._characters: Counter[str] = Counter()
        self._texts: dict[str, set[int]] = {}
        self._hold = hold
        self._held: list[str] = []
        self._open: dict[tuple[str, str], tuple[dict[str, Any], list[str]]] = {}
        self._names: dict[str, str] = {}
        self._file: Path | None = None
        self._begun = False

    def reading(self, path: Path, name: str) -> str:
        """Says that a file is read from its beginning: what an earlier addition took out of it is told anew. What
        `take` knows it by: its SHA-256, since files of two folders may have one name. Raises InputError."""
        source = fingerprint_file(path).sha256 if self._hold else name
        self._names[source] = name
        return source

    def take(self, source: str, kind: str, document: str, texts: Sequence[str], **more: Any) -> None:
        """These texts of one note, of one kind, were taken out; `more` goes into their lines."""
        self._notes[kind] += 1
        self._characters[kind] += sum(map(len, texts))
        self._texts.setdefault(kind, set()).update(map(hash, texts))
        if not self._hold:
            return
        for text in texts:
            if kind == "recurring":
                line, documents = self._open.setdefault((source, text), ({"text": text, **more}, []))
                documents.append(document)
                if len(documents) == _AT_ONCE:
                    self._write(source, {"kind": kind, **line, "documents": documents})
                    del self._open[source, text]
            else:
                self._write(source, {"kind": kind, "text": text, **more, "documents": [document]})

    @property
    def has_read(self) -> bool:
        """Whether a source of notes was read."""
        return bool(self._names)

    def summary(self) -> RemovalSummary:
        """The counts so far."""
        return RemovalSummary(
            notes=self.notes,
            kinds={
                kind: RemovalCounts(self._notes[kind], len(self._texts[kind]), self._characters[kind])
                for kind in sorted(self._notes)
            },
            without_time=self.without_time,
            time_not_read=self.time_not_read,
            other_resources=dict(sorted((self.other_resources + (Counter() if self.notes else self.told)).items())),
        )

    def into(self, folder: Path) -> None:
        """From now on what is taken out goes to a file beside `REMOVAL_LOG_FILE`; `close` puts it in its place."""
        self._file = folder / f"{REMOVAL_LOG_FILE}.new"

    def close(self) -> None:
        """Ends the file: the lines of earlier additions but for those of the sources that were read now, then the new
        ones. Nothing to do without `into`, or where no notes were read.

        Raises StorageError where the folder cannot be written.
        """
        for (source, _), (line, documents) in self._open.items():
            self._write(source, {"kind": "recurring", **line, "documents": documents})
        self._open.clear()
        if self._file is None or not self._names:
            return
        kept = self._file.with_name(REMOVAL_LOG_FILE)
        if not (self._held or self._begun or kept.exists()):
            return
        self._flush()
        with _stored(kept):
            joined = self._file.with_name(f"{REMOVAL_LOG_FILE}.joined")
            with open(open_private(joined, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
                file.writelines(line for line in _lines(kept) if _source_of(line) not in self._names)
                file.writelines(_lines(self._file))
                file.flush()
                os.fsync(file.fileno())
            os.replace(joined, kept)
            self._file.unlink()

    def _write(self, source: str, line: Mapping[str, Any]) -> None:
        told = {"source": self._names[source], "sha256": source, **line}
        self._held.append(printable_json(json.dumps(told, ensure_ascii=False)) + "\n")
        if self._file is not None and len(self._held) >= _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        assert self._file is not None, "a file was named"
        # What a killed addition left is begun anew.
        how = (os.O_APPEND, "a") if self._begun else (os.O_TRUNC, "w")
        self._begun = True
        with (
            _stored(self._file),
            open(open_private(self._file, os.O_WRONLY | how[0]), how[1], encoding="utf-8") as file,
        ):
            file.writelines(self._held)
        self._held.clear()


@contextmanager
def _stored(path: Path) -> Iterator[None]:
    """Disk errors as ours."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{printable_path(path)}: {os_error_reason(error)}; make room, or check the folder's permissions"
        ) from error


def _source_of(line: str) -> object:
    """The SHA-256 that the line names; None of a damaged line, which is kept."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    source = told.get("sha256") if isinstance(told, dict) else None
    return source if isinstance(source, str) else None


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file, none where there is none; one that broke off in its middle is left out."""
    if path.exists():
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from (line for line in file if line.endswith("}\n"))
