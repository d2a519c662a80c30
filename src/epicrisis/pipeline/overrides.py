"""Options of an experiment for single questions, in place of those of the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from epicrisis.answering.paper_prompts import PaperPrompts
from epicrisis.answering.prompt_budget import cut_ranking
from epicrisis.answering.strategy_context import Context, SentenceSelection
from epicrisis.core.prompts import TIME_ORDER_STATEMENT
from epicrisis.core.types import (
    Examples,
    Preflight,
    Question,
    Ranking,
    Scope,
    SentenceRanking,
)
from epicrisis.settings.settings import AnswerOptions

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOverrides:
    """What one question gets in place of the settings and of a search. None leaves it to them."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `AnswerOptions` with other values: `{"strategy": "rag", "rotations": 4}`. None is no value."""
    ranking: Ranking | None = None
    """The evidence to read, in place of a search or the record."""
    whole: Ranking | None = None
    """The evidence for a second attempt, if `ranking` leaves out notes by time and gives no answer."""
    sentences: SentenceRanking | None = None
    """Sentences of the ranking, best first, in place of a selection."""
    preflight: bool | Preflight = True
    """False: no check. A verdict is used in place of a check."""
    examples: Examples | None = None
    """Solved questions for the prompt, in place of a search."""
    scope: Scope | None = None
    about: tuple[str, ...] | None = None
    """Lines before the documents; see `Context.about`."""
    prompt_tokens: int | None = None
    """Limit for all prompts of the question together. It needs a strategy and a `ranking`, whose end is cut off."""
    paper_prompts: PaperPrompts | None = None
    """The prompts of a paper, in place of ours."""
    temperature: float | None = None
    """For all roles."""
    top_p: float | None = None
    """For all roles."""
    streams: bool = True
    """Whether replies are read while they are written. False saves the work where nobody watches."""

    def __post_init__(self) -> None:
        if unknown := self.options.keys() - AnswerOptions.model_fields.keys():
            raise ValueError(f"no options of an answer: {', '.join(sorted(unknown))}")

    @property
    def strategy(self) -> str | None:
        """The strategy that answers, or None for that of the settings."""
        return self.options.get("strategy")

    @property
    def given(self) -> dict[str, Any]:
        """The options that are given; None leaves one to the settings."""
        return {name: value for name, value in self.options.items() if value is not None}

    def change(self, **options: Any) -> RunOverrides:
        """Return these overrides with other values of these options."""
        return replace(self, options={**self.options, **options})


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
        options=context.options.model_copy(update=overrides.given),
        retrieve=context.retrieve if ranking is None else _return_value(ranking),
        record=context.record if ranking is None else _return_value(ranking),
        select_sentences=_override_selection(context, overrides),
        read_whole=context.read_whole if ranking is None else None,
        preflight=preflight,
        sampling=sampling,
        paper_prompts=overrides.paper_prompts or context.paper_prompts,
        examples=context.examples if overrides.examples is None else _return_value(overrides.examples),
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
        return await context.select_sentences(question, k, ranking if part is None else part)

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
