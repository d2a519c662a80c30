"""Which way of reading answers best for the same number of tokens? (No paper has published this comparison.)

RAG, BriefContext and rivals that need no training read one ranking of passages. Each may spend the same number of
prompt tokens on a question, all its calls together, and reads as much of the ranking as that pays for. Questions with
the place of their evidence (Evidence Inference) are asked about that document alone: a lost-in-the-middle test in real
articles, without a planted key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.answering.prompt_budget import DOCUMENT_ORDER
from epicrisis.answering.strategies.focused import MAX_SENTENCES
from epicrisis.core.errors import InputError
from epicrisis.core.partitioning import mark_largest_gap, take_before_gap
from epicrisis.core.types import Passage, Question, Ranking, SentenceRanking
from epicrisis.evaluation.experiments import equal_tokens_tables
from epicrisis.evaluation.experiments.arms import Study, check_names, check_questions, repeat_case
from epicrisis.evaluation.experiments.equal_tokens_tables import BRIEF_CONTEXT, CLOSED_BOOK, RAG
from epicrisis.evaluation.experiments.experiment import CaseInputs, Experiment, Grid
from epicrisis.evaluation.experiments.passage_source import PassageSource
from epicrisis.evaluation.runs.case import Case, Condition
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.settings.settings import Settings

NAME = "focused"
SETS = ("evidence-inference/validation", "pubmedqa", "med-evidence")
PASSAGES = 48
"""Passages of the ranking that every arm may read."""
PROMPT_TOKENS = (1500, 3000, 6000)
ROTATIONS = 3
PARTITION = 4
"""Passages per map call, where the protocol has no number."""
PLACES = ("beginning", "middle", "end")
"""Thirds of a document."""
SEVERAL = "several"

ARMS = {
    RAG: RunOverrides(options={"strategy": "rag"}),
    "in-order": RunOverrides(options={"strategy": "rag"}),
    "adaptive-k": RunOverrides(options={"strategy": "rag"}),
    "rotations": RunOverrides(options={"strategy": "rag", "rotations": ROTATIONS}),
    BRIEF_CONTEXT: RunOverrides(options={"strategy": "brief-context"}),
    "brief-context+confidence": RunOverrides(options={"strategy": "brief-context", "map_confidence": True}),
    "focused": RunOverrides(options={"strategy": "focused"}),
    "focused-3": RunOverrides(options={"strategy": "focused"}),
    "focused-4": RunOverrides(options={"strategy": "focused"}),
    "focused-8": RunOverrides(options={"strategy": "focused"}),
    "rag+route": RunOverrides(options={"strategy": "rag", "route": "brief-context"}),
    "focused+route": RunOverrides(options={"strategy": "focused", "route": "brief-context"}),
    "focused-4+route": RunOverrides(options={"strategy": "focused", "route": "brief-context"}),
    "focused-8+route": RunOverrides(options={"strategy": "focused", "route": "brief-context"}),
    CLOSED_BOOK: RunOverrides(options={"strategy": "closed-book"}),
}
"""The arms, with what each changes.

`in-order`: RAG, the passages in the order of their documents (order-preserving RAG). `adaptive-k`: RAG, only what ranks
before the largest gap in the scores. `rotations`: RAG asked several times, the passages rotated, whose answers vote.
`confidence`: findings with a rationale and a stated confidence (LLM x MapReduce). `route`: a question that the
documents in one prompt do not answer goes to BriefContext (Self-Route).
"""
SENTENCES = {"focused-3": 3, "focused-4": 4, "focused-8": 8, "focused-4+route": 4, "focused-8+route": 8}
"""Sentences of the arms of `focused` that read fewer than the tokens pay for."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What all arms of a question read."""

    question: Question
    ranking: Ranking
    sentences: SentenceRanking | None
    condition: Condition
    """The question set, and the place of the evidence if it is known."""


def build_cases(inputs: CaseInputs) -> tuple[Case, ...]:
    """Build the cases. Conditions: `dataset`, `arm`, `prompt_tokens`, `repeat`, and `evidence` if its place is known.

    Raises InputError for an unknown arm, a question without gold letter, or a library without a gold document.
    """
    grid, study = inputs.grid, inputs.study
    check_names(grid.arms, ARMS)
    _refuse_settings(inputs.settings)
    if len(grid.ks) > 1:
        raise InputError(f"{NAME} reads one ranking: give -k once, and run it again for another")
    built: list[Case] = []
    for dataset, questions in inputs.questions.items():
        check_questions(questions, gold_documents=False)
        for question, gold in zip(questions, study.read_gold_passages(questions), strict=True):
            place = find_evidence_place(question, gold)
            condition = {"dataset": dataset, **({"evidence": place} if place else {})}
            ranking, sentences = _find_evidence(study.source, question, grid)
            built += _question_cases(Evidence(question, ranking, sentences, condition), study, grid)
    return tuple(built)


def _refuse_settings(settings: Settings) -> None:
    """Raise InputError for settings that would change all arms alike."""
    changed: list[str] = []
    for name in ("route", "rotations", "adaptive_k", "focus_tokens", "map_confidence"):
        if getattr(settings, name) != Settings.model_fields[name].default:
            changed.append(name)
    if changed:
        raise InputError(f"{NAME} compares {', '.join(changed)} itself: leave it out of the settings")


def _find_evidence(source: PassageSource, question: Question, grid: Grid) -> tuple[Ranking, SentenceRanking | None]:
    """Return the ranking of passages for all arms, and its sentences if an arm selects sentences."""
    if source.rank_passages is None or source.rank_sentences is None:
        raise InputError(f"{NAME} ranks passages and sentences: give a library with an encoder")
    ranking = source.rank_passages(question, grid.ks[0])
    if not any(ARMS[arm].strategy == "focused" for arm in grid.arms):
        return ranking, None
    return ranking, source.rank_sentences(question, ranking, MAX_SENTENCES)


def _question_cases(evidence: Evidence, study: Study, grid: Grid) -> list[Case]:
    cases: list[Case] = []
    for arm in grid.arms:
        overrides = replace(
            ARMS[arm],
            preflight=False,
            temperature=study.protocol.temperature,
            top_p=study.protocol.top_p,
            paper_prompts=study.protocol.prompts,
        )
        if arm == CLOSED_BOOK:
            condition = {**evidence.condition, "arm": arm}
            cases += repeat_case(evidence.question, condition, overrides, study.seed, study.repeats)
            continue
        overrides = replace(
            overrides.change(
                count="passages",
                partition=PARTITION if study.protocol.partition == "half" else study.protocol.partition,
            ),
            ranking=_order_for(arm, evidence.ranking),
            sentences=_take_sentences(arm, evidence) if overrides.strategy == "focused" else None,
        )
        if "rotations" in overrides.options:
            overrides = overrides.change(rotations=grid.votes[0])
        for limit in grid.prompt_tokens:
            condition = {**evidence.condition, "arm": arm, "prompt_tokens": limit}
            limited = replace(overrides, prompt_tokens=limit)
            cases += repeat_case(evidence.question, condition, limited, study.seed, study.repeats)
    return cases


def _take_sentences(arm: str, evidence: Evidence) -> SentenceRanking | None:
    """Return the sentences that an arm of `focused` may read."""
    if evidence.sentences is None or arm not in SENTENCES:
        return evidence.sentences
    return replace(evidence.sentences, hits=evidence.sentences.hits[: SENTENCES[arm]])


def _order_for(arm: str, ranking: Ranking) -> Ranking:
    """Return the ranking as an arm reads it."""
    if arm == "adaptive-k":
        return take_before_gap(mark_largest_gap(ranking, "passages"))
    if arm == "in-order":
        return replace(ranking, parameters={**ranking.parameters, DOCUMENT_ORDER: True})
    return ranking


def find_evidence_place(question: Question, documents: Mapping[str, tuple[Passage, ...]]) -> str:
    """Return the third of the document in which the middle of each marked span lies, or SEVERAL if they differ.

    Returns an empty string for a question without marked spans. The document ends with its last passage.
    """
    places: set[str] = set()
    for span in question.evidence:
        passages: Sequence[Passage] = documents.get(span.document_id, ())
        length = max((passage.end for passage in passages), default=0)
        if length:
            third = 3 * (span.start + span.end) // (2 * length)
            places.add(PLACES[min(2, third)])
    if len(places) > 1:
        return SEVERAL
    return next(iter(places), "")


EXPERIMENT = Experiment(
    name=NAME,
    question="Which way of reading the evidence answers best for the same number of tokens?",
    cases=build_cases,
    tables=equal_tokens_tables.tables,
    sets=SETS,
    grid=Grid(arms=tuple(ARMS), ks=(PASSAGES,), votes=(ROTATIONS,), prompt_tokens=PROMPT_TOKENS),
    plots=equal_tokens_tables.PLOTS,
    places_documents=False,
    brings_documents=True,
)
"""The comparison of `focused` with RAG, BriefContext and the others."""
