"""Options of an experiment for single questions, in place of those of the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from epicrisis.answering.strategy_context import Context, RefiningOptions, VotingOptions
from epicrisis.retrieval.record_context import TIME_ORDER_STATEMENT
from epicrisis.types import CountUnit, Examples, ExtractionTarget, Preflight, Question, Ranking, Scope, StrategyName

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunOverrides:
    """Options for one question. None leaves an option to the settings."""

    strategy: StrategyName | None = None
    ranking: Ranking | None = None
    """The evidence to read, in place of a search or the record."""
    preflight: bool | Preflight = True
    """False: no check. A verdict is used in place of a check."""
    partition: int | None = None
    count: CountUnit | None = None
    """The unit of a partition."""
    seed: int | None = None
    temperature: float | None = None
    """For all roles."""
    scope: Scope | None = None
    """The scope of the question."""
    voting: VotingOptions | None = None
    refining: RefiningOptions | None = None
    examples: Examples | None = None
    """Solved questions for the prompt, in place of a search."""
    extract: ExtractionTarget | None = None
    about: tuple[str, ...] | None = None
    """Lines before the documents; see `Context.about`."""
    whole: Ranking | None = None
    """The evidence for a second attempt, if `ranking` leaves out notes by time and gives no answer."""


NO_OVERRIDES = RunOverrides()


def apply_overrides(context: Context, overrides: RunOverrides) -> Context:
    """Return the context with these overrides."""
    sampling = context.sampling
    if overrides.temperature is not None:
        sampling = {role: replace(each, temperature=overrides.temperature) for role, each in sampling.items()}
    return replace(
        context,
        retrieve=context.retrieve if overrides.ranking is None else _return_value(overrides.ranking),
        record=context.record if overrides.ranking is None else _return_value(overrides.ranking),
        preflight=_preflight(context, overrides.preflight),
        partition=overrides.partition or context.partition,
        count=overrides.count or context.count,
        seed=context.seed if overrides.seed is None else overrides.seed,
        sampling=sampling,
        voting=overrides.voting or context.voting,
        refining=overrides.refining or context.refining,
        examples=context.examples if overrides.examples is None else _return_value(overrides.examples),
        extract=overrides.extract or context.extract,
        about=_about(context, overrides) if overrides.about is None else overrides.about,
    )


def _about(context: Context, overrides: RunOverrides) -> tuple[str, ...]:
    """Return the lines before the documents, without the one about chronological order if that is not known."""
    if overrides.ranking is None or overrides.ranking.parameters.get("order") == "time":
        return context.about
    return tuple(line for line in context.about if line != TIME_ORDER_STATEMENT)


def _preflight(context: Context, preflight: bool | Preflight) -> Callable[[Question], Awaitable[Preflight]] | None:
    if isinstance(preflight, Preflight):
        return _return_value(preflight)
    return context.preflight if preflight else None


def _return_value(value: T) -> Callable[[Question], Awaitable[T]]:
    async def give(_: Question) -> T:
        return value

    return give
