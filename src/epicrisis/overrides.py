"""What an experiment would have otherwise than the settings say, for one question. Opens nothing and calls no model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from epicrisis.answering.strategy_context import Context, RefiningOptions
from epicrisis.answering.structured_request import Sampling
from epicrisis.answering.voting import VotingOptions
from epicrisis.retrieval.record_context import IN_TIME
from epicrisis.types import CountUnit, Examples, ExtractionTarget, Preflight, Question, Ranking, Scope, StrategyName

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunOverrides:
    """How one question is answered where an experiment wants it otherwise than the settings say; `None`: as they say.

    `temperature` holds for every role.
    """

    strategy: StrategyName | None = None
    ranking: Ranking | None = None
    """Read as it is by whatever would search, or read the record; nothing is searched then."""
    preflight: bool | Preflight = True
    """False: none, whatever the settings say; a verdict: that one, nothing is looked at."""
    partition: int | None = None
    count: CountUnit | None = None
    """What a part counts."""
    seed: int | None = None
    temperature: float | None = None
    scope: Scope | None = None
    """What the question may see."""
    voting: VotingOptions | None = None
    refining: RefiningOptions | None = None
    examples: Examples | None = None
    """Shown as they are; nothing is looked for then."""
    extract: ExtractionTarget | None = None
    about: tuple[str, ...] | None = None
    """Stands before the documents; see `Context.about`."""
    whole: Ranking | None = None
    """Read in a second asking where `ranking` leaves notes out by time and does not answer."""


NO_OVERRIDES = RunOverrides()


def apply_overrides(context: Context, treatment: RunOverrides) -> Context:
    """The context with what the treatment says in place of what the settings say."""
    return replace(
        context,
        retrieve=context.retrieve if treatment.ranking is None else _giving(treatment.ranking),
        record=context.record if treatment.ranking is None else _giving(treatment.ranking),
        preflight=_preflight(context, treatment.preflight),
        partition=treatment.partition or context.partition,
        count=treatment.count or context.count,
        seed=context.seed if treatment.seed is None else treatment.seed,
        sampling={role: _drawn(sampling, treatment.temperature) for role, sampling in context.sampling.items()},
        voting=treatment.voting or context.voting,
        refining=treatment.refining or context.refining,
        examples=context.examples if treatment.examples is None else _giving(treatment.examples),
        extract=treatment.extract or context.extract,
        about=_about(context, treatment) if treatment.about is None else treatment.about,
    )


def _about(context: Context, treatment: RunOverrides) -> tuple[str, ...]:
    """No word of time where what is read is in another order, or in one that nobody tells."""
    if treatment.ranking is None or treatment.ranking.parameters.get("order") == "time":
        return context.about
    return tuple(said for said in context.about if said != IN_TIME)


def _preflight(context: Context, wanted: bool | Preflight) -> Callable[[Question], Awaitable[Preflight]] | None:
    if isinstance(wanted, Preflight):
        return _giving(wanted)
    return context.preflight if wanted else None


def _drawn(sampling: Sampling, temperature: float | None) -> Sampling:
    return sampling if temperature is None else replace(sampling, temperature=temperature)


def _giving(value: T) -> Callable[[Question], Awaitable[T]]:
    async def give(_: Question) -> T:
        return value

    return give
