"""Build the index of vectors of a library in PostgreSQL, and report how far it is.

build_vector_index(database, on_step)
has_vector_index(database)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from epicrisis.errors import EpicrisisError, LibraryBusy
from epicrisis.library.postgresql.database import Database
from epicrisis.library.postgresql.schema import VECTOR_INDEX

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
    with database.write() as connection, _report_progress(database, connection, on_step) as exceptions:
        try:
            connection.execute("SELECT build_vector_index()")
        except errors.QueryCanceled:
            if exceptions:
                raise exceptions[0] from None
            raise
        except errors.LockNotAvailable:
            raise LibraryBusy(
                f"{database.address.public}: a long read, such as an export, keeps the new vector index from replacing "
                "the old one: run `epicrisis library optimize URL` when it has ended"
            ) from None
    if exceptions:
        raise exceptions[0]


@contextmanager
def _report_progress(
    database: Database, builder: Connection[Any], on_step: Callable[[str], None]
) -> Iterator[list[Exception]]:
    """Report the share of the passages that the server has put into the index, from another thread.

    The list receives an exception of `on_step`, which also cancels the statement of `builder`.
    """
    is_finished = threading.Event()
    exceptions: list[Exception] = []

    def look() -> None:
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
            except Exception as error:  # noqa: BLE001 - raised again in the thread of the caller
                exceptions.append(error)
                builder.cancel_safe()
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield exceptions
    finally:
        is_finished.set()
        thread.join()
