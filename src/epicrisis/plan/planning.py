"""What strategies would take, found out by running them: real retrieval, real preflight, real prompts, and chat models
that send nothing (`plan.models`). So a plan cannot fall out of step with the strategies.

Not planned for: retries, the second try after a reply that cannot be read, replies that are kept already, and what an
endpoint saves by a prompt's beginning it has seen before.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

from epicrisis.answering.strategy_context import Context, Rewarder
from epicrisis.answers import Answer, Event, MapStarted, ModelCalled, Notice, Usage
from epicrisis.components import build_scope
from epicrisis.errors import ChatError, ContextOverflow, InputError, UserError
from epicrisis.evidence_selection import TimeRestriction
from epicrisis.models.chat.prices import build_cost_function
from epicrisis.models.model_recipes import STUDY_ATTRIBUTES
from epicrisis.overrides import NO_OVERRIDES, RunOverrides, apply_overrides
from epicrisis.pipeline import STRATEGIES, WITHOUT_LIBRARY, Pipeline, is_narrowed, without_narrowing
from epicrisis.plan.cost_plan import REPLY_SIZES, CostPlan, CostRange, ReplySize, Speed, StrategyPlan, extrapolate
from epicrisis.plan.counting_models import CountingModel, PlanningModel, measure_speed
from epicrisis.prompts import format_passage
from epicrisis.protocols import ChatModel
from epicrisis.settings import BudgetSettings, CacheSettings, ModelSettings, Settings
from epicrisis.types import Question, Ranking, Scope, StrategyName

DEFAULT_STRATEGIES: Sequence[StrategyName] = ("brief-context", "rag", "closed-book", "chain-of-thought")
"""Planned where nobody names others: those that need neither options nor solved questions."""

SAMPLE_ABOVE = 200
"""More questions than this are planned by a sample of so many, where nothing else is said."""
QUESTIONS_AT_ONCE = 8

PlannedCase: TypeAlias = tuple[Question, RunOverrides]
"""A question, and what of it is asked otherwise than the settings say."""

T = TypeVar("T")
Out = TypeVar("Out")


async def estimate_costs(
    settings: Settings,
    library: Path | str | None,
    questions: Sequence[Question],
    strategies: Sequence[str] = DEFAULT_STRATEGIES,
    *,
    sample: int | None = None,
    timed: bool = False,
    advance: Callable[[int], None] = lambda planned: None,
) -> CostPlan:
    """The strategies side by side for all the questions. Only `timed` calls a model: twice, shortly.

    `sample` questions, drawn by the settings' seed, stand for all of them; where it is not said, 200 where there are
    more. `advance` is told after each question how many are to be planned. Raises InputError without questions or for
    an unknown strategy, UserError for whatever cannot be opened or counted.
    """
    unknown = [name for name in strategies if name not in STRATEGIES]
    if unknown:
        raise InputError(f"no strategy is called {unknown[0]}: known are {', '.join(STRATEGIES)}")
    # The one that needs the most of a library: it opens what any of them needs.
    neediest = min(
        strategies, key=lambda name: (name in WITHOUT_LIBRARY, name != "brief-context"), default=settings.strategy
    )
    bare = settings.model_copy(
        update={
            "strategy": neediest,
            "cache": CacheSettings(mode="off"),
            "budget": BudgetSettings(),
            "record": None,
            "log": None,
        }
    )
    async with Pipeline.open(bare, library, strategies) as pipeline:
        return await plan_questions(pipeline, bare, questions, strategies, sample=sample, timed=timed, advance=advance)


async def plan_questions(
    pipeline: Pipeline,
    settings: Settings,
    questions: Sequence[Question],
    strategies: Sequence[str],
    *,
    sample: int | None = None,
    timed: bool = False,
    advance: Callable[[int], None] = lambda planned: None,
) -> CostPlan:
    """As `estimate_costs`, with a pipeline of these settings that is open already."""
    if not questions or not strategies:
        raise InputError("there is nothing to plan: give a question and a strategy")
    if sample is not None and sample < 2:
        raise InputError("a sample needs two questions or more: give --sample a larger number")
    chosen = _sample(questions, sample or SAMPLE_ABOVE, settings.seed)
    desk = await _open_desk(pipeline, settings, timed)

    async def one(question: Question) -> dict[str, _Outcomes]:
        outcomes = await _outcomes(desk, question, strategies)
        advance(len(chosen))
        return outcomes

    rows = await _each(chosen, one)
    sums = [_summed(name, [row[name] for row in rows], len(questions), desk) for name in strategies]
    return _plan(desk, len(questions), len(chosen), sums)


async def plan_cases(pipeline: Pipeline, settings: Settings, cases: Sequence[PlannedCase], *, sample: int) -> CostPlan:
    """As `planned`, each case by its own strategy and under its own treatment. All of them are one `StrategyPlan`, of
    the name of every strategy in it. `sample` cases, two or more, spread over the kinds of treatment, stand for all;
    calls that cases share are counted for each of them.
    """
    chosen = _spread(cases, sample, settings.strategy)
    desk = await _open_desk(pipeline, settings, False)

    async def one(case: PlannedCase) -> _Outcomes:
        question, treatment = case
        strategy = treatment.strategy or settings.strategy
        return (await _outcomes(desk, question, [strategy], treatment))[strategy]

    names = dict.fromkeys(treatment.strategy or settings.strategy for _, treatment in cases)
    summed = _summed(", ".join(names), await _each(chosen, one), len(cases), desk)
    return _plan(desk, len(cases), len(chosen), [summed])


async def _each(items: Sequence[T], work: Callable[[T], Awaitable[Out]]) -> list[Out]:
    """The work on each of them, some at once, in their order."""
    turns = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def one(item: T) -> Out:
        async with turns:
            return await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except ExceptionGroup as errors:
        # What stopped the plan is one thing, though several questions may have met it.
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _plan(desk: _Desk, of: int, planned: int, strategies: Sequence[StrategyPlan]) -> CostPlan:
    return CostPlan(of, planned, tuple(desk.at_once), desk.exact, tuple(strategies), desk.speeds, desk.at_once)


def _spread(cases: Sequence[PlannedCase], n: int, strategy: str) -> list[PlannedCase]:
    """`n` of them at even steps through all, sorted by what they take: each kind has its share, whatever the order in
    which the cases of a question follow each other."""
    if len(cases) <= n:
        return list(cases)
    alike = sorted(cases, key=lambda case: _kind(case[1], strategy))
    return [alike[(2 * i + 1) * len(alike) // (2 * n)] for i in range(n)]


def _kind(treatment: RunOverrides, strategy: str) -> tuple[str, tuple[int, ...]]:
    """What decides most of what a case takes, beside its question."""
    voting, refining = treatment.voting, treatment.refining
    return treatment.strategy or strategy, (
        voting.n if voting else 0,
        max(refining.drafts, refining.rounds) if refining else 0,
        len(treatment.examples.examples) if treatment.examples else 0,
        len(treatment.ranking.hits) if treatment.ranking else 0,
        treatment.preflight is not False,
    )


def _sample(questions: Sequence[Question], n: int, seed: int) -> list[Question]:
    if len(questions) <= n:
        return list(questions)
    return [questions[i] for i in sorted(random.Random(seed).sample(range(len(questions)), n))]


# -- what every question needs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Desk:
    """The pipeline to plan for, and by role the models that count and what they charge; by model the speeds."""

    pipeline: Pipeline
    settings: Settings
    counting: Mapping[str, CountingModel]
    prices: Mapping[str, Callable[[Usage], float | None]]
    speeds: Mapping[str, Speed]
    at_once: Mapping[str, int]
    exact: bool

    def models(self, size: ReplySize, dates: Mapping[str, str]) -> dict[str, ChatModel]:
        """By role, for one question."""
        return {
            role: PlanningModel(model, size, dates, self.prices[role], self.speeds.get(model.name))
            for role, model in self.counting.items()
        }


async def _open_desk(pipeline: Pipeline, settings: Settings, timed: bool) -> _Desk:
    models = pipeline.build_context(lambda event: None, Scope()).models
    shared = {id(model): CountingModel(model) for model in models.values()}
    counting = {role: shared[id(models[role])] for role in settings.roles}
    used = {model.name: model for model in counting.values()}
    try:
        speeds = {name: await measure_speed(model) for name, model in used.items()} if timed else {}
    except ChatError as error:
        raise UserError(error.message) from error
    capabilities = [await model.capabilities() for model in used.values()]
    return _Desk(
        pipeline,
        settings,
        counting,
        {role: build_cost_function(settings.model_for(role)) for role in settings.roles},
        speeds,
        {counting[role].name: _calls_at_once(settings.model_for(role)) for role in settings.roles},
        all(each.exact_token_counts for each in capabilities),
    )


def _calls_at_once(model: ModelSettings) -> int:
    """Calls it really works on side by side: the embedded model has one slot."""
    return model.concurrency if model.is_endpoint else 1


# -- one question ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one strategy spent on one question, all replies being of one size."""

    answer: Answer
    events: tuple[Event, ...]
    again: bool = False
    """Whether it is asked once more where the notes of the time that it says do not answer."""
    first: tuple[Event, ...] = ()
    """Of two askings the events of the first; `events` are those of the second."""

    @property
    def calls(self) -> list[ModelCalled]:
        return [event for event in (*self.first, *self.events) if isinstance(event, ModelCalled)]

    @property
    def usage(self) -> Usage:
        return sum((call.usage for call in self.calls), Usage())

    @property
    def path(self) -> float:
        """Seconds from the first call to the last, where calls that wait for none of each other run side by side."""
        return self._path(self.first) + self._path(self.events)

    def _path(self, events: Sequence[Event]) -> float:
        calls = [event for event in events if isinstance(event, ModelCalled)]
        beside = [call.usage.seconds for call in calls if self._runs_beside(call)]
        others = [call.usage.seconds for call in calls if not self._runs_beside(call)]
        return max(beside, default=0.0) + sum(others)

    def _runs_beside(self, call: ModelCalled) -> bool:
        kinds = ("map", "vote") if self.answer.strategy == "self-reflection" else ("map", "vote", "draft")
        return call.stage.split()[0] in kinds

    def fails_by(self, kind: str) -> bool:
        """Whether it ended with a failure of that kind."""
        return self.answer.failure is not None and self.answer.failure.kind == kind

    @property
    def overflows(self) -> bool:
        return self.fails_by(ContextOverflow.__name__)


_Outcomes = tuple[_Outcome, _Outcome, _Outcome]
"""In the order of SIZES."""


async def _outcomes(
    desk: _Desk, question: Question, strategies: Sequence[str], treatment: RunOverrides = NO_OVERRIDES
) -> dict[str, _Outcomes]:
    """Each strategy three times over one search."""
    dates: dict[str, str] = {}
    scope = await desk.pipeline.resolve_scope(treatment.scope or build_scope(desk.settings.scope, question=question))

    def dated(search: Callable[[Question], Awaitable[Ranking]]) -> Callable[[Question], Awaitable[Ranking]]:
        once = _once(search)

        async def found(asked: Question) -> Ranking:
            ranking = await once(asked)
            dates.update({format_passage(p): p.date or "" for p in ranking.passages})
            return ranking

        return found

    def searched_once(asked: TimeRestriction, treatment: RunOverrides) -> Context:
        context = apply_overrides(desk.pipeline.build_context(lambda event: None, scope, asked), treatment)
        # A trained reward model is no chat model: it costs no call, and its scores a few tokens.
        reward = Rewarder(_middling) if desk.settings.refine.reward_model is not None else context.reward
        return replace(
            context,
            retrieve=dated(context.retrieve),
            record=dated(context.record),
            preflight=None if context.preflight is None else _once(context.preflight),
            examples=None if context.examples is None else _once(context.examples),
            reward=reward,
            deadline=None,
        )

    contexts: dict[tuple[TimeRestriction, bool], Context] = {}

    def context_for(asked: TimeRestriction, whole: bool) -> Context:
        """One for all strategies that ask alike, so that each search is made once."""
        key = (asked.without_hidden() if whole else asked, whole)
        if key not in contexts:
            contexts[key] = searched_once(key[0], without_narrowing(treatment) if whole else treatment)
        return contexts[key]

    async def outcome(name: str, size: ReplySize) -> _Outcome:
        asked = times[name]

        async def run(whole: bool) -> _Outcome:
            events: list[Event] = []
            running = replace(context_for(asked, whole), models=desk.models(size, dates), emit=events.append)
            answer = await STRATEGIES[name](question, running)
            return _Outcome(answer, tuple(events), is_narrowed(asked, treatment))

        once = await run(False)
        # The notes that are left in may not answer: then the whole record is asked, which only the most counts.
        return replace(await run(True), first=once.events) if once.again and size == "most" else once

    times: dict[str, TimeRestriction] = {}
    for name in strategies:
        chosen = replace(treatment, strategy=cast(StrategyName, name))
        times[name] = await desk.pipeline.find_time_restriction(question, scope, chosen)

    least, expected, most = REPLY_SIZES
    return {
        name: (await outcome(name, least), await outcome(name, expected), await outcome(name, most))
        for name in strategies
    }


async def _middling(question: Question, text: str, context: Context) -> Mapping[str, float]:
    return dict.fromkeys(STUDY_ATTRIBUTES, 0.5)


def _once(search: Callable[[Question], Awaitable[T]]) -> Callable[[Question], Awaitable[T]]:
    """The same search, made once for each text."""
    found: dict[str, T] = {}

    async def remembered(question: Question) -> T:
        if question.text not in found:
            found[question.text] = await search(question)
        return found[question.text]

    return remembered


# -- all questions --------------------------------------------------------------------------------------------------


def _summed(name: str, rows: Sequence[_Outcomes], questions: int, desk: _Desk) -> StrategyPlan:
    spent = [[outcome.usage for outcome in row] for row in rows]
    costs = [[usage.cost for usage in row] for row in spent]
    known = [[cost for cost in row if cost is not None] for row in costs]
    prompts = extrapolate([[usage.prompt_tokens for usage in row] for row in spent], questions)
    return StrategyPlan(
        strategy=name,
        calls=extrapolate([[usage.calls for usage in row] for row in spent], questions),
        prompt_tokens=prompts,
        completion_tokens=extrapolate([[usage.completion_tokens for usage in row] for row in spent], questions),
        usd=extrapolate(known, questions) if known == costs else None,
        seconds=_seconds(rows, questions, desk) if desk.speeds else None,
        exact=desk.exact and prompts.known,
        states=dict(sum((_states(row) for row in rows), Counter())),
    )


def _states(row: _Outcomes) -> Counter[str]:
    least, _, most = row
    states = {
        "read in parts": any(isinstance(event, MapStarted) for event in least.events),
        "re-partitioned to fit the window": any(
            isinstance(event, Notice) and event.kind == "re-partitioned" for event in most.events
        ),
        "may be asked again with the whole record": least.again,
        "nothing retrieved": least.fails_by("NothingRetrieved"),
        "has no options": least.fails_by("NoOptions"),
        "does not fit the window": least.overflows,
        "may not fit the window": most.overflows and not least.overflows,
    }
    return Counter({state: 1 for state, holds in states.items() if holds})


def _seconds(rows: Sequence[_Outcomes], questions: int, desk: _Desk) -> CostRange:
    """The wall clock: what keeps the busiest model busy, or the questions waiting for each other, whichever is more."""
    least, expected, most = (_wall_clock([row[i] for row in rows], questions, desk) for i in range(3))
    work = extrapolate([[outcome.usage.seconds for outcome in row] for row in rows], questions)
    return CostRange(least, expected, most, expected * work.margin / work.expected if work.expected else 0.0)


def _wall_clock(outcomes: Sequence[_Outcome], questions: int, desk: _Desk) -> float:
    factor = questions / len(outcomes)
    bounds = [max(outcome.path for outcome in outcomes)]
    together = min(desk.pipeline.concurrency, questions)
    bounds.append(factor * sum(outcome.path for outcome in outcomes) / together)
    for role, model in desk.counting.items():
        wanted = desk.settings.model_for(role)
        usages = [call.usage for outcome in outcomes for call in outcome.calls if call.model == model.name]
        spent = sum(usages, Usage())
        bounds.append(factor * spent.seconds / desk.at_once[model.name])
        if wanted.requests_per_minute:
            bounds.append(factor * spent.calls * 60 / wanted.requests_per_minute)
        if wanted.tokens_per_minute:
            tokens = spent.prompt_tokens + spent.completion_tokens
            bounds.append(factor * tokens * 60 / wanted.tokens_per_minute)
    return max(bounds)
