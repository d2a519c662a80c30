"""Options of an experiment for single questions, in place of those of the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from epicrisis.answering.paper_prompts import PaperPrompts
from epicrisis.answering.strategy_context import Context, RefiningOptions, SentenceSelection, VotingOptions
from epicrisis.prompts import TIME_ORDER_STATEMENT
from epicrisis.types import (
    CountUnit,
    Examples,
    ExtractionTarget,
    Preflight,
    Question,
    Ranking,
    RouteTarget,
    Scope,
    SentenceRanking,
    StrategyName,
)

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
    top_p: float | None = None
    """For all roles."""
    paper_prompts: PaperPrompts | None = None
    """The prompts of a paper, in place of ours."""
    scope: Scope | None = None
    """The scope of the question."""
    rotations: int | None = None
    route: RouteTarget | None = None
    map_confidence: bool | None = None
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
    ranking, sampling, about = overrides.ranking, context.sampling, overrides.about
    if overrides.temperature is not None:
        sampling = {role: replace(each, temperature=overrides.temperature) for role, each in sampling.items()}
    if overrides.top_p is not None:
        sampling = {role: replace(each, top_p=overrides.top_p) for role, each in sampling.items()}
    preflight = context.preflight if overrides.preflight else None
    if isinstance(overrides.preflight, Preflight):
        preflight = _return_value(overrides.preflight)
    if about is None:
        is_in_order = ranking is None or ranking.parameters.get("order") == "time"
        about = tuple(line for line in context.about if is_in_order or line != TIME_ORDER_STATEMENT)
    return replace(
        context,
        retrieve=context.retrieve if ranking is None else _return_value(ranking),
        record=context.record if ranking is None else _return_value(ranking),
        select_sentences=context.select_sentences if ranking is None else _select_from(context, ranking),
        preflight=preflight,
        partition=overrides.partition or context.partition,
        count=overrides.count or context.count,
        seed=context.seed if overrides.seed is None else overrides.seed,
        sampling=sampling,
        paper_prompts=overrides.paper_prompts or context.paper_prompts,
        rotations=overrides.rotations or context.rotations,
        route=overrides.route or context.route,
        map_confidence=context.map_confidence if overrides.map_confidence is None else overrides.map_confidence,
        voting=overrides.voting or context.voting,
        refining=overrides.refining or context.refining,
        examples=context.examples if overrides.examples is None else _return_value(overrides.examples),
        extract=overrides.extract or context.extract,
        about=about,
    )


def without_narrowing(overrides: RunOverrides) -> RunOverrides:
    """Return the overrides for reading the whole record."""
    return overrides if overrides.whole is None else replace(overrides, ranking=overrides.whole, whole=None)


def _select_from(context: Context, ranking: Ranking) -> SentenceSelection:
    """Return the selection of sentences from this ranking, if a strategy names no part of it."""

    async def select_sentences(question: Question, k: int, part: Ranking | None) -> SentenceRanking:
        return await context.select_sentences(question, k, part or ranking)

    return select_sentences


def _return_value(value: T) -> Callable[[Question], Awaitable[T]]:
    async def give(_: Question) -> T:
        return value

    return give
