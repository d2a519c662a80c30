"""A ChatModel over any OpenAI-compatible endpoint: OpenAI, Azure, Bedrock, vLLM, llama.cpp, Ollama and others.

One request is one call, with one exception: if an endpoint rejects a parameter by name, the call is repeated without
it, it is left out from then on, and every reply made without it has a note.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from epicrisis.core.answers import Usage
from epicrisis.core.errors import ChatError, ContextOverflow, EndpointRejected, EpicrisisError, ReplyInvalid
from epicrisis.core.printable import SURROGATES_REPLACED
from epicrisis.core.protocols import (
    ANY_OBJECT,
    Capabilities,
    ChatReply,
    ChatRequest,
    DeltaCallback,
    Message,
    OptionLogprobs,
)
from epicrisis.models.chat.call_costs import UNKNOWN_USAGE, compute_max_reply_tokens
from epicrisis.models.chat.endpoints import failures
from epicrisis.models.chat.endpoints.endpoint import Endpoint, parse_endpoint, read_key
from epicrisis.models.chat.endpoints.memory import EndpointMemory
from epicrisis.models.chat.endpoints.probing import (
    EndpointProbe,
    ServedModel,
    build_messages,
    describe_truncation,
    measure_usage,
    read_served_model,
)
from epicrisis.models.chat.endpoints.reply import (
    THINKING_MARKS,
    CompletedReply,
    build_schema_check,
    check_answer,
    compute_option_logprobs,
    find_answer,
    read_streamed_reply,
    read_whole_reply,
)
from epicrisis.models.chat.prices import look_up_cost
from epicrisis.system.telemetry import SpanAttributes, annotate

if TYPE_CHECKING:
    from epicrisis.models.chat.endpoints.connection import Connection

P = ParamSpec("P")
T = TypeVar("T")
_BEDROCK_KEY = "AWS_BEARER_TOKEN_BEDROCK"
"""The environment variable with AWS's key for Bedrock, read if the settings name none."""
OLLAMA_PORT = 11434
PROBE_SECONDS = 30.0
"""The time limit of a question about the endpoint itself."""


@dataclass(frozen=True, slots=True)
class _Session:
    """The client of one event loop, a lock for each question about the endpoint, and a timeout for each call."""

    loop: asyncio.AbstractEventLoop
    connection: Connection
    timeouts: set[asyncio.Timeout] = field(default_factory=set)
    locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))


def _drop_causes(call: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a method to raise exceptions without causes: those of the client hold prompts and keys."""

    @wraps(call)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await call(*args, **kwargs)
        except EpicrisisError as error:
            error.__cause__ = error.__context__ = None
            raise error.with_traceback(None) from None

    return wrapper


class OpenAICompatibleModel:
    """One model of one endpoint. Nothing is contacted before the first call. `aclose` ends the calls in flight.

    `endpoint` is an address as `parse_endpoint` reads it. If neither it nor `model` names a model, the first model the
    endpoint lists is used. `api_key` is called when a client is created. `timeout_seconds` limits a whole reply, or the
    wait between two pieces of a streamed one. `context_tokens` is the window if the endpoint does not report one, and
    an upper limit if it does. `name` replaces the host in messages.

    `concurrency` is the number of simultaneous calls to allow for. `json_schema` and `option_logprobs` declare what the
    endpoint supports and override what it reports. `price` returns US dollars for a usage; by default this machine
    costs nothing and other hosts cost what the installed price list says. `extra` holds parameters of every call.
    `home` is the folder where what the endpoint reports is kept for later processes, if any.
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
        home: Path | None = None,
    ) -> None:
        self._endpoint = parse_endpoint(endpoint) if isinstance(endpoint, str) else endpoint
        self._model = model or self._endpoint.model
        self._host = name or self._endpoint.host
        parts = urlsplit(self._endpoint.base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        self._address: SpanAttributes = {"server.address": parts.hostname or "", "server.port": port}
        self.name = name or (f"{self._model} at {self._host}" if self._model else self._host)
        self._api_key = api_key or (lambda: None)
        self._timeout = timeout_seconds
        self._concurrency = concurrency
        self._json_schema = json_schema
        self._price = price
        self._extra = dict(extra or {})
        self._rejected = frozenset({"response_format"} if json_schema is False else ())
        self._reports_logprobs = option_logprobs
        memory = None if home is None else EndpointMemory(home, self._endpoint)
        self._probe = EndpointProbe(
            self._endpoint.root,
            self._fetch,
            lambda name: self._open_session().locks[name],
            context_tokens,
            memory,
            may_be_ollama=self._endpoint.local or parts.port == OLLAMA_PORT,
        )
        self._session: _Session | None = None
        self._closed = False
        self._secrets: tuple[str, ...] = ()

    @_drop_causes
    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        start = time.monotonic()
        try:
            reply = await self._complete(request, on_delta)
        except EpicrisisError as error:
            error.usage = self._add_seconds(error.usage, start)
            if isinstance(error, ContextOverflow | EndpointRejected):
                await self.refresh()
            raise
        return replace(reply, usage=self._add_seconds(reply.usage, start))

    @_drop_causes
    async def count_tokens(self, messages: Sequence[Message]) -> int:
        count, _ = await self._probe.count(await self._get_model(), messages)
        return count

    @_drop_causes
    async def capabilities(self) -> Capabilities:
        model = await self._get_model()
        window, counter = await self._probe.ask_all(model)
        supports_schema = "response_format" not in self._rejected
        return Capabilities(window, supports_schema, counter != "estimate", self._reports_logprobs)

    async def refresh(self) -> None:
        """Forget what earlier processes learned about the endpoint: its next `capabilities` are asked for."""
        if self._model is not None:
            self._probe.forget(self._model)

    @_drop_causes
    async def identify(self) -> ServedModel:
        """Return what the endpoint serves now. It is asked each time.

        Raises ChatError if it does not answer, or does not accept the key. One without a list of models says nothing.
        """
        try:
            listing = await self._fetch("/models", None)
        except EndpointRejected as error:
            if error.rejects_key:
                raise
            return ServedModel()
        except ReplyInvalid:
            return ServedModel()
        return read_served_model(listing, await self._get_model())

    @_drop_causes
    async def fingerprint(self) -> str:
        parts: dict[str, Any] = {
            "kind": self._endpoint.kind,
            "endpoint": self._endpoint.base_url,
            "model": await self._get_model(),
        }
        if version := self._endpoint.query.get("api-version"):
            parts["api-version"] = version
        if self._extra:
            # Hashed, since a gateway's key may be among them.
            extra = json.dumps(self._extra, sort_keys=True, default=str)
            parts["extra"] = hashlib.sha256(extra.encode()).hexdigest()
        if self._json_schema is False:
            parts["json_schema"] = False
        return json.dumps(parts, sort_keys=True)

    async def aclose(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        if session is not None and session.loop is asyncio.get_running_loop():
            # A closed client forgets its calls: without this, readers of a reply would wait forever.
            for timeout in session.timeouts:
                timeout.reschedule(session.loop.time())
            await session.connection.close()

    async def _complete(self, request: ChatRequest, on_delta: DeltaCallback | None) -> ChatReply:
        if request.options and self._reports_logprobs is False:
            raise self._reject_logprobs(Usage())
        conforms = None if request.schema is None else build_schema_check(request.schema)
        model = await self._get_model()
        reply, failed_usage, rejected = await self._send_adapted(request, model, None if request.options else on_delta)

        def compute_cost(usage: Usage) -> float | None:
            if self._price is not None:
                return self._price(usage)
            return 0.0 if self._endpoint.local else look_up_cost(usage, model, self._endpoint.base_url)

        usage = failed_usage + await measure_usage(reply, request, model, self._probe, compute_cost)
        usage_if_invalid = replace(usage, failed_calls=usage.failed_calls + 1)
        if reply.flaw:
            raise ReplyInvalid(reply.flaw, usage=usage_if_invalid)
        logprobs = None
        if request.options:
            logprobs = self._read_option_logprobs(reply, request, usage_if_invalid)
        else:
            reply = _find_answer(reply, conforms, on_delta)
            check_answer(reply, self._host, usage_if_invalid)
        irrelevant = {"seed", "temperature", "top_p"} if request.options else set()
        if request.schema is None:
            irrelevant.add("response_format")
        notes = [note for name, note in _NOTES.items() if name in rejected - irrelevant]
        notes += reply.notes
        if reply.thinking and not request.max_reasoning_tokens:
            notes.append("the model thinks, in the room of its answer: set max_reasoning_tokens")
        if reply.repaired:
            notes.append(SURROGATES_REPLACED)
        if note := describe_truncation(request, usage.prompt_tokens, await self._confirm_window(model)):
            notes.append(note)
        is_at_limit = usage.completion_tokens >= compute_max_reply_tokens(request) and not usage.uncounted_calls
        return ChatReply(
            text="" if request.options else reply.text,
            finish_reason=reply.finish or ("length" if is_at_limit else "stop"),
            model=reply.model or model,
            usage=usage,
            reasoning=reply.thinking,
            conforms=conforms and conforms(reply.text),
            option_logprobs=logprobs,
            notes=tuple(notes),
        )

    async def _confirm_window(self, model: str) -> int | None:
        try:
            return await self._probe.confirm_window(model)
        except ChatError:
            return None

    async def _send_adapted(
        self, request: ChatRequest, model: str, on_delta: DeltaCallback | None
    ) -> tuple[CompletedReply, Usage, frozenset[str]]:
        """Send the request until no parameter is rejected. Return the usage of rejected calls and what was left out."""
        extra, failed_usage = self._extra | dict(request.extra), Usage()
        while True:
            rejected = self._rejected
            body = build_body(request, model, extra, rejected, stream=on_delta is not None)
            try:
                return await self._send(body, request, on_delta), failed_usage, rejected
            except ChatError as error:
                error.usage = failed_usage + error.usage
                raise
            except failures.get_foreign_errors() as error:
                # Parameters in `extra`, and a declared schema, are never left out.
                optional = {name: value for name, value in body.items() if name not in extra}
                response = failures.read_error_response(error)
                parameter = None if response is None else find_rejected_parameter(response, optional)
                if parameter is None or (parameter == "response_format" and self._json_schema):
                    secrets = [message.content for message in request.messages]
                    chat_error = failures.map_error(error, self._host, self._timeout, [*secrets, *self._secrets])
                    chat_error.usage = failed_usage + chat_error.usage
                    raise chat_error from None
            failed_usage += failures.FAILED_CALL
            if parameter == "logprobs":
                raise self._reject_logprobs(failed_usage)
            self._rejected |= {parameter}

    async def _send(self, body: dict[str, Any], request: ChatRequest, on_delta: DeltaCallback | None) -> CompletedReply:
        annotate(self._address)
        async with self._connect(UNKNOWN_USAGE) as connection:
            if on_delta is not None and body.get("stream"):
                events = connection.stream("/chat/completions", body)
                return await read_streamed_reply(events, request, on_delta, self._host, self._timeout)
            async with asyncio.timeout(self._timeout):
                raw = await connection.post("/chat/completions", body)
        reply = read_whole_reply(raw, request, self._host)
        if on_delta is not None and reply.text:
            on_delta(reply.text)
        return reply

    def _read_option_logprobs(self, reply: CompletedReply, request: ChatRequest, usage: Usage) -> OptionLogprobs:
        first = next(iter(reply.logprobs), None)
        if reply.thinking or (first is not None and first.token.strip() in THINKING_MARKS):
            raise EndpointRejected(
                f"the model at {self._host} thinks before it answers, so its next token is none of the options: "
                "turn its thinking off (extra), or use a strategy that reads the reply",
                usage=usage,
            )
        if first is None:
            raise self._reject_logprobs(usage)
        self._reports_logprobs = True
        return compute_option_logprobs(request.options, [(token.token, token.logprob) for token in first.candidates])

    def _reject_logprobs(self, usage: Usage) -> EndpointRejected:
        self._reports_logprobs = False
        return EndpointRejected(
            f"the model at {self._host} reports no token probabilities: use another model, or a strategy that reads "
            "the reply",
            usage=usage,
        )

    def _add_seconds(self, usage: Usage, start: float) -> Usage:
        is_free = usage.cost is None and self._endpoint.local and self._price is None
        return replace(usage, seconds=time.monotonic() - start, cost=0.0 if is_free else usage.cost)

    async def _get_model(self) -> str:
        if self._model is None:
            self._model = await self._probe.get_first_model()
        if self._model is None:
            raise EndpointRejected(f"{self._host} lists no model: load one there, or name it as {self._host}#NAME")
        return self._model

    async def _fetch(self, path: str, body: Mapping[str, Any] | None) -> object:
        """Return the answer to a question about the endpoint. Failures of such questions cost nothing."""
        limit = PROBE_SECONDS if self._timeout is None else min(PROBE_SECONDS, self._timeout)
        try:
            async with self._connect(Usage()) as connection, asyncio.timeout(limit):
                return await (connection.get(path) if body is None else connection.post(path, body))
        except failures.get_foreign_errors() as error:
            question = body or {}
            texts = [message["content"] for message in question.get("messages", ())]
            texts += [question[name] for name in ("content", "prompt") if name in question]
            chat_error = failures.map_error(error, self._host, limit, [*texts, *self._secrets])
            chat_error.usage = Usage()
            raise chat_error from None

    @asynccontextmanager
    async def _connect(self, usage_if_closed: Usage) -> AsyncIterator[Connection]:
        """Yield the connection. If the model is closed meanwhile, raise ChatError with this usage."""
        session = self._open_session()
        timeout = asyncio.timeout(None)
        session.timeouts.add(timeout)
        try:
            async with timeout:
                yield session.connection
        except (TimeoutError, RuntimeError):
            # A client closed right before it sends raises RuntimeError.
            if not (timeout.expired() or self._closed):
                raise
            raise self._make_closed_error(usage_if_closed) from None
        finally:
            session.timeouts.discard(timeout)

    def _make_closed_error(self, usage: Usage) -> ChatError:
        return ChatError(f"{self.name} was closed: open the model again, and repeat the call", usage=usage)

    def _open_session(self) -> _Session:
        """Return the session of the running event loop: connections cannot be shared between loops."""
        from epicrisis.models.chat.endpoints.connection import Connection

        if self._closed:
            raise self._make_closed_error(Usage())
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.loop is not loop:
            key = self._api_key()
            if not key and self._endpoint.kind == "bedrock":
                key = read_key(None, _BEDROCK_KEY)
            self._secrets = tuple(secret for secret in (key, *self._endpoint.secrets) if secret)
            connection = Connection(self._endpoint, key, self._timeout, self._concurrency)
            self._session = _Session(loop, connection)
        return self._session


def _find_answer(
    reply: CompletedReply, conforms: Callable[[str], bool] | None, on_delta: DeltaCallback | None
) -> CompletedReply:
    """Return the reply as `find_answer` does, and correct what was streamed of it."""
    corrected = find_answer(reply, conforms)
    if on_delta is not None and corrected.text != reply.text:
        if reply.text:
            on_delta(None)
        on_delta(corrected.text)
    return corrected


_SCHEMA_WORDS = re.compile(r"response_format|json_schema|json schema|guided|grammar|structured output", re.IGNORECASE)
_REJECTION_CODES = ("unsupported_parameter", "unsupported_value", "unknown_parameter", "extra_forbidden")
_REJECTION_WORDS = re.compile(
    r"unsupported|not support|extra_forbidden|n[o']t (?:be )?(?:permitted|allowed|accepted|available|enabled)"
    r"|not implemented|unknown|unrecogni[sz]ed|unexpected|not recogni[sz]ed|deprecated|cannot both|only the default",
    re.IGNORECASE,
)
_TOO_MANY = re.compile(r"greater than|less than|at most|max|must be|between|<=|too (?:many|large|high)", re.IGNORECASE)
_OPTIONAL = ("stream_options", "seed", "top_p", "temperature", "top_logprobs", "logprobs", "stream", "max_tokens")
"""Parameters that an endpoint may reject. If a message names several, the first of these is left out."""
_NOTES = {
    "response_format": "the endpoint accepts no JSON schema: the request was sent without one",
    "seed": "the endpoint accepts no seed: the same request may get another answer",
    "temperature": "the endpoint accepts no temperature: it used its own",
    "top_p": "the endpoint accepts no top_p: it used its own",
}
TOP_LOGPROBS = (20, 5)
"""How many token probabilities are requested; the next number if an endpoint finds that too many."""


def build_body(
    request: ChatRequest, model: str, extra: Mapping[str, Any], rejected: frozenset[str], *, stream: bool
) -> dict[str, Any]:
    """Build the JSON body of a call, without the `rejected` parameters (`top_logprobs:20` rejects that number only)."""
    limit = "max_completion_tokens" if "max_tokens" in rejected else "max_tokens"
    body: dict[str, Any] = {
        "model": model,
        "messages": build_messages(request.messages),
        limit: compute_max_reply_tokens(request),
    }
    if request.options:
        # Some endpoints report probabilities after temperature and top-p. At 1 these change nothing.
        body |= {"temperature": 1.0, "top_p": 1.0, "logprobs": True}
        count = next((count for count in TOP_LOGPROBS if f"top_logprobs:{count}" not in rejected), None)
        if count is not None:
            body["top_logprobs"] = count
    else:
        body |= {"temperature": request.temperature, "top_p": request.top_p, "seed": derive_seed(request)}
    if request.schema == ANY_OBJECT:
        body["response_format"] = {"type": "json_object"}
    elif request.schema is not None:
        schema = {"name": "reply", "strict": True, "schema": dict(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    for name in rejected:
        body.pop(name, None)
    if "stream" not in body:
        body.pop("stream_options", None)
    return body | dict(extra)


def find_rejected_parameter(response: failures.ErrorResponse, body: Mapping[str, Any]) -> str | None:
    """Return the optional parameter of `body` that the server rejects, or None if it rejects something else."""
    if response.status not in (400, 403, 422) or failures.is_overflow(response):
        return None
    message = response.message
    # OpenAI's error object has `param`, FastAPI's `loc`.
    detail = response.body.get("detail")
    path = detail[0].get("loc") if isinstance(detail, list) and detail and isinstance(detail[0], dict) else None
    name = path[-1] if isinstance(path, list) and path else response.body.get("param")
    parameter = name.partition(".")[0] if isinstance(name, str) and name else None
    names_logprobs = re.search("logprob", message, re.IGNORECASE) or (parameter or "").endswith("logprobs")
    if "logprobs" in body and names_logprobs:
        count = body.get("top_logprobs")
        too_many = count in TOP_LOGPROBS[:-1] and _TOO_MANY.search(message)
        return f"top_logprobs:{count}" if too_many else "logprobs"
    if response.status == 403:
        return None
    if "response_format" in body and (_SCHEMA_WORDS.search(message) or parameter == "response_format"):
        return "response_format"
    if response.body.get("code") not in _REJECTION_CODES and not _REJECTION_WORDS.search(message):
        return None
    optional = [name for name in _OPTIONAL if name in body]
    if parameter is not None:
        return parameter if parameter in optional else None
    return next((name for name in optional if _mentions_parameter(message, name)), None)


def _mentions_parameter(message: str, name: str) -> bool:
    """Return whether the message names a parameter. It may repeat the prompt, which may mention a temperature too."""
    marks = "[`'\"]"
    quoted = rf"(?:^|{marks}){name}(?:{marks}|:)"
    introduced = rf"\b(?:argument|parameter|field|option)s?\b[^.]{{0,30}}?\b{name}\b"
    return re.search(f"{quoted}|{introduced}", message) is not None


def derive_seed(request: ChatRequest) -> int:
    """Return the seed to send, 31 bits: the request's own for sample 0, another for each further sample."""
    if request.sample == 0:
        return request.seed & 0x7FFFFFFF
    digest = hashlib.sha256(f"{request.seed}/{request.sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF
