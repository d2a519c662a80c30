"""Jobs: many questions in the background, their progress, a kill between them, and other users' jobs."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from epicrisis.core.errors import StorageError
from epicrisis.core.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.http_errors import StateUnavailable
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.state.job_folder import JobFolder
from epicrisis.server.state.job_models import JobFile
from epicrisis.server.work import jobs
from tests.support.patient_records import recorder
from tests.support.servers import connect, open_existing, open_library, open_resources

QUESTIONS = [{"question": f"Which drug was given for stroke in trial {number}?"} for number in range(5)]


class StallingModel:
    """A model that answers `free` questions and then waits for ever. Counts the calls that it answered."""

    name = "stalling"

    def __init__(self, free: int) -> None:
        self.free = free
        self.answered = 0
        self.stalled = asyncio.Event()
        self._inner = recorder()

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        if self.answered >= self.free:
            self.stalled.set()
            await asyncio.Event().wait()
        self.answered += 1
        return await self._inner.complete(request, on_delta)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return await self._inner.count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        return await self._inner.capabilities()

    async def fingerprint(self) -> str:
        return self.name

    async def aclose(self) -> None:
        """Do nothing."""


def make_app(folder: Path, model: Any) -> FastAPI:
    return create_app(
        open_resources(open_library(folder, model, questions_at_once=1)), ServerOptions(folder=folder.parent / "server")
    )


async def wait_until_ended(client: httpx2.AsyncClient, id_: str) -> dict[str, Any]:
    """Return the status of a job that has ended, within 20 seconds."""
    async with asyncio.timeout(20):
        while True:
            status: dict[str, Any] = (await client.get(f"/api/v1/jobs/{id_}")).json()
            if status["state"] != "running":
                return status
            await asyncio.sleep(0.02)


@pytest.mark.slow
def test_job_answers_every_question_in_file_format(tmp_path: Path) -> None:
    async def run() -> tuple[dict[str, Any], list[Any]]:
        async with connect(make_app(tmp_path / "lib", recorder())) as client:
            started = await client.post("/api/v1/jobs", json={"questions": QUESTIONS})
            assert started.status_code == 202
            status = await wait_until_ended(client, started.json()["id"])
            answers = await client.get(f"/api/v1/jobs/{status['id']}/answers")
            return status, [json.loads(line) for line in answers.text.splitlines()]

    status, answers = asyncio.run(run())
    assert (status["state"], status["answers"]) == ("done", {"answered": 5})
    assert sorted(line["answer"]["question"]["id"] for line in answers) == ["1", "2", "3", "4", "5"]


def test_stored_job_is_confirmed_also_if_it_cannot_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StateUnavailable("the database does not answer")

    async def run() -> httpx2.Response:
        async with connect(make_app(tmp_path / "lib", recorder())) as client:
            monkeypatch.setattr(JobFolder, "find", fail)
            monkeypatch.setattr(JobFolder, "count_answers", fail)
            return await client.post("/api/v1/jobs", json={"questions": QUESTIONS})

    started = asyncio.run(run())
    # A proxy would send a request that ends with 503 to another server, which would start the job twice.
    assert (started.status_code, started.json()["state"], started.json()["questions"]) == (202, "running", 5)


def test_job_stops_if_the_database_of_the_server_refuses_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process would take it up again and again, each time with calls of the model."""

    def refuse(*_: object) -> None:
        raise StateUnavailable("the database refuses a statement")

    async def run() -> dict[str, Any]:
        async with connect(make_app(tmp_path / "lib", recorder())) as client:
            # Of the job alone: requests for its status read the answers too.
            monkeypatch.setattr(jobs.Jobs, "_open_records", refuse)
            started = await client.post("/api/v1/jobs", json={"questions": QUESTIONS})
            return await wait_until_ended(client, started.json()["id"])

    status = asyncio.run(run())
    assert (status["state"], status["problem"]) == ("stopped", "the database refuses a statement")


@pytest.mark.slow
@pytest.mark.parametrize(("is_shared", "state"), [(True, "done"), (False, "stopped")])
def test_job_of_shared_servers_waits_for_the_database_of_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool, state: str
) -> None:
    async def run() -> dict[str, Any]:
        app = make_app(tmp_path / "lib", recorder())
        prepare, calls = app.state.questions.prepare, itertools.count()

        async def fail_at_first(*arguments: Any) -> Any:
            # All questions are prepared before the job is accepted.
            if len(QUESTIONS) <= next(calls) < len(QUESTIONS) + 2:
                raise StorageError("the connection was lost")
            return await prepare(*arguments)

        monkeypatch.setattr(app.state.questions, "prepare", fail_at_first)
        async with connect(app) as client:
            started = await client.post("/api/v1/jobs", json={"questions": QUESTIONS})
            return await wait_until_ended(client, started.json()["id"])

    monkeypatch.setattr(jobs, "LIBRARY_WAITS", (0.01, 0.01))
    monkeypatch.setattr(JobFolder, "is_shared", is_shared)
    status = asyncio.run(run())
    assert status["state"] == state
    assert status["answers"] == ({"answered": 5} if is_shared else {})


def test_job_resumed_while_leases_are_renewed_goes_on() -> None:
    """The renewal began with the earlier task of the job, and reports that its lease was lost."""

    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        watched = jobs.Jobs.__new__(jobs.Jobs)
        earlier, resumed, lost = (asyncio.create_task(wait_for_ever()) for _ in range(3))
        tasks: dict[str, asyncio.Task[None]] = {"resumed": earlier, "lost": lost}

        class Leases:
            def keep(self, ids: Collection[str]) -> set[str]:
                tasks["resumed"] = resumed
                return set(ids)

            def claim_abandoned(self, *_: object) -> list[JobFile]:
                return []

        watched._tasks, watched._store = tasks, Leases()  # type: ignore[assignment]
        watched._questions = SimpleNamespace(resources=SimpleNamespace(libraries={}))  # type: ignore[assignment]
        watch = asyncio.create_task(watched._watch())
        await asyncio.wait([lost], timeout=20)
        assert lost.cancelled()
        await asyncio.sleep(0)
        assert tasks == {"resumed": resumed}
        assert not resumed.done()
        for task in (watch, earlier, resumed):
            task.cancel()

    asyncio.run(run())


@pytest.mark.slow
def test_job_after_kill_asks_only_questions_without_answer(tmp_path: Path) -> None:
    async def run() -> tuple[int, int, dict[str, Any]]:
        first, second = StallingModel(2), StallingModel(100)
        async with connect(make_app(tmp_path / "one", first)) as client:
            id_ = (await client.post("/api/v1/jobs", json={"questions": QUESTIONS})).json()["id"]
            await asyncio.wait_for(first.stalled.wait(), 20)
        # What a kill leaves: the files of the job, and no word in them that it ended.
        shutil.copytree(tmp_path / "one", tmp_path / "two" / "one")
        shutil.copytree(tmp_path / "server", tmp_path / "two" / "server")
        app = create_app(
            open_resources(open_existing(tmp_path / "two" / "one", second, questions_at_once=1)),
            ServerOptions(folder=tmp_path / "two" / "server"),
        )
        async with app.router.lifespan_context(app), connect(app) as client:
            status = await wait_until_ended(client, id_)
        return first.answered, second.answered, status

    first, second, status = asyncio.run(run())
    assert (first, second) == (2, 3)
    assert (status["state"], status["answers"]) == ("done", {"answered": 5})


@pytest.mark.slow
def test_cancelled_job_keeps_answers_and_resumes(tmp_path: Path) -> None:
    async def run() -> list[dict[str, Any]]:
        model = StallingModel(2)
        async with connect(make_app(tmp_path / "lib", model)) as client:
            id_ = (await client.post("/api/v1/jobs", json={"questions": QUESTIONS})).json()["id"]
            await asyncio.wait_for(model.stalled.wait(), 20)
            cancelled = (await client.post(f"/api/v1/jobs/{id_}/cancel")).json()
            model.free = 100
            await client.post(f"/api/v1/jobs/{id_}/resume")
            ended = await wait_until_ended(client, id_)
            removed = await client.delete(f"/api/v1/jobs/{id_}")
            assert removed.status_code == 204
            assert (await client.get(f"/api/v1/jobs/{id_}")).status_code == 404
            return [cancelled, ended]

    cancelled, ended = asyncio.run(run())
    assert (cancelled["state"], cancelled["answers"]) == ("cancelled", {"answered": 2})
    assert (ended["state"], ended["answers"]) == ("done", {"answered": 5})
    assert list((tmp_path / "server" / "jobs").iterdir()) == []


@pytest.mark.slow
def test_job_of_another_user_is_not_found(tmp_path: Path) -> None:
    """Another user's stored answers, for an administrator too."""
    users = UserStore(tmp_path / "server" / USERS_FILE)
    keys = {name: users.add(name, "administrator") for name in ("maria", "otto")}

    async def run() -> tuple[list[int], list[Any]]:
        async with connect(make_app(tmp_path / "lib", recorder())) as client:
            headers = {name: {"authorization": f"Bearer {key}"} for name, key in keys.items()}
            body = {"questions": QUESTIONS[:1]}
            id_ = (await client.post("/api/v1/jobs", json=body, headers=headers["maria"])).json()["id"]
            statuses = []
            for method, end in (
                ("GET", ""),
                ("GET", "/answers"),
                ("POST", "/cancel"),
                ("POST", "/resume"),
                ("DELETE", ""),
            ):
                url = f"/api/v1/jobs/{id_}{end}"
                statuses.append((await client.request(method, url, headers=headers["otto"])).status_code)
            listed = (await client.get("/api/v1/jobs", headers=headers["otto"])).json()
            assert (await client.get(f"/api/v1/jobs/{id_}", headers=headers["maria"])).status_code == 200
            return statuses, listed

    assert asyncio.run(run()) == ([404] * 5, [])


@pytest.mark.slow
def test_job_with_wrong_question_is_refused_with_its_number(tmp_path: Path) -> None:
    async def run() -> list[httpx2.Response]:
        async with connect(make_app(tmp_path / "lib", recorder())) as client:
            wrong = [*QUESTIONS[:1], {"question": "  "}]
            twice = [{"question": "What?", "id": "a"}, {"question": "Why?", "id": "a"}]
            return [await client.post("/api/v1/jobs", json={"questions": each}) for each in (wrong, twice)]

    wrong, twice = asyncio.run(run())
    assert (wrong.status_code, twice.status_code) == (422, 422)
    assert wrong.json()["detail"].startswith("questions.1:")
    assert not (tmp_path / "server" / "jobs").exists()
