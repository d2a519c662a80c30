"""Connections to the SQLite files of a library."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from pathlib import Path

from epicrisis.core.errors import StorageError


def connect(path: Path) -> sqlite3.Connection:
    """Open a file, or create it. On read-only media, where SQLite cannot create its auxiliary files, it is immutable.

    Every transaction is durable (`synchronous=FULL`) when its COMMIT returns. Raise StorageError if unmerged writes of
    a killed process would be invisible.
    """
    # The caller's lock serialises threads, so that the server's worker threads can share one connection.
    open_file = partial(sqlite3.connect, timeout=60, isolation_level=None, check_same_thread=False)
    database = open_file(path)
    try:
        database.execute("PRAGMA synchronous=FULL")
        if path.exists():
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        database.close()
        if not path.is_file() or os.access(path.parent, os.W_OK):
            raise
    else:
        return database
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        raise StorageError(
            f"{path.parent} is read-only, and its last writer did not close it: copy it to a writable disk, run "
            "`epicrisis library info` on the copy, and use the copy"
        )
    return open_file(f"{path.absolute().as_uri()}?immutable=1", uri=True)


def rewrite_file(database: sqlite3.Connection) -> None:
    """Rewrite a file and empty its log, so that neither holds remnants of deleted rows."""
    database.execute("VACUUM")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
