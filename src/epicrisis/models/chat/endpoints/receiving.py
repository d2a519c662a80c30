"""A reply as it comes in, whole or streamed: text and thinking apart, and an end to what has none.

Knows no client: it is handed JSON, event by event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from epicrisis.errors import ChatError, ReplyInvalid, ReplyTruncated
from epicrisis.models.chat.endpoints import counting, wire
from epicrisis.models.chat.endpoints.failures import ErrorInReply
from epicrisis.models.chat.endpoints.thinking import ThinkingSplitter, split
from epicrisis.models.chat.token_estimates import UNKNOWN_USAGE, compute_max_reply_tokens
from epicrisis.printable import ends_in_high_surrogate, replace_surrogates
from epicrisis.protocols import ChatRequest, DeltaCallback

_CHARACTERS_A_TOKEN = 8
_EVENTS_A_TOKEN = 4
_SLACK = 1000
"""No tokenizer and no server needs more characters and events than these for the tokens it was allowed."""


@dataclass(frozen=True, slots=True)
class CompletedReply:
    """A reply that ended. `usage` is the wire's own, not looked at yet; `finish` is empty where nothing was said."""

    text: str
    thinking: str
    finish: str
    model: str | None
    usage: object
    refusal: bool = False
    logprobs: tuple[wire.Position, ...] = ()
    repaired: bool = False
    """Whether halves of surrogate pairs were replaced in its text or its thinking."""
    flaw: str = ""
    """Why this is no reply, in words a user can act on; it may have its usage all the same."""


def receive_whole(raw: object, request: ChatRequest, host: str) -> CompletedReply:
    """Raises ErrorWithin for an error in a reply's place."""
    reply = wire.Completion.model_validate(raw)
    choice = _choice(reply)
    if choice is None or (piece := choice.message) is None:
        flaw = f"{host} answers without a choice: is it a chat endpoint?"
        return CompletedReply("", "", "", reply.model, reply.usage, flaw=flaw)
    raw_text, raw_thinking = piece.text, piece.thinking
    if len(raw_text) + len(raw_thinking) > _most_characters(request):
        return CompletedReply("", "", "", reply.model, reply.usage, flaw=_endless(host))
    text, thought = split(replace_surrogates(raw_text), expected=request.max_reasoning_tokens > 0)
    thinking = replace_surrogates(raw_thinking) + thought
    return CompletedReply(
        text=text,
        thinking=thinking,
        finish=choice.finish_reason or "",
        model=reply.model,
        usage=reply.usage,
        refusal=bool(piece.refusal) and not text,
        logprobs=tuple(choice.positions) if request.options else (),
        repaired=replace_surrogates(raw_text) != raw_text or replace_surrogates(raw_thinking) != raw_thinking,
    )


async def receive_stream(
    events: AsyncGenerator[object, None],
    request: ChatRequest,
    on_delta: DeltaCallback,
    host: str,
    timeout: float | None,
) -> CompletedReply:
    """`on_delta` gets the answer's text alone. Where it ends otherwise than by its last event, the stream is closed.

    `timeout`: seconds without anything new; keep-alives and empty events are nothing new. Raises TimeoutError after
    it, ReplyInvalid where the stream goes on for ever, ReplyTruncated where thinking goes on longer than it may, and
    ErrorWithin for an event that is an error.
    """
    growing = _Growing(request, on_delta, host)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout) as limit, aclosing(events):
        async for raw in events:
            if growing.add(wire.Completion.model_validate(raw)) and timeout is not None:
                limit.reschedule(loop.time() + timeout)
    return growing.ended()


def _choice(reply: wire.Completion) -> wire.CompletionChoice | None:
    if reply.error:
        raise ErrorInReply(reply.error)
    return reply.choices[0] if reply.choices else None


def _most_characters(request: ChatRequest) -> int:
    return _CHARACTERS_A_TOKEN * compute_max_reply_tokens(request) + _SLACK


def _endless(host: str) -> str:
    return f"{host} writes on and on, beyond the tokens it was allowed: try again, or use another server"


class _Growing:
    """A streamed reply while it grows."""

    def __init__(self, request: ChatRequest, on_delta: DeltaCallback, host: str) -> None:
        allowed = compute_max_reply_tokens(request)
        self._most_characters = _most_characters(request)
        self._events_left = _EVENTS_A_TOKEN * allowed + _SLACK
        self._most_thinking = request.max_reasoning_tokens
        self._on_delta, self._host = on_delta, host
        self._splitter = ThinkingSplitter(expected=request.max_reasoning_tokens > 0)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._half = ""
        """The first half of a surrogate pair whose second half may be in the next piece."""
        self._characters = self._thoughts = self._thought_characters = 0
        self._last = CompletedReply("", "", "", None, None)

    def add(self, event: wire.Completion) -> bool:
        """Whether it brought anything new."""
        choice = _choice(event)
        self._last = replace(self._last, model=event.model or self._last.model, usage=event.usage or self._last.usage)
        self._events_left -= 1
        if choice is None:
            self._bound()
            return bool(event.usage)
        piece = choice.delta or choice.message or wire.Piece()
        if piece.thinking:
            self._think(piece.thinking)
        if piece.text:
            self._write(*self._parts(self._whole(piece.text)))
        if piece.refusal:
            self._last = replace(self._last, refusal=True)
        if choice.finish_reason:
            self._last = replace(self._last, finish=choice.finish_reason)
        self._bound()
        return bool(piece.thinking or piece.text or choice.finish_reason)

    def ended(self) -> CompletedReply:
        """The reply, the stream being over."""
        if not self._last.finish:
            flaw = f"{self._host} broke off the stream, or it is no chat endpoint: try again"
            return replace(self._last, flaw=flaw)
        if self._half:
            half, self._half = self._half, ""
            self._write(*self._parts(self._repair(half)))
        rest = self._splitter.finish()
        self._write(rest.answer, rest.thinking)
        # Escapes are whole only now: a piece may end within one.
        text, thinking = self._repair("".join(self._text)), self._repair("".join(self._thinking))
        refusal = self._last.refusal and not text
        return replace(self._last, text=text, thinking=thinking, refusal=refusal)

    def _whole(self, piece: str) -> str:
        """Return the piece as whole characters; a first half at its end waits for the next piece."""
        piece = self._half + piece
        self._half = piece[-1] if ends_in_high_surrogate(piece) else ""
        return self._repair(piece.removesuffix(self._half) if self._half else piece)

    def _repair(self, text: str) -> str:
        whole = replace_surrogates(text)
        if len(whole) == len(text) and whole != text:
            self._last = replace(self._last, repaired=True)
        return whole

    def _parts(self, text: str) -> tuple[str, str]:
        parts = self._splitter.feed(text)
        if parts.void and self._text:
            self._text.clear()
            self._on_delta(None)
        return parts.answer, parts.thinking

    def _write(self, answer: str, thinking: str) -> None:
        if thinking:
            self._think(thinking)
        if answer:
            self._characters += len(answer)
            self._text.append(answer)
            self._on_delta(answer)

    def _think(self, thinking: str) -> None:
        self._thinking.append(thinking)
        self._thoughts += 1
        self._thought_characters += len(thinking)
        tokens = counting.least_tokens(self._thought_characters, self._thoughts)
        if self._most_thinking and tokens > self._most_thinking:
            raise thought_too_long(self._host, tokens)

    def _bound(self) -> None:
        characters = self._characters + self._thought_characters
        if self._events_left < 0 or characters > self._most_characters:
            raise ReplyInvalid(_endless(self._host), usage=UNKNOWN_USAGE)


def thought_too_long(host: str, tokens: int) -> ChatError:
    """The model thought until it was stopped. `tokens`: how many, told or estimated from below."""
    usage = replace(UNKNOWN_USAGE, completion_tokens=tokens, reasoning_tokens=tokens)
    message = f"the model at {host} thought for {tokens} tokens without an answer: raise max_reasoning_tokens"
    return ReplyTruncated(message, usage=usage)
