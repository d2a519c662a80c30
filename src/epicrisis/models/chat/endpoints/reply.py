"""A reply of an endpoint: its JSON, whole or streamed, read into text, thinking and token probabilities.

Endpoints are read strictly enough to trust and loosely enough for their dialects; else pydantic's ValidationError.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any, NoReturn, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from epicrisis.core.answers import Usage
from epicrisis.core.errors import ReplyEmpty, ReplyInvalid, ReplyMisplaced, ReplyTruncated, ReplyWithheld
from epicrisis.core.printable import ends_in_high_surrogate, replace_surrogates
from epicrisis.core.protocols import ChatRequest, DeltaCallback, OptionLogprobs
from epicrisis.models.chat.call_costs import UNKNOWN_USAGE, compute_max_reply_tokens
from epicrisis.models.chat.endpoints.failures import ErrorInReply

CleanText: TypeAlias = Annotated[str, AfterValidator(replace_surrogates)]
"""Text that is stored or shown unchanged. A message's own text is repaired after its pieces are joined."""
MAX_CHOICES = 128
MAX_POSITIONS = 10_000
"""Token positions of a reply. Only the first is used."""
_MAX_CHARACTERS_PER_TOKEN = 8
_MAX_EVENTS_PER_TOKEN = 4
_SLACK = 1000
_MIN_CHARACTERS_PER_TOKEN = 6
_EXCESS = "{host} keeps writing beyond the tokens it was allowed: try again, or use another server"
_BROKEN = ("abort", "error")
"""Finish reasons of vLLM, SGLang and gateways for a reply that their engine did not complete."""
STREAM_END = "[DONE]"
"""The event after the last one of a stream."""
_END_OF_MARK = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<reasoning>": "</reasoning>",
    "<thought>": "</thought>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
}
_TOOL_FINISHES = ("tool_calls", "function_call")
THINKING_MARKS = tuple(_END_OF_MARK)
_LONE_END = "</think>"
_MARK_LENGTH = max(map(len, THINKING_MARKS))
_CHANNEL, _MESSAGE = "<|channel|>", "<|message|>"
_CHANNEL_ENDS = ("<|end|>", "<|return|>", "<|call|>", "<|start|>")
"""Marks of OpenAI's harmony format, which a server should have read."""
_BARE_CHANNELS = ("analysis", "assistantfinal")
"""What is left of these marks if the server leaves out special tokens."""
_BLANKS = re.compile(r"\s*+")
_TOKEN_MARKS = "▁Ġ Ċĉ\"'“”‘’`()[]{}<>*_.,:;"
"""SentencePiece's blank; byte-level BPE's blank, line end and tab; characters that models put around a letter."""


class MessagePiece(BaseModel):
    """A whole message, or a stream's addition to it."""

    content: str | list[Any] | None = None
    """A list of parts is Mistral's form."""
    reasoning_content: Any = None
    reasoning: Any = None
    """Thinking: the older name and the newer one (vLLM, OpenRouter). Anything but text is ignored."""
    refusal: str | None = None
    tool_calls: Any = None
    """Some servers answer a request for JSON with the call of a tool. Read by `tool_arguments`."""

    @property
    def tool_arguments(self) -> list[str]:
        """The arguments of each tool call, in JSON; in a stream, this piece of them."""
        calls = self.tool_calls if isinstance(self.tool_calls, list) else []
        functions = [call.get("function") for call in calls if isinstance(call, dict)]
        texts = [function.get("arguments") for function in functions if isinstance(function, dict)]
        return [text if isinstance(text, str) else "" for text in texts]

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return _join_parts(self.content)
        return self.content or ""

    @property
    def thinking(self) -> str:
        reasoning = self.reasoning_content or self.reasoning
        text = reasoning if isinstance(reasoning, str) else ""
        if isinstance(self.content, list):
            for part in _select_parts(self.content, "thinking"):
                text += _join_parts(part["thinking"])
        return text


def _select_parts(parts: object, kind: str) -> list[dict[str, Any]]:
    rows = parts if isinstance(parts, list) else []
    return [part for part in rows if isinstance(part, dict) and part.get("type") == kind and kind in part]


def _join_parts(parts: object) -> str:
    return "".join(str(part["text"]) for part in _select_parts(parts, "text"))


class TokenLogprob(BaseModel):
    """A candidate for the next token."""

    token: CleanText
    logprob: float


class PositionLogprobs(TokenLogprob):
    """The token chosen at one position, and the candidates for it."""

    top_logprobs: list[TokenLogprob] = Field(default_factory=list, max_length=MAX_CHOICES)

    @property
    def candidates(self) -> list[TokenLogprob]:
        """All reported tokens, the chosen one included. Several may share a text: some servers strip blanks."""
        texts = {candidate.token for candidate in self.top_logprobs}
        return self.top_logprobs if self.token in texts else [self, *self.top_logprobs]


class _Logprobs(BaseModel):
    content: list[PositionLogprobs] | None = Field(default=None, max_length=MAX_POSITIONS)


class CompletionChoice(BaseModel):
    """The requested reply: `message` if it is whole, `delta` in a stream."""

    message: MessagePiece | None = None
    delta: MessagePiece | None = None
    finish_reason: CleanText | None = None
    logprobs: Any = None
    """Read by `positions`, since a reply is valid without them."""

    @property
    def positions(self) -> list[PositionLogprobs]:
        """The token probabilities of the reply, in order; empty if they are missing or not in OpenAI's form."""
        try:
            return _Logprobs.model_validate(self.logprobs).content or []
        except ValidationError:
            return []


class Completion(BaseModel):
    """A reply, or one event of a stream. A stream's last event may hold only the usage."""

    model: CleanText | None = None
    choices: list[CompletionChoice] = Field(default_factory=list, max_length=MAX_CHOICES)
    usage: Any = None
    """Read by `read_reported_usage`, since a reply is valid without it."""
    error: Any = None

    def get_choice(self) -> CompletionChoice | None:
        """Return the first choice, if any. Raise ErrorInReply for an error in the place of a reply."""
        if self.error:
            raise ErrorInReply(self.error)
        return self.choices[0] if self.choices else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedReply:
    """A reply that has ended. `usage` is unchecked JSON; `finish` is empty if the endpoint gave no reason."""

    text: str
    thinking: str
    finish: str
    model: str | None
    usage: object
    refusal: bool = False
    logprobs: tuple[PositionLogprobs, ...] = ()
    repaired: bool = False
    """Whether unpaired surrogates were replaced in text or thinking."""
    separate_thinking: str = ""
    """The part of the thinking that came in a field of its own."""
    tool_arguments: str | None = None
    """The arguments of a tool call in the place of an answer, or None."""
    notes: tuple[str, ...] = ()
    """How the answer was found where it was not the text of the reply."""
    flaw: str = ""
    """The reason why this is not a valid reply, with a remedy. It may have a usage all the same."""


def read_whole_reply(raw: object, request: ChatRequest, host: str) -> CompletedReply:
    """Read a reply that was not streamed. Raise ErrorInReply for an error instead of a reply."""
    completion = Completion.model_validate(raw)
    choice = completion.get_choice()
    empty = CompletedReply(text="", thinking="", finish="", model=completion.model, usage=completion.usage)
    if choice is None or (message := choice.message) is None:
        return replace(empty, flaw=f"{host} sent a reply without a choice: is it a chat endpoint?")
    raw_text, raw_thinking = message.text, message.thinking
    if len(raw_text) + len(raw_thinking) > _compute_max_characters(request):
        return replace(empty, flaw=_EXCESS.format(host=host))
    clean_text, clean_thinking = replace_surrogates(raw_text), replace_surrogates(raw_thinking)
    text, tagged_thinking = split_thinking(clean_text, expected=request.max_reasoning_tokens > 0)
    return replace(
        empty,
        text=text,
        thinking=clean_thinking + tagged_thinking,
        finish=choice.finish_reason or "",
        refusal=bool(message.refusal) and not text,
        logprobs=tuple(choice.positions) if request.options else (),
        repaired=clean_text != raw_text or clean_thinking != raw_thinking,
        separate_thinking=clean_thinking,
        tool_arguments=replace_surrogates("".join(message.tool_arguments)) if message.tool_arguments else None,
    )


async def read_streamed_reply(
    events: AsyncGenerator[object, None],
    request: ChatRequest,
    on_delta: DeltaCallback,
    host: str,
    timeout: float | None,
) -> CompletedReply:
    """Read a streamed reply, and close the stream. `on_delta` receives the answer's text without thinking.

    `timeout` is the number of seconds without progress (up to 5 % more); keep-alives and empty events are none. Raise
    TimeoutError, ReplyInvalid for a stream longer than the tokens allowed, ReplyTruncated for thinking longer than
    allowed, and ErrorInReply for an event with an error. `STREAM_END` is the event of a stream that has its end.
    """
    reader = _StreamReader(request, on_delta, host)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout) as limit, aclosing(events):
        async for event in events:
            if event == STREAM_END:
                reader.has_ended = True
                continue
            if reader.add(Completion.model_validate(event)) and timeout is not None:
                # One timer for each word of 200 streams is work: it is moved once in a twentieth of its time.
                due, deadline = loop.time() + timeout, limit.when()
                if deadline is not None and due > deadline:
                    limit.reschedule(due + timeout / 20)
    return reader.finish()


def _compute_max_characters(request: ChatRequest) -> int:
    return _MAX_CHARACTERS_PER_TOKEN * compute_max_reply_tokens(request) + _SLACK


class _StreamReader:
    """Collects the events of a streamed reply."""

    def __init__(self, request: ChatRequest, on_delta: DeltaCallback, host: str) -> None:
        self._max_characters = _compute_max_characters(request)
        self._remaining_events = _MAX_EVENTS_PER_TOKEN * compute_max_reply_tokens(request) + _SLACK
        self._max_thinking_tokens = request.max_reasoning_tokens
        self._on_delta, self._host = on_delta, host
        self._splitter = ThinkingSplitter(expected=request.max_reasoning_tokens > 0)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._separate: list[str] = []
        self._arguments: list[str] | None = None
        self.has_ended = False
        """Whether the stream has come to its end: some servers give no finish reason."""
        self._half = ""
        """The first half of a surrogate pair; its second half may be in the next event."""
        self._text_characters = self._thinking_characters = 0
        self._reply = CompletedReply(text="", thinking="", finish="", model=None, usage=None)

    def add(self, event: Completion) -> bool:
        """Add an event. Return whether it brought any progress."""
        choice = event.get_choice()
        reply = self._reply
        if event.usage or event.model not in (None, "", reply.model):
            self._reply = replace(reply, model=event.model or reply.model, usage=event.usage or reply.usage)
        self._remaining_events -= 1
        if choice is None:
            # The usage is the last event of a reply.
            self.has_ended = self.has_ended or bool(event.usage and (self._text or self._thinking))
            self._check_length()
            return bool(event.usage)
        piece = choice.delta or choice.message or MessagePiece()
        if piece.thinking:
            self._separate.append(piece.thinking)
            self._write_thinking(piece.thinking)
        if arguments := piece.tool_arguments:
            self._arguments = [*(self._arguments or ()), *arguments]
            self._text_characters += sum(map(len, arguments))
        if piece.text:
            # The first half of a surrogate pair at the end waits for the next piece.
            text = self._half + piece.text
            self._half = text[-1] if ends_in_high_surrogate(text) else ""
            self._feed(self._repair(text.removesuffix(self._half) if self._half else text))
        if piece.refusal:
            self._reply = replace(self._reply, refusal=True)
        if choice.finish_reason:
            self._reply = replace(self._reply, finish=choice.finish_reason)
        self._check_length()
        return bool(piece.thinking or piece.text or piece.tool_arguments or choice.finish_reason)

    def finish(self) -> CompletedReply:
        """Return the reply after the last event."""
        has_reply = bool(self._text or self._thinking or self._half or self._splitter.is_waiting or self._arguments)
        if not self._reply.finish and not (self.has_ended and has_reply):
            flaw = f"{self._host} broke off the stream, or it is no chat endpoint: try again"
            return replace(self._reply, flaw=flaw)
        if self._half:
            half, self._half = self._half, ""
            self._feed(self._repair(half))
        self._write(self._splitter.finish())
        # An event may end within an escape, so escapes are complete only now.
        text, thinking = self._repair("".join(self._text)), self._repair("".join(self._thinking))
        return replace(
            self._reply,
            text=text,
            thinking=thinking,
            refusal=self._reply.refusal and not text,
            separate_thinking=replace_surrogates("".join(self._separate)),
            tool_arguments=None if self._arguments is None else replace_surrogates("".join(self._arguments)),
        )

    def _repair(self, text: str) -> str:
        clean = replace_surrogates(text)
        if len(clean) == len(text) and clean != text:
            self._reply = replace(self._reply, repaired=True)
        return clean

    def _feed(self, text: str) -> None:
        delta = self._splitter.feed(text)
        if delta.void and self._text:
            self._text.clear()
            self._on_delta(None)
        self._write(delta)

    def _write(self, delta: ThinkingDelta) -> None:
        if delta.thinking:
            self._write_thinking(delta.thinking)
        if delta.answer:
            self._text_characters += len(delta.answer)
            self._text.append(delta.answer)
            self._on_delta(delta.answer)

    def _write_thinking(self, thinking: str) -> None:
        self._thinking.append(thinking)
        self._thinking_characters += len(thinking)
        # A piece is at least one token, unless it has hardly a letter.
        pieces = min(len(self._thinking), self._thinking_characters // 2)
        tokens = max(pieces, self._thinking_characters // _MIN_CHARACTERS_PER_TOKEN)
        if self._max_thinking_tokens and tokens > self._max_thinking_tokens:
            raise _make_thinking_error(self._host, tokens)

    def _check_length(self) -> None:
        characters = self._text_characters + self._thinking_characters
        if self._remaining_events < 0 or characters > self._max_characters:
            raise ReplyInvalid(_EXCESS.format(host=self._host), usage=UNKNOWN_USAGE)


def check_answer(reply: CompletedReply, host: str, usage: Usage) -> None:
    """Raise ReplyWithheld, ReplyInvalid, ReplyEmpty, ReplyMisplaced or ReplyTruncated if the reply is no answer.

    A text cut at its limit passes.
    """
    if reply.finish == "content_filter" or reply.refusal:
        reason = "the model refuses to answer" if reply.refusal else "a content filter withholds the reply"
        raise ReplyWithheld(f"{reason} at {host}: ask again, or use another model", usage=usage)
    if reply.finish in _BROKEN:
        raise ReplyInvalid(f"{host} stopped in the middle of its reply: try again, or see its log", usage=usage)
    if reply.text.strip():
        return
    if reply.finish == "length" and (reply.thinking or usage.reasoning_tokens):
        error = _make_thinking_error(host, usage.reasoning_tokens)
        error.usage = usage
        raise error
    if reply.finish == "length":
        return
    if reply.tool_arguments is not None or reply.finish in _TOOL_FINISHES:
        raise ReplyMisplaced(
            f"the model at {host} calls a tool in the place of an answer: turn off the server's automatic tool calls "
            "(vLLM: leave out --enable-auto-tool-choice), set json_schema to false, or use another model",
            usage=usage,
        )
    if reply.separate_thinking.strip():
        raise ReplyMisplaced(
            f"{host} only thinks, without an answer: the server's reasoning parser takes the answer for thinking. "
            "Start the server with the parser of this model or without one (vLLM: --reasoning-parser), turn the "
            "thinking off (extra), or use another model",
            usage=usage,
        )
    problem = "only thinks, without an answer" if reply.thinking else "answers with an empty text"
    raise ReplyEmpty(f"{host} {problem}: try again, or use another model", usage=usage)


def find_answer(reply: CompletedReply, conforms: Callable[[str], bool] | None) -> CompletedReply:
    """Return the reply with the answer where it is not the whole text of the reply, and a note that says so.

    A draft before a lone end of thinking, or in another channel than the last, is thinking. JSON that `conforms` in the
    place of thinking, or of a tool call, is the answer.
    """
    text = reply.text
    if not text.strip():
        place = "thinking" if reply.tool_arguments is None else "arguments of a tool call"
        candidate = reply.thinking if reply.tool_arguments is None else reply.tool_arguments
        is_whole = reply.finish in ("", "stop", *_TOOL_FINISHES)
        if conforms is None or not is_whole or reply.refusal or not conforms(candidate):
            return reply
        thinking = "" if reply.tool_arguments is None else reply.thinking
        note = f"the endpoint sent the answer as {place}: check its reasoning parser and its tool calls"
        return replace(reply, text=candidate, thinking=thinking, finish="stop", notes=(*reply.notes, note))
    if conforms is not None and conforms(text):
        return reply
    parts = _split_channels(text)
    if parts is not None:
        note = "the endpoint sent the marks of the model's channels: set its reasoning parser (vLLM, SGLang) or --jinja"
        answer, draft = parts
        return replace(reply, text=answer, thinking=reply.thinking + draft, notes=(*reply.notes, note))
    end, mark = max((text.rfind(mark), mark) for mark in _END_OF_MARK.values())
    if end < 0 or any(start in text[:end] for start in THINKING_MARKS):
        return reply
    return replace(reply, text=text[end + len(mark) :].lstrip(), thinking=reply.thinking + text[:end])


def _split_channels(text: str) -> tuple[str, str] | None:
    """Return (answer, thinking) of a reply in OpenAI's harmony format, or None if it has no channels."""
    analysis, final = _BARE_CHANNELS
    if _CHANNEL not in text:
        if not text.lstrip().startswith(analysis) or final not in text:
            return None
        draft, _, answer = text.lstrip().removeprefix(analysis).rpartition(final)
        return answer.strip(), draft.strip()
    answers: list[str] = []
    drafts: list[str] = []
    before, *parts = text.split(_CHANNEL)
    for part in (f"{_MESSAGE}{before}", *parts):
        header, _, body = part.partition(_MESSAGE)
        end = min((place for mark in _CHANNEL_ENDS if (place := body.find(mark)) >= 0), default=len(body))
        (answers if header.startswith("final") else drafts).append(body[:end].strip())
    return "".join(answers), "\n".join(draft for draft in drafts if draft)


def _make_thinking_error(host: str, tokens: int) -> ReplyTruncated:
    usage = replace(UNKNOWN_USAGE, completion_tokens=tokens, reasoning_tokens=tokens)
    message = f"the model at {host} thought for {tokens} tokens without an answer: raise max_reasoning_tokens"
    return ReplyTruncated(message, usage=usage)


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """The addition of a piece of text. `void`: the answer so far was thinking, and `answer` begins it again."""

    answer: str = ""
    thinking: str = ""
    void: bool = False


class ThinkingSplitter:
    """Splits a text, piece by piece, into thinking and answer.

    Thinking is enclosed in marks (`<think>...</think>`) at the start of the text, once or several times in a row
    (Bedrock). With `expected`, for a model known to think, a lone `</think>` ends thinking too, since some templates
    put the opening mark into the prompt.
    """

    def __init__(self, *, expected: bool = False) -> None:
        self._expected = expected
        self._buffer = ""
        """Text that may still turn out to be thinking or answer."""
        self._end = ""
        self._answering = False
        self._has_thinking = False
        self._answer = ""

    @property
    def is_waiting(self) -> bool:
        """Whether there is text that may still turn out to be thinking or answer."""
        return bool(self._buffer)

    def feed(self, piece: str) -> ThinkingDelta:
        """Return the part of the text that can be classified by now."""
        if self._answering:
            return self._extend_answer(piece)
        text, position = self._buffer + piece, 0
        thinking: list[str] = []
        while True:
            if self._end:
                end = text.find(self._end, position)
                if end < 0:
                    tail = text[max(position, len(text) - len(self._end)) :]
                    # The last characters may begin the mark.
                    sizes = range(min(len(tail), len(self._end) - 1), 0, -1)
                    cut = len(text) - next((size for size in sizes if self._end.startswith(tail[-size:])), 0)
                    self._buffer = text[cut:]
                    return ThinkingDelta(thinking="".join((*thinking, text[position:cut])))
                thinking.append(text[position:end])
                position, self._end = end + len(self._end), ""
            blanks = _BLANKS.match(text, position)
            start = blanks.end() if blanks else position
            mark = next((mark for mark in THINKING_MARKS if text.startswith(mark, start)), None)
            if mark is None:
                self._buffer = text[position:]
                prefix = text[start : start + _MARK_LENGTH]
                if any(mark.startswith(prefix) for mark in THINKING_MARKS):
                    return ThinkingDelta(thinking="".join(thinking))
                self._answering = True
                rest, self._buffer = self._buffer, ""
                delta = self._extend_answer(rest.lstrip() if self._has_thinking else rest)
                return ThinkingDelta(delta.answer, "".join(thinking) + delta.thinking, delta.void)
            position, self._end, self._has_thinking = start + len(mark), _END_OF_MARK[mark], True

    def finish(self) -> ThinkingDelta:
        """Return the rest of the text. Thinking without a closing mark stays thinking."""
        rest, self._buffer = self._buffer, ""
        if self._end:
            return ThinkingDelta(thinking=rest)
        return ThinkingDelta(answer=rest.lstrip() if self._has_thinking else rest)

    def _extend_answer(self, piece: str) -> ThinkingDelta:
        if not self._expected or self._has_thinking:
            return ThinkingDelta(answer=piece)
        length = len(self._answer)
        self._answer += piece
        end = self._answer.find(_LONE_END, max(0, length - len(_LONE_END)))
        if end < 0:
            return ThinkingDelta(answer=piece)
        self._has_thinking, self._answering, self._buffer = True, False, self._answer[end + len(_LONE_END) :]
        rest = self.feed("")
        return ThinkingDelta(rest.answer, self._answer[:end] + rest.thinking, void=True)


def split_thinking(text: str, *, expected: bool = False) -> tuple[str, str]:
    """Return (answer, thinking) of a whole text. See `ThinkingSplitter`."""
    splitter = ThinkingSplitter(expected=expected)
    first, last = splitter.feed(text), splitter.finish()
    return first.answer + last.answer, first.thinking + last.thinking


def compute_option_logprobs(options: Sequence[str], tokens: Iterable[tuple[str, float]]) -> OptionLogprobs:
    """Return the log-probability of each option as the next token, renormalised over the options among `tokens`.

    `tokens` are pairs of text and natural log-probability. A token matches an option without the blanks, marks and
    quotes around it, and in another letter case if no other option differs by case alone. All matches are summed.
    """
    by_text = {option: option for option in options}
    by_folded: dict[str, list[str]] = {}
    for option in options:
        by_folded.setdefault(option.casefold(), []).append(option)
    for folded, same_letters in by_folded.items():
        if len(same_letters) == 1:
            by_text.setdefault(folded, same_letters[0])
    sums: dict[str, float] = {}
    for token, logprob in tokens:
        bare = token.strip().strip(_TOKEN_MARKS).strip()
        match = by_text.get(bare) or by_text.get(bare.casefold())
        # An impossible token is reported as minus infinity, or as -9999.
        if match is not None and -1000 < logprob < 0.001:
            sums[match] = sums.get(match, 0.0) + math.exp(min(logprob, 0.0))
    mass = sum(sums.values())
    values = {option: math.log(sums[option] / mass) for option in options if sums.get(option)}
    return OptionLogprobs(values, min(mass, 1.0), tuple(option for option in options if option not in values))


def build_schema_check(schema: Mapping[str, Any]) -> Callable[[str], bool]:
    """Return a function that tells whether a text is JSON of the schema. Raise ValueError for no schema."""
    from jsonschema_rs import validator_for

    validator = validator_for(dict(schema), retriever=_refuse)

    def conforms(text: str) -> bool:
        try:
            return validator.is_valid(json.loads(text, parse_constant=_refuse))
        except (ValueError, RecursionError):
            return False

    return conforms


def _refuse(value: str) -> NoReturn:
    raise ValueError(f"{value} is neither JSON nor a reference within the schema")
