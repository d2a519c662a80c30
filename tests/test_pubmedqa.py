"""Retrieval and position on real abstracts: figures known from elsewhere, and a reader whose blind spot is known."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.answering.strategies.rag import rag
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Answer
from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest, Encoder
from epicrisis.core.types import Passage, Question, Ranking, Scope, SearchMode
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import AnswerOptions
from epicrisis.testing.chat import ScriptedModel
from tests.support.position_biased_reader import KeyPassage, position_biased_reader, u_curve

pytestmark = [pytest.mark.data, pytest.mark.models, pytest.mark.long]

QUESTIONS = 400
K = 16
PARTITION = 4
PLACES = (0, 4, 7, 11, 15)
EVERYTHING = Scope()


@pytest.mark.parametrize(
    ("by", "least", "most"), [("bm25", 0.95, 0.985), ("dense", 0.95, 0.985), ("hybrid", 0.96, 0.99)]
)
def test_search_returns_abstract_of_question(
    by: SearchMode,
    least: float,
    most: float,
    pubmedqa_library: LibraryStore,
    pubmedqa_questions: list[Question],
    encoder: Encoder,
) -> None:
    """Lower means that something is broken, higher that something leaks."""
    retriever = Retriever(pubmedqa_library, encoder)
    first = 0
    for question in pubmedqa_questions[:QUESTIONS]:
        ranking = retriever.rank(question.text, K, by, EVERYTHING)
        first += ranking.hits[0].passage.document_id in question.gold_documents
    assert least <= first / QUESTIONS <= most


@dataclass(frozen=True)
class Case:
    """A question with its key passage and the other passages that were really retrieved for it."""

    question: Question
    key: Passage
    retrieved: tuple[Passage, ...]

    def placed(self, place: int) -> Ranking:
        """The ranking of the study: the key passage at `place`, the retrieved others around it in their order."""
        others = [passage for passage in self.retrieved if passage.document_id != self.key.document_id][: K - 1]
        return ranking_of([*others[:place], self.key, *others[place:]])


def ranking_of(passages: Sequence[Passage]) -> Ranking:
    from epicrisis.core.types import Hit

    return Ranking(tuple(Hit(passage, 1.0 / (rank + 1), rank) for rank, passage in enumerate(passages)), "placed")


@pytest.fixture(scope="module")
def cases(pubmedqa_library: LibraryStore, pubmedqa_questions: list[Question], encoder: Encoder) -> list[Case]:
    retriever = Retriever(pubmedqa_library, encoder)
    made = []
    for question in pubmedqa_questions[:QUESTIONS]:
        (key,) = pubmedqa_library.fetch([f"{question.gold_documents[0]}#0"], EVERYTHING)
        made.append(Case(question, key, retriever.rank(question.text, K + 4, "dense", EVERYTHING).passages))
    return made


@dataclass(frozen=True)
class Outcome:
    """What came of one arm at one place: the answers, and every request the reader saw."""

    answers: list[Answer]
    requests: list[ChatRequest]


def run_arm(strategy: Callable[..., object], cases: list[Case], rank: Callable[[Case], Ranking]) -> Outcome:
    """Answers each case from the ranking that `rank` gives it."""
    keys = {case.question.text: KeyPassage(case.key.text, case.question.gold or "") for case in cases}
    reader = position_biased_reader(keys, u_curve())

    async def all_of_them() -> list[Answer]:
        return [await strategy(case.question, context_of(reader, rank(case))) for case in cases]  # type: ignore[misc]

    return Outcome(asyncio.run(all_of_them()), reader.requests)


def context_of(model: ScriptedModel, ranking: Ranking) -> Context:
    async def retrieve(_: Question) -> Ranking:
        return ranking

    roles = dict.fromkeys(("writer", "map", "reduce"), model)
    # The reader attends to passages by their places, so these are what is counted.
    return Context(
        options=AnswerOptions(citing="quotes", describe_sources=False, partition=PARTITION, count="passages"),
        models=roles,
        scope=EVERYTHING,
        emit=lambda event: None,
        retrieve=retrieve,
    )


def assert_rate(successes: int, n: int, probability: float) -> None:
    """Within 3.3 standard errors of the expected rate; exactly the rate where it is 0 or 1."""
    margin = 3.3 * math.sqrt(probability * (1 - probability) / n)
    assert abs(successes / n - probability) <= margin + 1e-12, f"{successes}/{n} against {probability:.3f}"


def right(answers: Sequence[Answer]) -> int:
    return sum(answer.state == "answered" and answer.choice == answer.question.gold for answer in answers)


@pytest.mark.parametrize("place", PLACES)
def test_rag_accuracy_matches_reader_curve(place: int, cases: list[Case]) -> None:
    outcome = run_arm(rag, cases, lambda case: case.placed(place))
    assert all(unfence(request.messages[-1].content)[place] for request in outcome.requests)
    assert_rate(right(outcome.answers), len(cases), u_curve()(place, K))


def check_brief_context(place: int, cases: list[Case], rank: Callable[[Case], Ranking]) -> None:
    """The key passage stands in the map prompts where the study put it, every map call is as the curve says, and so is
    the whole."""
    outcome = run_arm(brief_context, cases, rank)
    partition, within = divmod(place, PARTITION)
    for case, answer in zip(cases, outcome.answers, strict=True):
        assert answer.partials[partition].passages[within] == case.key.id
    curve = u_curve()
    with_key = [answer.partials[partition] for answer in outcome.answers]
    without_key = [p for answer in outcome.answers for p in answer.partials if p.partition != partition]
    expected = curve(within, PARTITION)
    assert_rate(sum(partial.state == "relevant" for partial in with_key), len(cases), expected)
    assert all(partial.state == "nothing" for partial in without_key)
    # One finding comes through, and a single item is always read.
    assert_rate(right(outcome.answers), len(cases), expected * curve(0, 1))
    assert all(a.citations and a.citations[0].verified for a in outcome.answers if a.state == "answered")


@pytest.mark.parametrize("place", PLACES)
def test_map_accuracy_matches_reader_curve(place: int, cases: list[Case]) -> None:
    check_brief_context(place, cases, lambda case: case.placed(place))


def test_map_with_other_ranking_is_detected(cases: list[Case]) -> None:
    """Errata C1: the map calls read the original order, the study's ranking reaches only the other arm."""
    with pytest.raises(AssertionError):
        check_brief_context(7, cases, lambda case: ranking_of(case.retrieved[:K]))


def test_brief_context_has_flatter_curve_than_rag(cases: list[Case]) -> None:
    """By the amount the curve says: at the worst place of 16, and over all places."""
    some = cases[:300]
    worst = run_arm(rag, some, lambda case: case.placed(7))
    ours = run_arm(brief_context, some, lambda case: case.placed(7))
    curve = u_curve()
    gain = curve(3, PARTITION) - curve(7, K)
    margin = 3.3 * math.sqrt(0.5 / len(some))
    assert abs((right(ours.answers) - right(worst.answers)) / len(some) - gain) <= margin
    assert gain > margin


def test_equal_cases_give_equal_answers(cases: list[Case]) -> None:
    first = run_arm(brief_context, cases[:20], lambda case: case.placed(5))
    again = run_arm(brief_context, cases[:20], lambda case: case.placed(5))
    assert [replace(a, trace=()) for a in first.answers] == [replace(a, trace=()) for a in again.answers]
