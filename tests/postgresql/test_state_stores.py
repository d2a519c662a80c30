"""The stores of a server in PostgreSQL, each opened twice, as by two processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError, LibraryError, SettingsError
from epicrisis.core.types import Question
from epicrisis.privacy.access_log import build_entry
from epicrisis.server.base.http_errors import NotFound, StateUnavailable, StateUncertain
from epicrisis.server.base.users import Caller
from epicrisis.server.runs.reviews import ReviewStore, ReviewVerdict
from epicrisis.server.state.job_models import JobBody, JobFile, JobTaken
from epicrisis.server.state.sessions import Sessions
from epicrisis.server.state.shared_state import shared_access_log as access_log
from epicrisis.server.state.shared_state import shared_database as state_database
from epicrisis.server.state.shared_state import shared_jobs as jobs
from epicrisis.server.state.shared_state import shared_schema as schemas
from epicrisis.server.state.shared_state.items import ItemTable
from epicrisis.server.state.shared_state.shared_access_log import AccessTable
from epicrisis.server.state.shared_state.shared_database import StateDatabase
from epicrisis.server.state.shared_state.shared_jobs import JobTable
from epicrisis.server.state.shared_state.shared_users import UserTable
from epicrisis.server.state.state import state_folder
from epicrisis.server.state.stored_answers import AnswerStore, StoredAnswer
from epicrisis.system.remote_libraries import find_address
from tests.postgresql.conftest import LibraryDatabase
from tests.support.postgresql_server import OWNER, SERVER
from tests.support.reviews import Reviewer, make_app, make_two_runs, open_review

pytestmark = pytest.mark.postgresql
STATE = "epicrisis_server"
ANSWER = Answer(question=Question("Which drug?", id="1"), strategy="rag", state="answered", text="Aspirin.")
CALLER = Caller(
    name="Maria",
    role="patient-reader",
    patients=frozenset({"1"}),
    requests_per_minute=10,
    running=2,
    id="owner:1",
    account="https://login#1",
)


def open_as(database: LibraryDatabase, user: str) -> StateDatabase:
    address = find_address(state_folder(database.url(user, STATE)))
    assert address is not None
    return StateDatabase(address)


@pytest.fixture
def two(database: LibraryDatabase) -> Iterator[tuple[StateDatabase, StateDatabase]]:
    """The state as two processes see it, with the rights of a server."""
    owner = open_as(database, OWNER)
    first, second = open_as(database, SERVER), open_as(database, SERVER)
    yield first, second
    for opened in (owner, first, second):
        opened.close()


def test_answers_are_found_by_their_owner_alone_and_have_an_end(two: tuple[StateDatabase, StateDatabase]) -> None:
    first, second = (AnswerStore(keep=3, database=database) for database in two)
    other = first.add(StoredAnswer(answer=ANSWER, library="lib", owner="otto")).id
    ids = []
    for _ in range(5):
        ids.append(first.add(StoredAnswer(answer=ANSWER, library="lib", owner="maria")).id)
    assert [second.find(id_, "maria") is not None for id_ in ids] == [False, False, True, True, True]
    assert {second.find_removal(id_, "maria").reason for id_ in ids[:2]} == {"number"}  # type: ignore[union-attr]
    assert second.find(ids[4], "otto") is None
    assert second.find_removal(ids[0], "otto") is None
    assert not second.remove(ids[4], "otto")
    assert second.remove(ids[4], "maria")
    assert first.find(ids[4], "maria") is None
    assert first.find_removal(ids[4], "maria") is None
    two[0].rows("UPDATE items SET at = at - 400 * 86400 WHERE id = %s", ids[3])
    first.remove_expired()
    assert second.find_removal(ids[3], "maria").reason == "age"  # type: ignore[union-attr]
    assert second.find(other, "otto") is not None


def test_reviews_are_judged_and_closed_in_two_processes(
    two: tuple[StateDatabase, StateDatabase], tmp_path: Path
) -> None:
    local = Reviewer(make_app(tmp_path, make_two_runs(tmp_path)))
    review = open_review(tmp_path, local.start())
    first, second = (ReviewStore(ItemTable(database, "review")) for database in two)
    first.add(review)
    assert second.list() == [review]
    pair = review.items[0].pair
    first.save(
        review.plan.id,
        ReviewVerdict(
            reviewer="anna",
            pair=pair,
            state="judged",
            order="shown",
            name="anna",
            choice="1",
            criteria={},
            remark="caf\u00e9 \ud800",
        ),
    )
    second.save(
        review.plan.id,
        ReviewVerdict(reviewer="anna", pair=pair, state="draft", order="shown", name="anna", remark="later"),
    )
    verdict = first.read_state(review.plan.id).verdicts["anna", pair]
    assert (verdict.state, verdict.choice, verdict.remark) == ("judged", "1", "later")
    second.close(review.plan.id, "boss")
    with pytest.raises(InputError, match="closed"):
        first.save(
            review.plan.id,
            ReviewVerdict(reviewer="ben", pair=pair, state="judged", order="shown", name="ben", choice="2"),
        )
    assert first.find(review.plan.id) == review
    second.remove(review.plan.id)
    with pytest.raises(NotFound):
        first.find(review.plan.id)
    assert two[0].rows("SELECT 1 FROM lines") == []


def test_sessions_end_everywhere_and_are_stored_without_their_ids(two: tuple[StateDatabase, StateDatabase]) -> None:
    first, second = (Sessions(60, database=database) for database in two)
    cookie = first.start(CALLER)
    assert asyncio.run(second.identify(cookie)) == CALLER
    assert second.find_owner("owner:1") == CALLER
    assert second.list_owners() == [CALLER]
    stored = str(two[0].rows("SELECT * FROM items"))
    assert cookie not in stored
    # What the table calls the session opens nothing.
    ((hashed,),) = two[0].rows("SELECT id FROM items WHERE kind = 'session'")
    for forged in (hashed, cookie[:-1], ""):
        assert second.find(forged) is None
    second.end(cookie)
    assert first.find(cookie) is None
    assert first.find_owner("owner:1") == CALLER
    other = second.start(CALLER)
    two[0].rows("UPDATE items SET at = extract(epoch FROM now()) - 1 WHERE kind = 'session'")
    assert first.find(other) is None
    first.start(CALLER)
    assert len(two[0].rows("SELECT 1 FROM items WHERE kind = 'session'")) == 1


def test_entries_of_two_processes_form_one_chain(
    two: tuple[StateDatabase, StateDatabase], database: LibraryDatabase
) -> None:
    logs = [AccessTable(opened) for opened in two]

    async def write() -> None:
        entries = [logs[number % 2].record("maria", "ask", "ward", "1\0\ud800", [f"n{number}"]) for number in range(40)]
        await asyncio.gather(*entries)

    asyncio.run(write())
    owner = open_as(database, OWNER)
    result = AccessTable(owner).verify()
    assert (result.entries, result.fault) == (40, None)
    assert AccessTable(owner).verify(result.head).fault is None
    assert "cut off" in str(AccessTable(owner).verify("f" * 64).fault)
    with pytest.raises(StateUnavailable, match="may not do this"), two[0].transact() as connection:
        connection.execute("ALTER TABLE users ADD COLUMN x int")
    owner.close()


def make_job(id_: str = "a" * 32) -> JobFile:
    body = JobBody.model_validate({"questions": [{"question": "Which drug?", "id": "1"}, {"question": "When?"}]})
    return JobFile(id=id_, owner="owner:1", created="2026-01-01T00:00:00+00:00", body=body)


def test_process_that_lost_its_lease_writes_nothing(
    two: tuple[StateDatabase, StateDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = map(JobTable, two)
    job = make_job()
    first.add(job)
    records = first.open_records(job, {"k": 1})
    assert second.claim_abandoned((), [None]) == []
    assert first.keep([job.id]) == set()
    two[0].rows("UPDATE leases SET ends = now() - interval '1 second'")
    # An expired lease that nobody took is still held.
    records.append_answer(ANSWER)
    assert second.claim_abandoned((), ["another library"]) == []
    assert second.claim_abandoned([job.id], [None]) == []
    assert second.claim_abandoned((), [None]) == [job]
    assert first.claim_abandoned((), [None]) == []
    assert first.keep([job.id]) == {job.id}
    with pytest.raises(JobTaken):
        records.append_answer(ANSWER)
    with pytest.raises(JobTaken):
        first.change(job)
    continued = second.open_records(job, {"k": 1})
    assert continued.is_done(ANSWER.question.key)
    # The database takes one answer of a question, whatever the program does.
    continued.append_answer(ANSWER)
    assert second.count_answers(job, {}) == {"answered": 1}
    assert len(list(first.read_lines(job.id, first.find_end(job.id)))) == 1
    with pytest.raises(InputError, match=r"made with other settings \(k\)"):
        second.open_records(job, {"k": 2})
    second.change(job.model_copy(update={"state": "done"}))
    second.release(job.id)
    assert first.claim_abandoned((), [None]) == []
    first.take(job.id)
    second.remove(job.id)
    with pytest.raises(NotFound):
        first.change(job)
    assert two[0].rows("SELECT 1 FROM items UNION SELECT 1 FROM lines UNION SELECT 1 FROM leases") == []


def test_deleted_job_does_not_come_back_at_another_process(two: tuple[StateDatabase, StateDatabase]) -> None:
    first, second = map(JobTable, two)
    job = make_job().model_copy(update={"state": "cancelled"})
    first.add(job)
    # One process is about to resume it while the other one deletes it.
    found = second.find(job.id)
    assert found is not None
    first.remove(job.id)
    second.take(job.id)
    with pytest.raises(NotFound):
        second.change(found.model_copy(update={"state": "running"}))
    assert two[0].rows("SELECT 1 FROM items") == []


def test_deleted_job_that_is_taken_leaves_no_lease(two: tuple[StateDatabase, StateDatabase]) -> None:
    first, second = map(JobTable, two)
    job = make_job()
    first.add(job)
    first.remove(job.id)
    second.take(job.id)
    assert two[0].rows("SELECT 1 FROM leases") == []


def test_change_whose_confirmation_is_lost_is_uncertain_and_every_other_fault_is_not(
    two: tuple[StateDatabase, StateDatabase], database: LibraryDatabase
) -> None:
    """The connection breaks before the commit. A client cannot know that nothing was stored."""
    job = make_job()

    def add_and_break(breaks_before: str) -> None:
        with two[0].transact() as connection:
            process = connection.info.backend_pid
            if breaks_before == "statement":
                database.server.execute(f"SELECT pg_terminate_backend({process}, 5000)")
            JobTable(two[0]).add(job)
            if breaks_before == "commit":
                database.server.execute(f"SELECT pg_terminate_backend({process}, 5000)")

    with pytest.raises(StateUncertain, match="look whether it is there before you repeat"):
        add_and_break("commit")
    two[0]._silent_until = 0.0
    with pytest.raises(StateUnavailable) as caught:
        add_and_break("statement")
    assert type(caught.value) is StateUnavailable
    two[0]._silent_until = 0.0
    add_and_break("nothing")
    assert JobTable(two[1]).find(job.id) is not None


def test_id_of_a_question_with_nul_is_stored_once(two: tuple[StateDatabase, StateDatabase]) -> None:
    table, job = JobTable(two[0]), make_job()
    table.add(job)
    records = table.open_records(job, {})
    answer = Answer(question=Question("Which drug?", id="a\0"), strategy="rag", state="answered", text="Aspirin.")
    for _ in range(2):
        records.append_answer(answer)
    assert records.is_done(answer.question.key)
    assert table.open_records(job, {}).is_done(answer.question.key)
    assert table.count_answers(job, {}) == {"answered": 1}


def test_damaged_job_keeps_no_other_job_waiting(two: tuple[StateDatabase, StateDatabase]) -> None:
    table, sound = JobTable(two[0]), make_job("b" * 32)
    damaged = make_job()
    for job in (damaged, sound):
        table.add(job)
    two[0].rows("UPDATE leases SET ends = now() - interval '1 second'")
    two[0].rows("UPDATE items SET content = '{}', at = at - 1 WHERE id = %s", damaged.id)
    assert table.claim_abandoned((), [None]) == [sound]
    assert table.list_jobs(sound.owner) == [sound]
    assert table.find(damaged.id) is None


def test_suspended_process_holds_up_the_others_for_seconds(
    database: LibraryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_database, "_IDLE_SECONDS", 1)
    open_as(database, OWNER).close()
    suspended, other = open_as(database, SERVER), open_as(database, SERVER)
    waiting = AccessTable(other)

    def sleep_with_the_lock() -> None:
        with suspended.transact() as connection:
            connection.execute(access_log._LOCK)
            # Waits for the lock, which the suspended process would keep.
            waiting.append(build_entry("maria", "ask", "ward", "1", ["note"]))
            connection.execute("SELECT 1")

    with pytest.raises(StateUnavailable):
        sleep_with_the_lock()
    AccessTable(suspended).append(build_entry("maria", "ask", "ward", "1", ["note"]))
    assert other.rows("SELECT count(number) FROM access_log") == [(2,)]
    for opened in (suspended, other):
        opened.close()


def test_entry_that_is_no_json_is_a_fault_of_the_log(
    two: tuple[StateDatabase, StateDatabase], database: LibraryDatabase
) -> None:
    owner = open_as(database, OWNER)
    log = AccessTable(owner)
    AccessTable(two[0]).append(build_entry("maria", "ask", "ward", None, []))
    head = log.verify().head
    for number, text in enumerate(("no json", "[]"), 2):
        # A server may add to the log, whatever it adds.
        command = "INSERT INTO access_log(number, previous, hash, entry) VALUES (%s, %s, %s, %s)"
        two[0].rows(command, number, head, str(number), text)
        result, head = log.verify(), str(number)
        assert (result.entries, result.fault) == (1, "entry 2: is no entry, or has other fields")
    owner.close()


def test_jobs_are_taken_by_one_process_each(two: tuple[StateDatabase, StateDatabase]) -> None:
    tables = [JobTable(opened) for opened in two]
    for number in range(20):
        job = make_job(f"{number:032x}")
        tables[0].add(job)
    two[0].rows("UPDATE leases SET ends = now() - interval '1 second'")

    async def claim(table: JobTable) -> list[str]:
        taken: list[str] = []
        while jobs_taken := await asyncio.to_thread(table.claim_abandoned, taken, [None]):
            taken += [job.id for job in jobs_taken]
        return taken

    async def claim_all() -> list[list[str]]:
        return list(await asyncio.gather(*map(claim, tables)))

    taken = asyncio.run(claim_all())
    assert sorted(taken[0] + taken[1]) == [f"{number:032x}" for number in range(20)]
    assert jobs.LEASE_SECONDS > 10


def test_tables_of_another_version_are_refused_or_upgraded_by_the_owner(
    two: tuple[StateDatabase, StateDatabase], database: LibraryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "MIGRATIONS", (*schemas.MIGRATIONS, "ALTER TABLE items ADD COLUMN colour text"))
    with pytest.raises(SettingsError, match="run `epicrisis users list --folder postgresql://OWNER@"):
        open_as(database, SERVER)
    open_as(database, OWNER).close()
    open_as(database, SERVER).close()
    monkeypatch.undo()
    with pytest.raises(SettingsError, match="of version 2, this program knows up to 1: install a newer"):
        open_as(database, SERVER)


def test_processes_that_upgrade_the_tables_at_once_do_it_once(database: LibraryDatabase) -> None:
    """The step fails if it is done twice."""
    open_as(database, OWNER).close()
    code = (
        "import sys; from epicrisis.server.state.shared_state import shared_schema as schemas; "
        "schemas.MIGRATIONS = (*schemas.MIGRATIONS, 'SELECT pg_sleep(0.5); ALTER TABLE items ADD COLUMN colour text'); "
        "from epicrisis.cli.program import app; app(['users', 'list', '--folder', sys.argv[1]])"
    )
    command = [sys.executable, "-c", code, database.url(OWNER, STATE)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    with database.server.connect(database.name) as connection:
        assert connection.execute(f"SELECT version FROM {STATE}.state").fetchall() == [(2,)]


def test_library_and_state_share_no_schema(database: LibraryDatabase) -> None:
    database.create("library").close()
    address = find_address(state_folder(database.url(OWNER, "library")))
    assert address is not None
    with pytest.raises(SettingsError, match="holds a library, whose writers could change users"):
        StateDatabase(address)
    open_as(database, OWNER).close()
    with pytest.raises(LibraryError, match="holds users and access log of a server"):
        database.create(STATE)


def test_silent_database_refuses_at_once_and_users_come_back(
    two: tuple[StateDatabase, StateDatabase], database: LibraryDatabase
) -> None:
    owner = open_as(database, OWNER)
    users = UserTable(owner)
    key = users.add("maria", "patient-reader")
    renamed = users.add("tom", "literature-reader")
    with pytest.raises(InputError, match="letters, digits"):
        users.add("ma ria", "patient-reader")
    limits = "jsonb_set(content::jsonb, '{requests_per_minute}', '7')::text"
    owner.rows(f"UPDATE users SET content = {limits} WHERE name = 'maria'")
    key = users.add("maria", "administrator")
    assert (users.users()["maria"].requests_per_minute, users.users()["maria"].role) == (7, "administrator")
    first = UserTable(two[0])
    assert first.find(key).name == "maria"  # type: ignore[union-attr]
    assert first.find(renamed + "x") is None
    two[0]._silent_until = time.monotonic() + 60
    with pytest.raises(StateUnavailable, match="a moment ago") as caught:
        first.find(key)
    assert caught.value.retry_after == state_database.RETRY_SECONDS
    two[0]._silent_until = 0.0
    assert asyncio.run(first.identify(key)) == users.find(key)
    with pytest.raises(StateUnavailable, match="name the owner of the schema"):
        first.add("eve", "administrator")
    assert build_entry("maria", "ask", "ward", None, ())["outcome"] == "allowed"
    owner.close()


def test_place_of_the_state_is_a_folder_or_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path))
    assert state_folder(tmp_path) == tmp_path
    plain, named = (state_folder(f"postgresql://web@db/hospital{end}") for end in ("", "?schema=epicrisis_server"))
    assert plain == named
    assert state_folder("postgresql://web@db/hospital?sslmode=require&schema=other") != plain
    with pytest.raises(InputError, match="in a folder or in PostgreSQL"):
        state_folder("s3://bucket/state")
