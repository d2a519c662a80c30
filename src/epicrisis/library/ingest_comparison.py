"""Compare documents with a library's journal, and with earlier documents of the same ingestion."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from enum import Enum, auto

from epicrisis.library.library import Library
from epicrisis.serialization import to_json
from epicrisis.types import Document

SAME_ID_OTHER_TEXT = "same id, different text"
SAME_ID_OTHER_NOTE = (
    "same id, but another note or another patient's: name a column with an id unique to each note (--column "
    "note-id=NAME), or none; for FHIR, add sources with their own ids to a separate library"
)


class DocumentState(Enum):
    """A document compared with the library."""

    NEW = auto()
    CHANGED = auto()
    UNCHANGED = auto()
    OUTDATED = auto()
    """Older than the document in the library, or than its deletion."""


def content_hash(document: Document) -> str:
    """Return the first 32 digits of the SHA-256 of the whole document as canonical JSON."""
    canonical = json.dumps(to_json(document), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def compare_with_library(library: Library, document: Document, digest: str) -> DocumentState:
    """Compare a document with content hash `digest` with the acknowledged documents and deletions."""
    revision = library.revisions([document.id]).get(document.id)
    existing = library.content_hashes([document.id]).get(document.id)
    if (revision or "") > (document.revision or ""):
        return DocumentState.OUTDATED
    # A deletion wins over a version of the same revision, in any order.
    if revision is not None and existing is None and revision == document.revision:
        return DocumentState.OUTDATED
    if existing is None:
        return DocumentState.NEW
    return DocumentState.UNCHANGED if existing == digest else DocumentState.CHANGED


class FirstHashes:
    """The content hash of the first document of each id in an ingestion, stored on disk when there are many.

    The file lies outside the library, and ids may name patients, so only hashes of the ids are stored.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("CREATE TABLE seen(id BLOB PRIMARY KEY, content_hash TEXT NOT NULL) WITHOUT ROWID")
        self._db.execute("BEGIN")

    def add(self, document_id: str, digest: str) -> str | None:
        """Return the first hash of the id. If there is none, store this one and return None."""
        key = hashlib.sha256(document_id.encode()).digest()
        if self._db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (key, digest)).rowcount:
            return None
        return str(self._db.execute("SELECT content_hash FROM seen WHERE id = ?", (key,)).fetchone()[0])

    def close(self) -> None:
        self._db.close()
