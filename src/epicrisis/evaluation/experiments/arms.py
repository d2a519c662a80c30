"""The arms that experiments compare, and the cases of one question: its key passages among its distractors.

An arm is a strategy and the order in which it reads the placed passages. All arms of a case start from the same ranking
(errata C1).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from epicrisis.core.errors import InputError
from epicrisis.core.partitioning import group_passages
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.types import CountUnit, Examples, Passage, Preflight, Question, Ranking
from epicrisis.evaluation.experiments.passage_source import PassageSource
from epicrisis.evaluation.experiments.placement import place_keys
from epicrisis.evaluation.experiments.study_protocols import StudyProtocol
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.case import Case, Condition, canonical_condition
from epicrisis.retrieval.rankings import (
    group_by_document,
    move_worst_to_middle,
    rank_in_order,
    reciprocal_rank_fusion,
    rerank,
    take_first,
)

ARMS: Mapping[str, str] = {
    "rag": "all passages in one prompt, in the order of the ranking",
    "brief-context": "BriefContext's map and reduce over the same ranking, without its preflight check",
    "ends": "RAG, the ranking's best passages at both ends and its worst in the middle",
    "reranked": "RAG, in the order of a reranker",
    "fused": "RAG, in the order of the ranking fused with BM25's over the same passages",
    "oracle": "RAG with the key passage alone: the upper bound",
    "closed-book": "the question alone: the lower bound",
    "chain-of-thought": "the question alone, with reasoning before the answer",
}
UNPLACED = frozenset({"oracle", "closed-book", "chain-of-thought"})
"""Arms without a placed ranking: one case per question and repeat."""

_STRATEGIES: Mapping[str, str] = {
    "brief-context": "brief-context",
    "brief-context+preflight": "brief-context",
    "closed-book": "closed-book",
    "chain-of-thought": "chain-of-thought",
}
"""All other arms are plain RAG."""

ExampleFinder: TypeAlias = Callable[[Question], Examples]


def check_names(arms: Iterable[str], names: Collection[str]) -> None:
    """Raise InputError for an arm that is not among the known ones."""
    for arm in arms:
        if arm not in names:
            raise InputError(f"no arm is called {arm}: known are {', '.join(names)}")


def condition_order(condition: Condition) -> tuple[float, ...]:
    """Return a sort key: arms in the order of ARMS, then by number.

    Concurrent calls end in any order; sorted outcomes make the same tables every time.
    """
    arm = str(condition.get("arm", ""))
    rank = list(ARMS).index(arm) if arm in ARMS else len(ARMS)
    numbers = [condition.get(name) for name in ("k", "place", "repeat")]
    return (rank, *(float(number) if isinstance(number, int) else -1.0 for number in numbers))


def pair_key(question: str, condition: Condition) -> tuple[str, str]:
    """Return a question's key and its condition without the arm: equal for the two cases of a pair."""
    others = {name: value for name, value in condition.items() if name != "arm"}
    return question, canonical_condition(others)


@dataclass(frozen=True, slots=True)
class QuestionPassages:
    """One question with the passages of its cases."""

    question: Question
    keys: tuple[Passage, ...]
    """Passages of the gold document, or of all of them; empty where nothing is placed."""
    retrieved: Ranking
    """Deep enough for the largest k plus the gold documents in it."""
    count: CountUnit = "documents"
    """The unit of k."""

    def place(self, k: int, place: int, pool: Sequence[Passage] | None = None) -> Ranking:
        """Return a ranking of `k` with the keys at percentile `place`, among what was retrieved or among the pool."""
        others, origin = (self.retrieved.passages, "retrieved") if pool is None else (pool, "random")
        gold = self.question.gold_documents
        try:
            return place_keys(self.keys, others, k, place, gold=gold, distractors=origin, count=self.count)
        except InputError as error:
            raise InputError(f"question {self.question.id!r}: {error.message}") from None


@dataclass(frozen=True, slots=True)
class Study:
    """The inputs that all experiments share: passage source, protocol, repeats, seed and solved examples."""

    source: PassageSource
    protocol: StudyProtocol
    repeats: int = 1
    """Repeat r asks every question again with the seed + r."""
    seed: int = 0
    examples: Mapping[str, ExampleFinder] = field(default_factory=dict)
    """Searches for solved questions, by their names in the tables."""

    def check(self, arms: Collection[str]) -> None:
        """Raise InputError for an unknown arm, or an arm without the ranker it needs."""
        check_names(arms, ARMS)
        if "reranked" in arms and self.source.reranker is None:
            raise InputError("the arm `reranked` needs a reranker: give one with --reranker, or leave the arm out")

    def gather(self, questions: Sequence[Question], depth: int) -> tuple[QuestionPassages, ...]:
        """Return the key passages of each question, and enough retrieved passages for `depth` distractors.

        Raises InputError if a question has no gold letter or no gold document, or if the library lacks its gold
        document: skipping the question would change the sample (errata C7).
        """
        check_questions(questions)
        available = self.read_gold_passages(questions)
        gathered = []
        for question, passages in zip(questions, available, strict=True):
            keys = self._choose_keys(question, passages)
            retrieved = self.source.retrieve(question, depth + sum(map(len, passages.values())))
            gathered.append(QuestionPassages(question, keys, retrieved, self.source.count))
        return tuple(gathered)

    def read_gold_passages(self, questions: Sequence[Question]) -> list[Mapping[str, tuple[Passage, ...]]]:
        """Return the passages of the gold documents of each question. Raises InputError if the library lacks one."""
        available = [self.source.gold_passages(question) for question in questions]
        lacking: list[tuple[str, str]] = []
        for question, passages in zip(questions, available, strict=True):
            missing = [name for name in question.gold_documents if name not in passages]
            if missing:
                lacking.append((question.id, missing[0]))
        if lacking:
            question_id, name = lacking[0]
            raise InputError(
                f"{len(lacking)} of {count_noun(len(questions), 'question')} {agree(len(lacking), 'has', 'have')} gold "
                "documents that the library does not hold "
                f"({name} of question {question_id!r}, ...), or holds as retracted: add them, leave those "
                "questions out, or read retracted ones with --setting 'scope.include=[\"retracted\"]'"
            )
        return available

    def _choose_keys(self, question: Question, available: Mapping[str, tuple[Passage, ...]]) -> tuple[Passage, ...]:
        """Return the passages of one gold document, chosen by the seed, or of all of them."""

        def draw(name: str) -> bytes:
            return hashlib.sha256(f"{self.seed}:{question.id}:{name}".encode()).digest()

        names = list(question.gold_documents)
        if self.protocol.gold == "one":
            names = [min(names, key=draw)]
        return tuple(chain.from_iterable(available[name] for name in names))

    def retrieve(self, questions: Sequence[Question], depth: int) -> tuple[QuestionPassages, ...]:
        """Return the passages retrieved for each question, without key passages, where nothing is placed.

        Raises InputError where a question has no gold letter.
        """
        check_questions(questions, gold_documents=False)
        source = self.source
        return tuple(QuestionPassages(q, (), source.retrieve(q, depth), source.count) for q in questions)

    def cases(
        self,
        passages: QuestionPassages,
        condition: Condition,
        ranking: Ranking | None = None,
        preflight: bool | Preflight = False,
    ) -> list[Case]:
        """Return one case per repeat of the condition's `arm`, which reads `ranking` if it reads one."""
        arm = str(condition["arm"])
        ordered, count = _order(arm, passages, ranking, self.source, self.protocol), self.source.count
        options: dict[str, Any] = {"strategy": _STRATEGIES.get(arm, "rag"), "count": count}
        if ordered is not None:
            options["partition"] = self.protocol.partition_size(len(group_passages(ordered.passages, count)))
        overrides = RunOverrides(
            options=options,
            ranking=ordered,
            preflight=preflight,
            temperature=self.protocol.temperature,
            top_p=self.protocol.top_p,
            paper_prompts=self.protocol.prompts,
        )
        return repeat_case(passages.question, condition, overrides, self.seed, self.repeats)

    def bound_cases(self, passages: QuestionPassages, arms: Iterable[str]) -> list[Case]:
        """Return the cases of the arms without a placed ranking."""
        cases: list[Case] = []
        for arm in arms:
            if arm in UNPLACED:
                cases += self.cases(passages, {"arm": arm})
        return cases

    def placed_cases(
        self, passages: QuestionPassages, arms: Iterable[str], rankings: Sequence[tuple[Condition, Ranking]]
    ) -> list[Case]:
        """Return the cases of the other arms: each reads each ranking, under its condition."""
        cases: list[Case] = []
        for arm in arms:
            for condition, ranking in rankings if arm not in UNPLACED else ():
                cases += self.cases(passages, {"arm": arm, **condition}, ranking)
        return cases


def unique_cases(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return each case once."""
    return tuple({case.key: case for case in cases}.values())


def repeat_case(
    question: Question, condition: Condition, overrides: RunOverrides, seed: int, repeats: int
) -> list[Case]:
    """Return one case per repeat: repeat r has the seed + r."""
    return [Case(question, {**condition, "repeat": r}, overrides.change(seed=seed + r)) for r in range(repeats)]


def _order(
    arm: str, passages: QuestionPassages, ranking: Ranking | None, source: PassageSource, protocol: StudyProtocol
) -> Ranking | None:
    """Return the passages in the order in which the arm reads them."""
    if arm == "oracle":
        return rank_in_order(passages.keys, "oracle", {"keys": [key.id for key in passages.keys]})
    if ranking is None:
        return None
    if arm == "brief-context" and protocol.map_reads == "retrieved":
        return take_first(passages.retrieved, len(group_passages(ranking.passages, source.count)), source.count)
    if arm == "ends":
        return move_worst_to_middle(ranking, source.count)
    if arm == "reranked" and source.reranker is not None:
        name, reranker = source.reranker
        rescored = rerank(ranking, passages.question.text, reranker, name, len(ranking.hits))
        return group_by_document(rescored, source.count)
    if arm == "fused":
        by_words = [word[0] for word in source.words(passages.question, ranking.ids)]
        by_id = dict(zip(ranking.ids, ranking.passages, strict=True))
        fused = (item[0] for item in reciprocal_rank_fusion([ranking.ids, by_words], source.rrf_k))
        ordered = rank_in_order([by_id[item] for item in fused], "placed+fused", ranking.parameters)
        return group_by_document(ordered, source.count)
    return ranking


def check_questions(questions: Sequence[Question], *, gold_documents: bool = True) -> None:
    """Raise InputError without questions, and where one lacks options, a gold letter or a needed gold document."""
    if not questions:
        raise InputError("there is no question to ask: draw at least one")
    incomplete: list[Question] = []
    for question in questions:
        if question.gold not in question.options or (gold_documents and not question.gold_documents):
            incomplete.append(question)
    if incomplete:
        needed = "options, no gold letter or no gold document" if gold_documents else "options or no gold letter"
        raise InputError(
            f"{len(incomplete)} of {count_noun(len(questions), 'question')} {agree(len(incomplete), 'has', 'have')} no "
            f"{needed} ({incomplete[0].id!r}, ...): this "
            f"experiment needs {'all three' if gold_documents else 'both'}, so take another question set"
        )
