"""A real server process: killed after an answer, told to stop during one, and held by clients that send no request."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from pathlib import Path

import httpx2
import pytest

from tests.server.test_jobs import QUESTIONS
from tests.support.pages import Page
from tests.support.server_child import run_server
from tests.support.servers import QUESTION, read_events

ASK = "/api/v1/ask"
JOBS = "/api/v1/jobs"


@pytest.mark.long
def test_finished_answers_survive_a_kill_right_after_they_were_delivered(tmp_path: Path) -> None:
    """Pages as address and as stream, an answer of the OpenAI endpoint, and the answers of a job."""
    with (
        run_server(tmp_path) as (port, child),
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        id_ = client.post(JOBS, json={"questions": QUESTIONS[:2]}).json()["id"]
        while client.get(f"{JOBS}/{id_}").json()["answers"] != {"answered": 2}:
            time.sleep(0.05)
        messages = [{"role": "user", "content": QUESTION}]
        chat = client.post("/v1/chat/completions", json={"model": "epicrisis/rag", "messages": messages}).json()
        stream = client.post("/ask", data={"question": QUESTION}, headers={"accept": "text/event-stream"}).text
        address = client.post("/ask", data={"question": QUESTION}).headers["location"]
        child.send_signal(signal.SIGKILL)
        assert child.wait(30) == -signal.SIGKILL
    streamed = next(part.split('"')[0] for part in stream.split('data-href="')[1:])
    addresses = [address, streamed, "/answers/" + chat["epicrisis"]["page"].rpartition("/")[2]]
    assert len(set(addresses)) == 3
    with run_server(tmp_path) as (port, _), httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        for path in addresses:
            page = client.get(path)
            assert page.status_code == 200
            assert Page(page.text).one("article", "answer").attributes["data-question"] == QUESTION
        lines = client.get(f"{JOBS}/{id_}/answers").text.splitlines()
        assert [json.loads(line)["answer"]["state"] for line in lines] == ["answered", "answered"]


@pytest.mark.long
def test_answer_that_streams_finishes_after_stop_and_new_questions_are_refused(tmp_path: Path) -> None:
    async def run(port: int, stop: object) -> tuple[list[str], int, int]:
        address = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=address, timeout=60) as client:
            text, refused, ready = "", 0, 0
            # A connection from before the stop: after it, the server accepts no new ones.
            async with httpx2.AsyncClient(base_url=address, timeout=60) as other:
                await other.get("/readyz")
                async with client.stream("POST", ASK, json={"question": QUESTION, "stream": True}) as response:
                    async for piece in response.aiter_text():
                        text += piece
                        if not refused and "event: retrieved" in text:
                            stop()  # type: ignore[operator]
                            while ready != 503:
                                ready = (await other.get("/readyz")).status_code
                            refused = (await other.post(ASK, json={"question": QUESTION})).status_code
            return [name for name, _ in read_events(text)], refused, ready

    with run_server(tmp_path, seconds=2.0) as (port, child):
        names, refused, ready = asyncio.run(run(port, lambda: child.send_signal(signal.SIGTERM)))
        assert child.wait(30) == 0
    assert names[-1] == "answered"
    assert (refused, ready) == (503, 503)


@pytest.mark.long
def test_client_that_sends_headers_slowly_is_disconnected_and_others_are_not(tmp_path: Path) -> None:
    """Slowloris: a header line every moment, and never the last one. A question may take longer than headers may."""
    with (
        run_server(tmp_path, seconds=1.5, header_seconds=0.8) as (port, _),
        socket.create_connection(("127.0.0.1", port)) as slow,
        socket.create_connection(("127.0.0.1", port)) as silent,
        socket.create_connection(("127.0.0.1", port)) as second,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        second.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in second.recv(10_000)
        started = time.monotonic()
        slow.sendall(b"POST /api/v1/ask HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for connection in (slow, silent, second):
            connection.setblocking(False)
        assert client.post(ASK, json={"question": QUESTION}).json()["state"] == "answered"
        closed: set[int] = set()
        while len(closed) < 3 and time.monotonic() - started < 20:
            for number, connection in enumerate((slow, silent, second)):
                try:
                    if number != 1 and number not in closed:
                        connection.sendall(b"X-More: 1\r\n" if number == 0 else b"GET /heal")
                    if connection.recv(1_000) == b"":
                        closed.add(number)
                except BlockingIOError:
                    pass
                except OSError:
                    closed.add(number)
            time.sleep(0.1)
        assert closed == {0, 1, 2}
