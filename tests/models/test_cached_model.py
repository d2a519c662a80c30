"""What is there already is not asked for again: what a key holds, who sends, what a replayed reply says of its cost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.answers import Usage
from epicrisis.core.errors import EndpointRejected, NotCached, ReplyInvalid
from epicrisis.core.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.models.chat.cache import CachedModel, ReplyCache, compute_reply_key
from epicrisis.testing.chat import ScriptedModel, check_chat_model
from tests.support.virtual_clock import make_request

REPLAYED = Usage(replayed_calls=1, replayed_tokens=4)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ReplyCache]:
    reply_cache = ReplyCache(tmp_path / "replies.sqlite")
    yield reply_cache
    reply_cache.close()


class Named(ScriptedModel):
    """Says what it was told to; counts what it is asked, and has a fingerprint of its own."""

    def __init__(self, text: str = "yes", fingerprint: str = "one") -> None:
        super().__init__(lambda _: text)
        self._fingerprint = fingerprint
        self.counted = 0

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        self.counted += 1
        return await super().count_tokens(messages)

    async def fingerprint(self) -> str:
        return self._fingerprint


class Unreachable(Named):
    """Must not be asked anything but its fingerprint."""

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        raise AssertionError("a call was made")

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        raise AssertionError("tokens were counted")

    async def capabilities(self) -> Capabilities:
        raise AssertionError("it was probed")


# -- the key ----------------------------------------------------------------------------------------------------------

CHANGED: dict[str, Any] = {
    "messages": (Message("user", "one two three"), Message("assistant", "four")),
    "max_tokens": 11,
    "temperature": 0.1,
    "top_p": 0.9,
    "seed": 1,
    "sample": 1,
    "schema": {"type": "object"},
    "options": ("A", "B"),
    "max_reasoning_tokens": 1,
    "extra": {"reasoning_effort": "low"},
}


def test_reply_key_each_request_field_changes_key() -> None:
    assert set(CHANGED) == {field.name for field in fields(ChatRequest)}, "say here how the new field changes the key"
    keys = {compute_reply_key("one", replace(make_request(), **{name: value})) for name, value in CHANGED.items()}
    keys |= {compute_reply_key("one", make_request()), compute_reply_key("two", make_request())}
    assert len(keys) == len(CHANGED) + 2
    assert {len(key) for key in keys} == {32}


def test_reply_key_roles_and_message_boundaries_change_key() -> None:
    def key(*messages: Message) -> bytes:
        return compute_reply_key("one", replace(make_request(), messages=messages))

    assert (
        len(
            {
                key(Message("user", "ab")),
                key(Message("system", "ab")),
                key(Message("user", "a"), Message("user", "b")),
                key(Message("user", "a"), Message("user", "b"), Message("user", "")),
            }
        )
        == 4
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
requests = st.builds(
    ChatRequest,
    messages=st.lists(st.builds(Message, st.sampled_from(("system", "user")), st.text()), max_size=3).map(tuple),
    max_tokens=st.integers(1, 9),
    temperature=st.floats(0, 2),
    seed=st.integers(),
    schema=st.none() | st.dictionaries(st.text(), json_values, max_size=3),
    extra=st.dictionaries(st.text(), json_values, max_size=3),
)


def reorder(value: Any) -> Any:
    """Return the value with mappings in reverse order and whole floats as integers."""
    if isinstance(value, dict):
        return {key: reorder(item) for key, item in reversed(value.items())}
    if isinstance(value, list):
        return [reorder(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.slow
@given(requests, requests)
def test_reply_key_is_equal_exactly_for_equal_requests(one: ChatRequest, other: ChatRequest) -> None:
    same = replace(one, temperature=reorder(one.temperature), extra=reorder(one.extra))
    assert compute_reply_key("f", same) == compute_reply_key("f", one)
    if one != other:
        assert compute_reply_key("f", one) != compute_reply_key("f", other)


def test_reply_key_schema_property_order_changes_key() -> None:
    """Models write the fields of a reply in the order of its schema, thoughts before the answer or after it."""
    forth: dict[str, Any] = {"properties": {"thoughts": {}, "answer": {}}}
    back: dict[str, Any] = {"properties": {"answer": {}, "thoughts": {}}}
    assert compute_reply_key("f", make_request(schema=forth)) != compute_reply_key("f", make_request(schema=back))
    assert compute_reply_key("f", make_request(schema={"minimum": 0})) == compute_reply_key(
        "f", make_request(schema={"minimum": 0.0})
    )


def test_reply_key_is_stable_across_versions() -> None:
    """Else a new version would silently pay for everything anew: then KEY_VERSION says so."""
    request = make_request(
        "Ärger", schema={"b": 1, "a": 2}, options=(), extra={"x": [1.0, True, None]}, temperature=0.5
    )
    assert (
        compute_reply_key("endpoint", request).hex()
        == "552e2b681ecbba48543b9a02bb9c9bf8b8746a1bf2a6bb1fc384b801db4ef10e"
    )


def test_cached_model_file_of_first_version_is_replayed(tmp_path: Path) -> None:
    """The file is written out here, so that no change of the code can change it too."""
    key = "552e2b681ecbba48543b9a02bb9c9bf8b8746a1bf2a6bb1fc384b801db4ef10e"
    usage = '{"calls":1,"prompt_tokens":9,"completion_tokens":2,"cost":0.25}'
    reply = f'{{"text":"Ja","finish_reason":"stop","model":"m","usage":{usage},"reasoning":"hm","notes":["n"]}}'
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE replies(key BLOB PRIMARY KEY, reply TEXT NOT NULL, created TEXT NOT NULL)")
        db.execute("CREATE TABLE told(key BLOB PRIMARY KEY, value TEXT NOT NULL)")
        db.execute("PRAGMA application_id=1162889539")
        db.execute("PRAGMA user_version=1")
        db.execute("INSERT INTO replies VALUES (?, ?, '2026-01-01T00:00:00+00:00')", (bytes.fromhex(key), reply))
        db.commit()
    cache = ReplyCache(path, replay=True)
    request = make_request(
        "Ärger", schema={"b": 1, "a": 2}, options=(), extra={"x": [1.0, True, None]}, temperature=0.5
    )
    replayed = asyncio.run(CachedModel(Unreachable(fingerprint="endpoint"), cache).complete(request))
    cache.close()
    assert replayed == ChatReply(
        text="Ja",
        finish_reason="stop",
        model="m",
        usage=Usage(replayed_calls=1, replayed_tokens=11),
        reasoning="hm",
        notes=("n",),
    )


# -- replaying --------------------------------------------------------------------------------------------------------


def test_cached_model_second_call_returns_cached_reply(cache: ReplyCache) -> None:
    inner = Named()

    async def twice() -> list[ChatReply]:
        return [await CachedModel(inner, cache).complete(make_request()) for _ in range(2)]

    first, second = asyncio.run(twice())
    assert first.usage == Usage(calls=1, prompt_tokens=3, completion_tokens=1)
    assert second == replace(first, usage=REPLAYED)
    assert len(inner.requests) == 1


def test_cached_model_other_sample_or_model_calls_again(cache: ReplyCache) -> None:
    async def calls() -> list[str]:
        one, other = CachedModel(Named("one"), cache), CachedModel(Named("other", "other"), cache)
        return [(await model.complete(make_request(sample=draw))).text for model in (one, other) for draw in (0, 1)]

    assert asyncio.run(calls()) == ["one", "one", "other", "other"]
    assert cache.stats().replies == 4


def test_cached_model_replayed_reply_streams_in_one_delta(cache: ReplyCache) -> None:
    pieces: list[str | None] = []

    async def twice() -> None:
        model = CachedModel(Named("yes and no"), cache)
        await model.complete(make_request(), pieces.append)
        await model.complete(make_request(), pieces.append)

    asyncio.run(twice())
    assert pieces == ["yes", " and", " no", "yes and no"]


def test_cached_model_failed_call_is_not_cached(cache: ReplyCache) -> None:
    def script(_: ChatRequest) -> str:
        if len(inner.requests) == 1:
            raise ReplyInvalid("HTML")
        return "yes"

    inner = ScriptedModel(script)

    async def twice() -> ChatReply:
        model = CachedModel(inner, cache)
        with pytest.raises(ReplyInvalid):
            await model.complete(make_request())
        return await model.complete(make_request())

    assert asyncio.run(twice()).usage.calls == 1


# -- the same at the same time ----------------------------------------------------------------------------------------


def test_cached_model_concurrent_equal_requests_are_sent_once(cache: ReplyCache) -> None:
    inner = Named()

    async def together() -> list[ChatReply]:
        model = CachedModel(inner, cache)
        return await asyncio.gather(*(model.complete(make_request(sample=number % 2)) for number in range(20)))

    replies = asyncio.run(together())
    assert len(inner.requests) == 2
    assert sum((reply.usage for reply in replies), Usage()) == Usage(
        calls=2, prompt_tokens=6, completion_tokens=2, replayed_calls=18, replayed_tokens=72
    )


class Gated(Named):
    """Each call waits until it is let go, and fails where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: list[asyncio.Future[None]] = []

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        gate = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        await gate
        return await super().complete(request, on_delta)


@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_cached_model_waiting_call_is_sent_if_first_call_fails(how: str, cache: ReplyCache) -> None:
    inner = Gated()

    async def together() -> list[ChatReply | BaseException]:
        model = CachedModel(inner, cache)
        tasks = [asyncio.create_task(model.complete(make_request())) for _ in range(4)]
        await asyncio.sleep(0.01)
        assert len(inner.gates) == 1
        tasks[2].cancel()  # one that waits
        if how == "cancelled":
            tasks[0].cancel()
        else:
            inner.gates[0].set_exception(EndpointRejected("no"))
        await asyncio.sleep(0.01)
        assert len(inner.gates) == 2
        inner.gates[1].set_result(None)
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second, third, fourth = asyncio.run(together())
    assert isinstance(first, asyncio.CancelledError if how == "cancelled" else EndpointRejected)
    assert isinstance(second, ChatReply)
    assert second.usage.calls == 1
    assert isinstance(third, asyncio.CancelledError)
    assert isinstance(fourth, ChatReply)
    assert fourth.usage == REPLAYED


# -- offline ----------------------------------------------------------------------------------------------------------


def test_cached_model_replay_does_not_contact_endpoint(cache: ReplyCache) -> None:
    async def online() -> tuple[ChatReply, int, Capabilities]:
        model = CachedModel(Named(), cache)
        reply = await model.complete(make_request())
        return reply, await model.count_tokens(make_request().messages), await model.capabilities()

    async def offline(replaying: ReplyCache) -> tuple[ChatReply, int, Capabilities]:
        model = CachedModel(Unreachable(), replaying)
        capabilities = await model.capabilities()
        return await model.complete(make_request()), await model.count_tokens(make_request().messages), capabilities

    reply, count, capabilities = asyncio.run(online())
    cache.close()
    replaying = ReplyCache(cache.path, replay=True)
    assert asyncio.run(offline(replaying)) == (replace(reply, usage=REPLAYED), count, capabilities)
    replaying.close()


def test_cached_model_replay_without_cached_reply_raises_not_cached(tmp_path: Path) -> None:
    model = CachedModel(Unreachable(), ReplyCache(tmp_path / "replies.sqlite", replay=True))
    for ask in (model.complete(make_request()), model.count_tokens(make_request().messages), model.capabilities()):
        with pytest.raises(NotCached, match=r"replies\.sqlite has no .* by scripted: run it once with cache.mode = on"):
            asyncio.run(ask)


def test_cached_model_token_count_is_cached(cache: ReplyCache) -> None:
    inner = Named()

    async def twice() -> tuple[int, int]:
        model = CachedModel(inner, cache)
        first = await model.count_tokens(make_request().messages)
        cache.close()  # the count is written
        return first, await model.count_tokens(make_request().messages)

    assert asyncio.run(twice()) == (3, 3)
    assert inner.counted == 1


def test_cached_model_satisfies_chat_model_contract(cache: ReplyCache) -> None:
    asyncio.run(check_chat_model(CachedModel(Named(), cache)))
