"""A ChatModel over any OpenAI-compatible endpoint: OpenAI, vLLM, llama.cpp, Ollama and their like.

One request, one call: it does not retry, cache or bound (the layers around it do), except that an endpoint which
refuses a schema is asked again without. Knows nothing of prompts or answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from epicrisis.errors import EndpointRejected, EndpointTimeout, EpicrisisError, ReplyInvalid
from epicrisis.models.chat import wire
from epicrisis.models.chat.failures import chat_error, refuses_schema
from epicrisis.privacy import is_local
from epicrisis.seams import Capabilities, ChatReply, ChatRequest, Message, OnDelta
from epicrisis.types import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI

T = TypeVar("T", bound=BaseModel)

CONNECT_SECONDS = 10.0
"""What does not even accept a connection in this time is not there."""

KEPT_SECONDS = 2.0
"""Connections to other machines are kept open this long for the next call."""


@dataclass(frozen=True, slots=True)
class _Probed:
    """What the endpoint tells of itself. `counter`: `llama.cpp`, `vllm`, or `estimate` where it counts no tokens."""

    context_tokens: int | None
    counter: str


class OpenAICompatibleModel:
    """One model of one endpoint. Nothing is contacted before the first call.

    `base_url` as OpenAI's clients take it (it ends in `/v1`, which is added where it has no path); `model=None` takes
    the first the endpoint lists; `api_key` is asked for its value when a client is made; `timeout_seconds` is for a
    whole reply, or between two pieces of a streamed one, `None` waits for ever; `context_tokens` is the window where
    the endpoint does not tell, and a limit where it does; `name` stands in messages instead of the host.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: Callable[[], str | None] | None = None,
        timeout_seconds: float | None = 120.0,
        context_tokens: int | None = None,
        name: str | None = None,
    ) -> None:
        parts = urlsplit(base_url)
        self._base_url = base_url.rstrip("/") + ("" if parts.path.strip("/") else "/v1")
        self._root = self._base_url.removesuffix("/v1")
        host = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._host = name or host
        self._local = is_local(parts.hostname)
        self._model = model
        self._api_key = api_key or (lambda: None)
        self._timeout = timeout_seconds
        self._context_tokens = context_tokens
        self._name = name or (f"{model} at {host}" if model else host)
        self._takes_schema = True
        self._probed: _Probed | None = None
        self._client: tuple[asyncio.AbstractEventLoop, AsyncOpenAI] | None = None

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, request: ChatRequest, on_delta: OnDelta | None = None) -> ChatReply:
        started = time.monotonic()
        try:
            return await self._complete(request, on_delta, started)
        except EpicrisisError as error:
            error.usage = self._failed(error, time.monotonic() - started)
            raise

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        counter = (await self._probe()).counter
        return await self._count(counter, messages)

    async def capabilities(self) -> Capabilities:
        probed = await self._probe()
        return Capabilities(probed.context_tokens, self._takes_schema, probed.counter != "estimate")

    async def fingerprint(self) -> str:
        return json.dumps({"endpoint": self._base_url, "model": await self._model_name()}, sort_keys=True)

    async def aclose(self) -> None:
        kept, self._client = self._client, None
        if kept is not None and kept[0] is asyncio.get_running_loop():
            await kept[1].close()

    # -- one call ---------------------------------------------------------------------------------------------------

    async def _complete(self, request: ChatRequest, on_delta: OnDelta | None, started: float) -> ChatReply:
        from openai import APIStatusError

        secrets = [message.content for message in request.messages]
        model = await self._model_name()
        refused = 0
        async with self._mapped(secrets):
            try:
                text, last = await self._send(self._body(request, model, on_delta is not None), on_delta)
            except APIStatusError as error:
                if request.schema is None or not self._takes_schema or not refuses_schema(error):
                    raise
                self._takes_schema, refused = False, 1
                text, last = await self._send(self._body(request, model, on_delta is not None), on_delta)
        usage = await self._usage(request, text, last.usage, model)
        usage = replace(usage, calls=1 + refused, failed_calls=refused, seconds=time.monotonic() - started)
        finish = next((choice.finish_reason for choice in last.choices), None) or "stop"
        if finish == "content_filter":
            raise EndpointRejected(f"{self._host} withholds the reply (content filter): use another model", usage=usage)
        if not text.strip() and finish != "length":
            raise ReplyInvalid(f"{self._host} answers with an empty text: try again, or use another model", usage=usage)
        return ChatReply(text=text, finish_reason=finish, model=last.model or model, usage=usage)

    def _body(self, request: ChatRequest, model: str, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "messages": _plain(request.messages),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "seed": sampling_seed(request),
        }
        if request.schema is not None and self._takes_schema:
            schema = {"name": "reply", "strict": True, "schema": dict(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body | dict(request.extra)

    async def _send(self, body: dict[str, Any], on_delta: OnDelta | None) -> tuple[str, wire.Completion]:
        """The text, and what the last events of a stream, or the whole reply, tell beside it."""
        if on_delta is not None:
            return await self._stream(body, on_delta)
        async with asyncio.timeout(self._timeout):
            raw = await self._openai().post("/chat/completions", cast_to=object, body=body)
        reply = wire.Completion.model_validate(raw)
        if not reply.choices or reply.choices[0].message is None:
            raise ReplyInvalid(f"{self._host} answers without a choice: is it a chat endpoint?")
        return reply.choices[0].message.content or "", reply

    async def _stream(self, body: dict[str, Any], on_delta: OnDelta) -> tuple[str, wire.Completion]:
        from openai import AsyncStream

        loop, pieces, whole = asyncio.get_running_loop(), list[str](), wire.Completion()
        async with asyncio.timeout(self._timeout) as limit:
            stream = await self._openai().post(
                "/chat/completions", cast_to=object, body=body, stream=True, stream_cls=AsyncStream[object]
            )
            async with stream:
                async for raw in stream:
                    event = wire.Completion.model_validate(raw)
                    whole.model, whole.usage = event.model or whole.model, event.usage or whole.usage
                    for choice in event.choices[:1]:
                        if choice.finish_reason:
                            whole.choices = [choice]
                        if choice.delta and choice.delta.content:
                            pieces.append(choice.delta.content)
                            on_delta(choice.delta.content)
                    if self._timeout is not None and event.choices:
                        limit.reschedule(loop.time() + self._timeout)
        if not whole.choices:
            raise ReplyInvalid(f"{self._host} broke off the stream, or it is no chat endpoint: try again")
        return "".join(pieces), whole

    async def _usage(self, request: ChatRequest, text: str, told: wire.WireUsage | None, model: str) -> Usage:
        """What the reply tells; where it tells nothing, counted (prompt) and estimated from above (reply)."""
        if told is None:
            prompt = await self.count_tokens(request.messages)
            told = wire.WireUsage(prompt_tokens=prompt, completion_tokens=_estimate(text))
        cost = 0.0 if self._local else _cost(told, model, self._base_url)
        return Usage(
            prompt_tokens=told.prompt_tokens,
            cached_tokens=told.cached_tokens,
            completion_tokens=told.completion_tokens,
            cost=cost,
        )

    def _failed(self, error: EpicrisisError, seconds: float) -> Usage:
        """A call that came back without its usage, or not in time, may have been billed all the same."""
        spent = error.usage
        unknown = not self._local and spent.calls == 0 and isinstance(error, (EndpointTimeout, ReplyInvalid))
        return replace(
            spent,
            calls=max(spent.calls, 1),
            failed_calls=spent.failed_calls + 1,
            seconds=seconds,
            cost=None if unknown else spent.cost,
        )

    # -- what the endpoint tells of itself --------------------------------------------------------------------------

    async def _model_name(self) -> str:
        if self._model is None:
            async with self._mapped(()):
                raw = await self._openai().get("/models", cast_to=object)
                listed = wire.ModelList.model_validate(raw).data
            if not listed:
                raise EndpointRejected(f"{self._host} lists no model: load one there, or name it as {self._host}#NAME")
            self._model = listed[0].id
        return self._model

    async def _probe(self) -> _Probed:
        if self._probed is None:
            model = await self._model_name()
            windows = [self._context_tokens, await self._told_window(model)]
            context = min((window for window in windows if window), default=None)
            counter = "estimate"
            for candidate in ("llama.cpp", "vllm"):
                if await self._ask_count(candidate, [Message("user", "a")]) is not None:
                    counter = candidate
                    break
            self._probed = _Probed(context, counter)
        return self._probed

    async def _told_window(self, model: str) -> int | None:
        props = await self._ask("GET", f"{self._root}/props", wire.Props)
        if props is not None and props.default_generation_settings.n_ctx:
            return props.default_generation_settings.n_ctx
        listed = await self._ask("GET", "/models", wire.ModelList)
        for entry in listed.data if listed else ():
            if entry.id == model:
                return entry.max_model_len or (entry.meta and entry.meta.n_ctx) or None
        return None

    async def _count(self, counter: str, messages: Sequence[Message]) -> int:
        count = await self._ask_count(counter, messages)
        return sum(_estimate(message.content) + 8 for message in messages) if count is None else count

    async def _ask_count(self, counter: str, messages: Sequence[Message]) -> int | None:
        body: dict[str, Any] = {"messages": _plain(messages)}
        if counter == "llama.cpp":
            template = await self._ask("POST", f"{self._root}/apply-template", wire.Template, body)
            if template is None:
                return None
            body = {"content": template.prompt, "add_special": True, "parse_special": True}
            tokens = await self._ask("POST", f"{self._root}/tokenize", wire.Tokens, body)
            return None if tokens is None else len(tokens.tokens)
        if counter == "vllm":
            body |= {"model": await self._model_name(), "add_generation_prompt": True}
            count = await self._ask("POST", f"{self._root}/tokenize", wire.Count, body)
            return None if count is None else count.count
        return None

    async def _ask(self, method: str, path: str, shape: type[T], body: Mapping[str, Any] | None = None) -> T | None:
        """A question not every endpoint knows: `None` where the answer is an error or of another shape."""
        import openai

        try:
            async with self._mapped(()), asyncio.timeout(self._timeout):
                client = self._openai()
                try:
                    if method == "GET":
                        return shape.model_validate(await client.get(path, cast_to=object))
                    return shape.model_validate(await client.post(path, cast_to=object, body=body))
                except (openai.APIStatusError, ValidationError):
                    return None
        except ReplyInvalid:
            return None

    # -- the client -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _mapped(self, secrets: Sequence[str]) -> AsyncIterator[None]:
        """Foreign errors leave as errors of the tree, without the foreign texts in their chain."""
        import openai

        try:
            yield
        except (
            openai.OpenAIError,
            TimeoutError,
            JSONDecodeError,
            UnicodeDecodeError,
            ValidationError,
            ExceptionGroup,
        ) as error:
            mapped = chat_error(error, self._host, self._timeout, [*secrets, self._api_key() or ""])
            raise mapped from None

    def _openai(self) -> AsyncOpenAI:
        """One client for each event loop, as its connections belong to one."""
        from httpx2 import Limits
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            # A proxy for the outside world must not see what goes to this machine. A kept connection can be closed by
            # the server in the very moment it is used again (llama.cpp and vLLM close after 5 s): on this machine each
            # call has its own, elsewhere they are kept for less than that.
            limits = Limits(max_keepalive_connections=0) if self._local else Limits(keepalive_expiry=KEPT_SECONDS)
            http = DefaultAsyncHttpxClient(trust_env=not self._local, limits=limits)
            client = AsyncOpenAI(
                base_url=self._base_url,
                api_key=self._api_key() or "none",
                timeout=Timeout(self._timeout, connect=min(self._timeout or CONNECT_SECONDS, CONNECT_SECONDS)),
                max_retries=0,
                http_client=http,
            )
            self._client = (loop, client)
        return self._client[1]


def sampling_seed(request: ChatRequest) -> int:
    """The seed to send, 31 bits: the request's own for sample 0, another for each further sample."""
    if request.sample == 0:
        return request.seed & 0x7FFFFFFF
    digest = hashlib.sha256(f"{request.seed}/{request.sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


def _plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def _estimate(text: str) -> int:
    """Tokens, from above: no vocabulary in use needs more than one for three bytes of running text."""
    return -(-len(text.encode()) // 3)


def _cost(usage: wire.WireUsage, model: str, base_url: str) -> float | None:
    """US dollars by the price list that is installed; `None` where it does not know the endpoint or the model."""
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

    tokens = PricedUsage(
        input_tokens=usage.prompt_tokens,
        cache_read_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
    )
    try:
        return float(calc_price(tokens, model, provider_api_url=base_url).total_price)
    except LookupError:
        return None
