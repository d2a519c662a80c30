"""The scripted model keeps the contract of the seam, and the check rejects what does not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from epicrisis.core.answers import Usage
from epicrisis.core.errors import ContextOverflow, EndpointBusy
from epicrisis.core.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.testing.chat import ScriptedModel, check_chat_model


def request_of(text: str) -> ChatRequest:
    return ChatRequest((Message("system", "Be brief."), Message("user", text)), max_tokens=9)


def test_scripted_model_meets_contract() -> None:
    model = ScriptedModel(lambda _: "one  two\nthree ")
    asyncio.run(check_chat_model(model))
    assert len(model.requests) == 4


def test_scripted_model_returns_script_and_keeps_requests() -> None:
    model = ScriptedModel(lambda request: request.messages[-1].content.upper(), name="shout")
    reply = asyncio.run(model.complete(request_of("why not")))
    assert reply == ChatReply(
        text="WHY NOT", finish_reason="stop", model="shout", usage=Usage(calls=1, prompt_tokens=4, completion_tokens=2)
    )
    assert model.requests == [request_of("why not")]


@pytest.mark.parametrize("text", ["one two", '{"a": "b  c"}', " lead", "trail \n", "a\n\nb\tc", ""])
def test_scripted_stream_chunks_join_to_text(text: str) -> None:
    pieces: list[str | None] = []
    reply = asyncio.run(ScriptedModel(lambda _: text).complete(request_of("x"), pieces.append))
    assert "".join(filter(None, pieces)) == reply.text == text
    assert len(pieces) >= len(text.split())


def test_script_can_raise_errors() -> None:
    def busy(_: ChatRequest) -> str:
        raise EndpointBusy("later", usage=Usage(calls=2, failed_calls=2))

    model = ScriptedModel(busy)
    with pytest.raises(EndpointBusy) as error:
        asyncio.run(model.complete(request_of("x")))
    assert error.value.usage == Usage(calls=3, failed_calls=3)
    assert len(model.requests) == 1


def test_scripted_model_rejects_prompt_over_window() -> None:
    model = ScriptedModel(lambda _: "fine", context_tokens=4)
    assert asyncio.run(model.complete(request_of("one two"))).text == "fine"
    with pytest.raises(ContextOverflow, match="5 tokens, the window holds 4") as error:
        asyncio.run(model.complete(request_of("one two three")))
    assert error.value.usage == Usage(calls=1, failed_calls=1)
    assert asyncio.run(model.capabilities()) == Capabilities(4, json_schema=True, exact_token_counts=True)


class _Broken(ScriptedModel):
    """Breaks one clause of the contract: one field of each reply is not as it should be."""

    def __init__(self, change: Callable[[ChatReply], ChatReply]) -> None:
        super().__init__(lambda _: "one two")
        self._change = change

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        return self._change(await super().complete(request, on_delta))


class _DropsPieces(ScriptedModel):
    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        return await super().complete(request, on_delta and (lambda piece: on_delta(piece and piece.strip())))


class _CountsNothing(ScriptedModel):
    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return 5


class _NoWindow(ScriptedModel):
    async def capabilities(self) -> Capabilities:
        return Capabilities(0, json_schema=True, exact_token_counts=True)


def two_words(_: ChatRequest) -> str:
    return "one two"


@pytest.mark.parametrize(
    ("model", "clause"),
    [
        (_Broken(lambda reply: replace(reply, text="")), "has text"),
        (_Broken(lambda reply: replace(reply, usage=Usage())), "counts its calls"),
        (_Broken(lambda reply: replace(reply, usage=replace(reply.usage, prompt_tokens=0))), "prompt tokens"),
        (_Broken(lambda reply: replace(reply, usage=replace(reply.usage, completion_tokens=0))), "completion tokens"),
        (_DropsPieces(two_words), "deltas add up"),
        (_CountsNothing(two_words), "grow with the text"),
        (_NoWindow(two_words), "window"),
        (ScriptedModel(two_words, name=""), "has a name"),
    ],
)
def test_contract_check_names_failed_clause(model: ScriptedModel, clause: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(clause)):
        asyncio.run(check_chat_model(model))
