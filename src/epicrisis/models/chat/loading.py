"""Builds the chat model that a user names with `--model`, and the layers around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from epicrisis.core.answers import Usage
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.extensions import make_extension
from epicrisis.core.protocols import ChatModel, ChatReply, ChatRequest, DeltaCallback
from epicrisis.models.catalogue import load_catalogue
from epicrisis.models.chat import layers
from epicrisis.models.chat.cache import CachedModel, ReplyCache
from epicrisis.models.chat.endpoint_pool import EndpointPool, PooledCallsModel
from epicrisis.models.chat.layers import Layer, RetryingModel
from epicrisis.models.chat.prices import build_cost_function, compute_cost
from epicrisis.models.model_files import find_model
from epicrisis.settings.model_services import find_service
from epicrisis.settings.settings import ROLES, ModelSettings, Settings
from epicrisis.system.logs import FINISH_REASONS, safe_name
from epicrisis.system.telemetry import is_recording, span

if TYPE_CHECKING:
    from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel


def load_chat(settings: ModelSettings, home: Path, threads: int | None = None) -> ChatModel:
    """Return the chat model of these settings. Nothing is contacted, and no weights are loaded.

    A name with `://` is an endpoint, as `parse_endpoint` reads it, or a pool of them; a key is read when its client is
    created. Any other name is a model of the catalogue or a `.gguf` file, which runs in this process without a timeout,
    or a model of an installed package.
    Raise ModelMissing, or SettingsError if the key's file cannot be read, both with a remedy.
    """
    if len(settings.endpoints) > 1:
        members = [_load_endpoint(member, home) for member in settings.endpoints]
        return EndpointPool(members, settings.concurrency, settings.retry_seconds)
    if settings.is_endpoint:
        return _load_endpoint(settings, home)
    if settings.name not in load_catalogue() and (extension := make_extension("chat model", settings.name, settings)):
        return extension  # type: ignore[no-any-return]
    from epicrisis.models.chat.embedded import EmbeddedModel

    files = find_model(settings.name, "chat", home)
    name = next(name for name in files.files if name.endswith(".gguf"))
    return EmbeddedModel(
        files.files[name], files.name, settings.context_tokens, threads, weights_sha256=files.sha256.get(name)
    )


def _load_endpoint(settings: ModelSettings, home: Path) -> OpenAICompatibleModel:
    from epicrisis.models.chat.endpoints.endpoint import choose_key_variable, read_key, require_key
    from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel

    service = find_service(settings.name)
    # A key that cannot be read is an error now, and a missing one at the first call: a replay needs none.
    read_key(settings.api_key_file, choose_key_variable(settings))
    json_schema = settings.json_schema
    if json_schema is None and service is not None:
        json_schema = service.accepts_schema
    return OpenAICompatibleModel(
        settings.name,
        api_key=partial(require_key, settings),
        timeout_seconds=settings.timeout_seconds,
        context_tokens=settings.context_tokens,
        concurrency=settings.concurrency,
        json_schema=json_schema,
        option_logprobs=settings.option_logprobs,
        price=None if settings.price is None else partial(compute_cost, price=settings.price),
        extra=settings.extra,
        home=home,
    )


def add_layers(
    model: ChatModel,
    settings: ModelSettings,
    *,
    cache: ReplyCache | None = None,
    budget: layers.Budget | None = None,
    record: Path | None = None,
    log_text: bool = False,
) -> ChatModel:
    """Return the model in the layers its settings ask for.

    From the outside in, each with the reason for its place:

    0. logging, if texts are wanted in the log: as 1;
    1. recording: sees every call as the strategies do, replayed ones too;
    2. cache: a cached reply costs no budget, time or place; a reply is stored before anything outside can fail;
    3. time: cancels every wait below for a pause, a place, the rate or a reply;
    4. retry: pauses while nothing is held; every try queues, counts and is paid for again;
    5. concurrency: a call holds its place while it waits for the rate, or admitted calls would all start at once later.
       Of several endpoints, this layer assigns one to the call;
    6. rate: right before the call, since its window counts starts;
    7. budget: reserves only for a call about to be sent, so a call cancelled in a queue costs nothing;
    8. tracing: measures each try, without the waits above.

    Roles that use the same model must share the returned object, and with it one concurrency and rate limit. The
    caller closes `cache`.
    """
    return add_records(add_limits(model, settings, budget), cache, record, log_text=log_text)


def add_limits(model: ChatModel, settings: ModelSettings, budget: layers.Budget | None = None) -> ChatModel:
    """Return the model in layers 3 to 8 of `add_layers`, which all users of the model must share."""
    pool = model if isinstance(model, EndpointPool) else None
    model = TracedModel(model, settings)
    if budget is not None and (budget.settings.tokens, budget.settings.usd) != (None, None):
        model = layers.BudgetedModel(model, budget, build_cost_function(settings))
    if (settings.requests_per_minute, settings.tokens_per_minute) != (None, None):
        model = layers.RateLimitedModel(model, settings.requests_per_minute, settings.tokens_per_minute)
    if pool is None:
        model = layers.ConcurrencyLimitedModel(model, settings.concurrency)
    else:
        model = PooledCallsModel(model, pool)
    model = RetryingModel(model, settings.tries, settings.retry_seconds)
    if budget is not None and budget.settings.minutes is not None:
        model = layers.TimedModel(model, budget)
    return model


def add_records(model: ChatModel, cache: ReplyCache | None, record: Path | None, *, log_text: bool) -> ChatModel:
    """Return the model in layers 0 to 2 of `add_layers`, which belong to one library."""
    if cache is not None:
        model = CachedModel(model, cache)
    if record is not None:
        model = layers.RecordingModel(model, record)
    return layers.LoggedModel(model) if log_text else model


@asynccontextmanager
async def ask_ahead(settings: Settings, models: Mapping[str, ChatModel]) -> AsyncIterator[None]:
    """Ask the endpoints among the models of these roles for their capabilities while the body runs.

    Embedded models would load their weights. A failure is left to the call that needs the capabilities.
    """

    async def ask(model: ChatModel) -> None:
        with suppress(EpicrisisError):
            await model.capabilities()

    endpoints = {models[role] for role in ROLES if role in models and settings.model_for(role).is_endpoint}
    tasks = [asyncio.create_task(ask(model)) for model in endpoints]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


_PROVIDERS = {"azure": "azure.ai.openai", "bedrock": "aws.bedrock", "openai": "openai"}
_IN_PROCESS = "llama.cpp"


class TracedModel(Layer):
    """Measures each completion as a span: every try, without the wait for a place."""

    def __init__(self, inner: ChatModel, settings: ModelSettings) -> None:
        super().__init__(inner)
        self._settings = settings
        self._target: dict[str, str] | None = None

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        if not is_recording():
            return await self._inner.complete(request, on_delta)
        target = self._describe_target()
        attributes: dict[str, str | int | float | bool] = {
            **target,
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.temperature": request.temperature,
            "gen_ai.request.top_p": request.top_p,
            "gen_ai.request.seed": request.seed,
            "gen_ai.request.stream": on_delta is not None,
            "gen_ai.output.type": "text" if request.schema is None else "json",
        }
        with span(f"chat {target['gen_ai.request.model']}", attributes, kind="CLIENT") as step:
            try:
                reply = await self._inner.complete(request, on_delta)
            except EpicrisisError as error:
                step.set(_describe_usage(error.usage))
                raise
            reason = reply.finish_reason if reply.finish_reason in FINISH_REASONS else "other"
            step.set({"gen_ai.response.finish_reasons": [reason], **_describe_usage(reply.usage)})
        return reply

    def _describe_target(self) -> dict[str, str]:
        """Return operation, provider and model of the calls."""
        if self._target is None:
            provider = _IN_PROCESS
            if self._settings.is_endpoint:
                from epicrisis.models.chat.endpoints.endpoint import parse_endpoint

                # Those of a pool serve one model. The client of each adds its address to the span.
                provider = _PROVIDERS[parse_endpoint(self._settings.endpoints[0].name).kind]
            self._target = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider,
                "gen_ai.request.model": safe_name(self.name.partition(" at ")[0]),
            }
        return self._target


def _describe_usage(usage: Usage) -> dict[str, int]:
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
