"""The checks of servers and models by `epicrisis doctor --cluster`, against real servers on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.operations import server_checks
from epicrisis.operations.cluster_checks import check_models
from epicrisis.operations.cluster_parts import ClusterCheck, ClusterPart
from epicrisis.operations.server_checks import KEY_VARIABLE, check_servers
from epicrisis.server.api.guards import GuardOptions
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import UserStore
from epicrisis.settings.configuration import load_settings
from tests.support.hostile import HostileServer
from tests.support.patient_records import library
from tests.support.servers import open_existing, open_library, open_resources, running


def check(*urls: str) -> list[ClusterCheck]:
    return list(check_servers(list(map(ClusterPart.parse, urls))))


def find(checks: Sequence[ClusterCheck], topic: str) -> tuple[str, str]:
    """Return state and message of the last check of a topic."""
    return next((row.state, row.message) for row in reversed(checks) if row.topic == topic)


@pytest.mark.slow
def test_servers_of_one_library_agree(tmp_path: Path) -> None:
    async def run() -> list[ClusterCheck]:
        first = create_app(open_resources(open_library(tmp_path / "lib", by="bm25")))
        second = create_app(open_resources(open_existing(tmp_path / "lib", by="bm25")))
        async with running(first) as one, running(second) as two:
            return await asyncio.to_thread(check, one, two)

    checks = asyncio.run(run())
    assert {row.state for row in checks} == {"ok"}
    assert find(checks, "libraries") == ("ok", "lib: all have the same 4 documents, 4 passages")
    assert find(checks, "versions")[1].startswith("all run epicrisis ")


@pytest.mark.slow
def test_server_with_another_state_of_the_library_is_named(tmp_path: Path) -> None:
    async def run() -> list[ClusterCheck]:
        first = create_app(open_resources(open_library(tmp_path / "a" / "lib", by="bm25")))
        library(tmp_path / "b" / "lib", []).close()
        second = create_app(open_resources(open_existing(tmp_path / "b" / "lib", by="bm25")))
        async with running(first) as one, running(second) as two:
            return await asyncio.to_thread(check, one, two)

    state, message = find(asyncio.run(run()), "libraries")
    assert (state, "different versions" in message) == ("problem", True)


@pytest.mark.slow
def test_server_with_users_needs_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server").mkdir()
    users = UserStore(tmp_path / "server" / "users.json")
    key = users.add("ops", "literature-reader")

    async def run() -> tuple[list[ClusterCheck], list[ClusterCheck]]:
        options = ServerOptions(folder=tmp_path / "server", guard=GuardOptions(requires_key=True))
        app = create_app(open_resources(open_library(tmp_path / "lib", by="bm25")), options)
        async with running(app) as url:
            without = await asyncio.to_thread(check, url)
            monkeypatch.setenv(KEY_VARIABLE, key)
            return without, await asyncio.to_thread(check, url)

    without, with_key = asyncio.run(run())
    assert find(without, "version")[0] == "unknown"
    assert KEY_VARIABLE in find(without, "version")[1]
    assert find(with_key, "version")[0] == "ok"
    assert not any(key in row.message for row in with_key)


@pytest.mark.slow
def test_server_that_is_down_stopping_or_something_else_is_a_problem(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        down = f"http://127.0.0.1:{probe.getsockname()[1]}"
    assert find(check(down), "server")[1].startswith("no answer (ConnectError): check that the server runs")

    async def run() -> list[ClusterCheck]:
        app = create_app(open_resources(open_library(tmp_path / "lib", by="bm25")))
        async with running(app) as url:
            app.state.questions.refuse_new()
            return await asyncio.to_thread(check, url)

    assert find(asyncio.run(run()), "server") == ("problem", "is stopping: wait until it has started again")
    with HostileServer() as other:
        assert find(check(other.url.removesuffix("/v1")), "server")[0] == "problem"


@pytest.mark.slow
def test_clock_that_differs_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_checks, "read_clock", lambda: datetime.now(UTC) - timedelta(seconds=60))

    async def run() -> list[ClusterCheck]:
        app = create_app(open_resources(open_library(tmp_path / "lib", by="bm25")))
        async with running(app) as url:
            return await asyncio.to_thread(check, url)

    state, message = find(asyncio.run(run()), "clock")
    assert (state, "differs from this machine by" in message) == ("problem", True)


@pytest.mark.slow
def test_models_that_answer_and_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostileServer(model="qwen", api_key="k") as server:
        monkeypatch.setenv("EPICRISIS_API_KEY", "k")
        (answers,) = check_models(load_settings({"models": {"writer": {"name": f"{server.url}#qwen"}}}))
        assert (answers.state, answers.message) == ("ok", "answers, with qwen")
        (other,) = check_models(load_settings({"models": {"writer": {"name": f"{server.url}#llama"}}}))
        assert (other.state, other.message.partition(":")[0]) == ("problem", "does not list llama, but qwen")
        monkeypatch.setenv("EPICRISIS_API_KEY", "wrong")
        (refused,) = check_models(load_settings({"models": {"writer": {"name": f"{server.url}#qwen"}}}))
        assert refused.message.startswith("refuses the key")
        monkeypatch.setenv("EPICRISIS_API_KEY", "k")
        pool = load_settings({"models": {"writer": {"name": f"{server.url},http://127.0.0.1:9/v1#qwen"}}})
        assert [check.state for check in check_models(pool)] == ["ok", "problem"]
    (gone,) = check_models(load_settings({"models": {"writer": {"name": "http://user:secret@127.0.0.1:9/v1#m"}}}))
    assert gone.state == "problem"
    assert "secret" not in gone.part + gone.message
    assert list(check_models(load_settings())) == []


@pytest.mark.parametrize("text", ["/srv/lib", "ftp://host/x", "http://", "server-1"])
def test_part_that_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--cluster: "):
        ClusterPart.parse(text)
