"""The layers around a chat model: the one place that knows their order.

From the outside in, each where it is because of its neighbours:

0. logging, where texts are wanted in the log: as 1;
1. recording: sees every call as the strategies do, replayed ones too;
2. cache: what is there costs no budget, no time and no turn; a reply is kept before anything can go wrong outside;
3. time: ends whatever waits below for a pause, a turn, a minute or a reply;
4. retry: pauses while nothing is held; every try queues, counts and is paid for anew;
5. concurrency: a call holds its turn while it waits for the minute, or calls let through would start all at once later;
6. rate: right before the call, as its window counts starts;
7. budget: reserves nothing for a call that is not about to be sent, so that a cancelled one in a queue costs nothing.
"""

from __future__ import annotations

from pathlib import Path

from epicrisis.models.chat.layers.bounded import ConcurrencyLimitedModel
from epicrisis.models.chat.layers.budget import Budget, BudgetedModel, TimedModel
from epicrisis.models.chat.layers.cache import ReplyCache
from epicrisis.models.chat.layers.cached import CachedModel
from epicrisis.models.chat.layers.limits import RateLimitedModel
from epicrisis.models.chat.layers.logged import LoggedModel
from epicrisis.models.chat.layers.recording import RecordingModel
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
    """The model in the layers its settings ask for. Roles that share a model must share what is returned here, or each
    would have turns and minutes of its own. `cache` is closed by whoever made it."""
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
