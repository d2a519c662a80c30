"""Several server processes on one database: what is done at one holds at the others, also after a kill."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from epicrisis.cli.app import app
from tests.postgresql.conftest import LibraryDatabase, close_connections
from tests.support.postgresql_server import OWNER, READER, SERVER
from tests.support.server_processes import ServerGroup, run_servers

pytestmark = [pytest.mark.postgresql, pytest.mark.models]
NOTES = """patient,time,text
anna,2015-06-01,"Aspirin was given for the stroke."
berta,2016-01-01,"Zolpidem was given for sleep."
"""
STATE = "epicrisis_server"
QUESTION = {"question": "Which drug was given?", "patient": "anna"}


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.stderr
    return result.stdout


@dataclass
class Hospital:
    """A library of notes and the state of its servers, in one database."""

    database: LibraryDatabase
    folder: Path
    keys: dict[str, str]

    @property
    def owner(self) -> str:
        """The URL of the state for its owner."""
        return self.database.url(OWNER, STATE)

    def add_user(self, name: str, *options: str) -> None:
        self.keys[name] = run("users", "add", name, "--folder", self.owner, *options).strip()
        close_connections()

    @contextmanager
    def serve(self, count: int, *options: str) -> Iterator[ServerGroup]:
        """Run servers as the role that may not change the access log."""
        command = (self.database.url(READER), "--folder", self.database.url(SERVER, STATE), *options)
        with run_servers(count, self.folder, *command) as group:
            yield group

    def bearer(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[name]}"}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.database.server.connect(self.database.name) as connection:
            return connection.execute(query.encode()).fetchall()


@pytest.fixture
def hospital(database: LibraryDatabase, tmp_path: Path) -> Hospital:
    notes = tmp_path / "notes.csv"
    notes.write_text(NOTES)
    run(
        "library",
        "add",
        database.url(OWNER),
        str(notes),
        *(f"--column={role}={role}" for role in ("patient", "time", "text")),
    )
    close_connections()
    hospital = Hospital(database, tmp_path, {})
    hospital.add_user("maria", "--role", "patient-reader", "--patient", "anna")
    hospital.add_user("tom", "--role", "patient-reader")
    return hospital


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Return the first true value of the condition."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError("the condition did not become true")


def test_work_at_one_server_continues_at_another(hospital: Hospital) -> None:
    with hospital.serve(2) as group, httpx2.Client(timeout=60) as maria, httpx2.Client(timeout=60) as tom:
        for client, name in ((maria, "maria"), (tom, "tom")):
            form = {"key": hospital.keys[name]}
            assert group.request(0, "POST", "/sign-in", client, data=form).status_code == 303
        # Asked at one, opened and followed up at the other; nobody else opens it.
        asked = group.request(1, "POST", "/ask", maria, data=QUESTION)
        assert asked.status_code == 303, asked.text
        place = asked.headers["location"]
        assert "Aspirin was given" in group.request(0, "GET", place, maria).text
        for number in (0, 1):
            assert group.request(number, "GET", place, tom).status_code == 404
        following = group.request(0, "POST", f"{place}/follow-up", maria, data={"question": "When was it given?"})
        assert following.status_code == 303, following.text
        assert group.request(1, "GET", following.headers["location"], maria).status_code == 200
        # Deleted at one, gone at the other, although that had shown it.
        assert group.request(1, "POST", f"{place}/delete", maria).status_code == 303
        assert group.request(0, "GET", place, maria).status_code == 404
        # A removed user is refused everywhere with the next request.
        run("users", "remove", "maria", "--folder", hospital.owner)
        close_connections()
        assert [group.request(number, "GET", "/", maria).status_code for number in (0, 1)] == [401, 401]
        assert group.request(0, "GET", "/api/v1/libraries", headers=hospital.bearer("maria")).status_code == 401
        # The same name is another user now.
        hospital.add_user("maria", "--role", "patient-reader")
        found = group.request(1, "GET", following.headers["location"], headers=hospital.bearer("maria"))
        assert found.status_code == 404
    assert "complete" in run("audit", "verify", "--folder", hospital.owner)
    users = {json.loads(entry)["user"] for (entry,) in hospital.rows(f"SELECT entry FROM {STATE}.access_log")}
    assert users == {"maria"}
