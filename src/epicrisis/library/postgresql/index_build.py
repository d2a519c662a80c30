"""Build the index of vectors of a library in PostgreSQL, and report how far it is.

build_vector_index(database, on_step)
has_vector_index(database)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from epicrisis.core.errors import EpicrisisError
from epicrisis.library.postgresql.database import Database
from epicrisis.library.postgresql.database_schema import VECTOR_INDEX

if TYPE_CHECKING:
    from psycopg import Connection

_LOOK_SECONDS = 2.0
# The share is unknown at the beginning, and while the server writes the finished index.
_SHARE = (
    "SELECT blocks_done::float8 / blocks_total FROM pg_stat_progress_create_index "
    "WHERE relid = to_regclass('passages') AND blocks_total > 0"
)


def has_vector_index(database: Database) -> bool:
    """Return whether the primary has an index of vectors."""
    with database.write() as connection:
        return connection.execute("SELECT to_regclass(%s) IS NULL", (VECTOR_INDEX,)).fetchone() == (False,)


def build_vector_index(database: Database, on_step: Callable[[str], None]) -> None:
    """Build an index of vectors, put it into the place of the old one, and report its progress.

    Raise LibraryBusy if a long read keeps the old one in use. An exception of `on_step` takes the build back.
    """
    from psycopg import errors

    on_step("building the vector index")
    is_finished = threading.Event()
    with database.write() as connection, ThreadPoolExecutor(1) as threads:
        progress = threads.submit(_report_progress, database, connection, on_step, is_finished)
        try:
            try:
                connection.execute("SELECT build_vector_index()")
            finally:
                is_finished.set()
        except errors.QueryCanceled:
            # Raises the exception for which the build was cancelled, if there is one.
            progress.result()
            raise
        except errors.LockNotAvailable:
            raise database.explain_long_read("vector") from None
    progress.result()


def _report_progress(
    database: Database, builder: Connection[Any], on_step: Callable[[str], None], is_finished: threading.Event
) -> None:
    """Report the share of the passages that are in the index. An exception of `on_step` cancels the build."""
    while not is_finished.wait(_LOOK_SECONDS):
        try:
            with database.read_for(None, primary=True) as connection:
                row = connection.execute(_SHARE.encode()).fetchone()
        except EpicrisisError:
            # The build goes on without a report.
            continue
        if row is None:
            continue
        try:
            # The share is first, since a narrow terminal cuts the end off.
            on_step(f"{row[0]:.0%} of the vector index")
        except BaseException:
            builder.cancel_safe()
            raise
