"""Chat models for planning: they count the prompt and invent a reply without a call. Also measures a model's speed.

Replies are for the JSON schemas of strategies. One of usual length has full lists and strings of half the maximum
length; docs/design/plan.md compares it with measured replies.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from epicrisis.core.answers import Usage
from epicrisis.core.errors import ChatError, ContextOverflow, UserError
from epicrisis.core.prompts import unescape, unfence
from epicrisis.core.protocols import (
    Capabilities,
    ChatModel,
    ChatReply,
    ChatRequest,
    DeltaCallback,
    Message,
    OptionLogprobs,
)
from epicrisis.models.chat.layers import Layer
from epicrisis.pipeline.plan.cost_plan import ReplySize, Speed

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PROSE = """
Patients who were given the drug had fewer strokes than those on placebo during two years of follow-up, while the rate
of bleeding did not differ between both groups and few participants were lost.
"""
PROMPT_WORDS = 200
REPLY_TOKENS = 50
"""Sizes of the two timed calls: about 500 prompt tokens, and 50 reply tokens."""


class CountingModel(Layer):
    """Counts each text once. Raises UserError for a ChatError, since strategies would treat that as an answer."""

    def __init__(self, inner: ChatModel) -> None:
        super().__init__(inner)
        self._counts: dict[bytes, int] = {}

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        key = hashlib.sha256(repr(messages).encode()).digest()
        if key not in self._counts:
            try:
                self._counts[key] = await self._inner.count_tokens(messages)
            except ChatError as error:
                raise UserError(error.message) from error
        return self._counts[key]

    async def capabilities(self) -> Capabilities:
        try:
            return await self._inner.capabilities()
        except ChatError as error:
            raise UserError(error.message) from error

    async def count_text(self, text: str) -> int:
        """Return the tokens of a text without the chat template."""
        template = await self.count_tokens((Message("user", ""),))
        return await self.count_tokens((Message("user", text),)) - template


class PlanningModel(Layer):
    """Replies without a call, with the shortest, the usual or the longest text the schema of the request allows.

    The inner model counts prompt tokens. Completion tokens are those of the text, except that the longest reply uses
    all tokens of the request. The usual reply uses half of the tokens for reasoning. A prompt beyond the window is
    rejected, as by an endpoint. `dates` are what findings state of documents (date, study
    type), by their text in a prompt.
    """

    def __init__(
        self,
        inner: CountingModel,
        size: ReplySize,
        dates: Mapping[str, str],
        price: Callable[[Usage], float | None],
        speed: Speed | None,
    ) -> None:
        super().__init__(inner)
        self._counting = inner
        self._size = size
        self._dates = dates
        self._price = price
        self._speed = speed

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        prompt = await self.count_tokens(request.messages)
        window = (await self.capabilities()).context_tokens
        if window is not None and prompt > window:
            raise ContextOverflow(
                f"the prompt has {prompt} tokens, the window holds {window}: make it shorter, or take a model with a "
                "larger window",
                usage=Usage(calls=1, failed_calls=1),
            )
        if request.options:
            even = OptionLogprobs(dict.fromkeys(request.options, -math.log(len(request.options))), 1.0)
            return self._build_reply(request.options[0], prompt, 1, 0, even)
        documents = unfence(request.messages[-1].content)
        lengths = []
        if self._size == "most":
            # The longest reply quotes the document that makes the next prompt longest.
            for document in documents:
                lengths.append(await self._counting.count_text(self._dates.get(document, "")))
        quoted = lengths.index(max(lengths)) if lengths else 0
        text = copy_passages(synthetic_reply(request.schema, self._size, quoted), documents)
        text = copy_sentence(text, request)
        reasoning = {"least": 0, "expected": request.max_reasoning_tokens // 2, "most": request.max_reasoning_tokens}
        answer = request.max_tokens if self._size == "most" else await self._counting.count_text(text)
        return self._build_reply(text, prompt, min(answer, request.max_tokens), reasoning[self._size])

    def _build_reply(
        self, text: str, prompt: int, answer: int, reasoning: int, options: OptionLogprobs | None = None
    ) -> ChatReply:
        usage = Usage(calls=1, prompt_tokens=prompt, completion_tokens=answer + reasoning, reasoning_tokens=reasoning)
        seconds = 0.0
        if self._speed is not None:
            # Without concurrent calls and without a prefix cache.
            seconds = usage.prompt_tokens / self._speed.prompt + usage.completion_tokens / self._speed.completion
        usage = replace(usage, seconds=seconds, cost=self._price(usage))
        return ChatReply(text=text, finish_reason="stop", model=self.name, usage=usage, option_logprobs=options)


async def measure_speed(model: ChatModel) -> Speed:
    """Return the speed of a model, measured with two short calls that are paid for. Raises ChatError."""
    # Random words, so that no cache has the prompt.
    text = " ".join([secrets.token_bytes(8).hex(" ", 2), *map("word {},".format, range(4, PROMPT_WORDS // 2))])
    usage, seconds = await _time_call(model, f"{text}\nSay yes.", 1)
    prompt = (usage.prompt_tokens - usage.cached_tokens) / seconds
    usage, seconds = await _time_call(model, f"{secrets.token_hex(2)}: tell a long story of the sea.", REPLY_TOKENS)
    completion_seconds = seconds - (usage.prompt_tokens - usage.cached_tokens) / prompt
    return Speed(prompt, usage.completion_tokens / max(completion_seconds, seconds / 2))


async def _time_call(model: ChatModel, text: str, max_tokens: int) -> tuple[Usage, float]:
    started = time.monotonic()
    reply = await model.complete(ChatRequest((Message("user", text),), max_tokens=max_tokens))
    return reply.usage, max(time.monotonic() - started, 1e-6)


def synthetic_reply(schema: Mapping[str, Any] | None, size: ReplySize, document: int = 0) -> str:
    """Return a reply for the schema as compact JSON, or a short answer; it quotes document `document`, from 0."""
    if schema is None:
        return _text(size, 500, 0)
    return json.dumps(_fill(schema, size, document, 0), separators=(",", ":"))


def copy_passages(text: str, documents: Sequence[str]) -> str:
    """Return the reply with words of the quoted document in its `span`: other words would cause a second request."""
    result = json.loads(text).get("result", {}) if '"span"' in text else {}
    if "span" not in result or not documents:
        return text
    words = documents[result["doc"] - 1].split("\n", 1)[-1].split()
    length = max(len(result["span"]), len(words[0]) if words else 0)
    span = " ".join(words)[:length].rsplit(" ", 1)[0]
    return json.dumps({"result": {**result, "span": span}}, separators=(",", ":"))


def copy_sentence(text: str, request: ChatRequest) -> str:
    """Return the reply with words of the sentence that its only claim names, if the schema asks for one claim.

    Such a claim consists of words of the sentence: others would cause a second request.
    """
    branches = (request.schema or {}).get("properties", {}).get("result", {}).get("anyOf", [{}])
    if branches[0].get("properties", {}).get("claims", {}).get("maxItems") != 1:
        return text
    result = json.loads(text)["result"]
    if not result["found"]:
        return text
    (claim,) = result["claims"]
    line = request.messages[-1].content.partition(f"[s{claim['sentences'][0]}] ")[2].partition("\n")[0]
    words = unescape(line.partition(" [s")[0]).split()
    span = " ".join(words)[: max(len(claim["text"]), len(words[0]))].rsplit(" ", 1)[0]
    return json.dumps({"result": {**result, "claims": [{**claim, "text": span}]}}, separators=(",", ":"))


def _fill(schema: Mapping[str, Any], size: ReplySize, document: int, item: int) -> Any:
    """Return a value for the schema. `item` makes the items of a list differ, as equal ones count once."""
    if "anyOf" in schema:
        branches = [_fill(branch, size, document, item) for branch in schema["anyOf"]]
        return (min if size == "least" else max)(branches, key=_length)
    if "enum" in schema:
        choices = [choice for choice in schema["enum"] if choice is not None] or schema["enum"]
        return min(choices, key=_length) if size == "least" else choices[document % len(choices)]
    match schema["type"]:
        case "object":
            return {name: _fill(inner, size, document, item) for name, inner in schema["properties"].items()}
        case "array":
            items, n = schema["items"], schema["minItems" if size == "least" else "maxItems"]
            return items["enum"][:n] if "enum" in items else [_fill(items, size, document, i) for i in range(n)]
        case "integer":
            return schema["minimum"]
        case "string":
            return _text(size, schema["maxLength"], item)
        case other:
            raise ValueError(f"no reply is known for a schema of type {other}")


def _text(size: ReplySize, longest: int, item: int) -> str:
    """Return a text of this size. The longest has two characters per token, as replies are limited."""
    if size == "least":
        return _LETTERS[item % len(_LETTERS)]
    source, length = (_LETTERS, longest) if size == "most" else (_PROSE.split(), longest // 2)
    words = [source[(item + i) % len(source)] for i in range(length // 2 + 1)]
    return " ".join(words)[:length].strip()


def _length(value: Any) -> int:
    return len(json.dumps(value))
