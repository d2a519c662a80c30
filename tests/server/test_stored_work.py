"""Jobs and stored answers under races, faults and changed rights: no reading unlogged, nothing deleted comes back."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from epicrisis.core.answers import Answer
from epicrisis.core.errors import StorageError
from epicrisis.core.types import Question
from epicrisis.pipeline.recording.runner import RecordStore
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.libraries.streaming import EventStream
from epicrisis.server.state import job_folder
from epicrisis.server.state.stored_answers import ANSWERS_FOLDER, AnswerStore, StoredAnswer
from epicrisis.server.work import jobs
from epicrisis.system import local_only
from tests.server.test_jobs import QUESTIONS, StallingModel, make_app, wait_until_ended
from tests.server.test_patients import ANNA, ASK, Ward
from tests.support.patient_records import recorder
from tests.support.servers import connect, open_existing, open_resources

JOBS = "/api/v1/jobs"
ANSWER = Answer(question=Question("Which drug?"), strategy="rag", state="answered", text="Aspirin.")


@pytest.mark.slow
def test_answers_of_job_about_patient_are_logged_and_refused_without_role(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    users = UserStore(ward.folder / USERS_FILE)

    async def run() -> list[int]:
        async with connect(ward.app) as client:
            headers = {"authorization": f"Bearer {ward.keys['nurse']}"}
            body = {"questions": [{**ASK, "patient": ANNA}]}
            id_ = (await client.post(JOBS, json=body, headers=headers)).json()["id"]
            async with asyncio.timeout(20):
                while (await client.get(f"{JOBS}/{id_}", headers=headers)).json()["state"] == "running":
                    await asyncio.sleep(0.02)
            before = len(ward.entries())
            allowed = await client.get(f"{JOBS}/{id_}/answers", headers=headers)
            assert "Colchicine" in allowed.text
            (entry,) = ward.entries()[before:]
            assert (entry["user"], entry["action"], entry["patient"]) == ("nurse", "job", ANNA)
            statuses = [allowed.status_code]
            for role, patients in (("patient-reader", ("other",)), ("literature-reader", None)):
                key = users.add("nurse", role, patients)  # type: ignore[arg-type]
                refused = await client.get(f"{JOBS}/{id_}/answers", headers={"authorization": f"Bearer {key}"})
                statuses.append(refused.status_code)
            return statuses

    assert asyncio.run(run()) == [200, 403, 403]


@pytest.mark.slow
def test_job_deleted_while_answer_is_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, append = threading.Event(), RecordStore.append_answer

    def append_slowly(*arguments: Any) -> None:
        writing.set()
        time.sleep(0.3)
        append(*arguments)

    monkeypatch.setattr(RecordStore, "append_answer", append_slowly)

    async def run() -> None:
        async with connect(make_app(tmp_path / "lib", recorder())) as client:
            id_ = (await client.post(JOBS, json={"questions": QUESTIONS})).json()["id"]
            assert await asyncio.to_thread(writing.wait, 20)
            assert (await client.delete(f"{JOBS}/{id_}")).status_code == 204
            await asyncio.sleep(0.5)

    asyncio.run(run())
    assert list((tmp_path / "server" / "jobs").iterdir()) == []


@pytest.mark.slow
def test_deleted_job_does_not_come_back_with_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = job_folder.JobFolder.change

    def write_slowly(*arguments: Any) -> None:
        time.sleep(0.2)
        write(*arguments)

    async def run() -> list[int]:
        model = StallingModel(1)
        async with connect(make_app(tmp_path / "lib", model)) as client:
            id_ = (await client.post(JOBS, json={"questions": QUESTIONS})).json()["id"]
            await client.post(f"{JOBS}/{id_}/cancel")
            monkeypatch.setattr(job_folder.JobFolder, "change", write_slowly)
            requests = [client.post(f"{JOBS}/{id_}/resume"), client.delete(f"{JOBS}/{id_}")]
            requests += [client.post(f"{JOBS}/{id_}/cancel"), client.post(f"{JOBS}/{id_}/resume")]
            await asyncio.gather(*requests)
            return [(await client.get(f"{JOBS}/{id_}")).status_code, len((await client.get(JOBS)).json())]

    assert asyncio.run(run()) == [404, 0]
    assert list((tmp_path / "server" / "jobs").iterdir()) == []


@pytest.mark.slow
def test_fault_in_job_stops_it_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("Anna Meier has gout")

    monkeypatch.setattr(RecordStore, "append_answer", fail)

    async def run() -> dict[str, Any]:
        async with connect(make_app(tmp_path / "lib", recorder())) as client:
            id_ = (await client.post(JOBS, json={"questions": QUESTIONS})).json()["id"]
            return await wait_until_ended(client, id_)

    with caplog.at_level(logging.ERROR):
        status = asyncio.run(run())
    assert status["state"] == "stopped"
    assert "Anna" not in str(status) + caplog.text
    assert "RuntimeError" in caplog.text


@pytest.mark.slow
def test_user_resumes_and_keeps_no_more_jobs_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_JOBS", 6)

    async def run() -> tuple[list[int], list[int]]:
        model = StallingModel(0)
        async with connect(make_app(tmp_path / "lib", model)) as client:
            body = {"questions": QUESTIONS[:1]}
            ids = []
            for _ in range(6):
                id_ = (await client.post(JOBS, json=body)).json()["id"]
                await client.post(f"{JOBS}/{id_}/cancel")
                ids.append(id_)
            more = await client.post(JOBS, json=body)
            resumed = [(await client.post(f"{JOBS}/{id_}/resume")).status_code for id_ in ids]
            for id_ in ids[:3]:
                await client.delete(f"{JOBS}/{id_}")
            submitted = await asyncio.gather(*(client.post(JOBS, json=body) for _ in range(6)))
            return [more.status_code, *resumed], sorted(response.status_code for response in submitted)

    resumed, submitted = asyncio.run(run())
    assert resumed == [429, 200, 200, 200, 200, 429, 429]
    assert submitted == [202] * 3 + [429] * 3


@pytest.mark.slow
def test_job_that_starts_while_jobs_are_counted_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second request has listed the jobs before the first one is stored, and counts them after it."""
    monkeypatch.setattr(jobs, "MAX_JOBS", 1)
    started, listings = threading.Event(), list[int]()
    list_jobs, start_job = job_folder.JobFolder.list_jobs, jobs.Jobs._start_job

    def list_slowly(self: job_folder.JobFolder, owner: str) -> list[Any]:
        listed: list[Any] = list_jobs(self, owner)
        listings.append(len(listed))
        if len(listings) == 2:
            assert started.wait(30)
        return listed

    async def start_second_last(self: jobs.Jobs, *arguments: Any) -> Any:
        while len(listings) < 2:
            await asyncio.sleep(0.01)
        try:
            return await start_job(self, *arguments)
        finally:
            asyncio.get_running_loop().call_later(0.05, started.set)

    async def run() -> list[int]:
        async with connect(make_app(tmp_path / "lib", StallingModel(0))) as client:
            body = {"questions": QUESTIONS[:1]}
            monkeypatch.setattr(job_folder.JobFolder, "list_jobs", list_slowly)
            monkeypatch.setattr(jobs.Jobs, "_start_job", start_second_last)
            first = asyncio.create_task(client.post(JOBS, json=body))
            await asyncio.sleep(0.3)
            second = await client.post(JOBS, json=body)
            return [(await first).status_code, second.status_code]

    assert asyncio.run(run()) == [202, 429]
    assert listings[:2] == [0, 0]


def test_answer_deleted_during_read_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = AnswerStore(tmp_path / ANSWERS_FOLDER).add(StoredAnswer(answer=ANSWER, library="lib", owner="maria"))
    answers = AnswerStore(tmp_path / ANSWERS_FOLDER)
    reading, read = threading.Event(), Path.read_bytes

    def read_slowly(path: Path) -> bytes:
        content = read(path)
        reading.set()
        time.sleep(0.2)
        return content

    assert answers.find(stored.id, "maria") is not None
    answers._answers.clear()
    monkeypatch.setattr(Path, "read_bytes", read_slowly)
    reader = threading.Thread(target=answers.find, args=(stored.id, "maria"))
    reader.start()
    reading.wait(5)
    monkeypatch.setattr(Path, "read_bytes", read)
    assert answers.remove(stored.id, "maria")
    reader.join()
    assert answers.find(stored.id, "maria") is None


@pytest.mark.slow
def test_answer_about_patient_of_library_that_is_not_served_is_not_found(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    folder = ward.folder / ANSWERS_FOLDER
    answer = replace(ANSWER, patient=ANNA)
    nurse = UserStore(ward.folder / USERS_FILE).find(ward.keys["nurse"])
    assert nurse is not None
    stored = AnswerStore(folder).add(StoredAnswer(answer=answer, library="closed", owner=nurse.owner))

    async def run() -> int:
        async with connect(ward.app, headers={"authorization": f"Bearer {ward.keys['nurse']}"}) as client:
            return (await client.get(f"/answers/{stored.id}")).status_code

    assert asyncio.run(run()) == 404


def test_fault_of_file_in_stream_is_no_complete_stream() -> None:
    """An error of the operating system behind a stream is not taken for a client that is gone."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"data: first\n\n"
        raise OSError(5, "Input/output error")

    async def run() -> None:
        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(_: Message) -> None:
            return

        await EventStream(pieces())({"type": "http"}, receive, send)

    with pytest.raises(OSError, match="Input/output"):
        asyncio.run(run())


def test_answer_on_full_disk_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> int:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(local_only, "open_private", fail)
    with pytest.raises(StorageError, match="No space left"):
        AnswerStore(tmp_path / ANSWERS_FOLDER).add(StoredAnswer(answer=ANSWER, library="lib"))


def test_new_folder_of_answers_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "server" / ANSWERS_FOLDER
    stored = AnswerStore(folder).add(StoredAnswer(answer=ANSWER, library="lib"))
    assert folder.stat().st_mode & 0o777 == 0o700
    (path,) = folder.glob(f"*/{stored.id}.json")
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


def test_answer_that_reads_no_library_belongs_to_patient_of_its_question(tmp_path: Path) -> None:
    answer = replace(ANSWER, question=replace(ANSWER.question, patient=ANNA))
    stored = AnswerStore(tmp_path / ANSWERS_FOLDER).add(StoredAnswer(answer=answer, library="lib", owner="maria"))
    assert stored.answer.patient is None
    assert stored.patient == ANNA


@pytest.mark.slow
def test_user_added_again_under_a_removed_name_inherits_nothing(tmp_path: Path) -> None:
    users = UserStore(tmp_path / "server" / USERS_FILE)
    users.add("otto", "literature-reader")

    async def run() -> list[Any]:
        async with connect(make_app(tmp_path / "lib", recorder())) as client:
            first = {"authorization": f"Bearer {users.add('maria', 'literature-reader')}"}
            id_ = (await client.post(JOBS, json={"questions": QUESTIONS[:1]}, headers=first)).json()["id"]
            asked = await client.post("/ask", data={"question": "Which drug was given for stroke?"}, headers=first)
            page = asked.headers["location"]
            renewed = {"authorization": f"Bearer {users.add('maria', 'literature-reader')}"}
            own = [(await client.get(path, headers=renewed)).status_code for path in (f"{JOBS}/{id_}", page)]
            users.remove("maria")
            other = {"authorization": f"Bearer {users.add('maria', 'literature-reader')}"}
            foreign = [(await client.get(path, headers=other)).status_code for path in (f"{JOBS}/{id_}", page)]
            return [own, foreign, (await client.get(JOBS, headers=other)).json()]

    assert asyncio.run(run()) == [[200, 200], [404, 404], []]


def test_stored_work_of_a_user_without_id_stays_with_the_user_and_goes_to_no_later_one(tmp_path: Path) -> None:
    users = UserStore(tmp_path / USERS_FILE)
    key = users.add("maria", "literature-reader")
    content = json.loads(users.path.read_text())
    del content["maria"]["id"]
    users.path.write_text(json.dumps(content))
    old = users.find(key)
    assert old is not None
    assert old.owner == "maria"
    renewed = users.find(users.add("maria", "patient-reader"))
    assert renewed is not None
    assert renewed.owner == "maria"
    users.remove("maria")
    later = users.find(users.add("maria", "literature-reader"))
    assert later is not None
    assert later.owner != "maria"
    assert users.find_owner("maria") is None
    assert users.find_owner(later.owner) == later


def age(path: Path, days: float) -> None:
    """Make a file look as if it was written these days ago."""
    at = time.time() - days * 86_400
    os.utime(path, (at, at))


def make_old(store: AnswerStore, owner: str, days: float, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the id of an answer that was stored these days ago."""
    now = time.time()
    with monkeypatch.context() as patch:
        patch.setattr("epicrisis.server.state.stored_answers.time.time", lambda: now - days * 86_400)
        stored = store.add(StoredAnswer(answer=ANSWER, library="lib", owner=owner))
    for path in store._files._folder.glob(f"**/{stored.id}.json"):  # type: ignore[union-attr]
        age(path, days)
    return stored.id


@pytest.mark.slow
def test_answer_that_is_too_old_is_removed_and_its_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(tmp_path / "lib", recorder())
    folder = tmp_path / "server" / ANSWERS_FOLDER
    old = make_old(AnswerStore(folder), "local", 366, monkeypatch)
    recent = make_old(AnswerStore(folder), "local", 364, monkeypatch)

    async def run() -> list[Any]:
        async with app.router.lifespan_context(app), connect(app) as client:
            async with asyncio.timeout(10):
                while list(folder.glob(f"*/{old}.json")):
                    await asyncio.sleep(0.02)
            return [await client.get(path) for path in (f"/answers/{old}", f"/answers/{recent}", "/history")]

    gone, kept, history = asyncio.run(run())
    assert (gone.status_code, kept.status_code) == (410, 200)
    assert "it keeps answers for 365 days" in gone.text
    assert "keeps an answer for 365 days, and the newest 1,000 answers of each user" in history.text


def test_answer_in_memory_expires_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = AnswerStore(tmp_path, keep_days=1)
    id_ = make_old(store, "maria", 2, monkeypatch)
    assert store.find_removal(id_, "maria") is None
    assert store.find(id_, "maria") is None
    removal = store.find_removal(id_, "maria")
    assert removal is not None
    assert removal.reason == "age"
    assert store.find_removal(id_, "otto") is None


def test_oldest_answers_of_user_beyond_limit_are_removed_with_note(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path, keep=3)
    other = store.add(StoredAnswer(answer=ANSWER, library="lib", owner="otto")).id
    ids = []
    for number in range(5):
        ids.append(store.add(StoredAnswer(answer=ANSWER, library="lib", owner="maria")).id)
        for path in tmp_path.glob(f"*/{ids[-1]}.json"):
            age(path, 5 - number)
    assert [store.find(id_, "maria") is not None for id_ in ids] == [False, False, True, True, True]
    assert {store.find_removal(id_, "maria").reason for id_ in ids[:2]} == {"number"}  # type: ignore[union-attr]
    assert store.find(other, "otto") is not None
    assert AnswerStore(tmp_path).find(ids[0], "maria") is None


def test_answer_of_older_version_is_read_removed_and_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = AnswerStore(tmp_path)
    ids = [make_old(store, "maria", days, monkeypatch) for days in (1, 1, 400)]
    for id_ in ids:
        (path,) = tmp_path.glob(f"*/{id_}.json")
        path.rename(tmp_path / path.name)
    later = AnswerStore(tmp_path)
    assert later.find(ids[0], "otto") is None
    assert later.find(ids[0], "maria") is not None
    assert later.remove(ids[1], "maria")
    later.remove_expired()
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [f"{ids[0]}.json"]
    assert later.find_removal(ids[2], "maria") is not None
    assert later.find_removal(ids[1], "maria") is None


def test_files_of_killed_process_are_removed_at_start(tmp_path: Path) -> None:
    """A fresh one may belong to a process that runs."""
    folder = tmp_path / "server" / ANSWERS_FOLDER
    stale, fresh = folder / "owner" / "stale.part", folder / "owner" / "fresh.part"
    unconfirmed = tmp_path / "server" / "jobs" / ("a" * 32) / "job.json.new"
    for path in (stale, fresh, unconfirmed):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{")
    for path in (stale, unconfirmed):
        age(path, 1)

    async def run() -> None:
        app = make_app(tmp_path / "lib", recorder())
        async with app.router.lifespan_context(app), asyncio.timeout(10):
            while stale.exists():
                await asyncio.sleep(0.02)

    asyncio.run(run())
    assert fresh.exists()
    assert not unconfirmed.parent.exists()


@pytest.mark.slow
def test_progress_of_jobs_is_read_outside_of_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first status after a start reads the answers of the job, up to many megabytes."""
    app = make_app(tmp_path / "lib", recorder())
    threads: set[int] = set()
    init = RecordStore.__init__

    def open_slowly(*arguments: Any, **named: Any) -> None:
        threads.add(threading.get_ident())
        init(*arguments, **named)

    monkeypatch.setattr(RecordStore, "__init__", open_slowly)

    async def run() -> None:
        async with connect(app) as client:
            id_ = (await client.post(JOBS, json={"questions": QUESTIONS[:1]})).json()["id"]
            await wait_until_ended(client, id_)
        for name in ("lib", "server"):
            shutil.copytree(tmp_path / name, tmp_path / "again" / name)
        again = create_app(
            open_resources(open_existing(tmp_path / "again" / "lib", recorder(), questions_at_once=1)),
            ServerOptions(folder=tmp_path / "again" / "server"),
        )
        async with again.router.lifespan_context(again), connect(again) as client:
            assert len((await client.get(JOBS)).json()) == 1
            assert (await client.get(f"{JOBS}/{id_}")).json()["answers"] == {"answered": 1}

    asyncio.run(run())
    assert threads
    assert threading.main_thread().ident not in threads
