"""Translate the errors of PostgreSQL and its client into errors of this package, without passwords, texts and ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from epicrisis.core.errors import EpicrisisError, LibraryBusy, LibraryDamaged, LibraryError, StorageError
from epicrisis.library.postgresql.database_schema import READER, WRITER
from epicrisis.system.remote_libraries import LibraryAddress

if TYPE_CHECKING:
    import psycopg

_SET_UP = "docs/deployment.md#set-up-postgresql-once has the commands for an administrator"
_WRONG_URL = "the URL has an unknown parameter or a wrong value: correct it"
_READ_ONLY = "this server is read-only, as a standby is: name the primary in the URL"
_CONNECTION_FAULTS = (
    ("read-only", _READ_ONLY),
    ("password authentication failed", "the server refuses the user or the password: {password}"),
    ("no password supplied", "the server wants a password: {password}"),
    ("does not exist", "the server knows no such user or database: check the URL, or create them ({set_up})"),
    ("no pg_hba.conf entry", "the server does not admit this user from this machine: ask its administrator"),
    ("too many clients", "the server has no free connection: repeat the command later, or raise max_connections"),
    ("remaining connection slots", "the server has no free connection: repeat the command later"),
    ("starting up", "the server is starting: repeat the command in a moment"),
    ("certificate", "the certificate of the server is not accepted: check sslmode and sslrootcert of the URL"),
    ("SSL", "the encrypted connection failed: check sslmode of the URL"),
    *(
        (phrase, _WRONG_URL)
        for phrase in ("invalid URI", "invalid connection option", "invalid sslmode", "invalid int")
    ),
)
"""What the client says of a failed connection, and what to do."""
_PASSWORD = "put it into ~/.pgpass (mode 0600) or PGPASSWORD, and check the user in the URL"


@contextmanager
def translate_database_errors(address: LibraryAddress) -> Iterator[None]:
    """Translate errors of the database raised in the block. Errors of this package pass."""
    import psycopg
    import psycopg_pool

    try:
        yield
    except EpicrisisError:
        raise
    except psycopg_pool.PoolTimeout as error:
        raise StorageError(
            f"{address.public}: no connection in time: the server is down, or all connections of this process are in "
            "use: check the server, and repeat the command"
        ) from error
    except psycopg.Error as error:
        raise _translate(error, address) from error


def explain_connection_fault(error: psycopg.Error, address: LibraryAddress) -> EpicrisisError:
    """Return the error of a connection that could not be made."""
    text = str(error)
    for phrase, advice in _CONNECTION_FAULTS:
        if phrase in text:
            return LibraryError(f"{address.public}: {advice.format(password=_PASSWORD, set_up=_SET_UP)}")
    return StorageError(
        f"{address.public}: the server cannot be reached: check that it runs, and host and port of the URL"
    )


def _translate(error: psycopg.Error, address: LibraryAddress) -> EpicrisisError:
    from psycopg import errors

    name = address.public
    kind = f"{type(error).__name__} {error.sqlstate or ''}".strip()
    if isinstance(error, errors.InsufficientPrivilege):
        return LibraryError(
            f"{name}: this user of the database may not do this: reading needs a member of {READER}, adding and "
            f"deleting one of {WRITER}, creating and upgrading the owner of the schema"
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return LibraryError(f"{name}: {_READ_ONLY}")
    if isinstance(error, errors.DiskFull | errors.OutOfMemory | errors.ConfigurationLimitExceeded):
        return StorageError(
            f"{name}: the server has no room ({kind}): free disk space or memory there, and run the same command "
            "again. Everything acknowledged so far is saved"
        )
    if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected | errors.SerializationFailure):
        return LibraryBusy(f"{name}: another process changes the same rows ({kind}): repeat the command")
    if isinstance(error, errors.QueryCanceled):
        return StorageError(f"{name}: the server stopped the query (statement_timeout): raise it for this user")
    if error.sqlstate is None or error.sqlstate[:2] in ("08", "57"):
        return StorageError(
            f"{name}: the connection was lost ({kind}): check the server, and run the same command again. Everything "
            "acknowledged so far is saved"
        )
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn | errors.UndefinedFunction):
        return LibraryDamaged(
            f"{name}: a table, column or function is missing ({kind}): restore the database from its backup"
        )
    # Messages of the server may quote values.
    return LibraryDamaged(f"{name}: PostgreSQL reports {kind}; its log says more")
