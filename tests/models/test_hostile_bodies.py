"""Bodies of replies that are no text of a model but would cost the reader more than any reply is worth."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from epicrisis.core.errors import ChatError
from epicrisis.core.printable import SURROGATES_REPLACED
from epicrisis.core.protocols import ChatReply, ChatRequest, Message
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from tests.support.loopback import Endpoint, Scripted

REQUEST = ChatRequest((Message("user", "Is it?"),), max_tokens=100)
MOST_CPU_SECONDS = 0.25
"""Of one turn of the event loop: 50 ms are promised, and this machine may be slow."""


def _body(content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    return {"choices": [{"message": message, "finish_reason": "stop"}], **more}


def _ask(endpoint: Endpoint) -> tuple[ChatReply | ChatError, float]:
    """Return the reply or the error, and the most CPU seconds of one turn of the loop."""

    async def call() -> tuple[ChatReply | ChatError, float]:
        model = OpenAICompatibleModel(f"{endpoint.url}#m")
        longest, last = 0.0, time.thread_time()
        task = asyncio.create_task(model.complete(REQUEST))
        while not task.done():
            await asyncio.sleep(0)
            longest, last = max(longest, time.thread_time() - last), time.thread_time()
        await model.aclose()
        error = task.exception()
        assert error is None or isinstance(error, ChatError), error
        return task.result() if error is None else error, longest

    import openai  # noqa: F401 - the first call imports it, which takes most of a second

    return asyncio.run(call())


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "[" * 1_000_000,
        '{"choices":' * 100_000,
        json.dumps({"choices": [{}] * 300_000}),
        json.dumps(_body("long " * 500_000)),
        json.dumps(_body([{"type": "text", "text": "x"}] * 50_000)),
        '{"choices": [], "created": ' + "9" * 100_000 + "}",
    ],
    ids=["lists", "objects", "choices", "text", "parts", "digits"],
)
def test_hostile_body_raises_error_without_blocking_event_loop(endpoint: Endpoint, body: str) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted(body)]
    _ask(endpoint)
    outcome, longest = _ask(endpoint)
    assert isinstance(outcome, ChatError)
    assert "\n" not in outcome.message
    assert longest < MOST_CPU_SECONDS


def test_oversized_error_body_raises_chat_error(endpoint: Endpoint) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted({"error": {"message": "retry in " * 1_000_000}}, status=500)]
    outcome, _ = _ask(endpoint)
    assert isinstance(outcome, ChatError)


def test_lone_surrogates_in_body_are_replaced_and_noted(endpoint: Endpoint) -> None:
    body = _body("It is \ud800.", model="m\udfff", x="\ud800")
    body["choices"][0]["message"]["reasoning_content"] = "So \udc00"
    body["choices"][0]["finish_reason"] = "st\ud800p"
    endpoint.script["/v1/chat/completions"] = [Scripted(body)]
    reply, _ = _ask(endpoint)
    assert isinstance(reply, ChatReply)
    assert (reply.text, reply.reasoning) == ("It is \ufffd.", "So \ufffd")
    assert (reply.model, reply.finish_reason) == ("m\ufffd", "st\ufffdp")
    assert SURROGATES_REPLACED in reply.notes


def test_surrogate_pair_split_across_events_is_joined(endpoint: Endpoint) -> None:
    deltas = ["It is \ud83d", "\ude00.", " \ud83d", "no", "\ud83d"]
    events: list[dict[str, Any]] = [{"choices": [{"delta": {"content": text}}]} for text in deltas]
    events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    endpoint.script["/v1/chat/completions"] = [Scripted(body, kind="text/event-stream")]
    pieces: list[str | None] = []

    async def call() -> ChatReply:
        model = OpenAICompatibleModel(f"{endpoint.url}#m")
        try:
            return await model.complete(REQUEST, pieces.append)
        finally:
            await model.aclose()

    reply = asyncio.run(call())
    assert reply.text == "It is \U0001f600. \ufffdno\ufffd"
    assert "".join(piece or "" for piece in pieces) == reply.text
