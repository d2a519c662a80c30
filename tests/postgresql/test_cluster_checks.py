"""`epicrisis doctor --cluster` on a real database: each fault is one line that names its cure."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from epicrisis.cli.program import app
from epicrisis.library.postgresql import database as databases
from epicrisis.testing.stores import build_stored_document
from tests.postgresql.conftest import LibraryDatabase, close_connections
from tests.support.postgresql_server import ADMIN, CLOSE_INDEX_FUNCTIONS, OWNER, PASSWORDS, READER, WRITER

pytestmark = pytest.mark.postgresql
OPEN_INDEX_FUNCTIONS = CLOSE_INDEX_FUNCTIONS.replace("REVOKE", "GRANT").replace("FROM", "TO")


def run_doctor(url: str, *more: str) -> Result:
    close_connections()
    return CliRunner().invoke(app, ["doctor", "--cluster", url, *more])


def read_states(url: str) -> dict[str, tuple[str, str]]:
    """Return state and message of each check by its topic."""
    result = run_doctor(url, "--json")
    assert not any(password in result.stdout for password in PASSWORDS.values())
    return {row["topic"]: (row["state"], row["message"]) for row in json.loads(result.stdout)["checks"]}


def test_sound_database_has_no_problem(database: LibraryDatabase) -> None:
    with database.create() as library:
        library.add([build_stored_document("secretword", "secrettext", patient="anna")])
    result = run_doctor(database.url(READER))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "ok       versions: PostgreSQL 17." in result.stdout
    assert "ok       content: 1 document, 1 passage" in result.stdout
    assert "ok       role: ward_app may read, and not write" in result.stdout
    assert "note     replication: a primary without a standby" in result.stdout
    assert "secret" not in result.stdout
    states = {state for state, _ in read_states(database.url(READER)).values()}
    assert states == {"ok", "note"}


def test_open_boundary_is_a_problem_with_its_cure(database: LibraryDatabase) -> None:
    with database.create():
        pass
    server = database.server
    server.execute(
        OPEN_INDEX_FUNCTIONS, "ALTER TABLE epicrisis.passages NO FORCE ROW LEVEL SECURITY", database=database.name
    )
    states = read_states(database.url(READER))
    assert states["patients"][0] == "problem"
    assert "row-level security is off for passages" in states["patients"][1]
    assert states["index functions"][0] == "problem"
    assert "REVOKE EXECUTE ON FUNCTION" in states["index functions"][1]
    result = run_doctor(database.url(READER))
    assert result.exit_code == 2
    assert "2 problems of" in result.stderr
    assert "PROBLEM  patients:" in result.stdout


def test_role_with_too_many_rights_is_named(database: LibraryDatabase) -> None:
    with database.create():
        pass
    assert read_states(database.url(WRITER))["role"][0] == "note"
    state, message = read_states(database.url(ADMIN))["role"]
    assert (state, "a superuser" in message) == ("problem", True)


def test_state_of_servers_in_the_database_is_checked(database: LibraryDatabase) -> None:
    with database.create():
        pass
    assert "server tables" not in read_states(database.url(READER))
    state = database.url(OWNER, "epicrisis_server")
    assert CliRunner().invoke(app, ["users", "list", "--folder", state]).exit_code == 0
    role, message = read_states(database.url(READER))["server tables"]
    assert (role, "as a member of epicrisis_server" in message) == ("unknown", True)
    assert read_states(database.url(OWNER))["server tables"] == ("ok", "version 1")
    assert read_states(database.url(OWNER))["access log"] == ("ok", "entries are only added")
    database.server.execute(
        "UPDATE epicrisis_server.state SET version = 0",
        "ALTER TABLE epicrisis_server.access_log DISABLE TRIGGER access_entry",
        database=database.name,
    )
    states = read_states(database.url(OWNER))
    assert states["server tables"][0] == states["access log"][0] == "problem"
    assert "version 0, and this program uses 1: as their owner run `epicrisis users list" in states["server tables"][1]


def test_settings_that_lose_or_show_data_are_problems(database: LibraryDatabase) -> None:
    with database.create():
        pass
    role = f"ALTER ROLE {READER} IN DATABASE {database.name}"
    database.server.execute(f"{role} SET synchronous_commit = off", f"{role} SET log_min_duration_statement = 0")
    states = read_states(database.url(READER))
    assert states["durability"] == (
        "problem",
        "synchronous_commit off: a crash can lose or damage saved documents: set to on in postgresql.conf",
    )
    assert states["log"][0] == "problem"


def test_synchronous_primary_without_standby_is_a_problem(database: LibraryDatabase) -> None:
    with database.create():
        pass
    server = database.server
    server.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()")
    try:
        state, message = read_states(database.url(READER))["replication"]
    finally:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
    assert (state, "start the standby" in message) == ("problem", True)


def test_too_few_connections_for_the_servers_are_a_problem(database: LibraryDatabase) -> None:
    with database.create():
        pass
    servers = [f"http://127.0.0.1:{port}" for port in range(1, 6)]
    options = [part for server in servers for part in ("--cluster", server)]
    result = run_doctor(database.url(READER), *options, "--json")
    rows = {row["topic"]: row for row in json.loads(result.stdout)["checks"] if row["part"].startswith("postgresql")}
    assert rows["connections"]["state"] == "problem"
    assert "raise max_connections to 104" in rows["connections"]["message"]


def test_library_that_cannot_be_reached_or_is_missing_is_one_line(database: LibraryDatabase) -> None:
    with database.create():
        pass
    for url, cure in (
        (database.url(READER, "other"), "epicrisis library add"),
        (database.url(READER, password="wrong"), "put it into ~/.pgpass"),
        (f"postgresql://{OWNER}@127.0.0.1:1/x", "check that it runs"),
    ):
        state, message = read_states(url)["library"]
        assert (state, cure in message) == ("problem", True)


def test_library_behind_a_pool_of_connections_is_checked(
    database: LibraryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.create() as library:
        library.add([build_stored_document("paper", "text")])
    # As through PgBouncer: the process of the server is another one than the client was told.
    monkeypatch.setattr(databases, "read_process", lambda connection: None)
    states = read_states(database.url(READER))
    assert states["content"] == ("ok", "1 document, 1 passage, version 1")
