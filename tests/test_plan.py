"""Plans against what really happens: the same strategies with replies found, not found, short and as long as may be."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from epicrisis.answering.reply_parsing import (
    ANSWER_CHARACTERS,
    FINDING_CHARACTERS,
    MAX_QUOTES,
    MAX_SOURCES,
    QUOTE_CHARACTERS,
    AnswerFormat,
)
from epicrisis.core.answers import Answer, Usage
from epicrisis.core.errors import EndpointUnreachable, InputError, UserError
from epicrisis.core.protocols import (
    Capabilities,
    ChatModel,
    ChatReply,
    ChatRequest,
    DeltaCallback,
    Message,
    StoredDocument,
)
from epicrisis.core.strategy_names import list_strategy_names
from epicrisis.core.types import Example, Examples, Passage, Question, Ranking, Scope
from epicrisis.evaluation.experiments import ensembles, model_comparison
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.models.chat.layers import Layer
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.overrides import NO_OVERRIDES, RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.plan.cost_plan import (
    REPLY_SIZES,
    CostPlan,
    CostRange,
    ReplySize,
    Speed,
    StrategyPlan,
    extrapolate,
    format_dollars,
)
from epicrisis.pipeline.plan.counting_models import CountingModel, PlanningModel, measure_speed, synthetic_reply
from epicrisis.pipeline.plan.strategy_plans import (
    DEFAULT_STRATEGIES,
    confirmation_question,
    estimate_costs,
    plan_cases,
    plan_questions,
    threshold_question,
)
from epicrisis.pipeline.recording.case import Case
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.settings import Settings
from epicrisis.testing.chat import ScriptedModel, count_words
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.stores import MemoryStore, hash_content
from tests.support.experiments import build_cases
from tests.support.replies import fill

ENCODER = HashingEncoder()
OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}
QUESTIONS = (
    Question("Does aspirin prevent stroke?", options=OPTIONS, form="choice", id="1"),
    Question("What do statins do to mortality in coronary disease?", id="2"),
    Question("Is zinc of use in acute diarrhoea of children?", options=OPTIONS, form="choice", id="3"),
)
SUBJECTS = ("aspirin stroke", "statins mortality coronary disease", "zinc acute diarrhoea children", "sleep")


def store_of(texts: Sequence[tuple[str, str]]) -> MemoryStore:
    """A store of one passage for each pair (title, text)."""
    store = MemoryStore()
    rows = []
    for i, (title, text) in enumerate(texts):
        name = f"d{i}"
        passage = Passage(
            id=f"{name}#0",
            document_id=name,
            ordinal=0,
            start=0,
            end=len(text),
            text=text,
            title=title,
            date="2015" if i % 2 else None,
        )
        rows.append(StoredDocument(name, hash_content(name, "1"), (passage,), ENCODER.encode_passages([(title, text)])))
    store.add(rows)
    return store


def papers(n: int) -> list[tuple[str, str]]:
    return [(f"Trial {i} " * (i % 4), f"On {SUBJECTS[i % 4]}: patient group {i} did better. " * 3) for i in range(n)]


def pipeline_of(settings: Settings, model: ChatModel, store: MemoryStore) -> Pipeline:
    opened = LibrarySearch(cast("LibraryStore", None), Retriever(store, ENCODER, settings.rrf_k))
    return Pipeline(settings, dict.fromkeys(("writer", "map", "reduce"), model), opened)


def settings_of(**flags: Any) -> Settings:
    return load_settings({"k": 8, "partition": 3, "preflight": {"enabled": False}, "not_in_library": "ask", **flags})


def planned_for(
    settings: Settings,
    store: MemoryStore,
    questions: Sequence[Question],
    *strategies: str,
    model: Any = None,
    **more: Any,
) -> CostPlan:
    """The plan of a scripted model that must not be called."""
    model = model or ScriptedModel(never)
    return asyncio.run(plan_questions(pipeline_of(settings, model, store), settings, questions, strategies, **more))


def never(request: ChatRequest) -> str:
    raise AssertionError("a plan calls no model")


def spent(settings: Settings, store: MemoryStore, questions: Sequence[Question], script: Any, strategy: str) -> Usage:
    """What answering the questions really takes."""
    pipeline = pipeline_of(settings.model_copy(update={"strategy": strategy}), ScriptedModel(script), store)

    async def all_of_them() -> list[Answer]:
        return [await pipeline.answer(question) for question in questions]

    answers = asyncio.run(all_of_them())
    assert {answer.state for answer in answers} <= {"answered", "abstained"}
    return sum((answer.usage for answer in answers), Usage())


def sized(size: ReplySize, document: int = 0) -> Callable[[ChatRequest], str]:
    return lambda request: synthetic_reply(request.schema, size, document)


# -- replies --------------------------------------------------------------------------------------------------------

FORMS = [
    AnswerFormat(OPTIONS),
    AnswerFormat({}, reasoning=True),
    AnswerFormat(OPTIONS, documents=4),
    AnswerFormat({}, documents=1),
    AnswerFormat(OPTIONS, text_field="finding", documents=3, choice_may_be_null=True),
    AnswerFormat(OPTIONS, text_field="finding", documents=3, choice_may_be_null=True, with_confidence=True),
    AnswerFormat(OPTIONS, text_field="finding", sentences=9, choice_may_be_null=True, with_confidence=True),
    AnswerFormat({}, sources=2),
    AnswerFormat(OPTIONS, sources=40),
]


@pytest.mark.parametrize("form", FORMS)
def test_sample_replies_are_readable_and_grow(form: AnswerFormat) -> None:
    texts = [synthetic_reply(form.schema(), size) for size in REPLY_SIZES]
    least, expected, most = (form.parse(text) for text in texts)
    assert not least.has_answer
    assert expected.has_answer
    assert most.has_answer
    assert len(texts[0]) < len(texts[1]) < len(texts[2])
    assert count_words(texts[2]) <= form.max_tokens


@pytest.mark.parametrize("form", FORMS)
def test_longest_reply_fills_limit(form: AnswerFormat) -> None:
    most = form.parse(synthetic_reply(form.schema(), "most", 2))
    assert len(most.text) >= ANSWER_CHARACTERS - 1
    assert count_words(most.text) == ANSWER_CHARACTERS // 2
    if form.documents:
        assert len(most.quotes) == MAX_QUOTES, "the same quotation twice would count once"
        assert {doc for doc, _ in most.quotes} == {2 % form.documents + 1}
        assert all(len(text) >= QUOTE_CHARACTERS - 1 for _, text in most.quotes)
    assert len(most.sources) == min(form.sources, MAX_SOURCES)
    assert (most.choice is None) == (not form.options)


def test_sample_replies_without_schema_grow() -> None:
    assert (
        1
        == count_words(synthetic_reply(None, "least"))
        < count_words(synthetic_reply(None, "expected"))
        < count_words(synthetic_reply(None, "most"))
    )


def test_unknown_schema_is_rejected() -> None:
    with pytest.raises(ValueError, match="number"):
        synthetic_reply({"type": "number"}, "most")


# -- plans against runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["rag", "closed-book", "chain-of-thought"])
@pytest.mark.parametrize("size", REPLY_SIZES)
def test_single_call_prompt_tokens_are_exact(strategy: str, size: ReplySize) -> None:
    settings, store = settings_of(), store_of(papers(12))
    real = spent(settings, store, QUESTIONS, sized(size), strategy)
    (row,) = planned_for(settings, store, QUESTIONS, strategy).strategies
    assert row.prompt_tokens == CostRange(*[real.prompt_tokens] * 3)
    assert row.calls == CostRange(*[len(QUESTIONS)] * 3)
    assert row.exact
    assert getattr(row.completion_tokens, size) >= real.completion_tokens
    assert row.completion_tokens.least <= real.completion_tokens <= row.completion_tokens.most


def test_map_prompt_tokens_are_exact_and_reduce_is_range() -> None:
    """Where nothing is found there is no reduce call: then map calls are all there is."""
    settings, store = settings_of(k=8, partition=3), store_of(papers(12))
    nothing = spent(settings, store, QUESTIONS, sized("least"), "brief-context")
    (row,) = planned_for(settings, store, QUESTIONS, "brief-context").strategies
    assert nothing.calls == 3 * len(QUESTIONS)
    assert (row.calls.least, row.prompt_tokens.least) == (nothing.calls, nothing.prompt_tokens)
    assert row.completion_tokens.least == nothing.completion_tokens
    assert row.calls.expected == row.calls.most == 4 * len(QUESTIONS)
    assert row.prompt_tokens.least < row.prompt_tokens.expected < row.prompt_tokens.most
    assert not row.exact
    assert row.states == {"read in parts": 3}


@pytest.mark.slow
def test_longest_findings_bound_reduce_prompt() -> None:
    """The document with the longest title, quoted three times by each part, is the worst there can be."""
    settings, store = settings_of(citing="quotes"), store_of(papers(12))
    (row,) = planned_for(settings, store, QUESTIONS, "brief-context").strategies
    longest = [spent(settings, store, QUESTIONS, sized("most", place), "brief-context") for place in range(3)]
    assert max(usage.prompt_tokens for usage in longest) <= row.prompt_tokens.most
    assert len({usage.prompt_tokens for usage in longest}) > 1, "or the titles were all as long"


PROSE = st.text("abcdefgh .,;()0123456789", max_size=120).filter(lambda text: text.strip() != "")


@pytest.mark.long
@given(
    texts=st.lists(st.tuples(PROSE, PROSE), min_size=1, max_size=9),
    k=st.integers(1, 9),
    partition=st.integers(1, 5),
    preflight=st.booleans(),
    citing=st.sampled_from(["quotes", "numbers"]),
    draw=st.integers(0, 2**32),
)
@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_actual_tokens_lie_within_estimate(
    texts: list[tuple[str, str]], k: int, partition: int, preflight: bool, citing: str, draw: int
) -> None:
    check = {"enabled": preflight, "n": 2, "depth": 8}
    settings = settings_of(k=k, partition=partition, preflight=check, citing=citing)
    store, question = store_of(texts), QUESTIONS[draw % 3]

    def anything(request: ChatRequest) -> str:
        chance = random.Random(f"{draw}{request.messages}")
        return synthetic_reply(request.schema, chance.choice(REPLY_SIZES), chance.randrange(9))

    scripts = [anything, *(sized(size) for size in REPLY_SIZES)]
    (row,) = planned_for(settings, store, [question], "brief-context").strategies
    for script in scripts:
        real = spent(settings, store, [question], script, "brief-context")
        assert row.calls.least <= real.calls <= row.calls.most
        assert row.prompt_tokens.least <= real.prompt_tokens <= row.prompt_tokens.most
        assert row.completion_tokens.least <= real.completion_tokens <= row.completion_tokens.most


def test_plan_runs_preflight() -> None:
    """Where the rankings agree brief-context is plain RAG, and its prompts are exact."""
    store = store_of(papers(12))
    agreeing = settings_of(preflight={"enabled": True, "n": 1, "threshold": 0.0, "depth": 1})
    brief, rag = planned_for(agreeing, store, QUESTIONS, "brief-context", "rag").strategies
    assert (brief.prompt_tokens, brief.exact, brief.states) == (rag.prompt_tokens, True, {})


def test_plan_makes_each_search_once() -> None:
    class Counted(MemoryStore):
        searches = 0

        def search_vectors(self, *arguments: Any) -> Any:
            self.searches += 1
            return super().search_vectors(*arguments)

    store = Counted()
    store._documents = store_of(papers(12))._documents
    settings = settings_of(by="dense", preflight={"enabled": True})
    planned_for(settings, store, QUESTIONS[:1], *DEFAULT_STRATEGIES)
    assert store.searches == 2, "one search, and one of the preflight, for three strategies' worth of runs"


def test_plan_counts_prompts_over_window_and_splits_brief_context() -> None:
    settings, store = settings_of(partition=8), store_of([(title, text * 6) for title, text in papers(12)])
    small = ScriptedModel(never, context_tokens=1500)
    rag, brief = planned_for(settings, store, QUESTIONS, "rag", "brief-context", model=small).strategies
    assert rag.states == {"does not fit the window": 3}
    assert rag.calls.most == 0
    assert brief.states["re-partitioned to fit the window"] == 3
    assert brief.calls.least >= 2 * len(QUESTIONS)


def test_plan_counts_closed_book_prompt_over_window() -> None:
    tiny = ScriptedModel(never, context_tokens=40)
    (row,) = planned_for(settings_of(), store_of([]), QUESTIONS[:1], "closed-book", model=tiny).strategies
    assert row.states == {"does not fit the window": 1}
    assert row.prompt_tokens.most == 0


def test_plan_counts_questions_without_passages() -> None:
    (row,) = planned_for(settings_of(), store_of([]), QUESTIONS, "rag").strategies
    assert row.states == {"nothing retrieved": 3}
    assert row.calls == CostRange(0, 0, 0)


def test_plan_counts_findings_that_may_exceed_window() -> None:
    settings, store = settings_of(k=4, partition=1, citing="quotes"), store_of(papers(12))
    narrow = ScriptedModel(never, context_tokens=810)
    (row,) = planned_for(settings, store, QUESTIONS[:1], "brief-context", model=narrow).strategies
    assert row.states["may not fit the window"] == 1
    assert row.calls.most == 6, "each half of the findings fits, their sums may not"
    assert row.prompt_tokens.most > row.prompt_tokens.least


# -- cases, each treated in its own way ------------------------------------------------------------------------------


def compared(n: int) -> tuple[Case, ...]:
    """What `experiment models` asks of n questions: 1 and 20 and 20 calls each."""
    asked = [
        Question(f"Case {i}: what is it?", options=OPTIONS, form="choice", id=str(i), gold="ABC"[i % 3])
        for i in range(n)
    ]
    shown = tuple(
        Example(id=f"near/{i}", text=f"Another case {i}?", answer="It is so.", options=OPTIONS, choice="B")
        for i in range(5)
    )
    return build_cases(model_comparison, {"own": asked}, examples={"near": lambda question: Examples(shown)})


def for_cases(settings: Settings, store: MemoryStore, cases: Sequence[Case], sample: int = 20) -> StrategyPlan:
    pairs = [(case.question, case.treatment) for case in cases]
    pipeline = pipeline_of(settings, ScriptedModel(never), store)
    (row,) = asyncio.run(plan_cases(pipeline, settings, pairs, sample=sample)).strategies
    return row


def spent_on(settings: Settings, store: MemoryStore, cases: Sequence[Case]) -> Usage:
    """What answering the cases really takes."""

    def script(request: ChatRequest) -> str:
        return json.dumps(fill(request.schema or {"type": "object"}, {"found": True, "choice": "B"}, "It is so."))

    model = ScriptedModel(script, probabilities=lambda request: dict.fromkeys(request.options, 0.3))
    pipeline = pipeline_of(settings, model, store)

    async def all_of_them() -> list[Answer]:
        return [await pipeline.answer(case.question, overrides=case.treatment) for case in cases]

    answers = asyncio.run(all_of_them())
    assert {answer.state for answer in answers} <= {"answered", "abstained"}
    return sum((answer.usage for answer in answers), Usage())


@pytest.mark.slow
def test_plan_of_cases_applies_overrides() -> None:
    settings, store = settings_of(strategy="medprompt"), store_of([])
    row, real = for_cases(settings, store, compared(6)), spent_on(settings, store, compared(6))
    assert row.calls == CostRange(*[real.calls] * 3)
    assert real.calls == 6 * 41
    assert row.prompt_tokens == CostRange(*[real.prompt_tokens] * 3), "no prompt of a vote depends on a reply"
    assert row.strategy == "zero-shot, self-consistency, medprompt"


@pytest.mark.long
def test_sample_of_cases_is_stratified_by_arm() -> None:
    """The cases of a question follow each other, some of one call and some of twenty-five."""
    store, settings = store_of([]), settings_of(strategy="self-consistency")
    asked = [case.question for case in compared(60)[::3]]
    for cases in (
        compared(60),
        compared(67),
        build_cases(ensembles, asked),
        build_cases(ensembles, asked[:7]),
    ):
        known = [case.treatment.options["votes"].n if "votes" in case.treatment.options else 1 for case in cases]
        assert for_cases(settings, store, cases).calls.expected == pytest.approx(sum(known), rel=0.08)


def test_case_with_overrides_reads_overridden_evidence() -> None:
    """Its ranking, its partition and no preflight; or its own scope."""
    settings = settings_of(strategy="brief-context", preflight={"enabled": True, "n": 1, "threshold": 0.0, "depth": 1})
    store, question = store_of(papers(12)), QUESTIONS[0]
    few = Ranking(Retriever(store, ENCODER, 60).rank(question.text, 4, "dense", Scope()).hits, "dense")
    parts = Case(
        question, {}, RunOverrides(options={"strategy": "brief-context", "partition": 2}, ranking=few, preflight=False)
    )
    alone = Case(question, {}, RunOverrides(options={"strategy": "rag"}, ranking=few))
    hidden = Case(question, {}, RunOverrides(scope=Scope(hidden=frozenset(f"d{i}" for i in range(12)))))
    assert [for_cases(settings, store, [case]).calls.expected for case in (parts, alone, hidden)] == [3, 1, 0]


# -- money, thinking, time ------------------------------------------------------------------------------------------

REMOTE = "https://models.example.org/v1#m"


def test_plan_computes_cost_from_price() -> None:
    price = {"input": 1.0, "output": 10.0}
    settings = settings_of(models={"writer": {"name": REMOTE, "price": price}})
    (row,) = planned_for(settings, store_of(papers(12)), QUESTIONS, "rag").strategies
    assert row.usd is not None
    tokens = row.prompt_tokens.most + 10 * row.completion_tokens.most
    assert row.usd.most == pytest.approx(tokens / 1e6)
    assert row.usd.least < row.usd.expected < row.usd.most


@pytest.mark.slow
def test_unknown_price_gives_unknown_cost_and_local_model_is_free() -> None:
    store = store_of(papers(3))
    (unknown,) = planned_for(settings_of(models={"writer": {"name": REMOTE}}), store, QUESTIONS, "rag").strategies
    (own,) = planned_for(settings_of(), store, QUESTIONS, "rag").strategies
    assert unknown.usd is None
    assert own.usd == CostRange(0, 0, 0)


def test_plan_includes_thinking_tokens() -> None:
    store, question = store_of(papers(3)), QUESTIONS[:1]
    (plain,) = planned_for(settings_of(), store, question, "closed-book").strategies
    thinks = settings_of(models={"writer": {"name": REMOTE, "max_reasoning_tokens": 1000}})
    (thinking,) = planned_for(thinks, store, question, "closed-book").strategies
    more = [getattr(thinking.completion_tokens, size) - getattr(plain.completion_tokens, size) for size in REPLY_SIZES]
    assert more == [0, 500, 1000]


def test_plan_time_is_unknown_without_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measured(model: ChatModel) -> Speed:
        return Speed(prompt=100.0, completion=10.0)

    settings, store = settings_of(), store_of(papers(12))
    assert planned_for(settings, store, QUESTIONS, "rag").strategies[0].seconds is None
    monkeypatch.setattr("epicrisis.pipeline.plan.strategy_plans.measure_speed", measured)
    timed = planned_for(settings, store, QUESTIONS, "rag", timed=True)
    (row,) = timed.strategies
    assert row.seconds is not None
    assert row.seconds.most == pytest.approx(row.prompt_tokens.most / 100 + row.completion_tokens.most / 10)
    assert timed.at_once == {"scripted": 1}, "an embedded model takes its calls in turn"


def test_concurrent_calls_take_time_of_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measured(model: ChatModel) -> Speed:
        return Speed(prompt=1e9, completion=1.0)

    monkeypatch.setattr("epicrisis.pipeline.plan.strategy_plans.measure_speed", measured)
    settings = settings_of(models={"writer": {"name": REMOTE, "concurrency": 100}}, citing="quotes")
    timed = planned_for(settings, store_of(papers(12)), QUESTIONS[:1], "brief-context", timed=True)
    (row,) = timed.strategies
    assert row.seconds is not None
    map_call = AnswerFormat(
        OPTIONS, text_field="finding", text_characters=FINDING_CHARACTERS, documents=3, choice_may_be_null=True
    ).max_tokens
    reduce_call = AnswerFormat(OPTIONS, sources=9).max_tokens
    assert row.seconds.most == pytest.approx(map_call + reduce_call, abs=0.01)


def test_plan_time_includes_rate_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measured(model: ChatModel) -> Speed:
        return Speed(prompt=1e9, completion=1e9)

    monkeypatch.setattr("epicrisis.pipeline.plan.strategy_plans.measure_speed", measured)
    for limit in ("requests_per_minute", "tokens_per_minute"):
        settings = settings_of(models={"writer": {"name": REMOTE, limit: 1}})
        (row,) = planned_for(settings, store_of(papers(3)), QUESTIONS, "rag", timed=True).strategies
        tokens = row.prompt_tokens.most + row.completion_tokens.most
        assert row.seconds is not None
        assert row.seconds.most == 60 * (len(QUESTIONS) if limit == "requests_per_minute" else tokens)


def test_speed_is_measured_with_two_short_calls() -> None:
    model = ScriptedModel(lambda request: "one " * request.max_tokens)
    speed = asyncio.run(measure_speed(model))
    assert speed.prompt > 0
    assert speed.completion > 0
    read, wrote = model.requests
    assert 190 <= count_words(read.messages[0].content) <= 210
    assert (read.max_tokens, wrote.max_tokens) == (1, 50)
    assert count_words(wrote.messages[0].content) < 20


# -- many questions -------------------------------------------------------------------------------------------------


def many(n: int) -> list[Question]:
    return [replace(QUESTIONS[i % 3], id=str(i), text=QUESTIONS[i % 3].text + " Why?" * (i % 7)) for i in range(n)]


@pytest.mark.long
def test_sample_estimate_has_confidence_interval() -> None:
    settings, store, questions = settings_of(), store_of(papers(12)), many(90)
    whole = planned_for(settings, store, questions, "rag").strategies[0]
    sampled = planned_for(settings, store, questions, "rag", sample=30)
    (row,) = sampled.strategies
    assert (sampled.questions, sampled.planned) == (90, 30)
    assert row.calls == CostRange(90, 90, 90)
    assert not row.exact
    assert whole.prompt_tokens.margin == 0 < row.prompt_tokens.margin < 0.1 * row.prompt_tokens.expected
    assert abs(row.prompt_tokens.expected - whole.prompt_tokens.expected) < 1.5 * row.prompt_tokens.margin
    assert planned_for(settings, store, questions, "rag", sample=30) == sampled, "the sample has a seed"


def test_sample_sum_matches_manual_example() -> None:
    """Ten questions, four planned: mean 3, standard deviation sqrt(10/3), half-width 1.96 * 10 * s / 2 * sqrt(0.6)."""
    rows = [(0, 1, 9), (1, 2, 9), (1, 5, 9), (2, 4, 9)]
    made = extrapolate(rows, 10)
    assert (made.least, made.expected, made.most) == (10, 30, 90)
    assert made.margin == pytest.approx(1.96 * 10 * math.sqrt(10 / 3) / 2 * math.sqrt(0.6))
    assert extrapolate(rows, 4) == CostRange(4, 12, 36)
    assert extrapolate([(5, 3, 1)], 1) == CostRange(1, 3, 5), "ends out of order"


@pytest.mark.slow
def test_plan_samples_two_hundred_by_default() -> None:
    seen: list[int] = []
    made = planned_for(settings_of(), store_of([]), many(230), "closed-book", advance=seen.append)
    assert (made.questions, made.planned) == (230, 200)
    assert seen == [200] * 200


def test_invalid_plan_request_raises(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give a question"):
        planned_for(settings_of(), store_of([]), [], "rag")
    with pytest.raises(InputError, match="and a strategy"):
        planned_for(settings_of(), store_of([]), QUESTIONS)
    with pytest.raises(InputError, match="--sample"):
        planned_for(settings_of(), store_of([]), many(3), "rag", sample=1)
    with pytest.raises(InputError, match="known are brief-context, chain-of-thought"):
        asyncio.run(estimate_costs(settings_of(), tmp_path, QUESTIONS, ["brief"]))


class Deaf(Layer):
    """Counts nothing."""

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        raise EndpointUnreachable("no endpoint there: start it")


class Estimating(Layer):
    """Counts from above."""

    async def capabilities(self) -> Capabilities:
        return replace(await super().capabilities(), exact_token_counts=False)


def test_estimate_is_not_labelled_exact() -> None:
    model = Estimating(ScriptedModel(never))
    made = planned_for(settings_of(), store_of(papers(3)), QUESTIONS, *DEFAULT_STRATEGIES, model=model)
    assert not made.exact_counts
    assert not any(row.exact for row in made.strategies)


@pytest.mark.parametrize("strategy", sorted({*list_strategy_names()} - {"medprompt", "full-context", "evidence"}))
def test_plan_without_token_count_fails(strategy: str) -> None:
    """A strategy would take it for an answer that failed."""
    with pytest.raises(UserError, match="start it"):
        planned_for(settings_of(), store_of(papers(12)), QUESTIONS, strategy, model=Deaf(ScriptedModel(never)))


def test_route_is_planned_in_highest_estimate_only() -> None:
    made = {}
    for route in ("off", "brief-context"):
        settings = settings_of(route=route, preflight={"enabled": False})
        (made[route],) = planned_for(settings, store_of(papers(12)), QUESTIONS, "rag").strategies
    n = len(QUESTIONS)
    assert (made["off"].calls.least, made["off"].calls.most) == (n, n)
    assert (made["brief-context"].calls.least, made["brief-context"].calls.expected) == (n, n)
    assert made["brief-context"].calls.most > 2 * n


def test_option_reply_is_planned_as_one_token() -> None:
    model = PlanningModel(CountingModel(ScriptedModel(never)), "most", {}, lambda usage: 0.0, None)
    asked = ChatRequest((Message("user", "A or B?"),), max_tokens=1, options=("A", "B"))
    answered = asyncio.run(model.complete(asked))
    assert answered.usage.completion_tokens == 1
    assert answered.option_logprobs is not None
    assert sum(map(math.exp, answered.option_logprobs.values.values())) == pytest.approx(1)


# -- asking before a run --------------------------------------------------------------------------------------------


def plan_of(usd: CostRange | None, tokens: float) -> CostPlan:
    row = StrategyPlan(
        strategy="rag",
        calls=CostRange(9, 9, 9),
        prompt_tokens=CostRange(0, tokens, tokens),
        completion_tokens=CostRange(0, 0, 0),
        usd=usd,
        seconds=None,
        exact=True,
        states={},
    )
    return CostPlan(
        questions=9, planned=9, models=("m",), exact_counts=True, strategies=(row,), speeds={}, at_once={"m": 1}
    )


@pytest.mark.parametrize(
    ("usd", "tokens", "said"),
    [
        (CostRange(1, 4.99, 90), 1e9, None),
        (CostRange(1, 5.01, 90), 1, r"9 questions with rag on m .*\$5.01 \(at least \$1.00, at most \$90.00\).*\$5.00"),
        (None, 20_000_000, None),
        (None, 20_000_001, r"20,000,001 tokens .*unknown price.*20,000,000"),
        (CostRange(0, 0, 0), 1e12, None),
    ],
)
def test_run_over_threshold_asks_for_confirmation(usd: CostRange | None, tokens: float, said: str | None) -> None:
    asked = threshold_question(plan_of(usd, tokens), load_settings())
    if said is None:
        assert asked is None
    else:
        import re

        assert asked is not None
        assert re.search(said, asked)
        assert asked.endswith("Go on?")


@pytest.mark.slow
def test_run_estimate_uses_sample_of_questions() -> None:
    store, questions = store_of(papers(12)), many(60)
    price = {"input": 1.0, "output": 1.0}
    settings = settings_of(
        strategy="rag", models={"writer": {"name": REMOTE, "price": price}}, plan={"ask_above_usd": 0.01}
    )
    asked = asyncio.run(confirmation_question(pipeline_of(settings, ScriptedModel(never), store), settings, questions))
    assert asked is not None
    assert "60 questions with rag" in asked


@pytest.mark.slow
def test_run_estimate_uses_sample_of_cases() -> None:
    """Those that are still to be asked; where all are as the settings say, they are planned as questions are."""
    cases, store = compared(60), store_of([])
    settings = settings_of(
        strategy="medprompt", models={"writer": {"name": REMOTE}}, plan={"ask_above_tokens": 60 * 41 * 10}
    )

    def asked(settings: Settings, *treatments: RunOverrides) -> str | None:
        questions = [case.question for case in cases[: len(treatments)]]
        pipeline = pipeline_of(settings, ScriptedModel(never), store)
        return asyncio.run(confirmation_question(pipeline, settings, questions, treatments))

    said = asked(settings, *(case.treatment for case in cases))
    assert said is not None
    assert said.startswith("180 cases on scripted are expected to take ")
    assert asked(settings, *(case.treatment for case in cases[:3])) is None, "three are left"
    always = settings.plan.model_copy(update={"ask_above_tokens": 0})
    plain = settings.model_copy(update={"strategy": "closed-book", "plan": always})
    questions = [case.question for case in cases]
    pipeline = pipeline_of(plain, ScriptedModel(never), store)
    as_questions = asyncio.run(confirmation_question(pipeline, plain, questions))
    assert as_questions is not None
    assert as_questions.startswith("180 questions with closed-book on")
    assert asked(plain, *[NO_OVERRIDES] * len(cases)) == as_questions


def test_confirmation_is_skipped_for_free_run() -> None:
    settings = settings_of(plan={"ask_above_usd": 0.0, "ask_above_tokens": 0})
    pipeline = pipeline_of(settings, Deaf(ScriptedModel(never)), store_of(papers(3)))
    assert asyncio.run(confirmation_question(pipeline, settings, QUESTIONS)) is None
    charged = settings_of(models={"writer": {"name": REMOTE}}, plan={"ask_above_tokens": 0}, cache={"mode": "replay"})
    assert asyncio.run(confirmation_question(pipeline, charged, QUESTIONS)) is None, "replayed"
    with pytest.raises(UserError, match="start it"):
        asyncio.run(confirmation_question(pipeline, charged.model_copy(update={"cache": settings.cache}), QUESTIONS))


def test_format_dollars_rounds_amounts() -> None:
    assert [format_dollars(x) for x in (0, 0.00001, 0.0123, 12.3, 1234.5)] == [
        "$0.00",
        "<$0.0001",
        "$0.0123",
        "$12.30",
        "$1,234.50",
    ]


# -- the embedded model ---------------------------------------------------------------------------------------------


class Terse(Layer):
    """Asks for one token, so that a real model takes no time to write."""

    def __init__(self, inner: ChatModel) -> None:
        super().__init__(inner)
        self.prompts: list[int] = []

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        answered = await super().complete(replace(request, max_tokens=1, schema=None), on_delta)
        self.prompts.append(answered.usage.prompt_tokens)
        return replace(answered, text=json.dumps({"result": {"found": False}}), finish_reason="stop")


@pytest.mark.long
@pytest.mark.models
def test_plan_uses_token_count_of_server(model_home: Path) -> None:
    from epicrisis.pipeline.components import open_models

    settings = settings_of(home=model_home, k=2, threads=1, citing="quotes")
    store = store_of([(title, text[:60]) for title, text in papers(4)])
    real = Terse(open_models(settings, None)["writer"])

    async def both() -> tuple[CostPlan, list[int]]:
        pipeline = pipeline_of(settings, real, store)
        made = await plan_questions(pipeline, settings, QUESTIONS[:1], ["rag"])
        assert real.prompts == []
        await pipeline_of(settings.model_copy(update={"strategy": "rag"}), real, store).answer(QUESTIONS[0])
        await real.aclose()
        return made, real.prompts

    made, counted = asyncio.run(both())
    (row,) = made.strategies
    assert [row.prompt_tokens] == [CostRange(n, n, n) for n in counted]
    assert row.exact
    least, expected, most = (getattr(row.completion_tokens, size) for size in REPLY_SIZES)
    assert least < 20 < 100 < expected < most == AnswerFormat(OPTIONS, documents=2).max_tokens
