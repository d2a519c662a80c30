"""URLs of libraries: what the database's client, the folder of this machine and messages get. No server is needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from epicrisis.core.errors import InputError, StorageError
from epicrisis.library.postgresql.database import Database
from epicrisis.system import remote_libraries
from epicrisis.system.remote_libraries import LibraryAddress, find_address, library_folder, record_address


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "home"))


def read_address(url: str) -> LibraryAddress:
    address = find_address(library_folder(url))
    assert address is not None
    return address


def create_database(url: str, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Return a database whose server is not contacted."""
    pytest.importorskip("psycopg_pool")
    pytest.importorskip("pgvector")
    with monkeypatch.context() as patch:
        patch.setattr(Database, "check_server", lambda self: None)
        patch.setattr(Database, "_open_pool", lambda self, conninfo: None)
        return Database(read_address(url))


def test_parameters_reach_the_client_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = pytest.importorskip("psycopg")
    url = (
        "postgresql://u@%2FRun%2FServer,DB.example.org/hospital"
        "?options=-c%20statement_timeout%3D5s&sslrootcert=/keys/a+b/my%20ca.pem&password=x+y"
    )
    values = psycopg.conninfo.conninfo_to_dict(create_database(url, monkeypatch)._conninfo)
    assert values["options"] == "-c statement_timeout=5s"
    assert values["sslrootcert"] == "/keys/a+b/my ca.pem"
    assert values["password"] == "x+y"
    assert values["host"] == "/Run/Server,db.example.org"


def test_address_is_the_same_after_it_was_written_and_read() -> None:
    url = "postgresql://u@h/db?sslrootcert=/keys/a+b/my%20ca.pem&schema=a%20b"
    public = read_address(url).public
    assert LibraryAddress(public).public == public
    assert library_folder(public) == library_folder(url)


@pytest.mark.parametrize("name", ["oauth_client_secret", "scram_client_key", "password", "sslpassword"])
def test_secret_parameter_is_never_shown(name: str) -> None:
    assert "hush" not in read_address(f"postgresql://u@h/db?{name}=hush").public


@pytest.mark.parametrize("name", ["..", ".", "x" * 300, "../..", "%2e%2e"])
def test_folder_of_any_database_lies_in_the_folder_of_its_library(name: str, tmp_path: Path) -> None:
    folder = library_folder(f"postgresql://u@h/{name}")
    folder.mkdir(parents=True)
    assert folder.resolve().parents[1] == (tmp_path / "home" / "remote").resolve()


@pytest.mark.parametrize("schema", ["a%00b", "x" * 64, "pg_catalog", "public", "information_schema"])
def test_schema_that_can_hold_no_library_is_refused(schema: str) -> None:
    with pytest.raises(InputError, match="choose another name, such as schema=ward7"):
        library_folder(f"postgresql://u@h/db?schema={schema}")


def test_connection_lost_before_its_first_query_is_an_error_of_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = pytest.importorskip("psycopg")
    database = create_database("postgresql://u@h/db", monkeypatch)
    monkeypatch.setattr(psycopg, "connect", lambda *arguments, **named: FakeConnection(psycopg.OperationalError()))
    with pytest.raises(StorageError, match="the connection was lost"), database.connect():
        pass


def test_connection_reads_quotes_as_the_program_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = pytest.importorskip("psycopg")
    database = create_database("postgresql://u@h/db", monkeypatch)
    connection = FakeConnection(None)
    monkeypatch.setattr(psycopg, "connect", lambda *arguments, **named: connection)
    with database.connect():
        assert "SET standard_conforming_strings = on" in connection.commands
        assert "SET client_encoding = 'UTF8'" in connection.commands


def test_library_from_elsewhere_names_no_server(tmp_path: Path) -> None:
    folder = tmp_path / "received"
    folder.mkdir()
    (folder / "address").write_text("postgresql://u@db.invalid/x\n")
    assert find_address(folder) is None


def test_folder_of_an_earlier_process_names_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = library_folder("postgresql://u:hush@h/db")
    record_address(folder, read_address("postgresql://u:hush@h/db"))
    monkeypatch.setattr(remote_libraries, "_addresses", {})
    assert find_address(folder) == LibraryAddress("postgresql://u@h/db")


class FakeConnection(SimpleNamespace):
    """A connection that keeps its commands, or fails at the first."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__(error=error, commands=[])

    def __enter__(self) -> FakeConnection:
        return self

    def __exit__(self, *arguments: object) -> None:
        pass

    def execute(self, command: Any) -> None:
        if self.error is not None:
            raise self.error
        self.commands.append(command if isinstance(command, str) else command.decode())
