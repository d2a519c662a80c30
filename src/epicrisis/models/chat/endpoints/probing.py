"""Questions to an endpoint about itself (its models, its window, the tokens of a text), and the usage of its calls.

OpenAI defines a path for the list of models only; llama.cpp and vLLM have others. A path that the endpoint refuses does
not exist there. A failure that may pass raises, until it has happened too often in a row.

What an earlier process learned is used without asking until `forget`: after the endpoint contradicts it, or when a
prompt comes near the window, the endpoint is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, Field, ValidationError

from epicrisis.core import errors
from epicrisis.core.answers import Usage
from epicrisis.core.protocols import ChatRequest, Message
from epicrisis.models.chat import call_costs
from epicrisis.models.chat.endpoints.memory import CountingMethod, EndpointFacts, EndpointMemory
from epicrisis.models.chat.endpoints.reply import CleanText, CompletedReply

T = TypeVar("T", bound=BaseModel)
Fetch: TypeAlias = Callable[[str, Mapping[str, Any] | None], Awaitable[object]]
"""Returns the JSON at a path: by POST if there is a body, else by GET. Raises ChatError."""
PATIENCE = 5
"""A path that fails so often in a row, in ways that may pass, is treated as missing."""
_OLLAMA_OWNER = "library"
"""The owner of Ollama's models in its list."""
_TRANSIENT = (errors.EndpointBusy, errors.EndpointTimeout, errors.EndpointUnreachable)


class _ModelFacts(BaseModel):
    n_ctx: int | None = None
    n_params: int | None = None
    size: int | None = None


class _ListedModel(BaseModel):
    """An entry of `/v1/models`; `max_model_len` is vLLM's, `meta` llama.cpp's."""

    id: CleanText
    max_model_len: int | None = None
    owned_by: str | None = None
    meta: _ModelFacts | None = None


class _ModelList(BaseModel):
    data: list[_ListedModel] = Field(default_factory=list)


class _OllamaModel(BaseModel):
    """A loaded model. Older versions have no `context_length`."""

    name: str = ""
    model: str = ""
    context_length: int | None = None


class _OllamaModels(BaseModel):
    """The reply of Ollama's `/api/ps`: the models that are loaded now."""

    models: list[_OllamaModel]


class _LlamaProperties(BaseModel):
    """The reply of llama.cpp's `/props`; the window is that of one slot."""

    default_generation_settings: _ModelFacts


class _LlamaTemplate(BaseModel):
    prompt: str


class _LlamaTokens(BaseModel):
    tokens: list[int]


class _VllmCount(BaseModel):
    count: int


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The answer of an endpoint about its model. None: it does not say."""

    is_listed: bool | None = None
    """Whether its list of models has the name."""
    window: int | None = None
    """The context window in tokens."""
    parameters: int | None = None
    """The number of weights, as llama.cpp reports it."""
    size: int | None = None
    """The bytes of the file, as llama.cpp reports them."""


def read_served_model(listing: object, model: str) -> ServedModel:
    """Read what an endpoint serves from its list of models. A list in another form says nothing."""
    try:
        entries = _ModelList.model_validate(listing).data
    except ValidationError:
        return ServedModel()
    entry = next((entry for entry in entries if entry.id == model), None)
    facts = (entry or entries[0]).meta if entries else None
    window = None if entry is None else entry.max_model_len
    return ServedModel(
        is_listed=entry is not None if entries else None,
        window=window or (facts.n_ctx if facts else None),
        parameters=facts.n_params if facts else None,
        size=facts.size if facts else None,
    )


class EndpointProbe:
    """Asks an endpoint about itself, each question once, and remembers the answers.

    Concurrent callers wait under the `lock` of the question, which belongs to the running loop, while one of them asks.
    `context_tokens` is the window if the endpoint does not report one, and an upper limit if it does. With a `memory`,
    window and counting method are stored for later processes. They are those of the one model that all calls name.
    Ollama reports a window only while the model is loaded, so it is asked again after a reply.
    """

    def __init__(
        self,
        root: str,
        fetch: Fetch,
        lock: Callable[[str], asyncio.Lock],
        context_tokens: int | None,
        memory: EndpointMemory | None = None,
        *,
        may_be_ollama: bool = False,
    ) -> None:
        self._root = root
        self._may_be_ollama = may_be_ollama
        self._fetch = fetch
        self._lock = lock
        self._limit = context_tokens
        self._memory = memory
        self._remembered: EndpointFacts | None = None
        """Facts of an earlier process, until the endpoint is asked."""
        self._has_recalled = memory is None
        self._failures: dict[str, int] = {}
        self._is_ollama = False
        self._models: _ModelList | None = None
        self._reported_window: tuple[int | None] | None = None
        """A tuple once the endpoint was asked; None within it if the endpoint does not report a window."""
        self._counter: CountingMethod | None = None

    async def get_first_model(self) -> str | None:
        """Return the first model the endpoint lists. Raise ChatError if the list cannot be fetched."""
        async with self._lock("models"):
            if self._models is None or not self._models.data:
                try:
                    self._models = _ModelList.model_validate(await self._fetch("/models", None))
                except (errors.ReplyInvalid, ValidationError):
                    return None
        return self._models.data[0].id if self._models.data else None

    async def ask_all(self, model: str) -> tuple[int | None, CountingMethod]:
        """Return the window and the counting method, asked for at the same time. Raise ChatError."""
        if self._reported_window is not None and self._counter is not None:
            return self._limit_window(self._reported_window[0]), self._counter
        window, counter = await asyncio.gather(self.get_window(model), self.get_counter(model), return_exceptions=True)
        if isinstance(window, BaseException):
            raise window
        if isinstance(counter, BaseException):
            raise counter
        return window, counter

    async def get_window(self, model: str) -> int | None:
        """Return the context window in tokens, or None if it is unknown."""
        if (remembered := self._recall(model)) is not None:
            return self._limit_window(remembered.window)
        async with self._lock("window"):
            if self._reported_window is None:
                window = None
                properties = await self._ask(f"{self._root}/props", _LlamaProperties)
                if properties is not None:
                    window = properties.default_generation_settings.n_ctx
                if not window:
                    listing = self._models or await self._ask("/models", _ModelList)
                    entry = next((entry for entry in listing.data if entry.id == model), None) if listing else None
                    if entry is not None:
                        window = entry.max_model_len or (entry.meta.n_ctx if entry.meta else None)
                        self._may_be_ollama = self._may_be_ollama or entry.owned_by == _OLLAMA_OWNER
                if not window and self._may_be_ollama:
                    window = await self._ask_ollama(model)
                self._reported_window = (window if window and window > 0 else None,)
                self._store(model)
        return self._limit_window(self._reported_window[0])

    async def confirm_window(self, model: str) -> int | None:
        """Return the window after a reply. Ollama, which has now loaded the model, is asked once more for it."""
        if self._is_ollama and self._reported_window == (None,):
            window = await self._ask_ollama(model)
            self._reported_window = (window if window and window > 0 else None,)
            self._is_ollama = bool(window)
        return self._limit_window(self._reported_window[0] if self._reported_window else None)

    async def _ask_ollama(self, model: str) -> int | None:
        loaded = await self._ask(f"{self._root}/api/ps", _OllamaModels)
        self._is_ollama = self._may_be_ollama = loaded is not None
        names = (model, f"{model}:latest")
        entries = loaded.models if loaded else []
        entry = next((entry for entry in entries if entry.name in names or entry.model in names), None)
        return entry.context_length if entry else None

    async def get_counter(self, model: str) -> CountingMethod:
        """Return how the tokens of this model are counted."""
        if (remembered := self._recall(model)) is not None:
            return remembered.counter
        if self._counter is None:
            async with self._lock("counter"):
                letter = [Message("user", "a")]
                if self._counter is None and await self._count_with_llama_cpp(letter) is not None:
                    self._counter = "llama.cpp"
                if self._counter is None:
                    has_vllm = await self._count_with_vllm(model, letter) is not None
                    self._counter = "vllm" if has_vllm else "estimate"
                    self._store(model)
        return self._counter

    def forget(self, model: str) -> None:
        """Forget the results of an earlier process. The endpoint is asked at the next need."""
        if self._recall(model) is not None and self._memory is not None:
            self._remembered = None
            self._memory.forget(model)

    def _recall(self, model: str) -> EndpointFacts | None:
        """Return the facts of an earlier process, unless this one has asked the endpoint."""
        if not self._has_recalled and self._memory is not None:
            self._has_recalled = True
            self._remembered = self._memory.recall(model)
        return self._remembered

    def _store(self, model: str) -> None:
        """Store the facts once all are known. A path that failed too often may exist later."""
        if self._memory is None or self._reported_window is None or self._counter is None or self._failures:
            return
        if self._is_ollama:
            # The next load of the model may have another window.
            return
        self._memory.store(model, EndpointFacts(window=self._reported_window[0], counter=self._counter))

    def _limit_window(self, window: int | None) -> int | None:
        return min((tokens for tokens in (self._limit, window) if tokens), default=None)

    async def count(self, model: str, messages: Sequence[Message]) -> tuple[int, bool]:
        """Return the prompt tokens of the messages, template included, and whether the number is exact."""
        count, method = None, await self.get_counter(model)
        if method == "llama.cpp":
            count = await self._count_with_llama_cpp(messages)
        elif method == "vllm":
            count = await self._count_with_vllm(model, messages)
        return (call_costs.estimate_prompt_tokens(messages), False) if count is None else (count, True)

    async def count_text(self, model: str, text: str) -> int | None:
        """Return the tokens of a text without a template, or None if the endpoint does not count them."""
        if not text:
            return 0
        path, method = f"{self._root}/tokenize", await self.get_counter(model)
        if method == "llama.cpp":
            tokens = await self._ask(path, _LlamaTokens, {"content": text})
            return None if tokens is None else len(tokens.tokens)
        if method == "vllm":
            body = {"model": model, "prompt": text, "add_special_tokens": False}
            reply = await self._ask(path, _VllmCount, body)
            return None if reply is None else reply.count
        return None

    async def _count_with_llama_cpp(self, messages: Sequence[Message]) -> int | None:
        body: dict[str, Any] = {"messages": build_messages(messages)}
        template = await self._ask(f"{self._root}/apply-template", _LlamaTemplate, body)
        if template is None:
            return None
        body = {"content": template.prompt, "add_special": True, "parse_special": True}
        tokens = await self._ask(f"{self._root}/tokenize", _LlamaTokens, body)
        return None if tokens is None else len(tokens.tokens)

    async def _count_with_vllm(self, model: str, messages: Sequence[Message]) -> int | None:
        body = {"model": model, "messages": build_messages(messages), "add_generation_prompt": True}
        reply = await self._ask(f"{self._root}/tokenize", _VllmCount, body)
        return None if reply is None else reply.count

    async def _ask(self, path: str, shape: type[T], body: Mapping[str, Any] | None = None) -> T | None:
        """Return the endpoint's answer, or None if it refuses the path or answers in another shape."""
        try:
            answer = shape.model_validate(await self._fetch(path, body))
        except _TRANSIENT:
            self._failures[path] = self._failures.get(path, 0) + 1
            if self._failures[path] < PATIENCE:
                raise
            return None
        except (errors.EndpointRejected, errors.ContextOverflow, errors.ReplyInvalid, ValidationError):
            answer = None
        self._failures.pop(path, None)
        return answer


_MAX_TEMPLATE_TOKENS = 10_000
"""More tokens than any chat template, or the endpoint's own prompt, adds to the request."""
_MAX_BYTES_PER_TOKEN = 12
_LEAST_SHARE = 0.9
"""An endpoint that read less than this share of the expected tokens cut the prompt."""
_LEAST_COMPARED = 500
"""The fewest expected tokens that are compared: every window in use holds a shorter prompt."""


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """Tokens of one call. `cached` is part of the prompt, `reasoning` of the completion, None if not reported."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int | None = None


def build_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Build the JSON of the messages."""
    return [{"role": message.role, "content": message.content} for message in messages]


async def measure_usage(
    reply: CompletedReply,
    request: ChatRequest,
    model: str,
    probe: EndpointProbe,
    compute_cost: Callable[[Usage], float | None],
) -> Usage:
    """Return the usage of one completed call. A failed count never loses the reply.

    Estimates are upper bounds without a cost and count in `uncounted_calls`. Thinking without a reported number of
    tokens is counted by the tokenizer, if there is one. For an invalid reply only the endpoint's report counts.
    """
    reported = read_reported_usage(reply.usage, request, bool(reply.text or reply.thinking))
    if reported is None and reply.flaw:
        return Usage(calls=1, uncounted_calls=1, cost=None)
    exact = True
    if reported is None:
        try:
            prompt, prompt_exact = await probe.count(model, request.messages)
        except errors.ChatError:
            prompt, prompt_exact = call_costs.estimate_prompt_tokens(request.messages), False
        thinking, thinking_exact = await _count_text(reply.thinking, model, probe)
        text, text_exact = (1, True) if request.options else await _count_text(reply.text, model, probe)
        reported = ReportedUsage(prompt, thinking + text, reasoning=thinking)
        exact = prompt_exact and thinking_exact and text_exact
    elif reported.reasoning is None:
        thinking, _ = await _count_text(reply.thinking, model, probe)
        reported = replace(reported, reasoning=min(thinking, reported.completion))
    usage = Usage(
        calls=1,
        uncounted_calls=int(not exact),
        prompt_tokens=reported.prompt,
        cached_tokens=reported.cached,
        completion_tokens=reported.completion,
        reasoning_tokens=reported.reasoning or 0,
    )
    return replace(usage, cost=compute_cost(usage) if exact else None)


async def _count_text(text: str, model: str, probe: EndpointProbe) -> tuple[int, bool]:
    """Return the tokens of a text, and whether they are exact."""
    try:
        count = await probe.count_text(model, text)
    except errors.ChatError:
        count = None
    return (call_costs.estimate_tokens(text), False) if count is None else (count, True)


def read_reported_usage(raw: object, request: ChatRequest, has_text: bool) -> ReportedUsage | None:
    """Return the usage that the endpoint reports, or None if it is missing or impossible for this request.

    Some endpoints (xAI, Google) count thinking in the total only; it is added to the completion.
    """
    if not isinstance(raw, Mapping):
        return None
    reported_reasoning = _read_detail(raw, "completion_tokens_details", "reasoning_tokens")
    prompt, completion = _read_count(raw.get("prompt_tokens")), _read_count(raw.get("completion_tokens"))
    cached = _read_count(_read_detail(raw, "prompt_tokens_details", "cached_tokens"))
    reasoning, total = _read_count(reported_reasoning), _read_count(raw.get("total_tokens"))
    if prompt is None or completion is None or cached is None or reasoning is None:
        return None
    extra = max(0, (total or 0) - prompt - completion)
    completion, reasoning = completion + extra, max(reasoning, extra)
    max_completion = 2 * call_costs.compute_max_reply_tokens(request) + 1000
    if not 0 < prompt <= call_costs.compute_max_prompt_tokens(request) + _MAX_TEMPLATE_TOKENS or cached > prompt:
        return None
    if completion > max_completion or reasoning > completion or (has_text and completion == 0):
        return None
    is_reported = reported_reasoning is not None or extra > 0
    return ReportedUsage(prompt, completion, cached, reasoning if is_reported else None)


def describe_truncation(request: ChatRequest, prompt_tokens: int, window: int | None) -> str | None:
    """Return a note if the endpoint read too few tokens for this prompt: some servers cut what exceeds their window."""
    size = sum(call_costs.count_bytes(message.content) for message in request.messages)
    expected = sum(call_costs.estimate_least_tokens(message.content) for message in request.messages)
    is_short = expected >= _LEAST_COMPARED and prompt_tokens < _LEAST_SHARE * expected
    if not is_short and size <= _MAX_BYTES_PER_TOKEN * (prompt_tokens + 20):
        return None
    window_words = f"window of {window:,} tokens" if window else "window"
    return (
        f"the endpoint read {prompt_tokens:,} tokens of this prompt of about {max(expected, size / 4):,.0f}: its "
        f"{window_words} cut it. Give it a larger one (Ollama: num_ctx or OLLAMA_CONTEXT_LENGTH), or set "
        "context_tokens to the one it has"
    )


def _read_detail(raw: Mapping[str, object], table: str, key: str) -> object:
    details = raw.get(table)
    return details.get(key) if isinstance(details, Mapping) else None


def _read_count(value: object) -> int | None:
    """Return a count: 0 for a missing value, None for an invalid one."""
    if value is None:
        return 0
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
