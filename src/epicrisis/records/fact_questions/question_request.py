"""Plan a question about facts with a chat model, if the rules recognise its subject and not its operation.

The model names an operation and dates. It sees no value and computes nothing. Its reply counts only if it calls the
plan complete and every date is in the question.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

from epicrisis.answering.strategy_context import Context
from epicrisis.answering.structured_request import JsonFormat, Unreadable, read_object
from epicrisis.core.answers import Notice
from epicrisis.core.computed_values import FactOperation
from epicrisis.core.dates import find_dates, time_range
from epicrisis.core.errors import ChatError
from epicrisis.core.prompts import render
from epicrisis.records.fact_questions.question_rules import FactQuestion
from epicrisis.records.fact_questions.time_windows import ANY_TIME, TimeWindow

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
