"""A scripted chat model, and the contract check of `ChatModel`."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import filterfalse

from epicrisis.core.answers import Usage
from epicrisis.core.errors import ChatError, ContextOverflow
from epicrisis.core.protocols import (
    Capabilities,
    ChatModel,
    ChatReply,
    ChatRequest,
    DeltaCallback,
    Message,
    OptionLogprobs,
)
from epicrisis.testing.hashing_encoder import require

Script = Callable[[ChatRequest], str]
Probabilities = Callable[[ChatRequest], Mapping[str, float]]


def count_words(text: str) -> int:
    """Return the token count of the fakes: one per word."""
    return len(text.split())


class ScriptedModel:
    """Replies with the result of `script` for each request, and collects all requests in `requests`.

    A script may raise a ChatError like a failing endpoint. One word is one token; a prompt over `context_tokens` raises
    ContextOverflow. `probabilities` returns the probability of each option as the next token.
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted",
        context_tokens: int = 1_000_000,
        probabilities: Probabilities | None = None,
    ) -> None:
        self._script = script
        self._probabilities = probabilities
        self.name = name
        self._context_tokens = context_tokens
        self.requests: list[ChatRequest] = []

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        self.requests.append(request)
        await asyncio.sleep(0)
        prompt_tokens = await self.count_tokens(request.messages)
        try:
            if prompt_tokens > self._context_tokens:
                raise ContextOverflow(
                    f"the prompt has {prompt_tokens} tokens, the window holds {self._context_tokens}: make it shorter"
                )
            text = self._script(request)
        except ChatError as error:
            error.usage = error.usage + Usage(calls=1, failed_calls=1)
            raise
        if on_delta is not None:
            for piece in re.findall(r"\s*\S+|\s+$", text):
                on_delta(piece)
        usage = Usage(calls=1, prompt_tokens=prompt_tokens, completion_tokens=count_words(text))
        option_logprobs = None
        if request.options and self._probabilities is not None:
            probabilities = self._probabilities(request)
            mass = sum(probabilities.values())
            options = (option for option in request.options if option in probabilities)
            values = {option: math.log(probabilities[option] / mass) for option in options}
            missing = tuple(filterfalse(probabilities.__contains__, request.options))
            option_logprobs = OptionLogprobs(values, mass, missing)
        return ChatReply(text=text, finish_reason="stop", model=self.name, usage=usage, option_logprobs=option_logprobs)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return sum(count_words(message.content) for message in messages)

    async def capabilities(self) -> Capabilities:
        return Capabilities(context_tokens=self._context_tokens, json_schema=True, exact_token_counts=True)

    async def fingerprint(self) -> str:
        return self.name

    async def aclose(self) -> None:
        """Do nothing, as there is nothing to free."""


async def check_chat_model(model: ChatModel) -> None:
    """Check the contract of `ChatModel` with a few short calls. Raises AssertionError with the violated clause."""
    request = ChatRequest((Message("user", "Say one word."),), max_tokens=64)
    reply = await model.complete(request)
    require(bool(reply.text), "a reply has text")
    usage = reply.usage
    require(usage.calls + usage.replayed_calls >= 1, "a reply counts its calls")
    require(usage.prompt_tokens + usage.replayed_tokens > 0, "a reply counts its prompt tokens")
    require(usage.completion_tokens + usage.replayed_tokens > 0, "a reply counts its completion tokens")

    pieces: list[str | None] = []
    streamed = await model.complete(request, pieces.append)
    require(streamed.text.strip() == "".join(filter(None, pieces)).strip(), "deltas add up")

    short = await model.count_tokens((Message("user", "one"),))
    long = await model.count_tokens((Message("user", "one two three four five six seven eight"),))
    require(0 < short < long, "token counts grow with the text")

    capabilities = await model.capabilities()
    require(capabilities.context_tokens is None or capabilities.context_tokens > 0, "a window is positive or unknown")
    both = await asyncio.gather(model.complete(request), model.complete(request))
    require(len(both) == 2, "calls may overlap")
    require(bool(model.name), "a model has a name")
    require(await model.fingerprint() == await model.fingerprint() != "", "a model has one fingerprint")
