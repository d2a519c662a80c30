"""Which ids an addition has met, and what each one's first document was. Knows no library."""

from __future__ import annotations

import hashlib
import sqlite3


class FirstHashes:
    """The ids of this addition and the hash of each one's first document, on disk where they grow large.

    Ids are kept as hashes: they may name patients, and the file lies outside the library.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("CREATE TABLE seen(id BLOB PRIMARY KEY, content_hash TEXT NOT NULL) WITHOUT ROWID")
        self._db.execute("BEGIN")

    def first(self, document_id: str, content_hash: str) -> str | None:
        """The hash the id had first; `None` where this is the first."""
        key = hashlib.sha256(document_id.encode()).digest()
        if self._db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (key, content_hash)).rowcount:
            return None
        return str(self._db.execute("SELECT content_hash FROM seen WHERE id = ?", (key,)).fetchone()[0])

    def close(self) -> None:
        self._db.close()
