"""Build the index of vectors of a library in PostgreSQL, and report how far it is.

build_vector_index(database, on_step)
has_vector_index(database)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from epicrisis.errors import EpicrisisError, LibraryBusy
from epicrisis.library.postgresql.database import Database
from epicrisis.library.postgresql.schema import VECTOR_INDEX

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

    Raise LibraryBusy if a long read keeps the old one in use.
    """
    from psycopg import errors

    on_step("building the vector index")
    with _report_progress(database, on_step), database.write() as connection:
        try:
            connection.execute("SELECT build_vector_index()")
        except errors.LockNotAvailable:
            raise LibraryBusy(
                f"{database.address.public}: a long read, such as an export, keeps the new vector index from replacing "
                "the old one: run `epicrisis library optimize URL` when it has ended"
            ) from None


@contextmanager
def _report_progress(database: Database, on_step: Callable[[str], None]) -> Iterator[None]:
    """Report the share of the passages that the server has put into the index, from another thread."""
    is_finished = threading.Event()

    def look() -> None:
        while not is_finished.wait(_LOOK_SECONDS):
            # The build goes on without a report.
            with suppress(EpicrisisError):
                if rows := database.query(_SHARE):
                    # The share is first, since a narrow terminal cuts the end off.
                    on_step(f"{rows[0][0]:.0%} of the vector index")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_finished.set()
        thread.join()
