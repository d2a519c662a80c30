"""The deployment of `deploy/cluster` as processes: users do not notice that a server dies, or that all are updated."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx2
import pytest

from tests.deployment.conftest import ScriptedModel
from tests.support.deployment import NAMES, Cluster

pytestmark = [pytest.mark.postgresql, pytest.mark.models]
QUESTION = "Does low-dose aspirin lower the risk of preterm pre-eclampsia?"
CLIENTS = 8
PAUSE_SECONDS = 1.2
"""Between the requests of a client: two clients share a user, and its limit."""


def ask(client: httpx2.Client) -> httpx2.Response:
    return client.post("/api/v1/ask", json={"question": QUESTION, "settings": {"k": 2}})


def search(client: httpx2.Client) -> httpx2.Response:
    return client.post("/api/v1/search", json={"query": "aspirin", "settings": {"k": 2, "by": "bm25"}})


def list_libraries(client: httpx2.Client) -> httpx2.Response:
    return client.get("/api/v1/libraries")


def add_job(client: httpx2.Client) -> httpx2.Response:
    return client.post("/api/v1/jobs", json={"questions": [{"question": QUESTION}], "settings": {"k": 2}})


@contextmanager
def load(cluster: Cluster, *requests: Callable[[httpx2.Client], httpx2.Response]) -> Iterator[Counter[str]]:
    """Send requests from several clients until the block ends, and count the results."""
    results: Counter[str] = Counter()
    ended = threading.Event()

    def run(number: int) -> None:
        request = requests[number % len(requests)]
        with cluster.connect(cluster.keys[number % len(cluster.keys)]) as client:
            while not ended.wait(PAUSE_SECONDS):
                try:
                    reply = request(client)
                    result = f"{request.__name__} {reply.status_code}"
                    if reply.status_code >= 300:
                        result += f" {reply.text[:300]}"
                except httpx2.TransportError as error:
                    result = f"{request.__name__} {type(error).__name__}"
                results[result] += 1

    with ThreadPoolExecutor(CLIENTS) as pool:
        futures = [pool.submit(run, number) for number in range(CLIENTS)]
        try:
            yield results
        finally:
            ended.set()
        for future in futures:
            future.result()


def wait_for(results: Counter[str], more: int) -> None:
    """Return after so many more results."""
    end = results.total() + more
    while results.total() < end:
        threading.Event().wait(0.05)


def failures(results: Counter[str]) -> list[str]:
    """Return the results that a user would notice."""
    return [result for result in results if result.split()[1][0] != "2"]


def test_killed_server_is_not_noticed(cluster: Cluster) -> None:
    with load(cluster, ask, search, list_libraries, ask) as results:
        wait_for(results, 20)
        for name in ("server-2", "server-1"):
            cluster.kill_server(name)
            wait_for(results, 30)
            cluster.start_server(name)
            cluster.wait(name)
            wait_for(results, 10)
    assert failures(results) == []
    assert results["ask 200"] > 20
    assert results["search 200"] > 20


def test_rolling_restart_fails_no_request(cluster: Cluster) -> None:
    with load(cluster, ask, search, list_libraries, ask) as results:
        wait_for(results, 10)
        for name in NAMES:
            before = cluster.processes[name].pid
            cluster.stop_server(name)
            cluster.start_server(name)
            cluster.wait(name)
            assert cluster.processes[name].pid != before
            wait_for(results, 10)
    assert failures(results) == []
    assert results["ask 200"] > 20


def test_restarted_proxy_keeps_answering(cluster: Cluster) -> None:
    cluster.restart_proxy()
    with cluster.connect(cluster.keys[0]) as client:
        assert search(client).status_code == 200


def test_job_is_seen_through_every_server(cluster: Cluster) -> None:
    with cluster.connect(cluster.keys[0]) as client:
        number = add_job(client).json()["id"]
        states = {client.get(f"/api/v1/jobs/{number}").status_code for _ in range(12)}
    assert states == {200}


def test_user_removed_is_refused_by_every_server(cluster: Cluster) -> None:
    key = cluster.add_user("anton")
    with cluster.connect(key) as client:
        assert {list_libraries(client).status_code for _ in range(6)} == {200}
        folder = f"--folder={cluster.library('library_owner')}"
        cluster.run("library_owner", "users", "remove", "anton", folder)
        assert {list_libraries(client).status_code for _ in range(6)} == {401}


def test_stream_passes_the_proxy_at_once(cluster: Cluster, model: ScriptedModel) -> None:
    """The model replies only when the search has reached the client. A proxy that buffers would never end."""
    body = {"question": QUESTION, "stream": True, "settings": {"k": 2}}
    model.gate.clear()
    events = []
    try:
        with cluster.connect(cluster.keys[0]) as client, client.stream("POST", "/api/v1/ask", json=body) as reply:
            for line in reply.iter_lines():
                if line.startswith("event: "):
                    events.append(line.removeprefix("event: "))
                    model.gate.set()
    finally:
        model.gate.set()
    assert events[-1] == "answered"
    assert len(events) > 2


def test_doctor_finds_no_problem(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_API_KEY_SERVER", cluster.keys[0])
    parts = [cluster.library("ward_app"), *(f"http://127.0.0.1:{port}" for port in cluster.ports.values())]
    arguments = [f"--cluster={part}" for part in parts]
    checks = json.loads(cluster.run("ward_app", "doctor", *arguments, "--json"))["checks"]
    assert {check["state"] for check in checks} == {"ok", "note"}
    topics = {check["topic"] for check in checks}
    assert {"tables", "patients", "connections", "libraries", "versions", "model"} <= topics
