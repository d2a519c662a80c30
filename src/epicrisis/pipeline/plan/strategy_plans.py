"""Estimate the cost of strategies by running them with chat models that send nothing (`plan.counting_models`).

Retrieval, preflight check and prompts are real, so a plan cannot differ from the strategies. Not included are retries,
second requests after an unreadable reply, cached replies, and savings by the prefix cache of an endpoint.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TypeAlias, TypeVar

from epicrisis.answering.strategy import find_strategy
from epicrisis.answering.strategy_context import Context, Rewarder, SentenceSelection
from epicrisis.core.answers import Answer, Event, MapStarted, ModelCalled, Notice, Usage
from epicrisis.core.errors import ChatError, ContextOverflow, InputError, UserError
from epicrisis.core.prompts import format_passage
from epicrisis.core.protocols import ChatModel
from epicrisis.core.references import find_passage_study
from epicrisis.core.types import Question, Ranking, RouteTarget, Scope, SentenceRanking
from epicrisis.models.chat.prices import build_cost_function
from epicrisis.models.model_recipes import STUDY_ATTRIBUTES
from epicrisis.pipeline.components import build_scope
from epicrisis.pipeline.evidence_selection import TimeRestriction
from epicrisis.pipeline.overrides import NO_OVERRIDES, RunOverrides, apply_overrides, without_narrowing
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.plan.cost_plan import (
    CostPlan,
    CostRange,
    ReplySize,
    Speed,
    StrategyPlan,
    extrapolate,
    format_dollars,
)
from epicrisis.pipeline.plan.counting_models import CountingModel, PlanningModel, measure_speed
from epicrisis.pipeline.question import is_narrowed
from epicrisis.pipeline.question_evidence import build_context, find_time_restriction
from epicrisis.settings.settings import BudgetSettings, Settings
from epicrisis.settings.tables import CacheSettings

DEFAULT_STRATEGIES: Sequence[str] = ("brief-context", "rag", "closed-book", "chain-of-thought")
"""The strategies without options or solved questions."""
MAX_SAMPLE = 200
"""The default limit for the number of planned questions. More are estimated from a sample of this size."""
CONCURRENT_QUESTIONS = 8
QUICK_SAMPLE = 20

PlannedCase: TypeAlias = tuple[Question, RunOverrides]

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
    advance: Callable[[int], None] = lambda total: None,
) -> CostPlan:
    """Return the estimates of all strategies for all questions. Only `timed` calls each model, in two short calls.

    `sample` questions, drawn by the seed of the settings, represent all of them; the default is at most 200. `advance`
    is called after each question with the number of questions to plan. Raises InputError without questions or for an
    unknown strategy, and UserError for components that cannot be opened or do not count tokens.
    """
    described = [find_strategy(name) for name in strategies]
    # The strategy with the greatest needs opens the components of all others.
    neediest = max(
        described,
        key=lambda strategy: (strategy.needs_library, strategy.needs_sentences, strategy.checks_rankings),
        default=find_strategy(settings.strategy),
    ).name
    unlimited = {"cache": CacheSettings(mode="off"), "budget": BudgetSettings(), "record": None, "log": None}
    bare = settings.model_copy(update={"strategy": neediest, **unlimited})
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
    advance: Callable[[int], None] = lambda total: None,
) -> CostPlan:
    """Return the plan of `estimate_costs` for an open pipeline with these settings."""
    if not questions or not strategies:
        raise InputError("there is nothing to plan: give a question and a strategy")
    if sample is not None and sample < 2:
        raise InputError("a sample needs two questions or more: give --sample a larger number")
    places: Sequence[int] = range(len(questions))
    if len(questions) > (sample or MAX_SAMPLE):
        places = sorted(random.Random(settings.seed).sample(places, sample or MAX_SAMPLE))
    selection = list(map(questions.__getitem__, places))
    planner = await _open_planner(pipeline, settings, timed)

    async def plan_question(question: Question) -> dict[str, _Outcomes]:
        outcomes = await _plan_outcomes(planner, question, strategies)
        advance(len(selection))
        return outcomes

    outcomes = await _run_all(selection, plan_question)
    plans = []
    for name in strategies:
        rows = list(map(itemgetter(name), outcomes))
        plans.append(_sum_outcomes(name, rows, len(questions), planner))
    return planner.build_plan(len(questions), len(selection), plans)


async def plan_cases(pipeline: Pipeline, settings: Settings, cases: Sequence[PlannedCase], *, sample: int) -> CostPlan:
    """Return one estimate for all cases together, each with its overrides; its name lists all strategies of the cases.

    `sample` cases, two or more, spread over the kinds of overrides, represent all.
    """
    selection = list(cases)
    if len(cases) > sample:
        # Even steps through all, sorted by their kind, so that each kind is represented.
        ordered = sorted(cases, key=lambda case: _case_kind(case[1], settings.strategy))
        selection = [ordered[(2 * i + 1) * len(ordered) // (2 * sample)] for i in range(sample)]
    planner = await _open_planner(pipeline, settings, False)

    async def plan_case(case: PlannedCase) -> _Outcomes:
        question, overrides = case
        strategy = overrides.strategy or settings.strategy
        outcomes = await _plan_outcomes(planner, question, [strategy], overrides)
        return outcomes[strategy]

    names = dict.fromkeys(overrides.strategy or settings.strategy for _, overrides in cases)
    plan = _sum_outcomes(", ".join(names), await _run_all(selection, plan_case), len(cases), planner)
    return planner.build_plan(len(cases), len(selection), [plan])


async def _run_all(items: Sequence[T], work: Callable[[T], Awaitable[Out]]) -> list[Out]:
    """Return the results for all items in order, a limited number at a time."""
    slots = asyncio.Semaphore(CONCURRENT_QUESTIONS)

    async def run(item: T) -> Out:
        async with slots:
            return await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = list(map(group.create_task, map(run, items)))
    except ExceptionGroup as errors:
        # Several questions may fail for the same reason; one error is enough.
        raise errors.exceptions[0] from None
    return list(map(asyncio.Task.result, tasks))


def _case_kind(overrides: RunOverrides, strategy: str) -> tuple[str, tuple[int, ...]]:
    """Return the overrides with the greatest influence on the cost of a case."""
    voting, refining = overrides.options.get("votes"), overrides.options.get("refine")
    return overrides.strategy or strategy, (
        voting.n if voting else 0,
        max(refining.drafts, refining.rounds) if refining else 0,
        len(overrides.examples.examples) if overrides.examples else 0,
        len(overrides.ranking.hits) if overrides.ranking else 0,
        overrides.preflight is not False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    """The pipeline to plan for, with counting models and prices by role, and speeds by model."""

    pipeline: Pipeline
    settings: Settings
    counting: Mapping[str, CountingModel]
    prices: Mapping[str, Callable[[Usage], float | None]]
    speeds: Mapping[str, Speed]
    concurrent_calls: Mapping[str, int]
    exact_counts: bool

    def build_plan(self, questions: int, planned: int, plans: Sequence[StrategyPlan]) -> CostPlan:
        calls = self.concurrent_calls
        return CostPlan(
            questions=questions,
            planned=planned,
            models=tuple(calls),
            exact_counts=self.exact_counts,
            strategies=tuple(plans),
            speeds=self.speeds,
            at_once=calls,
        )


async def _open_planner(pipeline: Pipeline, settings: Settings, timed: bool) -> _Planner:
    models = build_context(pipeline, lambda event: None, Scope()).models
    shared: dict[int, CountingModel] = {}
    counting: dict[str, CountingModel] = {}
    by_name: dict[str, CountingModel] = {}
    for role in filter(models.__contains__, settings.roles):
        model = models[role]
        counting[role] = shared.setdefault(id(model), CountingModel(model))
        by_name[model.name] = counting[role]
    speeds: dict[str, Speed] = {}
    if timed:
        try:
            for name, counting_model in by_name.items():
                speeds[name] = await measure_speed(counting_model)
        except ChatError as error:
            raise UserError(error.message) from error
    exact_counts = True
    for counting_model in by_name.values():
        exact_counts &= (await counting_model.capabilities()).exact_token_counts
    prices, concurrent_calls = {}, {}
    for role, counting_model in counting.items():
        role_settings = settings.model_for(role)
        prices[role] = build_cost_function(role_settings)
        # An embedded model has one slot.
        concurrent_calls[counting_model.name] = role_settings.most_calls if role_settings.is_endpoint else 1
    return _Planner(
        pipeline=pipeline,
        settings=settings,
        counting=counting,
        prices=prices,
        speeds=speeds,
        concurrent_calls=concurrent_calls,
        exact_counts=exact_counts,
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of one strategy for one question, with all replies of one size."""

    answer: Answer
    events: tuple[Event, ...]
    narrowed: bool = False
    """Whether notes are left out by time, so that the question may be asked again."""
    first_events: tuple[Event, ...] = ()
    """The events of the first attempt, if `events` are those of a second one."""

    @property
    def calls(self) -> list[ModelCalled]:
        return [event for event in (*self.first_events, *self.events) if isinstance(event, ModelCalled)]

    @property
    def usage(self) -> Usage:
        return sum(map(attrgetter("usage"), self.calls), Usage())

    @property
    def seconds(self) -> float:
        """Seconds from the first call to the last, with independent calls running concurrently."""
        concurrent = ("map", "vote") if self.answer.strategy == "self-reflection" else ("map", "vote", "draft")
        seconds = 0.0
        for attempt in (self.first_events, self.events):
            longest, total = 0.0, 0.0
            for event in attempt:
                if isinstance(event, ModelCalled) and event.stage.split()[0] in concurrent:
                    longest = max(longest, event.usage.seconds)
                elif isinstance(event, ModelCalled):
                    total += event.usage.seconds
            seconds += longest + total
        return seconds

    def failed_with(self, kind: str) -> bool:
        return self.answer.failure is not None and self.answer.failure.kind == kind

    @property
    def overflows(self) -> bool:
        return self.failed_with(ContextOverflow.__name__)


_Outcomes = tuple[_Outcome, _Outcome, _Outcome]


async def _plan_outcomes(
    planner: _Planner, question: Question, strategies: Sequence[str], overrides: RunOverrides = NO_OVERRIDES
) -> dict[str, _Outcomes]:
    """Return three outcomes of each strategy, from one search for all."""
    pipeline, settings = planner.pipeline, planner.settings
    dates: dict[str, str] = {}
    scope = await pipeline.resolve_scope(overrides.scope or build_scope(settings.scope, question=question))

    def collect_dates(ranking: Ranking) -> None:
        for passage in ranking.passages:
            study = find_passage_study(passage) if settings.describe_sources else None
            text = format_passage(passage, with_study=settings.describe_sources)
            dates[text] = ", ".join(filter(None, (passage.date, study.label if study else None)))

    async def average_reward(question: Question, text: str, context: Context) -> Mapping[str, float]:
        return dict.fromkeys(STUDY_ATTRIBUTES, 0.5)

    contexts: dict[tuple[TimeRestriction, bool], Context] = {}

    def get_context(restriction: TimeRestriction, unrestricted: bool) -> Context:
        """Return the context shared by all strategies with this restriction, so that each search runs once."""
        key = (restriction.without_hidden() if unrestricted else restriction, unrestricted)
        if key in contexts:
            return contexts[key]
        context = apply_overrides(
            build_context(pipeline, lambda event: None, scope, key[0]),
            without_narrowing(overrides) if unrestricted else overrides,
        )
        # A trained reward model makes no call, and its scores take a few tokens.
        trained = settings.refine.reward_model is not None
        contexts[key] = replace(
            context,
            retrieve=_cache_search(context.retrieve, collect_dates),
            record=_cache_search(context.record, collect_dates),
            preflight=None if context.preflight is None else _cache_search(context.preflight),
            examples=None if context.examples is None else _cache_search(context.examples),
            select_sentences=_cache_selection(context.select_sentences),
            reward=Rewarder(average_reward) if trained else context.reward,
            deadline=None,
        )
        return contexts[key]

    async def run(
        name: str, size: ReplySize, restriction: TimeRestriction, unrestricted: bool = False, routed: bool = False
    ) -> _Outcome:
        events: list[Event] = []
        models: dict[str, ChatModel] = {}
        for role, model in planner.counting.items():
            speed = planner.speeds.get(model.name)
            models[role] = PlanningModel(model, size, dates, planner.prices[role], speed)
        context = replace(get_context(restriction, unrestricted), models=models, emit=events.append)
        if routed:
            # The second way makes no preflight check.
            context = replace(context, preflight=None)
        answer = await find_strategy(name).run(question, context)
        return _Outcome(answer, tuple(events), is_narrowed(restriction, overrides))

    outcomes: dict[str, _Outcomes] = {}
    for name in strategies:
        strategy_overrides = overrides.change(strategy=name)
        restriction = await find_time_restriction(pipeline, question, scope, strategy_overrides)
        least = await run(name, "least", restriction)
        expected = await run(name, "expected", restriction)
        most = await _run_longest(run, name, restriction, settings.route if find_strategy(name).routes else "off")
        outcomes[name] = (least, expected, most)
    return outcomes


async def _run_longest(
    run: Callable[..., Awaitable[_Outcome]], name: str, restriction: TimeRestriction, route: RouteTarget
) -> _Outcome:
    """Return the outcome with the longest replies, with the second way and the second attempt, if there are any."""
    most = await run(name, "most", restriction)
    attempts = [most]
    if route != "off":
        attempts.append(await run(route, "most", restriction, routed=True))
    if most.narrowed:
        attempts.append(await run(name, "most", restriction, unrestricted=True))
    first_events: list[Event] = []
    for attempt in attempts[:-1]:
        first_events += attempt.events
    return replace(attempts[-1], first_events=tuple(first_events))


def _cache_search(
    search: Callable[[Question], Awaitable[T]], inspect: Callable[[T], None] = lambda result: None
) -> Callable[[Question], Awaitable[T]]:
    """Return a search that runs once for each text, and passes its result to `inspect`."""
    results: dict[str, T] = {}

    async def cached_search(question: Question) -> T:
        if question.text not in results:
            results[question.text] = await search(question)
            inspect(results[question.text])
        return results[question.text]

    return cached_search


def _cache_selection(select: SentenceSelection) -> SentenceSelection:
    """Return a selection of sentences that runs once for each question and passages."""
    results: dict[tuple[str, int, tuple[str, ...] | None], SentenceRanking] = {}

    async def cached_selection(question: Question, k: int, ranking: Ranking | None) -> SentenceRanking:
        key = question.text, k, None if ranking is None else ranking.ids
        if key not in results:
            results[key] = await select(question, k, ranking)
        return results[key]

    return cached_selection


def _sum_outcomes(name: str, rows: Sequence[_Outcomes], questions: int, planner: _Planner) -> StrategyPlan:
    has_price = True
    states: Counter[str] = Counter()
    for least, expected, most in rows:
        notices = [event.kind for event in most.events if isinstance(event, Notice)]
        row_states = {
            "read in parts": any(isinstance(event, MapStarted) for event in least.events),
            "re-partitioned to fit the window": "re-partitioned" in notices,
            "may be asked again with the whole record": least.narrowed,
            "nothing retrieved": least.failed_with("NothingRetrieved"),
            "has no options": least.failed_with("NoOptions"),
            "does not fit the window": least.overflows,
            "may not fit the window": most.overflows and not least.overflows,
        }
        states.update(filter(row_states.__getitem__, row_states))
        has_price &= None not in (least.usage.cost, expected.usage.cost, most.usage.cost)

    def sum_field(field: str) -> CostRange:
        usage_field = attrgetter(f"usage.{field}")
        return extrapolate([tuple(map(usage_field, row)) for row in rows], questions)

    seconds = None
    if planner.speeds:
        # Those of the busiest model, or of the concurrent questions, if more.
        bounds = [_wall_clock(outcomes, questions, planner) for outcomes in zip(*rows, strict=True)]
        work = sum_field("seconds")
        margin = bounds[1] * work.margin / work.expected if work.expected else 0.0
        seconds = CostRange(bounds[0], bounds[1], bounds[2], margin)
    prompt_tokens = sum_field("prompt_tokens")
    return StrategyPlan(
        strategy=name,
        calls=sum_field("calls"),
        prompt_tokens=prompt_tokens,
        completion_tokens=sum_field("completion_tokens"),
        usd=sum_field("cost") if has_price else None,
        seconds=seconds,
        exact=planner.exact_counts and prompt_tokens.is_exact,
        states=dict(states),
    )


def _wall_clock(outcomes: Sequence[_Outcome], questions: int, planner: _Planner) -> float:
    factor = questions / len(outcomes)
    seconds: list[float] = list(map(attrgetter("seconds"), outcomes))
    bounds = [max(seconds), factor * sum(seconds) / min(planner.pipeline.concurrency, questions)]
    usages: dict[str, Usage] = defaultdict(Usage)
    for outcome in outcomes:
        for call in outcome.calls:
            usages[call.model] += call.usage
    for role, model in planner.counting.items():
        limits = planner.settings.model_for(role)
        usage = usages[model.name]
        bounds.append(factor * usage.seconds / planner.concurrent_calls[model.name])
        if limits.requests_per_minute:
            bounds.append(factor * usage.calls * 60 / limits.requests_per_minute)
        if limits.tokens_per_minute:
            tokens = usage.prompt_tokens + usage.completion_tokens
            bounds.append(factor * tokens * 60 / limits.tokens_per_minute)
    return max(bounds)


async def confirmation_question(
    pipeline: Pipeline, settings: Settings, questions: Sequence[Question], overrides: Sequence[RunOverrides] = ()
) -> str | None:
    """Return the question to ask before this run, or None if the run is cheap enough.

    `overrides` has one entry per question, if some differ from the settings. Plans a sample of 20 questions, or none
    if no model charges or only cached replies are used.
    """
    million = Usage(prompt_tokens=1_000_000, completion_tokens=1_000_000)
    free = all(build_cost_function(settings.model_for(role))(million) == 0 for role in settings.roles)
    if not questions or free or settings.cache.mode == "replay":
        return None
    if overrides.count(NO_OVERRIDES) == len(overrides):
        plan = await plan_questions(pipeline, settings, questions, [settings.strategy], sample=QUICK_SAMPLE)
        return threshold_question(plan, settings)
    cases = list(zip(questions, overrides, strict=True))
    plan = await plan_cases(pipeline, settings, cases, sample=QUICK_SAMPLE)
    return threshold_question(plan, settings, of_cases=True)


def threshold_question(plan: CostPlan, settings: Settings, *, of_cases: bool = False) -> str | None:
    """Return the question to ask if a strategy, or all cases together, should exceed `settings.plan`, or None."""
    limits = settings.plan
    for strategy in plan.strategies:
        items = "cases" if of_cases else f"questions with {strategy.strategy}"
        subject = f"{plan.questions:,} {items} on {' and '.join(plan.models)} are expected to"
        usd, prompt, completion = strategy.usd, strategy.prompt_tokens, strategy.completion_tokens
        if usd is not None and usd.expected > limits.ask_above_usd:
            expected, least, most = map(format_dollars, (usd.expected, usd.least, usd.most))
            limit = f"above plan.ask_above_usd ({format_dollars(limits.ask_above_usd)})"
            return f"{subject} cost {expected} (at least {least}, at most {most}), {limit}. Go on?"
        if usd is None and prompt.expected + completion.expected > limits.ask_above_tokens:
            return (
                f"{subject} take {prompt.expected + completion.expected:,.0f} tokens (at least "
                f"{prompt.least + completion.least:,.0f}, at most {prompt.most + completion.most:,.0f}) at an unknown "
                f"price, above plan.ask_above_tokens ({limits.ask_above_tokens:,}). Go on?"
            )
    return None
