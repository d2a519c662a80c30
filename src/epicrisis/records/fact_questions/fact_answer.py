"""Answer a question from structured facts: read the record, plan, compute, and compare with the notes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Notice
from epicrisis.core.clinical_facts import FACTS
from epicrisis.core.computed_values import NO_ENTRY
from epicrisis.core.types import Passage, Question
from epicrisis.records.fact_questions.answer import compute
from epicrisis.records.fact_questions.computation import Computation
from epicrisis.records.fact_questions.fact_conflicts import (
    FactConflict,
    NoteSentence,
    find_allergy_conflicts,
    find_drug_conflicts,
    find_value_conflicts,
)
from epicrisis.records.fact_questions.fact_evidence import NO_FACTS, FactAnswer
from epicrisis.records.fact_questions.question_request import plan_by_model
from epicrisis.records.fact_questions.question_rules import (
    FactQuestion,
    draft_plan,
    may_ask_for_facts,
    plan_by_rules,
    select_facts,
)
from epicrisis.records.fact_questions.record import PatientFacts, read_fact_record

PLANNER = "writer"
"""The role of the chat model that reads a question which the rules do not understand."""

_NEEDS_EARLIER = frozenset({"current", "first", "started"})
"""Operations whose answer an entry of any earlier day may change."""


async def answer_from_facts(
    question: Question, context: Context, fetch: Callable[[], Awaitable[Sequence[Passage]]]
) -> FactAnswer:
    """Return the answer of the structured facts in the patient's record to the question.

    `fetch` returns the passages of the record in the scope of the context. It is not called if the words of the
    question rule facts out.
    """
    if not may_ask_for_facts(question.text):
        return NO_FACTS
    passages = await fetch()
    record = read_fact_record(passages, context.scope.as_of)
    if record is None:
        return NO_FACTS
    plan = plan_by_rules(question.text, record)
    if plan is None and PLANNER in context.models and (draft := draft_plan(question.text, record)) is not None:
        plan = await plan_by_model(question.text, draft, context, PLANNER)
    if plan is None:
        return NO_FACTS
    computation = compute(plan, record)
    if context.scope.since is not None:
        computation = _limit_to_scope(computation, context.scope.since)
    if computation.answer.state == "abstained":
        context.emit(Notice("facts", f"structured entries give no answer: {computation.answer.statement}"))
    conflicts: tuple[FactConflict, ...] = ()
    if isinstance(plan, FactQuestion):
        conflicts = tuple(_find_conflicts(plan, record, computation, passages, context.split_sentences))
    return FactAnswer(computation, record, conflicts)


def _limit_to_scope(computation: Computation, since: str) -> Computation:
    """Return the computation with the limit of its scope, as an abstention where earlier entries decide."""
    answer = computation.answer
    limit = f"Only entries since {since} are in the scope"
    if answer.state == "answered" and (answer.operation in _NEEDS_EARLIER or answer.result == NO_ENTRY):
        reason = f"{limit}, and earlier ones may change the answer: leave out the setting scope.since"
        return replace(computation, answer=replace(answer, state="abstained", statement=f"{reason}.", result=""))
    return replace(computation, answer=replace(answer, remarks=(*answer.remarks, limit)))


def _find_conflicts(
    plan: FactQuestion,
    record: PatientFacts,
    computation: Computation,
    passages: Sequence[Passage],
    split: Callable[[str], Iterable[tuple[int, int]]],
) -> Iterable[FactConflict]:
    """Yield the disagreements of the record's notes with the facts that the question is about."""
    notes = [passage for passage in passages if passage.patient is not None and FACTS not in passage.metadata]
    sentences = _split_notes(notes, split)
    if plan.topic == "values":
        for series in plan.series.series if plan.series is not None else ():
            yield from find_value_conflicts(sentences, series.facts, series.phrases)
    elif plan.topic in ("medication", "entries") and plan.operation == "current":
        rows = zip(computation.answer.rows, computation.facts, strict=True)
        active = [
            facts[0] for row, facts in rows if "another entry" not in row.remark and facts[0].kind == "medication"
        ]
        yield from find_drug_conflicts(sentences, active)
    elif plan.topic == "allergy":
        yield from find_allergy_conflicts(sentences, select_facts("allergy", record))


def _split_notes(notes: Iterable[Passage], split: Callable[[str], Iterable[tuple[int, int]]]) -> list[NoteSentence]:
    """Return the sentences of notes, each once also where passages overlap."""
    sentences: dict[tuple[str, int], NoteSentence] = {}
    for passage in notes:
        for start, end in split(passage.text):
            place = passage.start + start
            sentences.setdefault((passage.document_id, place), NoteSentence(passage, place, passage.text[start:end]))
    return list(sentences.values())
