"""Options of an experiment for single questions, in place of those of the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from epicrisis.answering.paper_prompts import PaperPrompts
from epicrisis.answering.prompt_budget import cut_ranking
from epicrisis.answering.strategy_context import Context, RefiningOptions, SentenceSelection, VotingOptions
from epicrisis.core.prompts import TIME_ORDER_STATEMENT
from epicrisis.core.types import (
    CountUnit,
    Examples,
    ExtractionTarget,
    Preflight,
    Question,
    Ranking,
    RouteTarget,
    Scope,
    SentenceRanking,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunOverrides:
    """Options for one question. None leaves an option to the settings."""

    strategy: str | None = None
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
    prompt_tokens: int | None = None
    """Limit for all prompts of the question together. It needs `strategy` and `ranking`, whose end is cut off."""
    sentences: SentenceRanking | None = None
    """Sentences of the ranking, best first, in place of a selection."""
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
    streams: bool = True
    """Whether replies are read while they are written. False saves the work where nobody watches."""
    facts: bool | None = None
    """Whether answers are computed from structured entries."""
    whole: Ranking | None = None
    """The evidence for a second attempt, if `ranking` leaves out notes by time and gives no answer."""


NO_OVERRIDES = RunOverrides()


def apply_overrides(context: Context, overrides: RunOverrides) -> Context:
    """Return the context with these overrides."""
    ranking, sampling, about = overrides.ranking, context.sampling, overrides.about
    if overrides.temperature is not None:
        sampling = {role: replace(values, temperature=overrides.temperature) for role, values in sampling.items()}
    if overrides.top_p is not None:
        sampling = {role: replace(values, top_p=overrides.top_p) for role, values in sampling.items()}
    preflight = context.preflight if overrides.preflight else None
    if isinstance(overrides.preflight, Preflight):
        preflight = _return_value(overrides.preflight)
    if about is None:
        is_in_order = ranking is None or ranking.parameters.get("order") == "time"
        about = tuple(line for line in context.about if is_in_order or line != TIME_ORDER_STATEMENT)
    changed = replace(
        context,
        retrieve=context.retrieve if ranking is None else _return_value(ranking),
        record=context.record if ranking is None else _return_value(ranking),
        select_sentences=_override_selection(context, overrides),
        read_whole=context.read_whole if ranking is None else None,
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
        prompt_tokens=overrides.prompt_tokens or context.prompt_tokens,
        streams=overrides.streams and context.streams,
    )
    if overrides.prompt_tokens is None:
        return changed
    return replace(changed, retrieve=_cut_to_limit(changed, overrides, overrides.prompt_tokens))


def _cut_to_limit(context: Context, overrides: RunOverrides, limit: int) -> Callable[[Question], Awaitable[Ranking]]:
    """Return a search for the readable part of the ranking within the limit."""
    ranking, strategy = overrides.ranking, overrides.strategy
    if ranking is None or strategy is None:
        raise ValueError("a limit for the prompts needs a strategy and a ranking")

    async def cut(question: Question) -> Ranking:
        return await cut_ranking(question, context, ranking, strategy, limit)

    return cut


def without_narrowing(overrides: RunOverrides) -> RunOverrides:
    """Return the overrides for reading the whole record."""
    return overrides if overrides.whole is None else replace(overrides, ranking=overrides.whole, whole=None)


def _override_selection(context: Context, overrides: RunOverrides) -> SentenceSelection:
    """Return the selection of sentences from the given ones, or from the given ranking if there is one.

    A strategy with a part of the ranking gets sentences of it.
    """
    ranking, sentences = overrides.ranking, overrides.sentences

    async def select_from_ranking(question: Question, k: int, part: Ranking | None) -> SentenceRanking:
        return await context.select_sentences(question, k, part or ranking)

    async def take_sentences(_: Question, k: int, part: Ranking | None) -> SentenceRanking:
        assert sentences is not None
        ids = None if part is None else set(part.ids)
        hits = [hit for hit in sentences.hits if ids is None or hit.sentence.passage.id in ids]
        return replace(sentences, hits=tuple(replace(hit, rank=rank) for rank, hit in enumerate(hits[:k])))

    if sentences is not None:
        return take_sentences
    return context.select_sentences if ranking is None else select_from_ranking


def _return_value(value: T) -> Callable[[Question], Awaitable[T]]:
    async def give(_: Question) -> T:
        return value

    return give


# fmt: off
ANSWER_SETTINGS = {
    "encoder", "by", "strategy", "k", "partition", "rrf_k", "preflight", "long_questions", "rerank", "scope", "seed",
    "count", "votes", "examples", "refine", "fusion_times", "unit", "note_tokens", "order", "timeline", "extract",
    "unverified", "sentences", "citing", "check", "check_model", "unsupported", "defence", "describe_sources", "prefer",
    "prefer_mode", "neighbours", "focus_tokens", "adaptive_k", "rotations", "route", "map_confidence", "facts",
    "deidentify", "not_in_library", "other_names", "keep_first",
}
# fmt: on
