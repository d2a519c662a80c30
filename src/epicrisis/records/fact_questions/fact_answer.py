"""Answer a question from structured facts: read the record, plan, compute, and compare with the notes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, get_args

from epicrisis.answering.strategy_context import Context
from epicrisis.answering.structured_request import JsonFormat, Unreadable, read_object
from epicrisis.core.answers import Notice
from epicrisis.core.clinical_facts import FACTS
from epicrisis.core.computed_values import NO_ENTRY, FactOperation
from epicrisis.core.dates import find_dates, time_range
from epicrisis.core.errors import ChatError
from epicrisis.core.prompts import render
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
from epicrisis.records.fact_questions.note_medications import describe_note_medications
from epicrisis.records.fact_questions.question_rules import (
    FactQuestion,
    draft_plan,
    may_ask_for_facts,
    plan_by_rules,
    select_facts,
)
from epicrisis.records.fact_questions.record import PatientFacts, read_fact_record
from epicrisis.records.fact_questions.time_windows import ANY_TIME, TimeWindow

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
        computation = _add_note_medications(plan, computation, passages)
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


def _add_note_medications(plan: FactQuestion, computation: Computation, passages: Sequence[Passage]) -> Computation:
    """Return the computation on current medications with a remark on others in the notes' newest list of them."""
    if plan.operation != "current" or plan.topic not in ("medication", "entries"):
        return computation
    answer = computation.answer
    remark = describe_note_medications(passages, plan.words, chain.from_iterable(computation.facts))
    return replace(computation, answer=replace(answer, remarks=(*answer.remarks, remark))) if remark else computation


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


PROMPTS = "epicrisis.records.fact_questions.prompts"
_NONE = "none"
_VALUE_OPERATIONS = frozenset({"last", "first", "highest", "lowest", "trend", "list", "count", "change"})
_ENTRY_OPERATIONS = frozenset({"last", "first", "list", "count", "current", "ever", "started", "stopped"})
_NEEDS_SUBJECT = frozenset({"ever", "started", "stopped"})


@dataclass(frozen=True, slots=True)
class PlannedOperation:
    """What the model read from the question."""

    operation: str
    since: str
    until: str
    is_complete: bool


def _parse(reply: str) -> PlannedOperation:
    """Return the plan of a reply. Raises Unreadable for values of other types, as some models ignore the schema."""
    data = read_object(reply, "operation")
    operation, since, until = data.get("operation"), data.get("since", ""), data.get("until", "")
    complete = data.get("complete")
    if not all(isinstance(text, str) for text in (operation, since, until)) or not isinstance(complete, bool):
        raise Unreadable("a field of the plan has another type")
    if operation != _NONE and operation not in get_args(FactOperation):
        raise Unreadable("the plan names an operation that does not exist")
    return PlannedOperation(str(operation), str(since), str(until), complete)


def _format() -> JsonFormat[PlannedOperation]:
    text: dict[str, Any] = {"type": "string", "maxLength": 20}
    operations = sorted({*_VALUE_OPERATIONS, *_ENTRY_OPERATIONS, _NONE})
    properties = {
        "operation": {"type": "string", "enum": operations},
        "since": text,
        "until": text,
        "complete": {"type": "boolean"},
    }
    return JsonFormat(properties, 200, _parse)


async def plan_by_model(text: str, draft: FactQuestion, context: Context, role: str) -> FactQuestion | None:
    """Return the draft with the operation and time that the model read, or None if its reply does not count."""
    prompt = render(PROMPTS, "plan", question=text, subject=draft.subject or draft.topic)
    try:
        reply = await context.ask(role, "plan", prompt, _format())
    except (ChatError, Unreadable) as error:
        context.emit(Notice("facts", f"the question was not planned for structured entries: {error}"))
        return None
    allowed = _VALUE_OPERATIONS if draft.topic == "values" else _ENTRY_OPERATIONS
    if not reply.is_complete or reply.operation not in allowed:
        return None
    if reply.operation in _NEEDS_SUBJECT and not draft.words:
        return None
    window = _build_window(text, reply)
    if window is None:
        return None
    operation: FactOperation = reply.operation  # type: ignore[assignment]
    return replace(draft, operation=operation, window=window, planned_by=context.models[role].name)


def _build_window(text: str, reply: PlannedOperation) -> TimeWindow | None:
    """Return the time of the plan, or None if its dates are not exactly those of the question."""
    dates = [date for date in (reply.since, reply.until) if date]
    mentions = find_dates(text)
    readings = {mention.readings[0] for mention in mentions if len(mention.readings) == 1}
    if set(dates) != readings or len(readings) < len(mentions):
        return None
    if not dates:
        return ANY_TIME
    since = time_range(reply.since)[0] if reply.since else ANY_TIME.since[0]
    until = time_range(reply.until)[1] if reply.until else ANY_TIME.until[0]
    label = f"{reply.since or 'the beginning'} to {reply.until or 'the end'}"
    return TimeWindow(label, (since, since), (until, until))
