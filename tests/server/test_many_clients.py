"""Many clients at once, and clients that do not read: nobody waits for another, and everybody gets their own answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from epicrisis.core.answers import Answer, Answered, Event, TextDelta
from epicrisis.core.types import Question
from epicrisis.server.app import create_app
from epicrisis.server.libraries import streaming
from epicrisis.server.libraries.streaming import EventStream, keep_alive, stream_events
from tests.support.servers import connect, open_library, open_resources, read_events, running

CLIENTS = 200


@pytest.mark.long
def test_200_clients_at_once_each_get_their_own_answer(tmp_path: Path) -> None:
    async def ask(client: httpx2.AsyncClient, number: int) -> str:
        body = {"question": f"Which drug was given for stroke in trial {number}?", "stream": True}
        response = await client.post("/api/v1/ask", json=body)
        assert response.status_code == 200
        name, data = read_events(response.text)[-1]
        assert (name, data["answer"]["state"]) == ("answered", "answered")
        return str(data["answer"]["question"]["text"])

    async def ask_all() -> list[str]:
        app = create_app(open_resources(open_library(tmp_path / "lib", by="bm25")))
        async with connect(app, timeout=120) as client:
            answers = await asyncio.gather(*(ask(client, number) for number in range(CLIENTS)))
        assert app.state.questions.running == 0
        return answers

    texts = asyncio.run(ask_all())
    assert texts == [f"Which drug was given for stroke in trial {number}?" for number in range(CLIENTS)]


def test_client_that_reads_nothing_holds_no_question_and_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "SEND_SECONDS", 0.2)
    finished = asyncio.Event()

    async def events() -> AsyncGenerator[Event, None]:
        for _ in range(100):
            yield TextDelta("rag", "word ")
        yield Answered(Answer(question=Question("What?"), strategy="rag", state="answered"))
        finished.set()

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] != "http.response.start":
            await asyncio.Event().wait()

    async def serve() -> bool:
        response = EventStream(keep_alive(stream_events(events(), str)))
        task = asyncio.create_task(response({"type": "http"}, receive, send))
        await asyncio.sleep(0.1)
        # The question ended long before the client was given up.
        is_finished = finished.is_set() and not task.done()
        await asyncio.wait_for(task, 5)
        return is_finished

    assert asyncio.run(serve())


@pytest.mark.slow
def test_server_that_stops_finishes_running_answer_and_refuses_new_one(tmp_path: Path) -> None:
    from tests.server.test_ask import WaitingModel

    async def stop() -> tuple[int, int, int]:
        model = WaitingModel()
        app = create_app(open_resources(open_library(tmp_path / "lib", model)))
        async with running(app) as address, httpx2.AsyncClient(base_url=address, timeout=30) as client:
            body = {"question": "Which drug was given for stroke?"}
            asking = asyncio.create_task(client.post("/api/v1/ask", json=body))
            await asyncio.wait_for(model.started.wait(), 20)
            app.state.questions.refuse_new()
            refused = await client.post("/api/v1/ask", json=body)
            ready = await client.get("/readyz")
            model.release.set()
            return (await asking).status_code, refused.status_code, ready.status_code

    assert asyncio.run(stop()) == (200, 503, 503)
