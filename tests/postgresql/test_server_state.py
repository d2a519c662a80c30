"""Several server processes on one database: what is done at one holds at the others, also after a kill."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from typer.testing import CliRunner

from epicrisis.cli.program import app
from tests.postgresql.conftest import LibraryDatabase, close_connections
from tests.support.hospital_provider import CLIENT_ID, SECRET, HospitalProvider
from tests.support.hostile import HostileServer
from tests.support.postgresql_server import OWNER, READER, SERVER
from tests.support.reviews import OURS, RIVAL, make_two_runs
from tests.support.server_processes import ServerGroup, run_servers

pytestmark = [pytest.mark.postgresql, pytest.mark.models]
NOTES = """patient,time,text
anna,2015-06-01,"Aspirin was given for the stroke."
berta,2016-01-01,"Zolpidem was given for sleep."
"""
STATE = "epicrisis_server"
QUESTION = {"question": "Which drug was given?", "patient": "anna"}
COOKIE = "epicrisis_session_8080"
JOBS = "/api/v1/jobs"


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


def make_job(count: int, first: int = 0) -> dict[str, Any]:
    """Return the body of a job whose questions can be told apart in prompts, also from those of another job."""
    questions: list[dict[str, str]] = []
    for number in range(first, first + count):
        questions.append({"question": f"Which drug was given in ward {number}?", "patient": "anna"})
    return {"questions": questions, "settings": {"strategy": "rag", "k": 2}}


def count_calls(model: HostileServer) -> Counter[str]:
    """Return how often the chat model was asked about each ward."""
    wards: Counter[str] = Counter()
    for request in model.received:
        text = json.dumps(request.body.get("messages", ""))
        if "in ward " in text:
            wards[text.rpartition("in ward ")[2].partition("?")[0]] += 1
    return wards


def test_job_of_a_killed_or_suspended_server_continues_with_one_answer_per_question(hospital: Hospital) -> None:
    with (
        HostileServer(rate=0, delay=0.4, keep_bodies=True) as model,
        hospital.serve(3, "--model", f"{model.url}#m", "--setting", "questions_at_once=2") as group,
    ):
        maria, tom = hospital.bearer("maria"), hospital.bearer("tom")

        def read_status(number: int) -> Any:
            return group.request(number, "GET", f"{JOBS}/{id_}", headers=maria).json()

        def start(ward: int) -> str:
            started = group.request(0, "POST", JOBS, headers=maria, json=make_job(16, ward))
            assert started.status_code == 202, started.text
            return str(started.json()["id"])

        def find_holders() -> list[tuple[Any, ...]]:
            return hospital.rows(f"SELECT holder FROM {STATE}.leases WHERE id = '{id_}'")

        def has_other_holder(first: list[tuple[Any, ...]]) -> bool:
            return find_holders() not in (first, [])

        for ward, action in ((100, "suspend"), (200, "kill")):
            before = sum(count_calls(model).values())
            id_ = start(ward)
            wait_for(lambda: read_status(1)["answers"].get("answered", 0) >= 4)
            first = find_holders()
            assert [group.request(n, "GET", f"{JOBS}/{id_}", headers=tom).status_code for n in (1, 2)] == [404, 404]
            if action == "kill":
                group.processes[0].kill()
            else:
                group.processes[0].process.send_signal(signal.SIGSTOP)
                wait_for(partial(has_other_holder, first))
                group.processes[0].process.send_signal(signal.SIGCONT)
            done = wait_for(lambda: read_status(2)["state"] != "running" and read_status(1))
            assert (done["state"], done["answers"]) == ("done", {"answered": 16})
            lines = group.request(1, "GET", f"{JOBS}/{id_}/answers", headers=maria).text.splitlines()
            ids = Counter(json.loads(line)["answer"]["question"]["id"] for line in lines)
            assert ids == Counter(map(str, range(1, 17)))
            # Only the calls that were running at that moment are repeated.
            assert 16 <= sum(count_calls(model).values()) - before <= 16 + 2
            assert find_holders() == []


def test_job_is_cancelled_resumed_and_deleted_at_another_server(hospital: Hospital) -> None:
    with (
        HostileServer(rate=0, delay=0.4, keep_bodies=True) as model,
        hospital.serve(2, "--model", f"{model.url}#m", "--setting", "questions_at_once=1") as group,
    ):
        maria, tom = hospital.bearer("maria"), hospital.bearer("tom")
        place = f"{JOBS}/{group.request(0, 'POST', JOBS, headers=maria, json=make_job(12)).json()['id']}"
        wait_for(lambda: group.request(1, "GET", place, headers=maria).json()["answers"])
        assert group.request(1, "POST", f"{place}/cancel", headers=tom).status_code == 404
        cancelled = group.request(1, "POST", f"{place}/cancel", headers=maria).json()
        assert cancelled["state"] == "cancelled"
        time.sleep(4)
        calls = sum(count_calls(model).values())
        time.sleep(2)
        assert sum(count_calls(model).values()) == calls
        for number in (0, 1):
            assert group.request(number, "GET", place, headers=maria).json() == cancelled
        group.request(1, "POST", f"{place}/resume", headers=maria)
        wait_for(lambda: group.request(0, "GET", place, headers=maria).json()["answers"] != cancelled["answers"])
        # A question that runs while its server is killed leaves nothing behind.
        body = {"question": "Which drug was given in ward 99?", "patient": "anna", "settings": {"strategy": "rag"}}
        asking = threading.Thread(target=lambda: ask_in_vain(group, maria, body))
        asking.start()
        wait_for(lambda: count_calls(model)["99"])
        group.processes[0].kill()
        asking.join()
        assert group.request(1, "POST", "/api/v1/ask", headers=maria, json=body).json()["state"] == "answered"
        assert group.request(1, "DELETE", place, headers=maria).status_code == 204
        assert group.request(1, "GET", JOBS, headers=maria).json() == []
        wait_for(lambda: hospital.rows(f"SELECT 1 FROM {STATE}.leases") == [])
        assert hospital.rows(f"SELECT 1 FROM {STATE}.lines") == []


def test_review_is_started_judged_and_closed_at_different_servers(hospital: Hospital) -> None:
    hospital.add_user("boss", "--role", "administrator")
    runs = make_two_runs(hospital.folder)
    with hospital.serve(2, "--runs", str(runs)) as group:
        boss, maria = hospital.bearer("boss"), hospital.bearer("maria")
        started = group.request(0, "POST", "/reviews", headers=boss, data={"ours": OURS, "rival": RIVAL})
        assert started.status_code == 303, started.text
        place = started.headers["location"]
        judged = group.request(1, "POST", f"{place}/questions/1", headers=maria, data={"choice": "1"})
        assert judged.status_code == 303, judged.text
        assert group.request(0, "POST", f"{place}/close", headers=maria).status_code == 403
        assert group.request(0, "POST", f"{place}/close", headers=boss).status_code == 303
        refused = group.request(1, "POST", f"{place}/questions/2", headers=maria, data={"choice": "1"})
        assert refused.status_code == 422
        results = group.request(1, "GET", f"{place}/review.json", headers=boss).json()
        assert "maria" in json.dumps(results)
        assert group.request(1, "POST", f"{place}/delete", headers=boss).status_code == 303
        assert group.request(0, "GET", place, headers=boss).status_code == 404


def ask_in_vain(group: ServerGroup, headers: dict[str, str], body: dict[str, Any]) -> None:
    """Ask the first process, which is killed before it answers."""
    with pytest.raises(httpx2.TransportError):
        group.request(0, "POST", "/api/v1/ask", headers=headers, json=body)


def test_sign_in_begins_at_one_server_and_ends_at_another(hospital: Hospital, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_API_KEY_OIDC", SECRET)
    provider = HospitalProvider()

    def sign_in(group: ServerGroup, browser: httpx2.Client) -> None:
        started = group.request(0, "GET", "/sign-in/provider?next=/history", browser)
        assert started.status_code == 302, started.text
        passed = httpx2.get(f"{started.headers['location']}&user=maria")
        # The proxy sends the callback to the other process.
        place = httpx2.URL(passed.headers["location"]).raw_path.decode()
        finished = group.request(1, "GET", place, browser)
        assert (finished.status_code, finished.headers["location"]) == (303, "/history")
        again = group.request(0, "GET", place, browser)
        assert again.status_code == 403, "a callback works once"

    def steps() -> None:
        settings = {"issuer": provider.address, "client_id": CLIENT_ID, "roles": {"clinic-doctor": "patient-reader"}}
        file = hospital.folder / "provider.json"
        file.write_text(json.dumps(settings))
        with hospital.serve(2, "--identity-provider", str(file)) as group, httpx2.Client(timeout=60) as browser:
            sign_in(group, browser)
            assert [group.request(number, "GET", "/history", browser).status_code for number in (0, 1)] == [200, 200]
            cookie = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
            # Processes that were killed and started again know the sign-in.
            group.processes[0].kill()
            group.add().wait()
            assert group.request(2, "GET", "/history", headers=cookie).status_code == 200
            # Signed out at one, the copied cookie opens no other; nor does a cookie that was made from the table.
            assert group.request(2, "POST", "/sign-out", browser).status_code == 200
            ids = [id_ for (id_,) in hospital.rows(f"SELECT id FROM {STATE}.items WHERE kind = 'session'")]
            assert ids == []
            assert [group.request(number, "GET", "/history", headers=cookie).status_code for number in (1, 2)] == [
                401
            ] * 2

    async def serve() -> None:
        async with provider.serve():
            await asyncio.to_thread(steps)

    asyncio.run(serve())


def test_servers_refuse_and_recover_when_the_database_restarts(hospital: Hospital) -> None:
    with hospital.serve(2) as group:
        maria = hospital.bearer("maria")
        asked = group.request(0, "POST", "/ask", headers=maria, data=QUESTION)
        place = asked.headers["location"]

        def opens(number: int) -> bool:
            return bool(group.request(number, "GET", place, headers=maria).status_code == 200)

        hospital.database.server.stop("immediate")
        try:
            for number in (0, 1):
                refused = group.request(number, "GET", place, headers=maria)
                assert refused.status_code == 503
                assert refused.headers["Retry-After"] == "5"
                assert refused.json()["kind"] == "StateUnavailable"
                assert "127.0.0.1" not in refused.text
                assert group.request(number, "GET", "/healthz").status_code == 200
        finally:
            hospital.database.server.start()
        for number in (0, 1):
            wait_for(partial(opens, number))
            assert group.request(number, "POST", "/ask", headers=maria, data=QUESTION).status_code == 303


def test_role_of_servers_cannot_change_the_log_or_the_users(hospital: Hospital) -> None:
    with hospital.serve(1) as group:
        assert group.request(0, "POST", "/ask", headers=hospital.bearer("maria"), data=QUESTION).status_code == 303
        assert "can change the access log" not in group.processes[0].output.read_text()
    before = hospital.rows(f"SELECT * FROM {STATE}.access_log")
    assert before
    with hospital.database.server.connect(hospital.database.name, SERVER) as connection:
        connection.execute(f"SET search_path = {STATE}".encode())
        for command in (
            "DELETE FROM access_log",
            "UPDATE access_log SET entry = '{}'",
            "TRUNCATE access_log",
            "ALTER TABLE access_log DISABLE TRIGGER ALL",
            "DROP TRIGGER access_entry ON access_log",
            "CREATE OR REPLACE FUNCTION check_access_entry() RETURNS trigger LANGUAGE plpgsql "
            "AS 'BEGIN RETURN NEW; END'",
            "SELECT entry FROM access_log",
            "INSERT INTO access_log VALUES (1, repeat('0', 64), 'x', '{}')",
            "INSERT INTO access_log VALUES (99, repeat('0', 64), 'x', '{}')",
            "INSERT INTO access_log SELECT number + 1, repeat('1', 64), 'x', '{}' FROM access_log",
            "INSERT INTO access_log SELECT number, previous, hash, '{}' FROM access_log ON CONFLICT (number) "
            "DO UPDATE SET entry = excluded.entry",
            "MERGE INTO access_log USING users ON true WHEN MATCHED THEN DELETE",
            "COPY access_log TO STDOUT",
            "INSERT INTO users VALUES ('eve', 'x', 'x', '{}')",
            "UPDATE users SET key_sha256 = 'x'",
            "DELETE FROM users",
            "UPDATE state SET version = 0",
            "CREATE TABLE other(x int)",
            "DROP SCHEMA epicrisis_server CASCADE",
        ):
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.RaiseException)):
                connection.execute(command.encode())
    assert hospital.rows(f"SELECT * FROM {STATE}.access_log") == before
    # The owner's mistakes are refused too.
    with hospital.database.server.connect(hospital.database.name, OWNER) as connection:
        for command in (f"DELETE FROM {STATE}.access_log", f"TRUNCATE {STATE}.access_log"):
            with pytest.raises(psycopg.errors.RaiseException, match="are not changed"):
                connection.execute(command.encode())
    with hospital.database.server.connect(hospital.database.name) as connection:
        connection.execute(f"ALTER TABLE {STATE}.access_log DISABLE TRIGGER ALL".encode())
        connection.execute(f"UPDATE {STATE}.access_log SET entry = replace(entry, 'anna', 'bert')".encode())
    result = CliRunner().invoke(app, ["audit", "verify", "--folder", hospital.owner])
    assert result.exit_code == 2
    assert "was changed" in result.stderr
    result = CliRunner().invoke(app, ["audit", "verify", "--folder", hospital.database.url(SERVER, STATE)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "name the owner of the schema" in result.stderr


def test_processes_that_create_the_tables_at_once_do_it_once(database: LibraryDatabase) -> None:
    command = [sys.executable, "-m", "epicrisis", "users", "add"]
    processes: list[subprocess.Popen[str]] = []
    for number in range(4):
        arguments = [*command, f"user{number}", "--folder", database.url(OWNER, STATE)]
        processes.append(subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for process in processes:
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        assert output.startswith("epicrisis-")
    users = json.loads(run("users", "list", "--json", "--folder", database.url(OWNER, STATE)))
    assert list(users) == [f"user{number}" for number in range(4)]
