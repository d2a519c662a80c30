"""A ChatModel over any OpenAI-compatible endpoint: OpenAI, Azure, Bedrock, vLLM, llama.cpp, Ollama and their like.

One request, one call: it does not retry, cache or bound (the layers around it do), except that an endpoint which
refuses a parameter is asked again without. Knows nothing of prompts or answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from epicrisis.answers import Usage
from epicrisis.errors import ChatError, EndpointRejected, EpicrisisError, ReplyInvalid, ReplyWithheld
from epicrisis.models.chat.endpoints import counting
from epicrisis.models.chat.endpoints.endpoint import Endpoint, parse_endpoint
from epicrisis.models.chat.endpoints.failures import FAILED_CALL, get_foreign_errors, map_error, read_error_response
from epicrisis.models.chat.endpoints.logprobs import compute_option_logprobs as renormalised
from epicrisis.models.chat.endpoints.probing import EndpointProbe
from epicrisis.models.chat.endpoints.reply import CompletedReply, make_thinking_error, receive_stream, receive_whole
from epicrisis.models.chat.endpoints.request import build_body, find_refused_parameter, list_notes
from epicrisis.models.chat.endpoints.schemas import build_schema_check
from epicrisis.models.chat.endpoints.thinking import THINKING_MARKS
from epicrisis.models.chat.endpoints.usage import measure_usage
from epicrisis.models.chat.prices import look_up_cost
from epicrisis.models.chat.token_estimates import UNKNOWN_USAGE
from epicrisis.protocols import Capabilities, ChatReply, ChatRequest, Message, OnDelta, OptionLogprobs
from epicrisis.surrogates import REPAIRED

if TYPE_CHECKING:
    from epicrisis.models.chat.endpoints.connection import Connection

P = ParamSpec("P")
T = TypeVar("T")

_BROKEN = ("abort", "error")
"""How vLLM, SGLang and gateways end a reply that its engine did not finish."""

PROBE_SECONDS = 30.0
"""The most that a question about the endpoint itself may take."""


@dataclass(frozen=True, slots=True)
class _Session:
    """The client of one event loop, its lock for questions about the endpoint, and what ends each call in flight."""

    loop: asyncio.AbstractEventLoop
    lock: asyncio.Lock
    connection: Connection
    ends: set[asyncio.Timeout] = field(default_factory=set)


def _outward(call: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """What leaves brings nothing with it: the errors below ours hold requests, with their prompts and keys."""

    @wraps(call)
    async def outward(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return await call(*arguments, **named)
        except EpicrisisError as error:
            error.__cause__ = error.__context__ = None
            raise error.with_traceback(None) from None

    return outward


class OpenAICompatibleModel:
    """One model of one endpoint. Nothing is contacted before the first call.

    `endpoint`: an address in one of the forms of `parse_endpoint`; where neither it nor `model` names a model, it is
    the first the endpoint lists. `api_key` is asked for its value when a client is made. `timeout_seconds` is for a
    whole reply, or between two pieces of a streamed one; `None` waits for ever. `context_tokens` is the window where
    the endpoint does not tell, and a limit where it does. `name` stands in messages instead of the host.

    `concurrency`: how many calls at once there may be at least. `json_schema` and `option_logprobs`: what it can do,
    where that is known, which goes before what it seems to do. `price`: US dollars of a usage; where it is not given
    this machine costs nothing and others what the installed list says. `extra`: parameters sent with every call.

    Usage is the endpoint's own where it can be believed, else counted by its tokenizer, else estimated from above and
    `uncounted_calls` says so. Thinking that is shown without its tokens being told is counted in the same way.

    `aclose` ends the calls in flight, with a ChatError; so does every later call end.
    """

    def __init__(
        self,
        endpoint: str | Endpoint,
        model: str | None = None,
        api_key: Callable[[], str | None] | None = None,
        timeout_seconds: float | None = 120.0,
        context_tokens: int | None = None,
        name: str | None = None,
        *,
        concurrency: int = 64,
        json_schema: bool | None = None,
        option_logprobs: bool | None = None,
        price: Callable[[Usage], float | None] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._endpoint = parse_endpoint(endpoint) if isinstance(endpoint, str) else endpoint
        self._model = model or self._endpoint.model
        self._host = name or self._endpoint.host
        self._name = name or (f"{self._model} at {self._host}" if self._model else self._host)
        self._api_key = api_key or (lambda: None)
        self._timeout = timeout_seconds
        self._concurrency = concurrency
        self._json_schema = json_schema
        self._price = price
        self._extra = dict(extra or {})
        self._refused = frozenset({"response_format"} if json_schema is False else ())
        self._tells_logprobs = option_logprobs
        self._probing = EndpointProbe(self._endpoint.root, self._fetch, lambda: self._connected().lock, context_tokens)
        self._session: _Session | None = None
        self._closed = False
        self._secrets: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self._name

    @_outward
    async def complete(self, request: ChatRequest, on_delta: OnDelta | None = None) -> ChatReply:
        started = time.monotonic()
        try:
            reply = await self._complete(request, on_delta)
        except EpicrisisError as error:
            error.usage = self._timed(error.usage, started)
            raise
        return replace(reply, usage=self._timed(reply.usage, started))

    @_outward
    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return (await self._probing.count(await self._model_name(), messages))[0]

    @_outward
    async def capabilities(self) -> Capabilities:
        model = await self._model_name()
        window, counter = await self._probing.window(model), await self._probing.counter(model)
        return Capabilities(window, "response_format" not in self._refused, counter != "estimate", self._tells_logprobs)

    @_outward
    async def fingerprint(self) -> str:
        told: dict[str, Any] = {"kind": self._endpoint.kind, "endpoint": self._endpoint.base_url}
        told |= {"model": await self._model_name()}
        told |= {"api-version": version} if (version := self._endpoint.query.get("api-version")) else {}
        # Not as they are: somebody's gateway may want a key among them.
        extra = json.dumps(self._extra, sort_keys=True, default=str)
        told |= {"extra": hashlib.sha256(extra.encode()).hexdigest()} if self._extra else {}
        told |= {"json_schema": False} if self._json_schema is False else {}
        return json.dumps(told, sort_keys=True)

    async def aclose(self) -> None:
        self._closed = True
        kept, self._session = self._session, None
        if kept is not None and kept.loop is asyncio.get_running_loop():
            # A client that is closed forgets its calls: whoever reads a reply would wait for ever.
            for end in kept.ends:
                end.reschedule(kept.loop.time())
            await kept.connection.close()

    # -- one call ---------------------------------------------------------------------------------------------------

    async def _complete(self, request: ChatRequest, on_delta: OnDelta | None) -> ChatReply:
        if request.options and self._tells_logprobs is False:
            raise self._no_logprobs(Usage())
        conforms = None if request.schema is None else build_schema_check(request.schema)
        model = await self._model_name()
        received, failed, refused = await self._tried(request, model, None if request.options else on_delta)
        price = partial(self._cost, model=model)
        usage = failed + await measure_usage(received, request, model, self._probing, price)
        in_vain = replace(usage, failed_calls=usage.failed_calls + 1)
        if received.flaw:
            raise ReplyInvalid(received.flaw, usage=in_vain)
        logprobs = self._logprobs(received, request, in_vain) if request.options else None
        if not request.options:
            self._judge(received, in_vain)
        notes = list_notes(refused, request)
        if received.thinking and not request.max_reasoning_tokens:
            notes += ("the model thinks, in the room of its answer: set max_reasoning_tokens",)
        if received.repaired:
            notes += (REPAIRED,)
        if counting.is_prompt_truncated(request, usage.prompt_tokens):
            read = f"the endpoint read {usage.prompt_tokens} tokens, too few for this prompt"
            notes += (f"{read}: its window cut it (Ollama: raise num_ctx, and set context_tokens)",)
        return ChatReply(
            text="" if request.options else received.text,
            finish_reason=received.finish or "stop",
            model=received.model or model,
            usage=usage,
            reasoning=received.thinking,
            conforms=conforms and conforms(received.text),
            option_logprobs=logprobs,
            notes=notes,
        )

    async def _tried(
        self, request: ChatRequest, model: str, on_delta: OnDelta | None
    ) -> tuple[CompletedReply, Usage, frozenset[str]]:
        """The reply; the usage of the calls that were refused because of a parameter, each asked again without; and all
        that it was asked without."""
        extra, failed = self._extra | dict(request.extra), Usage()
        while True:
            refused = self._refused
            body = build_body(request, model, extra, refused, stream=on_delta is not None)
            try:
                return await self._sent(body, request, on_delta), failed, refused
            except ChatError as error:
                error.usage = failed + error.usage
                raise
            except get_foreign_errors() as error:
                refusal = read_error_response(error)
                # What is extra is never left out: whoever wrote it meant it.
                ours = {name: value for name, value in body.items() if name not in extra}
                name = refusal and find_refused_parameter(refusal, ours)
                if not name or (name == "response_format" and self._json_schema):
                    secrets = [message.content for message in request.messages]
                    mapped = map_error(error, self._host, self._timeout, [*secrets, *self._secrets])
                    mapped.usage = failed + mapped.usage
                    raise mapped from None
            failed += FAILED_CALL
            if name == "logprobs":
                raise self._no_logprobs(failed)
            self._refused |= {name}

    async def _sent(self, body: dict[str, Any], request: ChatRequest, on_delta: OnDelta | None) -> CompletedReply:
        async with self._until_closed(UNKNOWN_USAGE) as connection:
            if on_delta is not None and body.get("stream"):
                events = connection.events("/chat/completions", body)
                return await receive_stream(events, request, on_delta, self._host, self._timeout)
            async with asyncio.timeout(self._timeout):
                raw = await connection.post("/chat/completions", body)
        received = receive_whole(raw, request, self._host)
        if on_delta is not None and received.text:
            on_delta(received.text)
        return received

    def _judge(self, received: CompletedReply, usage: Usage) -> None:
        """Raises what keeps this reply from being one. A text that ended by length is the caller's to judge."""
        if received.finish == "content_filter" or received.refusal:
            who = "the model refuses to answer" if received.refusal else "a content filter keeps the reply back"
            raise ReplyWithheld(f"{who} at {self._host}: ask anew, or use another model", usage=usage)
        if received.finish in _BROKEN:
            raise ReplyInvalid(
                f"{self._host} gave up in the middle of its reply: try again, or see its log", usage=usage
            )
        if received.text.strip():
            return
        if received.finish == "length" and (received.thinking or usage.reasoning_tokens):
            error = make_thinking_error(self._host, usage.reasoning_tokens)
            error.usage = usage
            raise error
        if received.finish != "length":
            what = "only thinks, without an answer" if received.thinking else "answers with an empty text"
            raise ReplyInvalid(f"{self._host} {what}: try again, or use another model", usage=usage)

    # -- the probabilities of options -------------------------------------------------------------------------------

    def _logprobs(self, received: CompletedReply, request: ChatRequest, usage: Usage) -> OptionLogprobs:
        first = next(iter(received.logprobs), None)
        if received.thinking or (first is not None and first.token.strip() in THINKING_MARKS):
            raise EndpointRejected(
                f"the model at {self._host} thinks before it answers, so that its next token is none of the options: "
                "turn its thinking off (extra), or use a strategy that reads the reply",
                usage=usage,
            )
        if first is None:
            raise self._no_logprobs(usage)
        self._tells_logprobs = True
        return renormalised(request.options, [(token.token, token.logprob) for token in first.likely])

    def _no_logprobs(self, usage: Usage) -> EndpointRejected:
        self._tells_logprobs = False
        return EndpointRejected(
            f"the model at {self._host} tells no probabilities of tokens: use another model, or a strategy that reads "
            "the reply",
            usage=usage,
        )

    # -- what it cost -----------------------------------------------------------------------------------------------

    def _cost(self, usage: Usage, model: str) -> float | None:
        if self._price is not None:
            return self._price(usage)
        return 0.0 if self._endpoint.local else look_up_cost(usage, model, self._endpoint.base_url)

    def _timed(self, usage: Usage, started: float) -> Usage:
        free = usage.cost is None and self._endpoint.local and self._price is None
        return replace(usage, seconds=time.monotonic() - started, cost=0.0 if free else usage.cost)

    # -- the connection ---------------------------------------------------------------------------------------------

    async def _model_name(self) -> str:
        if self._model is None:
            self._model = await self._probing.first_model()
        if self._model is None:
            raise EndpointRejected(f"{self._host} lists no model: load one there, or name it as {self._host}#NAME")
        return self._model

    async def _fetch(self, path: str, body: Mapping[str, Any] | None) -> object:
        """For questions about the endpoint, which are no calls: their failures cost nothing."""
        limit = PROBE_SECONDS if self._timeout is None else min(PROBE_SECONDS, self._timeout)
        try:
            async with self._until_closed(Usage()) as connection, asyncio.timeout(limit):
                return await (connection.get(path) if body is None else connection.post(path, body))
        except get_foreign_errors() as error:
            mapped = map_error(error, self._host, limit, [*_texts(body or {}), *self._secrets])
            mapped.usage = Usage()
            raise mapped from None

    @asynccontextmanager
    async def _until_closed(self, lost: Usage) -> AsyncIterator[Connection]:
        """The connection. Where the model is closed, what runs within ends in ChatError, and has used `lost`."""
        session = self._connected()
        end = asyncio.timeout(None)
        session.ends.add(end)
        try:
            async with end:
                yield session.connection
        except (TimeoutError, RuntimeError):
            # A client that was closed right before it sends raises the second.
            if not (end.expired() or self._closed):
                raise
            raise self._is_closed(lost) from None
        finally:
            session.ends.discard(end)

    def _is_closed(self, lost: Usage) -> ChatError:
        return ChatError(f"{self._name} was closed: open the model anew, and ask again", usage=lost)

    def _connected(self) -> _Session:
        """One client for each event loop, as its connections belong to one."""
        from epicrisis.models.chat.endpoints.connection import Connection

        if self._closed:
            raise self._is_closed(Usage())
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.loop is not loop:
            key = self._api_key()
            self._secrets = tuple(secret for secret in (key, *self._endpoint.secrets) if secret)
            connection = Connection(self._endpoint, key, self._timeout, self._concurrency)
            self._session = _Session(loop, asyncio.Lock(), connection)
        return self._session


def _texts(body: Mapping[str, Any]) -> list[str]:
    """Of a question about texts."""
    messages = [message["content"] for message in body.get("messages", ())]
    return [*messages, *(body[name] for name in ("content", "prompt") if name in body)]
