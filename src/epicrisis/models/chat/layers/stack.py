"""The layers around a chat model, and their order.

From the outside in, each with the reason for its place:

0. logging, if texts are wanted in the log: as 1;
1. recording: sees every call as the strategies do, replayed ones too;
2. cache: a cached reply costs no budget, time or place; a reply is stored before anything outside can fail;
3. time: cancels every wait below for a pause, a place, the rate or a reply;
4. retry: pauses while nothing is held; every try queues, counts and is paid for again;
5. concurrency: a call holds its place while it waits for the rate, or admitted calls would all start at once later;
6. rate: right before the call, since its window counts starts;
7. budget: reserves only for a call about to be sent, so a call cancelled in a queue costs nothing.
"""

from __future__ import annotations

from pathlib import Path

from epicrisis.models.chat.layers.budget import Budget, BudgetedModel, TimedModel
from epicrisis.models.chat.layers.cache import CachedModel, ReplyCache
from epicrisis.models.chat.layers.limits import ConcurrencyLimitedModel, RateLimitedModel
from epicrisis.models.chat.layers.recording import LoggedModel, RecordingModel
from epicrisis.models.chat.layers.retry import RetryingModel
from epicrisis.models.chat.prices import build_cost_function
from epicrisis.protocols import ChatModel
from epicrisis.settings import ModelSettings


def add_layers(
    model: ChatModel,
    settings: ModelSettings,
    *,
    cache: ReplyCache | None = None,
    budget: Budget | None = None,
    record: Path | None = None,
    log_text: bool = False,
) -> ChatModel:
    """Return the model in the layers its settings ask for.

    Roles that use the same model must share the returned object, and with it one concurrency and rate limit. The
    caller closes `cache`.
    """
    if budget is not None and (budget.settings.tokens, budget.settings.usd) != (None, None):
        model = BudgetedModel(model, budget, build_cost_function(settings))
    if (settings.requests_per_minute, settings.tokens_per_minute) != (None, None):
        model = RateLimitedModel(model, settings.requests_per_minute, settings.tokens_per_minute)
    model = ConcurrencyLimitedModel(model, settings.concurrency)
    model = RetryingModel(model, settings.tries, settings.retry_seconds)
    if budget is not None and budget.settings.minutes is not None:
        model = TimedModel(model, budget)
    if cache is not None:
        model = CachedModel(model, cache)
    if record is not None:
        model = RecordingModel(model, record)
    return LoggedModel(model) if log_text else model
