"""Errors of the server: their log and figures, their form for each client, and what they must not tell."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from epicrisis.core.errors import ChatError, StorageError
from epicrisis.core.protocols import ChatReply, ChatRequest, DeltaCallback
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base import error_log
from epicrisis.server.base.hidden_paths import hide_file_paths
from epicrisis.server.base.http_errors import ServerBusy
from tests.server.test_jobs import StallingModel
from tests.support.servers import QUESTION, connect, open_library, open_resources

ASK = "/api/v1/ask"
CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
SECRET = "Anna Meier has gout"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """The server of four papers with a folder, whose log repeats no line of an earlier test."""
    monkeypatch.setattr(error_log, "_LINES", error_log.RepeatedLines())
    return create_app(open_resources(open_library(tmp_path / "lib")), ServerOptions(folder=tmp_path / "server"))


def send(app: FastAPI, path: str, **more: Any) -> httpx2.Response:
    async def request() -> httpx2.Response:
        async with connect(app) as client:
            return await client.post(path, **more)

    return asyncio.run(request())


def read_count(app: FastAPI, kind: str) -> float:
    return app.state.questions.metrics.registry.get_sample_value("epicrisis_errors_total", {"kind": kind}) or 0.0


def fail_with(app: FastAPI, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every question fail with this error."""

    async def fail(*_: Any) -> None:
        raise error from OSError(28, os.strerror(28), "/srv/epicrisis/answers")

    monkeypatch.setattr(app.state.questions, "prepare", fail)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "status"), [(StorageError(f"{SECRET}: cannot be written"), 507), (ServerBusy(SECRET, retry_after=5), 503)]
)
def test_error_of_server_is_logged_and_counted_without_its_text(
    error: Exception,
    status: int,
    app: FastAPI,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fail_with(app, error, monkeypatch)
    kind = type(error).__name__
    before = read_count(app, kind)
    with caplog.at_level(logging.ERROR):
        assert send(app, ASK, json={"question": QUESTION}).status_code == status
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{kind} ({status}) at ")
    assert line.endswith(": No space left on device: '/srv/epicrisis/answers'")
    assert "Anna" not in line
    assert read_count(app, kind) == before + 1


def test_error_of_client_is_not_logged(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        send(app, ASK, json={"question": "  "})
        send(app, ASK, json={"question": QUESTION, "library": "none"})
    assert caplog.records == []


@pytest.mark.slow
def test_repeated_error_is_logged_once_and_counted_each_time(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [0.0]
    monkeypatch.setattr("epicrisis.server.base.error_log.time.monotonic", lambda: clock[0])
    lines = error_log.RepeatedLines()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            lines.write("ServerBusy (503)")
        clock[0] = 61.0
        lines.write("ServerBusy (503)")
    written = [record.getMessage() for record in caplog.records]
    assert written == ["ServerBusy (503)", "ServerBusy (503) (2 more since the last line of this kind)"]


class FailingModel(StallingModel):
    """A model whose every call fails with a message that names a file of the server."""

    def __init__(self, path: Path) -> None:
        super().__init__(0)
        self.path = path

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        raise ChatError(f"the reply of {self.path / 'private' / 'model.gguf'} about {SECRET} cannot be read")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["whole", "stream", "trace", "openai", "page", "job"])
def test_failed_answer_shows_no_path_of_server(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(error_log, "_LINES", error_log.RepeatedLines())
    model = FailingModel(tmp_path)
    resources = open_resources(open_library(tmp_path / "lib", model))
    app = create_app(resources, ServerOptions(folder=tmp_path / "server"))

    async def ask(client: httpx2.AsyncClient) -> str:
        question = {"question": QUESTION}
        if form == "openai":
            messages = [{"role": "user", "content": QUESTION}]
            return (await client.post(CHAT, json={"model": "epicrisis/rag", "messages": messages})).text
        if form == "page":
            return (await client.post("/ask", data=question, headers={"accept": "text/event-stream"})).text
        if form == "job":
            id_ = (await client.post("/api/v1/jobs", json={"questions": [question]})).json()["id"]
            status = {"state": "running"}
            async with asyncio.timeout(20):
                while status["state"] == "running":
                    await asyncio.sleep(0.02)
                    status = (await client.get(f"/api/v1/jobs/{id_}")).json()
            return json.dumps(status) + (await client.get(f"/api/v1/jobs/{id_}/answers")).text
        return (await client.post(ASK, json={**question, form: True} if form != "whole" else question)).text

    async def run() -> str:
        async with connect(app) as client:
            return await ask(client)

    with caplog.at_level(logging.ERROR):
        text = asyncio.run(run())
    assert "he reply of a file of the server about" in text
    assert str(tmp_path) not in text
    assert "model.gguf" not in text
    assert "Anna" not in caplog.text
    assert "failed answer, ChatError (502)" in caplog.text


@pytest.mark.parametrize("path", [ASK, CHAT, "/ask", "/api/v1/jobs"])
def test_full_disk_shows_no_path_of_server(
    path: str, app: FastAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(app, StorageError(f"{tmp_path / 'server' / 'x y.json'} cannot be written (No space left)"), monkeypatch)
    bodies: dict[str, Any] = {
        ASK: {"json": {"question": QUESTION}},
        CHAT: {"json": {"model": "epicrisis/rag", "messages": [{"role": "user", "content": QUESTION}]}},
        "/ask": {"data": {"question": QUESTION}},
        "/api/v1/jobs": {"json": {"questions": [{"question": QUESTION}]}},
    }
    response = send(app, path, **bodies[path])
    assert response.status_code == 507
    assert str(tmp_path) not in response.text
    assert "No space left" in response.text


def test_damaged_users_show_no_path_of_server(app: FastAPI, tmp_path: Path) -> None:
    (tmp_path / "server" / "users.json").mkdir(parents=True)
    response = send(app, ASK, json={"question": QUESTION})
    assert response.status_code == 503
    assert str(tmp_path) not in response.text


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("/etc/passwd cannot be read", "a file of the server cannot be read"),
        ("cannot open '/tmp/x/y.json': no such file", "cannot open 'a file of the server': no such file"),
        ("GET /api/v1/libraries lists them", "GET /api/v1/libraries lists them"),
        ("http://127.0.0.1/etc/x does not answer", "http://127.0.0.1/etc/x does not answer"),
        ("aspirin 75/150 mg, and/or heparin", "aspirin 75/150 mg, and/or heparin"),
    ],
)
def test_message_loses_paths_of_files_and_keeps_addresses(message: str, shown: str) -> None:
    assert hide_file_paths(message) == shown


UNREADABLE = [b"{", b"[" * 5000, b"\xff\xfe", b'{"model": nan}']


@pytest.mark.slow
@pytest.mark.parametrize("content", UNREADABLE)
def test_unreadable_json_has_the_error_form_of_each_client(content: bytes, app: FastAPI) -> None:
    problem = send(app, ASK, content=content, headers=JSON)
    assert (problem.status_code, problem.json()["kind"]) == (400, "BodyRefused")
    openai = send(app, CHAT, content=content, headers=JSON)
    assert openai.status_code == 400
    error = openai.json()["error"]
    assert (error["code"], error["type"], error["param"]) == ("BodyRefused", "invalid_request_error", None)
    assert error["message"] == f"{problem.json()['detail']}. {problem.json()['cure']}"


@pytest.mark.parametrize("path", ["/v1/nowhere", "/v1/models"])
def test_unknown_address_of_openai_client_has_its_form(path: str, app: FastAPI) -> None:
    response = send(app, path, json={})
    assert response.status_code in (404, 405)
    assert set(response.json()) == {"error"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "body", "detail", "name"),
    [
        (ASK, {"question": "x", "options": {"AA": "b"}}, "options.AA: String should match pattern '^[A-Z]$'", None),
        (ASK, {"question": "x", "options": ["", 3]}, "options.0: String should have at least 1 character", None),
        (ASK, {"question": "x", "options": 3}, "options: must be a JSON object; options: must be a list", None),
        (ASK, {"question": "x", "settings": {"as_of": SECRET[:9]}}, "settings.as_of: not a date of the form", None),
        (ASK, {"other": 1}, "question: is missing; other: the request has no such field", None),
        (ASK, [], "body: must be a JSON object", None),
        (CHAT, {"model": 1}, "model: must be a text; messages: is missing", "model"),
        (
            CHAT,
            {"model": "m", "messages": [{"role": "x"}]},
            "messages.0.role: Input should be 'system'",
            "messages.0.role",
        ),
        (CHAT, [], "body: must be a JSON object", None),
    ],
)
def test_fault_of_body_names_the_field_as_sent(
    path: str, body: Any, detail: str, name: str | None, app: FastAPI
) -> None:
    response = send(app, path, json=body)
    assert response.status_code == 422
    content = response.json()
    told = content["error"]["message"] if path == CHAT else content["detail"]
    assert told.startswith(detail)
    assert "constrained" not in told
    assert "Anna" not in told
    if path == CHAT:
        assert content["error"]["param"] == name


WIDE = 50_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (ASK, {"question": "x", "settings": {f"k{number}": 1 for number in range(WIDE)}}),
        (ASK, {"question": "x", "options": {f"k{number}": "1" for number in range(WIDE)}}),
        (ASK, {f"k{number}": 1 for number in range(WIDE)}),
        ("/api/v1/jobs", {"questions": [1] * WIDE}),
        ("/api/v1/search", {"query": "x", "settings": {"types": [1] * WIDE}}),
        (CHAT, {"model": "epicrisis/rag", "messages": [{"role": "user", "content": [1] * WIDE}]}),
        (CHAT, {"model": "epicrisis/rag", "messages": [1] * WIDE}),
        (CHAT, {f"k{number}": 1 for number in range(WIDE)}),
    ],
)
def test_body_of_many_faults_is_refused_after_the_first(path: str, body: Any, app: FastAPI) -> None:
    """Each fault takes time in which the server answers nobody: 300,000 of them took 6 seconds."""
    response = send(app, path, json=body)
    assert response.status_code == 422
    assert response.text.count(";") <= 2
    assert len(response.content) < 600
