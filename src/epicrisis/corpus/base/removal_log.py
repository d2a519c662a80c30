"""Log what is removed from notes, or left out with them: counts for the report, and the texts in a private file."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from epicrisis.core.errors import StorageError
from epicrisis.core.printable import printable_json
from epicrisis.corpus.base.reader_base import fingerprint_file, os_error_reason, printable_path
from epicrisis.system.local_only import open_private

REMOVAL_LOG_FILE = "removed.jsonl"
WHOLE_NOTE_KINDS = frozenset(("duplicate", "marked-as-error", "superseded"))
"""Kinds of complete notes; the other kinds are boilerplate."""
RUNNING_LINE = "running-line"
"""The kind of running heads, feet and page numbers of PDF files."""
LINE_NUMBERS = "line-numbers"
"""The kind of the numbers beside the lines of manuscripts."""
REFERENCE_LIST = "reference-list"
"""The kind of lists of references of text, Markdown and HTML files."""
FILE_KINDS = frozenset((RUNNING_LINE, LINE_NUMBERS, REFERENCE_LIST))
"""Kinds that are removed from files and not from notes."""
_BATCH = 1000
"""Lines written together, and documents listed on one line of a recurring text."""


@dataclass(frozen=True, slots=True)
class RemovalCounts:
    """The removals of one kind: from `notes` notes, `texts` different texts, `characters` characters in all."""

    notes: int
    texts: int
    characters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalSummary:
    """What happened to the notes of an addition: counts only, no text."""

    notes: int
    kinds: Mapping[str, RemovalCounts]
    """By kind: those of `WHOLE_NOTE_KINDS`, `recurring` texts of a template, and the kinds of footers."""
    without_time: int
    """Notes without a time in their source."""
    time_not_read: int
    """Notes whose time could not be parsed; it is in the metadata (`time_given`)."""
    other_resources: Mapping[str, int]
    """FHIR resources that contain no note, by type; Patient and Encounter are counted only if there was no note."""
    facts: Mapping[str, int] = field(default_factory=dict)
    """Structured facts that were read, by kind."""
    fact_problems: Mapping[str, int] = field(default_factory=dict)
    """What is missing in facts, or was not read of their tables: `units that are not UCUM`."""


class RemovalLog:
    """Count what is removed from notes. With `keep_texts`, the texts are kept for the file of `write_to`."""

    def __init__(self, keep_texts: bool = False) -> None:
        self.notes = self.without_time = self.time_not_read = 0
        self.other_resources: Counter[str] = Counter()
        self.identity_resources: Counter[str] = Counter()
        self.facts: Counter[str] = Counter()
        self.fact_problems: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()
        self._characters: Counter[str] = Counter()
        self._texts: dict[str, set[int]] = {}
        self._keep_texts = keep_texts
        self._lines: list[str] = []
        self._recurring: dict[tuple[str, str], tuple[dict[str, Any], list[str]]] = {}
        self._names: dict[str, str] = {}
        self._file: Path | None = None
        self._has_written = False

    def begin_source(self, path: Path, name: str) -> str:
        """Return the key for `record` of a file to be read: its SHA-256 with texts, since names may be equal."""
        source = fingerprint_file(path).sha256 if self._keep_texts else name
        self._names[source] = name
        return source

    def record(self, source: str, kind: str, document: str, texts: Sequence[str], **details: Any) -> None:
        """Record texts of one kind that were removed from one note; `details` are added to their lines."""
        self._notes[kind] += 1
        self._characters[kind] += sum(map(len, texts))
        self._texts.setdefault(kind, set()).update(map(hash, texts))
        if not self._keep_texts:
            return
        for text in texts:
            if kind != "recurring":
                self._add_line(source, {"kind": kind, "text": text, **details, "documents": [document]})
                continue
            line, documents = self._recurring.setdefault((source, text), ({"text": text, **details}, []))
            documents.append(document)
            if len(documents) == _BATCH:
                self._add_line(source, {"kind": kind, **line, "documents": documents})
                del self._recurring[source, text]

    @property
    def has_sources(self) -> bool:
        """Whether a source of notes or facts was read."""
        return bool(self._names or self.facts or self.other_resources)

    def summary(self) -> RemovalSummary:
        """Return the counts so far."""
        kinds = {}
        for kind in sorted(self._notes):
            kinds[kind] = RemovalCounts(self._notes[kind], len(self._texts[kind]), self._characters[kind])
        resources = self.other_resources.copy()
        if not self.notes and not self.facts:
            resources += self.identity_resources
        return RemovalSummary(
            notes=self.notes,
            kinds=kinds,
            without_time=self.without_time,
            time_not_read=self.time_not_read,
            other_resources=dict(sorted(resources.items())),
            facts=dict(sorted(self.facts.items())),
            fact_problems=dict(sorted(self.fact_problems.items())),
        )

    def write_to(self, folder: Path) -> None:
        """Write texts recorded from now on to a temporary file in the folder; `close` merges it into the log file."""
        self._file = folder / f"{REMOVAL_LOG_FILE}.new"

    def close(self) -> None:
        """Replace the log file: earlier lines, except those of the sources read now, then the new lines.

        Does nothing without `write_to`, or if no notes were read. Raises StorageError if the folder cannot be written.
        """
        for (source, _), (entry, documents) in self._recurring.items():
            self._add_line(source, {"kind": "recurring", **entry, "documents": documents})
        self._recurring.clear()
        if self._file is None or not self._names:
            return
        log_file = self._file.with_name(REMOVAL_LOG_FILE)
        if not (self._lines or self._has_written or log_file.exists()):
            return
        self._flush()
        with _storage_errors(log_file):
            merged = self._file.with_name(f"{REMOVAL_LOG_FILE}.joined")
            with open(open_private(merged, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
                for line in _read_lines(log_file):
                    old_source = None
                    with suppress(ValueError, RecursionError, TypeError, KeyError):
                        old_source = json.loads(line)["sha256"]
                    # A damaged line is kept.
                    if not isinstance(old_source, str) or old_source not in self._names:
                        file.write(line)
                file.writelines(_read_lines(self._file))
                file.flush()
                os.fsync(file.fileno())
            os.replace(merged, log_file)
            self._file.unlink()

    def _add_line(self, source: str, line: Mapping[str, Any]) -> None:
        entry = {"source": self._names[source], "sha256": source, **line}
        self._lines.append(printable_json(json.dumps(entry, ensure_ascii=False)) + "\n")
        if self._file is not None and len(self._lines) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        assert self._file is not None, "write_to was called"
        # The first write replaces what a killed addition left.
        flag, mode = (os.O_APPEND, "a") if self._has_written else (os.O_TRUNC, "w")
        self._has_written = True
        with (
            _storage_errors(self._file),
            open(open_private(self._file, os.O_WRONLY | flag), mode, encoding="utf-8") as file,
        ):
            file.writelines(self._lines)
        self._lines.clear()


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cause = f"{printable_path(path)}: {os_error_reason(error)}"
        raise StorageError(f"{cause}; free some space, or check the folder's permissions") from error


def _read_lines(path: Path) -> Iterator[str]:
    """Yield the complete lines of a file; none if there is no file."""
    if path.exists():
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.endswith("}\n"):
                    yield line
