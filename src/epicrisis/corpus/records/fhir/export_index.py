"""Index what the resources of an export say about each other: Binaries, their owners, and versions.

An export may have gigabytes of Binaries. In plain NDJSON files only their places are stored; those of bundles and gzip
files are copied into a temporary file without a name, which disappears with the process.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from epicrisis.corpus.base.jsonl import parse_line
from epicrisis.corpus.base.reader_base import os_error_reason
from epicrisis.corpus.records.fhir.fhir_resources import Resource, last_updated

_MEMORY_BYTES = 32 * 1024 * 1024
"""Of the temporary file, before it is written to the disk."""
_TEMPORARY = -1
"""The number of the temporary file."""
_SCHEMA = """
CREATE TABLE binary(id TEXT, digest BLOB, file INTEGER, start INTEGER, size INTEGER, UNIQUE(id, digest));
CREATE TABLE owner(key TEXT, patient TEXT, PRIMARY KEY(key, patient)) WITHOUT ROWID;
CREATE TABLE claim(key TEXT, file INTEGER, subject TEXT);
CREATE TABLE version(name TEXT PRIMARY KEY, updated TEXT) WITHOUT ROWID;
CREATE TABLE clinical(
    note TEXT, patient TEXT, digest BLOB, stay TEXT, is_left_out INTEGER, PRIMARY KEY(patient, note, digest)
) WITHOUT ROWID;
CREATE TABLE stated(
    patient TEXT, kind TEXT, first INTEGER, last INTEGER, PRIMARY KEY(patient, kind, first, last)
) WITHOUT ROWID;
CREATE TABLE text(digest BLOB PRIMARY KEY, start INTEGER, size INTEGER) WITHOUT ROWID;
"""


class ExportIndex:
    """The index of the resources of all files of an export, about 200 bytes for each."""

    def __init__(self) -> None:
        # A generator that is not exhausted may be closed by any thread.
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._database.executescript(_SCHEMA)
        self._temporary = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - closed by `close`
        self._paths: list[Path] = []

    def close(self) -> None:
        """Discard the index."""
        self._temporary.close()
        self._database.close()

    def begin_file(self, path: Path) -> int:
        """Return the number of a file, for `add_claim`."""
        self._paths.append(path)
        return len(self._paths) - 1

    def add_binary(self, binary_id: str, resource: Resource, line: tuple[int, int] | None) -> None:
        """Add a Binary of the file begun last: its line in the file, or a copy."""
        content = json.dumps([resource.get("contentType"), resource.get("data") or resource.get("content")])
        digest = hashlib.sha256(content.encode()).digest()
        file = len(self._paths) - 1
        if line is None:
            keys = ("fullUrl", "contentType", "data", "content", "securityContext")
            line = self._append({key: resource[key] for key in keys if key in resource})
            file = _TEMPORARY
        self._database.execute("INSERT OR IGNORE INTO binary VALUES (?, ?, ?, ?, ?)", (binary_id, digest, file, *line))

    def read_binary(self, binary_id: str) -> Resource | None:
        """Return the Binary with this id, or None. Raises ValueError if there are two, or if it cannot be read."""
        query = "SELECT file, start, size FROM binary WHERE id = ?"
        rows = self._database.execute(query, (binary_id,)).fetchall()
        if not rows:
            return None
        if len(rows) > 1:
            raise ValueError("its Binary occurs more than once with different contents; export it again")
        file, start, size = rows[0]
        if file == _TEMPORARY:
            return self._read(start, size)
        try:
            with self._paths[file].open("rb") as lines:
                lines.seek(start)
                return parse_line(lines.read(size).removeprefix(b"\xef\xbb\xbf"))
        except OSError as error:
            raise ValueError(f"its Binary cannot be read ({os_error_reason(error)}); check the files") from error

    def add_claim(self, key: str, file: int, subject: Resource) -> None:
        """Record that a document with this subject names a Binary or a file as its text."""
        self._database.execute("INSERT INTO claim VALUES (?, ?, ?)", (key, file, json.dumps(subject)))

    def list_claims(self) -> Sequence[tuple[str, int, Resource]]:
        """Return key, file and subject of each claim."""
        rows = self._database.execute("SELECT key, file, subject FROM claim").fetchall()
        return [(key, file, json.loads(subject)) for key, file, subject in rows]

    def add_owner(self, key: str, patient: str) -> None:
        """Record a patient of the documents that name a Binary or a file."""
        self._database.execute("INSERT OR IGNORE INTO owner VALUES (?, ?)", (key, patient))

    def list_owners(self, key: str) -> set[str]:
        """Return the patients of the documents that name a Binary or a file."""
        return {row[0] for row in self._database.execute("SELECT patient FROM owner WHERE key = ?", (key,))}

    def add_version(self, name: str, resource: Resource) -> None:
        """Record when a version of the resource with this name was written."""
        if updated := last_updated(resource):
            query = (
                "INSERT INTO version VALUES (?, ?) ON CONFLICT DO UPDATE SET updated = max(updated, excluded.updated)"
            )
            self._database.execute(query, (name, updated))

    def is_outdated(self, name: str, resource: Resource) -> bool:
        """Return whether a later version of the resource is in the export."""
        updated = last_updated(resource)
        row = self._database.execute("SELECT updated FROM version WHERE name = ?", (name,)).fetchone()
        return bool(updated and row and row[0] > updated)

    def add_text(self, digest: bytes, value: Mapping[str, Any]) -> None:
        """Keep what was read from a file with this digest, since every note is read twice."""
        self._database.execute("INSERT OR IGNORE INTO text VALUES (?, ?, ?)", (digest, *self._append(value)))

    def read_text(self, digest: bytes) -> Mapping[str, Any] | None:
        """Return what `add_text` got, or None."""
        row = self._database.execute("SELECT start, size FROM text WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else self._read(*row)

    def add_clinical_document(
        self, note: str, patient: str, digest: bytes, stay: Sequence[str], *, is_left_out: bool
    ) -> None:
        """Record that a note has a C-CDA document, which `read_text` returns for this digest.

        `stay` is that of the note: encounter, admission and discharge.
        """
        values = (note, patient, digest, json.dumps(stay), is_left_out)
        self._database.execute("INSERT OR REPLACE INTO clinical VALUES (?, ?, ?, ?, ?)", values)

    def has_clinical_documents(self, patient: str) -> bool:
        """Return whether a note of the patient has a C-CDA document."""
        query = "SELECT 1 FROM clinical WHERE patient = ? LIMIT 1"
        return self._database.execute(query, (patient,)).fetchone() is not None

    def list_clinical_documents(self) -> Iterator[tuple[str, Mapping[str, Any], Sequence[str], bool]]:
        """Yield patient, document, stay, and whether it is left out, for the C-CDA document of each note."""
        query = "SELECT patient, digest, stay, is_left_out FROM clinical ORDER BY patient, note, digest"
        for patient, digest, stay, is_left_out in self._database.execute(query):
            if (document := self.read_text(digest)) is not None:
                yield patient, document, json.loads(stay), bool(is_left_out)

    def add_stated(self, patient: str, kind: str, first: int, last: int) -> None:
        """Record that a resource states a fact of this kind, of a day between these."""
        self._database.execute("INSERT OR IGNORE INTO stated VALUES (?, ?, ?, ?)", (patient, kind, first, last))

    def find_stated(self, patient: str, kind: str, first: int, last: int) -> bool:
        """Return whether a resource states a fact of this kind for the patient, of a day between these."""
        query = "SELECT 1 FROM stated WHERE patient = ? AND kind = ? AND first <= ? AND last >= ? LIMIT 1"
        return self._database.execute(query, (patient, kind, last, first)).fetchone() is not None

    def _append(self, value: Mapping[str, Any]) -> tuple[int, int]:
        data = json.dumps(value).encode()
        start = self._temporary.seek(0, 2)
        self._temporary.write(data)
        return start, len(data)

    def _read(self, start: int, size: int) -> Mapping[str, Any]:
        self._temporary.seek(start)
        value: Mapping[str, Any] = json.loads(self._temporary.read(size))
        return value
