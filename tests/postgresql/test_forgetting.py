"""Forgetting patients in PostgreSQL: a library, and the state of a server. No row and no file of a table names them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from epicrisis.cli.program import app
from epicrisis.core.answers import Answer
from epicrisis.core.errors import LibraryBusy, LibraryError
from epicrisis.core.types import Question, Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.postgresql import rewriting
from epicrisis.operations.forgetting.forgetting import FOLDER, Places, forget_patients
from epicrisis.privacy.access_log import NAME, AccessLog
from epicrisis.server.base.users import Caller
from epicrisis.server.runs.reviews import ReviewStore, ReviewVerdict
from epicrisis.server.state.job_models import JobBody, JobFile, JobQuestion
from epicrisis.server.state.sessions import Sessions
from epicrisis.server.state.shared_state.items import ItemTable
from epicrisis.server.state.shared_state.shared_jobs import JobTable
from epicrisis.server.state.state import ServerState, open_state, state_folder
from epicrisis.server.state.stored_answers import StoredAnswer
from epicrisis.system.remote_libraries import library_folder
from tests.forgetting.test_forgetting import (
    FORGOTTEN,
    PATIENTS,
    READER,
    build_ward,
    read_others,
    write_places,
    write_text,
)
from tests.forgetting.test_server_items import FORGOTTEN as FORGOTTEN_REVIEWED
from tests.forgetting.test_server_items import OTHER as OTHER_REVIEWED
from tests.forgetting.test_server_items import make_review
from tests.postgresql.conftest import LibraryDatabase, close_connections
from tests.support.postgresql_server import OWNER, SERVER, WRITER, PostgresqlServer
from tests.support.reviews import OURS, STRATEGIES, open_review

pytestmark = pytest.mark.postgresql
STATE = "epicrisis_server"
KEPT = PATIENTS[3]
SIGNS = [sign.encode() for patient in FORGOTTEN for sign in (patient, f"Family{patient}", write_text(patient)[40:90])]
"""What names or quotes the patients. A table holds short texts as they are."""


@pytest.fixture
def ward(database: LibraryDatabase) -> Path:
    return build_ward(library_folder(database.url(OWNER)))


def find_rows(database: LibraryDatabase) -> list[str]:
    """Return the tables with a row that names or quotes the patients, searched without the program."""
    query = (
        "SELECT format('%I.%I', nspname, relname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE relkind = 'r' AND nspname IN ('epicrisis', 'epicrisis_server')"
    )
    tables = []
    with database.server.connect(database.name) as connection:
        for (name,) in connection.execute(query).fetchall():
            for row in connection.execute(f"SELECT * FROM {name}".encode()):
                content = b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in row)
                if any(sign in content for sign in SIGNS):
                    tables.append(name)
    return tables


def find_files(server: PostgresqlServer, folder: str) -> list[Path]:
    """Return the files below a folder of the server that contain anything of the patients."""
    paths = []
    for path in (server.data / folder).rglob("*"):
        if path.is_file() and any(sign in path.read_bytes() for sign in SIGNS):
            paths.append(path)
    return paths


def test_forgotten_patients_are_in_no_row_and_no_file_of_a_table(
    ward: Path, database: LibraryDatabase, tmp_path: Path
) -> None:
    places = write_places(tmp_path)
    # Rows of new words, and dead rows that no reader sees.
    with LibraryStore.open(ward, write=True) as store:
        store.delete([f"note:{FORGOTTEN[0]}:1"], {f"note:{FORGOTTEN[0]}:1": "2"})
    before = read_others(ward)
    database.server.execute("CHECKPOINT")
    assert find_files(database.server, "base")
    assert find_rows(database)
    report = forget_patients(ward, FORGOTTEN, places, READER)
    assert (report.remaining, report.problems) == ((), ())
    assert report.documents == 5
    assert rewriting.COPIES in report.outside
    assert find_rows(database) == []
    # The files of old versions are removed at a checkpoint.
    database.server.execute("CHECKPOINT")
    files = find_files(database.server, "base")
    catalog = database.server.connect(database.name).execute("SELECT pg_relation_filepath('pg_statistic')").fetchone()
    assert catalog is not None
    assert [path for path in files if str(path.relative_to(database.server.data)) != catalog[0]] == []
    assert read_others(ward) == before
    with LibraryStore.open(ward) as store:
        assert store.info().problems == ()
        assert [passage.id for passage in store.fetch(["book:1#0"], Scope())] == ["book:1#0"]
    assert AccessLog(ward / NAME).verify().fault is None
    assert not (ward / FOLDER).exists()


def test_documented_commands_remove_patients_from_statistics_and_log(ward: Path, database: LibraryDatabase) -> None:
    assert forget_patients(ward, FORGOTTEN, Places(), READER).is_clean
    server = database.server
    assert find_files(server, "pg_wal")
    close_connections()
    # As docs/deployment.md has it for administrators.
    server.execute("VACUUM FULL pg_catalog.pg_statistic", database=database.name)
    server.execute(
        "ALTER SYSTEM SET wal_recycle = off", "ALTER SYSTEM SET wal_keep_size = 0", "SELECT pg_reload_conf()"
    )
    server.execute("SELECT pg_switch_wal()", "CHECKPOINT", "SELECT pg_switch_wal()", "CHECKPOINT")
    assert find_files(server, ".") == []


def test_user_who_may_not_write_tables_anew_is_refused_before_anything_is_deleted(
    ward: Path, database: LibraryDatabase
) -> None:
    close_connections()
    folder = library_folder(database.url(WRITER))
    with pytest.raises(LibraryError, match="name the owner of the schema"):
        forget_patients(folder, FORGOTTEN, Places(), READER)
    assert find_rows(database)
    assert not (folder / FOLDER).exists()


def test_transaction_that_sees_deleted_rows_is_named_and_the_same_call_continues(
    ward: Path, database: LibraryDatabase
) -> None:
    with database.server.connect(database.name) as other:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        # It has read another table, and would still see the rows that are deleted now.
        other.execute("SELECT 1 FROM pg_class LIMIT 1")
        with pytest.raises(LibraryBusy, match="pg_stat_activity"):
            forget_patients(ward, FORGOTTEN, Places(), READER)
        other.execute("ROLLBACK")
    assert forget_patients(ward, FORGOTTEN, Places(), READER).is_clean
    assert find_rows(database) == []


CHILD = """
import os, signal, sys
from epicrisis.operations.forgetting import forgetting
from epicrisis.library.postgresql import rewriting
from epicrisis.library.postgresql.store import PostgresqlLibrary
from epicrisis.system.remote_libraries import library_folder
from epicrisis.server.state.shared_state.shared_users import UserTable
from epicrisis.server.state.state import state_folder
from tests.forgetting.test_forgetting import FORGOTTEN, READER, Places
name, when, library, state = sys.argv[1:]
owners = {"delete": PostgresqlLibrary, "optimize": PostgresqlLibrary, "rewrite_tables": rewriting, "_change": UserTable}
owner = owners.get(name, forgetting)
original = getattr(owner, name)
def stop(*arguments, **options):
    if when == "after":
        original(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, stop)
forgetting.forget_patients(library_folder(library), FORGOTTEN, Places(server=state_folder(state)), READER)
"""


@pytest.mark.parametrize(
    ("name", "when"),
    [
        ("_make_plan", "after"),
        ("clean_server_tables", "after"),
        ("_change", "after"),
        ("delete", "after"),
        ("rewrite_tables", "before"),
        ("optimize", "before"),
        ("_prove", "before"),
    ],
)
def test_killed_removal_continues(name: str, when: str, ward: Path, database: LibraryDatabase) -> None:
    fill_state(database)
    before = read_others(ward)
    close_connections()
    urls = database.url(OWNER), database.url(OWNER, STATE)
    killed = subprocess.run(
        [sys.executable, "-c", CHILD, name, when, *urls],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr
    report = forget_patients(ward, FORGOTTEN, Places(server=state_folder(urls[1])), READER)
    assert report.is_clean, (report.remaining, report.problems)
    assert find_rows(database) == []
    assert read_others(ward) == before
    assert open_owned(database).log.verify().fault is None


def open_owned(database: LibraryDatabase) -> ServerState:
    return open_state(state_folder(database.url(OWNER, STATE)))


def answer(patient: str) -> Answer:
    return Answer(
        question=Question("What hurts?", id=patient, patient=patient),
        strategy="rag",
        state="answered",
        text=write_text(patient),
    )


def fill_state(database: LibraryDatabase) -> None:
    """Write users, sign-ins, answers, a job and entries of the access log about patients, as server processes do."""
    owned = open_owned(database)
    owned.users.add("maria", "patient-reader", (FORGOTTEN[0], KEPT))
    state = open_state(state_folder(database.url(SERVER, STATE)))
    assert state.database is not None
    sessions, answers, jobs = Sessions(60, database=state.database), state.open_answers(30), JobTable(state.database)
    for id_, patient in (("1", FORGOTTEN[0]), ("2", KEPT)):
        sessions.start(Caller(name="otto", role="patient-reader", patients=frozenset({patient}), id=f"owner:{id_}"))
    for patient in PATIENTS[:5]:
        answers.add(StoredAnswer(answer=answer(patient), library="ward", owner="maria"))
    questions = [JobQuestion(question=write_text(patient)[:50], patient=patient) for patient in PATIENTS[:5]]
    job = JobFile(id="job1", owner="maria", created="2026", body=JobBody(questions=tuple(questions)))
    jobs.add(job)
    lines = jobs.open_records(job, {"strategy": "rag"})
    for patient in PATIENTS[:5]:
        lines.append_answer(answer(patient))
    jobs.change(job.model_copy(update={"state": "done"}))
    jobs.release("job1")
    alone = JobBody(questions=(questions[1],))
    jobs.add(JobFile(id="job2", owner="maria", created="2026", body=alone))


async def log_readings(state: ServerState) -> None:
    for patient in PATIENTS[:4]:
        await state.log.record("maria", "ask", "ward", patient, [f"note:{patient}:0"], "called at night")


def test_state_of_a_server_without_forgotten_patients_keeps_the_rest(
    ward: Path, database: LibraryDatabase, tmp_path: Path
) -> None:
    fill_state(database)
    state = open_state(state_folder(database.url(SERVER, STATE)))
    asyncio.run(log_readings(state))
    with pytest.raises(LibraryError, match="name the owner of the schema"):
        forget_patients(ward, FORGOTTEN, Places(server=state.folder), READER)
    close_connections()
    owned = open_owned(database)
    report = forget_patients(ward, FORGOTTEN, Places(server=owned.folder), READER)
    assert (report.remaining, report.problems) == ((), ())
    assert find_rows(database) == []
    database.server.execute("CHECKPOINT")
    catalog = database.server.connect(database.name).execute("SELECT pg_relation_filepath('pg_statistic')").fetchone()
    assert catalog is not None
    files = [str(path.relative_to(database.server.data)) for path in find_files(database.server, "base")]
    assert set(files) <= {catalog[0]}
    assert owned.users.users()["maria"].patients == (KEPT,)
    assert owned.database is not None
    contents = owned.database.rows("SELECT content FROM items WHERE kind = 'answer'")
    assert sorted(json.loads(content)["answer"]["question"]["id"] for (content,) in contents) == PATIENTS[3:5]
    jobs = JobTable(owned.database)
    assert jobs.find("job2") is None
    job = jobs.find("job1")
    assert job is not None
    assert [(question.id, question.patient) for question in job.body.questions] == [("4", KEPT), ("5", PATIENTS[4])]
    records = [json.loads(line) for line in jobs.read_lines("job1", jobs.find_end("job1"))]
    assert [record["answer"]["question"]["id"] for record in records] == PATIENTS[3:5]
    sign_ins = owned.database.rows("SELECT content FROM items WHERE kind = 'session'")
    assert [json.loads(content)["patients"] for (content,) in sign_ins] == [[KEPT]]
    result = owned.log.verify()
    assert (result.fault, result.removed) == (None, 3)
    assert [entry["patient"] for entry in owned.log.entries() if entry["patient"]] == [KEPT]
    # The trigger protects the entries as before.
    with pytest.raises(Exception, match="refuses a statement"):
        owned.database.rows("UPDATE access_log SET entry = '' WHERE number = 1")


def test_review_in_the_database_without_forgotten_patient_keeps_other_verdicts(
    database: LibraryDatabase, tmp_path: Path
) -> None:
    address, _ = make_review(tmp_path, (FORGOTTEN_REVIEWED, OTHER_REVIEWED))
    review = open_review(tmp_path, address)
    owned = open_owned(database)
    assert owned.database is not None
    store = ReviewStore(ItemTable(owned.database, "review"))
    store.add(review)
    for item in review.items:
        store.save(
            review.plan.id,
            ReviewVerdict(
                reviewer="anna",
                pair=item.pair,
                state="judged",
                order="shown",
                name="anna",
                choice="1",
                criteria={},
                remark="clearer",
            ),
        )
    report = forget_patients(tmp_path / STRATEGIES[OURS], [FORGOTTEN_REVIEWED], Places(server=owned.folder), READER)
    assert report.problems == ()
    restarted = ReviewStore(ItemTable(owned.database, "review"))
    remaining = restarted.find(review.plan.id)
    assert {item.patient for item in remaining.items} == {OTHER_REVIEWED}
    verdicts = restarted.read_state(review.plan.id).verdicts
    assert {pair for _, pair in verdicts} == {item.pair for item in remaining.items}
    contents = owned.database.rows("SELECT content FROM items")
    assert not any(FORGOTTEN_REVIEWED.encode() in content for (content,) in contents)


def test_command_names_what_it_cannot_reach_before_it_asks(ward: Path, database: LibraryDatabase) -> None:
    close_connections()
    urls = database.url(OWNER), database.url(OWNER, STATE)
    asked = CliRunner().invoke(app, ["patient", "forget", urls[0], *FORGOTTEN, "--folder", urls[1]], input="n\n")
    assert asked.exit_code != 0
    assert "write-ahead log" in asked.stderr
    assert find_rows(database)
    close_connections()
    done = CliRunner().invoke(app, ["patient", "forget", urls[0], *FORGOTTEN, "--folder", urls[1], "--yes", "--json"])
    assert done.exit_code == 0, done.stderr
    assert any("write-ahead log" in place for place in json.loads(done.stdout)["outside"])
    assert find_rows(database) == []
