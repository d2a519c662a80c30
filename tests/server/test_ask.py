"""Questions over HTTP: whole answers and streams, their settings, failures, and clients that go away."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from epicrisis.core.errors import EndpointTimeout, EndpointUnreachable
from epicrisis.core.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.testing.chat import ScriptedModel
from tests.support.patient_records import recorder
from tests.support.servers import QUESTION, connect, open_library, open_resources, read_events, running


class WaitingModel:
    """A model whose calls wait until they are released, and that counts the calls that were cancelled."""

    name = "waiting"

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()
        self._inner = recorder()

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return await self._inner.complete(request, on_delta)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return await self._inner.count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        return await self._inner.capabilities()

    async def fingerprint(self) -> str:
        return self.name

    async def aclose(self) -> None:
        """Do nothing."""


def failing(error: Exception) -> ScriptedModel:
    def script(_: ChatRequest) -> str:
        raise error

    return ScriptedModel(script)


async def post(folder: Path, body: dict[str, Any], model: Any = None, **settings: Any) -> httpx2.Response:
    app = create_app(open_resources(open_library(folder / "lib", model, **settings)))
    async with connect(app) as client:
        return await client.post("/api/v1/ask", json=body)


def test_ask_returns_answer_with_verified_citation(tmp_path: Path) -> None:
    response = asyncio.run(post(tmp_path, {"question": QUESTION}))
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    answer = response.json()
    assert answer["state"] == "answered"
    assert answer["citations"][0]["verified"] is True
    assert "trace" not in answer


def test_ask_with_trace_returns_events(tmp_path: Path) -> None:
    answer = asyncio.run(post(tmp_path, {"question": QUESTION, "trace": True})).json()
    assert [event["event"] for event in answer["trace"]][:1] == ["retrieved"]


def test_ask_with_stream_sends_every_step_and_ends_with_answer(tmp_path: Path) -> None:
    response = asyncio.run(post(tmp_path, {"question": QUESTION, "stream": True}))
    assert response.headers["content-type"].startswith("text/event-stream")
    events = read_events(response.text)
    names = [name for name, _ in events]
    assert names[0] == "retrieved"
    assert names[-1] == "answered"
    assert "delta" in names
    assert events[-1][1]["answer"]["state"] == "answered"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "start"),
    [("vancouver", "1. "), ("ama", "1. "), ("apa", ""), ("bibtex", "@"), ("ris", "TY  - "), ("csl-json", "[")],
)
@pytest.mark.parametrize("stream", [False, True])
def test_ask_with_references_adds_cited_documents(format: str, start: str, stream: bool, tmp_path: Path) -> None:
    body = {"question": QUESTION, "references": format, "stream": stream}
    response = asyncio.run(post(tmp_path, body))
    answer = read_events(response.text)[-1][1]["answer"] if stream else response.json()
    assert answer["references"].startswith(start)
    for citation in answer["citations"]:
        assert citation["title"] in answer["references"]
    assert "references" not in asyncio.run(post(tmp_path / "second", {"question": QUESTION})).json()


@pytest.mark.parametrize("format", ["vancouver", "ris"])
def test_ask_with_references_without_extra_refuses_styles_only(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "citeproc", None)
    response = asyncio.run(post(tmp_path, {"question": QUESTION, "references": format}))
    if format == "ris":
        assert response.status_code == 200
    else:
        assert response.status_code == 422
        assert "epicrisis[citations]" in response.json()["detail"]


def test_ask_uses_settings_of_request_only_for_that_request(tmp_path: Path) -> None:
    library = open_library(tmp_path / "lib")
    app = create_app(open_resources(library))

    async def ask() -> list[int]:
        counts = []
        async with connect(app) as client:
            for settings in ({"k": 2}, {}):
                body = {"question": QUESTION, "settings": settings, "trace": True}
                answer = (await client.post("/api/v1/ask", json=body)).json()
                counts.append(len(answer["trace"][0]["ranking"]["hits"]))
        return counts

    assert asyncio.run(ask()) == [2, 4]


def test_ask_by_strategy_of_request_needs_no_model(tmp_path: Path) -> None:
    model = recorder()
    body = {"question": QUESTION, "settings": {"strategy": "evidence"}}
    answer = asyncio.run(post(tmp_path, body, model)).json()
    assert (answer["strategy"], model.requests) == ("evidence", [])


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"question": QUESTION, "library": "../lib"}, 404, "NotFound"),
        ({"question": QUESTION, "library": "/etc"}, 404, "NotFound"),
        ({"question": QUESTION, "patient": "1"}, 404, "NotFound"),
        ({"question": "  "}, 422, "InputError"),
        ({"question": "x" * 20_001}, 422, "InputError"),
        ({}, 422, "InputError"),
        ({"question": QUESTION, "settings": {"k": 100_000}}, 422, "InputError"),
        ({"question": QUESTION, "settings": {"home": "/"}}, 422, "InputError"),
        ({"question": QUESTION, "settings": {"models": {"writer": {"name": "http://evil"}}}}, 422, "InputError"),
        ({"question": QUESTION, "references": "chicago"}, 422, "InputError"),
        ({"question": QUESTION, "settings": {"as_of": "yesterday"}}, 422, "InputError"),
        ({"question": QUESTION, "settings": {"strategy": "medprompt"}}, 422, "InputError"),
        ({"question": QUESTION, "settings": {"strategy": "full-context", "order": "rank"}}, 422, "InputError"),
    ],
)
def test_ask_with_wrong_body_returns_problem(body: dict[str, Any], status: int, kind: str, tmp_path: Path) -> None:
    response = asyncio.run(post(tmp_path, body))
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["status"], problem["kind"]) == (status, kind)
    assert problem["detail"]
    assert problem["cure"]


def test_ask_with_invalid_value_does_not_repeat_it(tmp_path: Path) -> None:
    """A fault of a body may be a patient's name in the wrong field."""
    response = asyncio.run(post(tmp_path, {"question": QUESTION, "settings": {"k": "Anna Schmidt"}}))
    assert response.status_code == 422
    assert "Anna" not in response.text


@pytest.mark.parametrize(
    ("error", "status"), [(EndpointUnreachable("refused: start it"), 502), (EndpointTimeout("late: wait"), 504)]
)
def test_ask_with_failing_model_returns_status_of_failure_and_answer(
    error: Exception, status: int, tmp_path: Path
) -> None:
    response = asyncio.run(post(tmp_path, {"question": QUESTION}, failing(error)))
    assert response.status_code == status
    problem = response.json()
    assert problem["kind"] == type(error).__name__
    assert problem["answer"]["state"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
def test_disconnect_cancels_model_call_at_once(stream: bool, tmp_path: Path) -> None:
    async def leave() -> int:
        model = WaitingModel()
        app = create_app(open_resources(open_library(tmp_path / "lib", model)), ServerOptions(stop_seconds=1))
        async with running(app) as address, httpx2.AsyncClient(base_url=address) as client:
            body = {"question": QUESTION, "stream": stream}
            asking = asyncio.create_task(client.post("/api/v1/ask", json=body))
            await asyncio.wait_for(model.started.wait(), 20)
            asking.cancel()
            await asyncio.wait_for(model.cancelled.wait(), 2)
            await asyncio.sleep(0.05)
        return int(app.state.questions.running)

    assert asyncio.run(leave()) == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/ask", {"question": QUESTION, "stream": True}),
        ("/v1/chat/completions", {"model": "epicrisis/rag", "messages": [{"role": "user", "content": QUESTION}]}),
        (
            "/v1/chat/completions",
            {
                "model": "epicrisis/rag",
                "messages": [{"role": role, "content": QUESTION} for role in ("user", "assistant", "user")],
            },
        ),
    ],
)
def test_streams_above_the_limit_are_refused_with_their_status(path: str, body: dict[str, Any], tmp_path: Path) -> None:
    """Requests that come at the same moment too: the place is taken before the first byte."""

    async def ask() -> tuple[list[int], int]:
        model = WaitingModel()
        app = create_app(open_resources(open_library(tmp_path / "lib", model)), ServerOptions(max_running=1))
        async with connect(app) as client:
            requests = [asyncio.create_task(client.post(path, json=body | {"stream": True})) for _ in range(3)]
            done, _ = await asyncio.wait(requests, timeout=3, return_when=asyncio.FIRST_COMPLETED)
            while len(done) < 2:
                done, _ = await asyncio.wait(requests, timeout=0.05)
            refused = [request.result() for request in done]
            assert all(response.headers["retry-after"] == "5" for response in refused)
            model.release.set()
            last = await asyncio.gather(*requests)
        return sorted(response.status_code for response in last), int(app.state.questions.running)

    assert asyncio.run(ask()) == ([200, 503, 503], 0)


def test_more_questions_than_limit_are_refused_until_one_ends(tmp_path: Path) -> None:
    async def ask() -> list[int]:
        model = WaitingModel()
        app = create_app(open_resources(open_library(tmp_path / "lib", model)), ServerOptions(max_running=1))
        async with connect(app) as client:
            first = asyncio.create_task(client.post("/api/v1/ask", json={"question": QUESTION}))
            await model.started.wait()
            refused = await client.post("/api/v1/ask", json={"question": QUESTION})
            assert refused.headers["retry-after"] == "5"
            model.release.set()
            after = await first
            again = await client.post("/api/v1/ask", json={"question": QUESTION})
        return [refused.status_code, after.status_code, again.status_code]

    assert asyncio.run(ask()) == [503, 200, 200]


def test_health_answers_without_key(tmp_path: Path) -> None:
    async def read() -> list[int]:
        app = create_app(open_resources(open_library(tmp_path / "lib")))
        async with connect(app) as client:
            return [(await client.get(path)).status_code for path in ("/healthz", "/readyz", "/nowhere")]

    assert asyncio.run(read()) == [200, 200, 404]
