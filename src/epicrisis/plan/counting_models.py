"""Chat models that send nothing: they count the prompt and make up a reply. And the two calls that measure a speed.

Knows requests and schemas, no strategy; prices are handed in.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from epicrisis.answers import Usage
from epicrisis.errors import ChatError, ContextOverflow, UserError
from epicrisis.models.chat.layers.layer import Layer
from epicrisis.plan.cost_plan import ReplySize, Speed
from epicrisis.plan.synthetic_replies import copy_passages, synthetic_reply
from epicrisis.prompts import unfence
from epicrisis.protocols import Capabilities, ChatModel, ChatReply, ChatRequest, DeltaCallback, Message, OptionLogprobs

PROMPT_WORDS = 200
REPLY_TOKENS = 50
"""Of the two timed calls: about 500 tokens of prompt, and so many of reply."""


class CountingModel(Layer):
    """Counts each text once. What it cannot count ends the plan: a strategy would take a ChatError for its answer."""

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

    async def tokens_of(self, text: str) -> int:
        """Tokens of a text without the chat template around it."""
        whole, template = [(Message("user", content),) for content in (text, "")]
        return await self.count_tokens(whole) - await self.count_tokens(template)


class PlanningModel(Layer):
    """Replies without a call: the shortest, the usual or the longest text that the request's schema allows.

    Prompt tokens are counted by the model. Completion tokens are those of the text, but for the longest: there they are
    all that the request has room for. Half of the room for thinking is used as a rule. A prompt over the window is
    refused, as the endpoint would. `dates`: of each document's text in a prompt its date, which a finding about it
    carries along; the longest reply quotes the document with the longest one.
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
            return self._replied(request.options[0], prompt, 1, 0, even)
        text = synthetic_reply(request.schema, self._size, await self._document(request))
        text = copy_passages(text, unfence(request.messages[-1].content))
        thinking = {"least": 0, "expected": request.max_reasoning_tokens // 2, "most": request.max_reasoning_tokens}
        answer = request.max_tokens if self._size == "most" else await self._counting.tokens_of(text)
        return self._replied(text, prompt, min(answer, request.max_tokens), thinking[self._size])

    def _replied(
        self, text: str, prompt: int, answer: int, thinking: int, options: OptionLogprobs | None = None
    ) -> ChatReply:
        usage = Usage(calls=1, prompt_tokens=prompt, completion_tokens=answer + thinking, reasoning_tokens=thinking)
        seconds = 0.0 if self._speed is None else estimate_seconds(usage, self._speed)
        usage = replace(usage, seconds=seconds, cost=self._price(usage))
        return ChatReply(text, "stop", self.name, usage, option_logprobs=options)

    async def _document(self, request: ChatRequest) -> int:
        """Which document is quoted: with the longest reply the one that makes the next prompt longest."""
        if self._size != "most":
            return 0
        dates = [self._dates.get(item, "") for item in unfence(request.messages[-1].content)]
        lengths = [await self._counting.tokens_of(date) for date in dates]
        return lengths.index(max(lengths)) if lengths else 0


def estimate_seconds(usage: Usage, speed: Speed) -> float:
    """How long such a call takes by itself; nothing of its prompt has been computed before."""
    return usage.prompt_tokens / speed.prompt + usage.completion_tokens / speed.completion


async def measure_speed(model: ChatModel) -> Speed:
    """Two short calls, which cost what they cost: a long prompt with a reply of one token, a short one with fifty.

    Raises ChatError.
    """
    # No cache has seen it before.
    text = " ".join(secrets.token_hex(2) if i < 4 else f"word {i}," for i in range(PROMPT_WORDS // 2))
    read, seconds = await _timed(model, f"{text}\nSay yes.", 1)
    prompt = (read.prompt_tokens - read.cached_tokens) / seconds
    wrote, seconds = await _timed(model, f"{secrets.token_hex(2)}: tell a long story of the sea.", REPLY_TOKENS)
    writing = seconds - (wrote.prompt_tokens - wrote.cached_tokens) / prompt
    return Speed(prompt, wrote.completion_tokens / max(writing, seconds / 2))


async def _timed(model: ChatModel, text: str, max_tokens: int) -> tuple[Usage, float]:
    started = time.monotonic()
    answered = await model.complete(ChatRequest((Message("user", text),), max_tokens))
    return answered.usage, max(time.monotonic() - started, 1e-6)
