"""The arms that experiments compare, and what a question's cases are made of: its key passages and its distractors.

An arm is a strategy and the order in which it reads the placed passages; all of a case's arms start from the same
ranking (errata C1). Knows no grid of conditions and no table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from epicrisis.counting import units
from epicrisis.errors import InputError
from epicrisis.evaluation.experiments.passage_source import PassageSource
from epicrisis.evaluation.experiments.placement import place_keys
from epicrisis.evaluation.experiments.study_protocols import StudyProtocol
from epicrisis.evaluation.runs.case import Case, Condition
from epicrisis.overrides import RunOverrides
from epicrisis.retrieval.document_ranking import first, regrouped
from epicrisis.retrieval.fusion import reciprocal_rank_fusion
from epicrisis.retrieval.ordering import at_both_ends, in_order
from epicrisis.retrieval.rerank import reranked
from epicrisis.types import CountUnit, Examples, Passage, Preflight, Question, Ranking, StrategyName

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
"""Arms that read no placed ranking: they are asked once a question and repeat."""


def condition_order(condition: Condition) -> tuple[float, ...]:
    """For sorting: arms in their order here, then by number. Calls at once end in any order; tables have one."""
    arm = str(condition.get("arm", ""))
    numbers = (condition.get(name) for name in ("k", "place", "repeat"))
    known = [float(value) if isinstance(value, int) else -1.0 for value in numbers]
    return (list(ARMS).index(arm) if arm in ARMS else len(ARMS), *known)


_STRATEGIES: Mapping[str, StrategyName] = {
    "brief-context": "brief-context",
    "brief-context+preflight": "brief-context",
    "closed-book": "closed-book",
    "chain-of-thought": "chain-of-thought",
}
"""All other arms are plain RAG."""


@dataclass(frozen=True, slots=True)
class QuestionPassages:
    """One question with the passages that its cases are made of."""

    question: Question
    keys: tuple[Passage, ...]
    """Of the document, or the documents, that hold the answer; none where the study places nothing."""
    retrieved: Ranking
    """Deep enough for the largest k, the gold documents among it."""
    count: CountUnit = "documents"
    """What k counts."""

    def placed(self, k: int, place: int, pool: Sequence[Passage] | None = None) -> Ranking:
        """The study's ranking: the keys at their place among what was retrieved, or among the pool."""
        others, made = (self.retrieved.passages, "retrieved") if pool is None else (pool, "random")
        try:
            return place_keys(
                self.keys, others, k, place, gold=self.question.gold_documents, distractors=made, count=self.count
            )
        except InputError as error:
            raise InputError(f"question {self.question.id!r}: {error.message}") from None


ExampleFinder: TypeAlias = Callable[[Question], Examples]


@dataclass(frozen=True, slots=True)
class Study:
    """What all experiments are handed: where passages come from, the protocol, how often all is asked, the seed."""

    evidence: PassageSource
    protocol: StudyProtocol
    repeats: int = 1
    """Repeat r asks everything once more with the seed + r."""
    seed: int = 0
    examples: Mapping[str, ExampleFinder] = field(default_factory=dict)
    """Searches for solved questions, by the names that the tables give them."""

    def check(self, arms: Collection[str]) -> None:
        """Raises InputError for an arm that is not known, or that lacks what it needs."""
        unknown = [arm for arm in arms if arm not in ARMS]
        if unknown:
            raise InputError(f"no arm is called {unknown[0]}: known are {', '.join(ARMS)}")
        if "reranked" in arms and self.evidence.reranker is None:
            raise InputError("the arm reranked needs a reranker: name one, or leave the arm out")
        if "fused" in arms and self.evidence.words is None:
            raise InputError("the arm fused needs a search by words: give one, or leave the arm out")

    def gather(self, questions: Sequence[Question], depth: int) -> tuple[QuestionPassages, ...]:
        """The material of each question, `depth` distractors deep.

        Raises InputError where a question has no gold letter or no gold document, or where one of them is not there:
        with a question less it would be another sample (errata C7).
        """
        _check_questions(questions)
        found = [(question, self.evidence.passages_of(question)) for question in questions]
        missing = {q.id: [name for name in q.gold_documents if name not in there] for q, there in found}
        lost = [id_ for id_, names in missing.items() if names]
        if lost:
            raise InputError(
                f"{len(lost)} of {len(questions)} questions have gold documents that the library does not hold "
                f"({missing[lost[0]][0]} of question {lost[0]!r}, ...), or holds as retracted: add them, leave those "
                "questions out, or read retracted ones with --setting 'scope.include=[\"retracted\"]'"
            )
        return tuple(
            QuestionPassages(
                question,
                _keys(question, there, self.protocol, self.seed),
                self.evidence.retrieve(question, depth + sum(map(len, there.values()))),
                self.evidence.count,
            )
            for question, there in found
        )

    def found(self, questions: Sequence[Question], depth: int) -> tuple[QuestionPassages, ...]:
        """What is retrieved for each question, `depth` documents or passages deep, where nothing is placed and no
        key need be known.

        Raises InputError where a question has no gold letter.
        """
        _check_questions(questions, gold_documents=False)
        count = self.evidence.count
        return tuple(
            QuestionPassages(question, (), self.evidence.retrieve(question, depth), count) for question in questions
        )

    def cases(
        self,
        material: QuestionPassages,
        condition: Condition,
        ranking: Ranking | None = None,
        preflight: bool | Preflight = False,
    ) -> list[Case]:
        """One case a repeat, of the condition's `arm`; `ranking` is the study's, for the arms that read one."""
        arm = str(condition["arm"])
        read, count = _read(arm, material, ranking, self.evidence, self.protocol), self.evidence.count
        treatment = RunOverrides(
            strategy=_STRATEGIES.get(arm, "rag"),
            ranking=read,
            preflight=preflight,
            partition=self.protocol.partition_of(len(units(read.passages, count))) if read else None,
            count=count,
            temperature=self.protocol.temperature,
        )
        return [
            Case(material.question, {**condition, "repeat": repeat}, replace(treatment, seed=self.seed + repeat))
            for repeat in range(self.repeats)
        ]

    def bounds(self, material: QuestionPassages, arms: Iterable[str]) -> list[Case]:
        """The cases of those of the arms that read no placed ranking."""
        return [each for arm in arms if arm in UNPLACED for each in self.cases(material, {"arm": arm})]


def _read(
    arm: str, material: QuestionPassages, ranking: Ranking | None, evidence: PassageSource, protocol: StudyProtocol
) -> Ranking | None:
    """What the arm reads."""
    if arm == "oracle":
        return in_order(material.keys, "oracle", {"keys": [key.id for key in material.keys]})
    if ranking is None:
        return None
    if arm == "brief-context" and protocol.map_reads == "retrieved":
        return first(material.retrieved, len(units(ranking.passages, evidence.count)), evidence.count)
    if arm == "ends":
        return at_both_ends(ranking, evidence.count)
    if arm == "reranked" and evidence.reranker is not None:
        name, reranker = evidence.reranker
        anew = reranked(ranking, material.question.text, reranker, name, len(ranking.hits))
        return regrouped(anew, evidence.count)
    if arm == "fused" and evidence.words is not None:
        known = {passage.id: passage for passage in ranking.passages}
        lists = [ranking.ids, [id_ for id_, _ in evidence.words(material.question, ranking.ids)]]
        fused = reciprocal_rank_fusion(lists, evidence.rrf_k)
        anew = in_order([known[id_] for id_, _ in fused], "placed+fused", ranking.parameters)
        return regrouped(anew, evidence.count)
    return ranking


def _keys(
    question: Question, there: Mapping[str, tuple[Passage, ...]], protocol: StudyProtocol, seed: int
) -> tuple[Passage, ...]:
    names = list(question.gold_documents)
    if protocol.gold == "one":
        names = [min(names, key=lambda name: hashlib.sha256(f"{seed}:{question.id}:{name}".encode()).digest())]
    return tuple(passage for name in names for passage in there[name])


def _check_questions(questions: Sequence[Question], *, gold_documents: bool = True) -> None:
    if not questions:
        raise InputError("there is no question to ask: draw at least one")
    without = [
        q.id
        for q in questions
        if q.gold is None or q.gold not in q.options or (gold_documents and not q.gold_documents)
    ]
    if without:
        needed = "options, no gold letter or no gold document" if gold_documents else "options or no gold letter"
        raise InputError(
            f"{len(without)} of {len(questions)} questions have no {needed} ({without[0]!r}, ...): this experiment "
            f"needs {'all three' if gold_documents else 'both'}, so take another question set"
        )
