"""Questions to a server about one connection."""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from psycopg import Connection

_CHECK_S = 5
"""Seconds for which a connection that answered is taken to work, unless the server has closed it."""


class ConnectionCheck:
    """The check of a connection before a pool lends it. Thread-safe."""

    def __init__(self) -> None:
        self._answers: WeakKeyDictionary[Connection[Any], float] = WeakKeyDictionary()

    def __call__(self, connection: Connection[Any]) -> None:
        """Ask the server whether the connection works, and raise psycopg.Error if it does not.

        One that answered a moment ago is only looked at: to an idle connection a server sends nothing but its end.
        """
        from psycopg_pool import ConnectionPool

        now = time.monotonic()
        # The socket of a connection that has ended has no number.
        if connection.closed or _has_data(connection) or now - self._answers.get(connection, -_CHECK_S) >= _CHECK_S:
            ConnectionPool.check_connection(connection)
            self._answers[connection] = now


@contextmanager
def begin_pipeline(connection: Connection[Any]) -> Iterator[None]:
    """Open a transaction with one snapshot. Its statements go to the server when a result is fetched.

    `Connection.transaction` would wait for an answer at its beginning and at its end.
    """
    try:
        with connection.pipeline():
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield
            connection.execute("COMMIT")
    except BaseException:
        if not connection.closed:
            connection.rollback()
        raise


def _has_data(connection: Connection[Any]) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        return bool(selector.select(0))


def read_process(connection: Connection[Any]) -> int | None:
    """Return the id of the process of the server that runs this connection's statements."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return None if row is None else int(row[0])
