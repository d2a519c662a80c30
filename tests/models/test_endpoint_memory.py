"""What is learned about an endpoint is used by later processes, until the endpoint contradicts it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from epicrisis.answering.structured_request import fits_window
from epicrisis.core.errors import ContextOverflow, EndpointBusy
from epicrisis.core.prompts import Prompt
from epicrisis.core.protocols import Capabilities, ChatModel, ChatRequest, Message
from epicrisis.models.chat.cache import CachedModel, ReplyCache
from epicrisis.models.chat.endpoints import memory
from epicrisis.models.chat.endpoints.endpoint import parse_endpoint
from epicrisis.models.chat.endpoints.memory import EndpointFacts, EndpointMemory
from epicrisis.models.chat.layers import ConcurrencyLimitedModel, RetryingModel
from epicrisis.models.chat.loading import ask_ahead
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from epicrisis.settings.settings import Settings
from tests.support.loopback import USAGE, Endpoint, Scripted, completion, serving

CHAT = "/v1/chat/completions"
PROBES = ["/apply-template", "/props", "/tokenize", "/v1/models"]
PROBES_WITHOUT_WINDOW = ["/api/ps", *PROBES]
"""The last question about a window is Ollama's."""
REQUEST = ChatRequest((Message("user", "Does aspirin help?"),), max_tokens=50)
PROMPT = Prompt((Message("user", "word " * 1000),), "test")
T = TypeVar("T")


@pytest.fixture(autouse=True)
def _own_endpoint_memory() -> None:
    """The folder lies in the home of each test, as a user's does."""


class PlainFormat:
    """A reply of up to 100 tokens in any form."""

    max_tokens = 100

    def schema(self) -> None:
        return None

    def parse(self, reply: str) -> str:
        return reply


def run_process(
    endpoint: Endpoint,
    home: Path | None,
    use: Callable[[OpenAICompatibleModel], Awaitable[T]],
    name: str = "m",
    **settings: Any,
) -> T:
    """Return the result of a model that knows nothing but what `home` remembers, like one of a new process."""

    async def run() -> T:
        model = OpenAICompatibleModel(f"{endpoint.url}/v1", name, timeout_seconds=5, home=home, **settings)
        try:
            return await use(model)
        finally:
            await model.aclose()

    return asyncio.run(run())


def get_capabilities(model: ChatModel) -> Awaitable[Capabilities]:
    return model.capabilities()


def take_paths(endpoint: Endpoint) -> list[str]:
    """Return the paths asked since the last call, in order."""
    paths = [path for path, _, _ in endpoint.asked]
    endpoint.asked.clear()
    return paths


def script_window(endpoint: Endpoint, window: int) -> None:
    endpoint.script["/v1/models"] = [Scripted({"data": [{"id": "m", "max_model_len": window}]})]
    endpoint.script["/tokenize"] = [Scripted({"count": 1001})]


def test_facts_of_an_endpoint_are_asked_once_for_all_processes(tmp_path: Path) -> None:
    with serving() as endpoint:
        script_window(endpoint, 2048)
        first = run_process(endpoint, tmp_path, get_capabilities)
        assert sorted(take_paths(endpoint)) == PROBES
        assert run_process(endpoint, tmp_path, get_capabilities) == first
        assert (first.context_tokens, first.exact_token_counts) == (2048, True)
        assert take_paths(endpoint) == []
        # Settings limit a remembered window too.
        assert run_process(endpoint, tmp_path, get_capabilities, context_tokens=1000).context_tokens == 1000


def test_facts_of_another_model_or_without_home_are_asked(tmp_path: Path) -> None:
    with serving() as endpoint:
        run_process(endpoint, tmp_path, get_capabilities)
        take_paths(endpoint)
        run_process(endpoint, None, get_capabilities)
        assert sorted(take_paths(endpoint)) == PROBES_WITHOUT_WINDOW
        run_process(endpoint, tmp_path, get_capabilities, name="other")
        assert sorted(take_paths(endpoint)) == PROBES_WITHOUT_WINDOW


def test_memory_is_private_and_names_neither_address_nor_key(tmp_path: Path) -> None:
    endpoint = parse_endpoint("http://user:secret@127.0.0.1:8000/v1#m")
    EndpointMemory(tmp_path, endpoint).store("m", EndpointFacts(window=10, counter="estimate"))
    (path,) = (folder := Path(tmp_path / memory.FOLDER)).iterdir()
    assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    assert not any(part in path.name + path.read_text() for part in ("127.0.0.1", "8000", "user", "secret"))
    # The password may change: the endpoint stays the same.
    again = EndpointMemory(tmp_path, parse_endpoint("http://user:other@127.0.0.1:8000/v1#m"))
    assert again.recall("m") == EndpointFacts(window=10, counter="estimate")


@pytest.mark.parametrize("age", [memory.MAX_AGE, timedelta(hours=-1)])
def test_memory_that_is_too_old_or_of_the_future_does_not_count(age: timedelta, tmp_path: Path) -> None:
    place = EndpointMemory(tmp_path, parse_endpoint("http://127.0.0.1:8000/v1#m"))
    place.store("m", EndpointFacts(window=10, counter="estimate"))
    (path,) = Path(tmp_path / memory.FOLDER).iterdir()
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"time": (datetime.now(UTC) - age).isoformat()}))
    assert place.recall("m") is None
    os.utime(path, (0, 0))
    place.store("other", EndpointFacts(window=None, counter="vllm"))
    assert not path.exists()
    assert place.recall("other") == EndpointFacts(window=None, counter="vllm")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"facts": {"window": -1, "counter": "x"}}', "x" * 5000])
def test_damaged_memory_is_asked_again(content: str, tmp_path: Path) -> None:
    with serving() as endpoint:
        first = run_process(endpoint, tmp_path, get_capabilities)
        (path,) = Path(tmp_path / memory.FOLDER).iterdir()
        path.write_text(content)
        take_paths(endpoint)
        assert run_process(endpoint, tmp_path, get_capabilities) == first
        assert sorted(take_paths(endpoint)) == PROBES_WITHOUT_WINDOW
        assert run_process(endpoint, tmp_path, get_capabilities) == first
        assert take_paths(endpoint) == []


def test_home_that_is_a_file_is_no_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("")
    with serving() as endpoint:
        assert run_process(endpoint, home, get_capabilities).context_tokens is None


def test_failure_that_may_pass_is_not_remembered(tmp_path: Path) -> None:
    async def ask_until_known(model: OpenAICompatibleModel) -> Capabilities:
        while True:
            try:
                return await model.capabilities()
            except EndpointBusy:
                pass

    with serving() as endpoint:
        endpoint.script["/props"] = [Scripted("", 503)]
        assert run_process(endpoint, tmp_path, ask_until_known).context_tokens is None
        endpoint.script["/props"] = [Scripted({"default_generation_settings": {"n_ctx": 512}})]
        assert run_process(endpoint, tmp_path, get_capabilities).context_tokens == 512


def test_overflow_reported_by_the_endpoint_forgets_its_window(tmp_path: Path) -> None:
    overflow = {"error": {"message": "maximum context length is 512 tokens", "code": "context_length_exceeded"}}

    async def overflow_then_ask(model: OpenAICompatibleModel) -> int | None:
        with pytest.raises(ContextOverflow):
            await model.complete(REQUEST)
        return (await model.capabilities()).context_tokens

    with serving() as endpoint:
        script_window(endpoint, 2048)
        run_process(endpoint, tmp_path, get_capabilities)
        script_window(endpoint, 512)
        endpoint.script[CHAT] = [Scripted(overflow, 400)]
        take_paths(endpoint)
        assert run_process(endpoint, tmp_path, overflow_then_ask) == 512
        assert take_paths(endpoint)[0] == CHAT
        assert run_process(endpoint, tmp_path, get_capabilities).context_tokens == 512


def test_prompt_beyond_a_remembered_window_asks_for_the_window_anew(tmp_path: Path) -> None:
    """A server restarted with a larger window, and a count of tokens that the cache has."""

    async def fits(model: OpenAICompatibleModel) -> bool:
        layers = CachedModel(RetryingModel(ConcurrencyLimitedModel(model, 4)), cache)
        return await fits_window(layers, PROMPT, PlainFormat(), 0)

    with serving() as endpoint:
        cache = ReplyCache(tmp_path / "replies.sqlite")
        script_window(endpoint, 1024)
        assert run_process(endpoint, tmp_path, fits) is False
        assert run_process(endpoint, tmp_path, fits) is False
        script_window(endpoint, 4096)
        assert run_process(endpoint, tmp_path, fits) is True
        cache.close()


def test_ask_ahead_asks_while_the_body_runs_and_hides_failures() -> None:
    """Only endpoints are asked: an embedded model would load its weights."""

    class Model:
        def __init__(self) -> None:
            self.steps: list[str] = []

        async def capabilities(self) -> Capabilities:
            self.steps.append("begun")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.steps.append("stopped")
                raise
            raise AssertionError("asked for a minute")

    async def run(name: str) -> list[str]:
        model: Any = Model()
        settings = Settings.model_validate({"models": {"writer": {"name": name}}})
        async with ask_ahead(settings, dict.fromkeys(("writer", "map", "reduce", "judge"), model)):
            await asyncio.sleep(0)
            model.steps.append("body")
        return list(model.steps)

    assert asyncio.run(run("http://127.0.0.1:9/v1#m")) == ["begun", "body", "stopped"]
    assert asyncio.run(run("smollm2-135m")) == ["body"]

    async def fail() -> None:
        settings = Settings.model_validate({"models": {"writer": {"name": f"{endpoint.url}/v1#m"}}})
        model = OpenAICompatibleModel(f"{endpoint.url}/v1", "m", timeout_seconds=5)
        async with ask_ahead(settings, {"writer": model}):
            while not endpoint.asked:
                await asyncio.sleep(0.01)
        await model.aclose()

    with serving() as endpoint:
        endpoint.script["/props"] = [Scripted("", 503)]
        asyncio.run(fail())


def test_first_call_of_a_known_endpoint_is_the_question(tmp_path: Path) -> None:
    async def ask(model: OpenAICompatibleModel) -> str:
        assert await fits_window(model, Prompt(REQUEST.messages, "test"), PlainFormat(), 0)
        return (await model.complete(REQUEST)).text

    with serving() as endpoint:
        endpoint.script[CHAT] = [Scripted(completion("Yes.", usage=USAGE))]
        assert run_process(endpoint, tmp_path, ask) == "Yes."
        paths = take_paths(endpoint)
        assert (sorted(paths[:5]), paths[5:]) == (PROBES_WITHOUT_WINDOW, [CHAT])
        assert run_process(endpoint, tmp_path, ask) == "Yes."
        assert take_paths(endpoint) == [CHAT]


def test_replies_cached_without_memory_are_replayed_with_it(tmp_path: Path) -> None:
    async def complete(model: OpenAICompatibleModel) -> int:
        await model.capabilities()
        return (await CachedModel(model, cache).complete(REQUEST)).usage.replayed_calls

    with serving() as endpoint:
        endpoint.script[CHAT] = [Scripted(completion("Yes.", usage=USAGE))]
        cache = ReplyCache(tmp_path / "replies.sqlite")
        replayed = [run_process(endpoint, home, complete) for home in (None, tmp_path, tmp_path)]
        cache.close()
    assert replayed == [0, 1, 1]
