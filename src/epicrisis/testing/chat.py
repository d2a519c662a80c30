"""A scripted chat model, the contract check of `ChatModel`, and replies that satisfy the JSON schema of a request."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import filterfalse
from operator import getitem
from typing import Any, TypeAlias

from epicrisis.core.answers import Usage
from epicrisis.core.errors import ChatError, ContextOverflow
from epicrisis.core.prompts import OPEN, unfence
from epicrisis.core.protocols import (
    Capabilities,
    ChatModel,
    ChatReply,
    ChatRequest,
    DeltaCallback,
    Message,
    OptionLogprobs,
)
from epicrisis.testing.encoders import require

Schema: TypeAlias = Mapping[str, Any]
Pick: TypeAlias = Callable[[Sequence[Any]], Any]

_QUESTION = re.compile(r"Question: (.*?)(?:\n\s*\n|\Z)", re.DOTALL)
_LETTER = re.compile(r"(?m)^([A-Z])\. ")
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
        return ChatReply(text, "stop", self.name, usage, option_logprobs=option_logprobs)

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


def schema_reply(body: Mapping[str, Any]) -> str:
    """Return a reply to the JSON body of a chat request that satisfies its schema, or a sentence without a schema.

    The choice depends only on the question and its options, so it is the same for every stage, partition, seed and
    sample. Quotations are words of a document.
    """
    prompt = content_text(body["messages"][-1]["content"])
    text_before_documents = prompt.partition(OPEN)[0]
    match = _QUESTION.search(text_before_documents)
    question = match[1] if match else text_before_documents
    number = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "big")

    def pick(choices: Sequence[Any]) -> Any:
        real = [choice for choice in choices if choice is not None] or choices
        return real[number % len(real)]

    schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema")
    if schema is None:
        letters = _LETTER.findall(question)
        return f"The answer is {pick(letters)}." if letters else "It is so."
    documents = unfence(prompt)
    values: dict[str, Any] = {"found": True}
    if documents:
        place = number % len(documents)
        values["quotes"] = [{"doc": place + 1, "quote": quotation(documents[place].splitlines()[-1])}]
    return json.dumps(fill(schema, values, "It is so.", pick))


def fill(schema: Schema, values: Mapping[str, Any], text: str, pick: Pick = lambda choices: choices[0]) -> Any:
    """Return a value that satisfies the schema.

    Properties named in `values` get that value at any depth. Other strings are `text`; `pick` chooses from an `enum`;
    an `anyOf` uses the first branch that admits the values. `allOf`, `pattern` and `format` are not supported.
    """

    def build(part: Schema) -> Any:
        if "$ref" in part:
            return build(reduce(getitem, part["$ref"].removeprefix("#/").split("/"), schema))
        branches = part.get("anyOf") or part.get("oneOf")
        if branches:
            for branch in branches:
                if _admits(branch, values):
                    return build(branch)
            return build(branches[0])
        if "const" in part:
            return part["const"]
        if "enum" in part:
            return pick(part["enum"])
        kind = part.get("type", "object" if "properties" in part else "string")
        match kind if isinstance(kind, str) else kind[0]:
            case "object":
                inner = part.get("properties", {})
                return {name: values[name] if name in values else build(inner[name]) for name in inner}
            case "array":
                return [build(part["items"]) for _ in range(max(1, part.get("minItems", 0)))] if "items" in part else []
            case scalar:
                return _scalar(part, scalar, text)

    return build(schema)


def _scalar(schema: Schema, kind: str, text: str) -> Any:
    if kind in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        return min(least, schema.get("maximum", least))
    if kind == "string":
        return text[: schema.get("maxLength")].ljust(schema.get("minLength", 0), ".")
    return True if kind == "boolean" else None


def quotation(passage: str) -> str:
    """Return words of the passage without quotation marks, cut at a blank."""
    start = max(passage.split('"'), key=len)[:160].strip()
    return start.rsplit(" ", 1)[0] if " " in start else start


def content_text(content: Any) -> str:
    """Return the text of a message content: a string, a list of parts, or null."""
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""


def _admits(branch: Schema, values: Mapping[str, Any]) -> bool:
    """Return False if an `enum` of the branch excludes one of the values."""
    inner = branch.get("properties", {})
    return all(value in inner[name]["enum"] for name, value in values.items() if "enum" in inner.get(name, {}))
