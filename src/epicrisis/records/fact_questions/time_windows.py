"""The time that a question about facts names: a day, a range, a stay, or since an event of the record."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.dates import TimeRange, is_before
from epicrisis.records.fact_questions.record import PatientFacts, read_date, read_time
from epicrisis.records.fact_questions.subjects import match_entries, split_words
from epicrisis.retrieval.hospital_stays import HospitalStay, join_transfers
from epicrisis.retrieval.time_expressions import TimeExpression

Place: TypeAlias = Literal["inside", "outside", "unclear"]
_MINUTE = timedelta(minutes=1)
_FIRST, _LAST = datetime.min, datetime.max
_EVENT_FILLER = frozenset({"the", "his", "her", "their", "this", "that", "of", "a", "an", "patient", "last", "first"})
_PART = re.compile(
    r"\b(?:early|late|mid|middle|beginning|start|end|half|quarter|about|around|approximately|shortly|"
    r"right|just|immediately|soon|directly|morning|afternoon|evening|night)\b"
)
"""Words that make a time a part of the one that its date names."""
_DISTANCE = re.compile(r"\b(?:minute|hour|day|night|week|fortnight|month|quarter|year)s?\b")
"""Words that make `before` and `after` a distance: `the week before 2150-03-04`."""
_PRESENT = re.compile(r"\b(?:current|present|ongoing)\b", re.IGNORECASE)
_SHORT_STAY = timedelta(days=1)


class UnclearTime(Exception):
    """A time of the question has no single meaning in this record. The message says why, and the cure."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The time to which a question is restricted. A bound is a range if its minute is not known."""

    text: str = ""
    """Its words in the question, and what they mean in this record. Empty for any time."""
    since: TimeRange = (_FIRST, _FIRST)
    until: TimeRange = (_LAST, _LAST)
    is_day: bool = False
    """Whether the question names one day."""
    encounter: str = ""
    """The id of the stay, if the window is one."""

    @property
    def is_restricted(self) -> bool:
        """Whether the question names a time at all."""
        return bool(self.text)

    def place(self, fact: ClinicalFact) -> Place:
        """Return whether a fact happened in the window. A fact without a date is outside a restricted window."""
        if not self.is_restricted:
            return "inside"
        if self.encounter and fact.encounter:
            return "inside" if fact.encounter == self.encounter else "outside"
        time = read_time(fact)
        if time is None or time[1] < self.since[0] or time[0] > self.until[1]:
            return "outside"
        return "inside" if time[0] >= self.since[1] and time[1] <= self.until[0] else "unclear"


ANY_TIME = TimeWindow()


def resolve_window(expressions: Sequence[TimeExpression], record: PatientFacts) -> TimeWindow:
    """Return the window named by all time expressions of a question together.

    Raises UnclearTime for an expression without a single meaning in this record.
    """
    window = ANY_TIME
    for expression in expressions:
        window = _intersect(window, _resolve(expression, record))
    if len(expressions) > 1 and window.since[1] > window.until[0]:
        times = " and ".join(f"“{expression.text}”" for expression in expressions)
        raise UnclearTime(f"{times} have no time in common; ask about one of them")
    return window


def _intersect(one: TimeWindow, two: TimeWindow) -> TimeWindow:
    if not one.is_restricted:
        return two
    since = max(one.since[0], two.since[0]), max(one.since[1], two.since[1])
    until = min(one.until[0], two.until[0]), min(one.until[1], two.until[1])
    return TimeWindow(f"{one.text}, {two.text}", since, until, is_day=one.is_day or two.is_day)


def _resolve(expression: TimeExpression, record: PatientFacts) -> TimeWindow:
    words = expression.text.lower()
    if _PART.search(words) or (expression.kind == "range" and _DISTANCE.search(words)):
        raise UnclearTime(f"the exact time of “{expression.text}” is not looked up; give a range of dates")
    match expression.kind:
        case "day":
            time = _read_readings(expression)
            is_day = time[1] - time[0] < timedelta(days=1)
            return TimeWindow(expression.text, (time[0], time[0]), (time[1], time[1]), is_day=is_day)
        case "stay" | "stay-on":
            return _window_of_stay(expression.text, _find_stay(expression, record))
        case "range":
            return _resolve_range(expression, record)
        case _:
            raise UnclearTime(
                f"the time “{expression.text}” is not looked up in structured entries; give a date or a range of dates"
            )


def _resolve_range(expression: TimeExpression, record: PatientFacts) -> TimeWindow:
    if len(expression.anchors) == 2 and any(anchor.kind in ("stay", "stay-on") for anchor in expression.anchors):
        raise UnclearTime(
            f"“{expression.text}” may include the hospital stay that it names or not; give a range of dates"
        )
    first = _resolve_anchor(expression.anchors[0], record)
    last = _resolve_anchor(expression.anchors[-1], record)
    if all(anchor.kind == "day" for anchor in expression.anchors) and last.since[0] < first.since[0]:
        first, last = last, first
    text = expression.text
    for anchor in (first,) if len(expression.anchors) == 1 else (first, last):
        if anchor.text not in text:
            text += f" ({anchor.text})"
    match expression.relation:
        case "before":
            return TimeWindow(text, until=(first.since[0] - _MINUTE, first.since[1] - _MINUTE))
        case "until":
            return TimeWindow(text, until=first.until)
        case "after":
            return TimeWindow(text, since=(first.until[0] + _MINUTE, first.until[1] + _MINUTE))
        case "since":
            return TimeWindow(text, since=first.since)
        case _:
            return TimeWindow(text, first.since, last.until)


def _resolve_anchor(anchor: TimeExpression, record: PatientFacts) -> TimeWindow:
    match anchor.kind:
        case "day":
            time = _read_readings(anchor)
            return TimeWindow(anchor.text, (time[0], time[0]), (time[1], time[1]))
        case "stay" | "stay-on":
            stay = _find_stay(anchor, record)
            if stay.start is None or stay.end is None:
                raise UnclearTime(f"the stay “{anchor.text}” has no dates; give a date")
            return TimeWindow(f"{anchor.text}: {stay}", stay.start, stay.end, encounter=stay.encounter)
        case "discharge":
            return _resolve_discharge(anchor, record)
        case _:
            return _resolve_event(anchor, record)


def _resolve_discharge(anchor: TimeExpression, record: PatientFacts) -> TimeWindow:
    stays = [stay for stay in _ordered_stays(anchor, record) if stay.discharged]
    if anchor.readings or not anchor.which:
        raise UnclearTime(f"“{anchor.text}” can mean several times; give a date")
    if abs(anchor.which) > len(stays):
        raise UnclearTime(f"the record has {len(stays)} discharges with a date; give a date")
    stay = _choose_stay(stays, anchor)
    assert stay.end is not None
    return TimeWindow(f"{anchor.text}: {stay}", stay.end, stay.end)


def _resolve_event(anchor: TimeExpression, record: PatientFacts) -> TimeWindow:
    """Return the time of the one procedure or problem that has the words of an event."""
    words = [word for word in split_words(anchor.noun or anchor.text) if word not in _EVENT_FILLER]
    candidates = [fact for fact in record.facts if fact.kind == "procedure" and fact.event != "end"]
    times = sorted({time for fact in match_entries(words, candidates).certain if (time := read_time(fact))})
    if not times or not words:
        raise UnclearTime(f"no structured procedure is named “{anchor.text}”; give its date instead")
    if anchor.which == 1 or (anchor.which == -1 and len(times) > 1):
        chosen = times[0] if anchor.which == 1 else times[-1]
        others = [time for time in times if time != chosen]
        if all(is_before(chosen, time) if anchor.which == 1 else is_before(time, chosen) for time in others):
            times = [chosen]
    if len(times) > 1:
        days = ", ".join(str(time[0].date()) for time in times[:5])
        raise UnclearTime(f"“{anchor.text}” is recorded {len(times)} times ({days}); give the date of the one you mean")
    return TimeWindow(f"{anchor.text}: {times[0][0]:%Y-%m-%d}", times[0], times[0])


def _read_readings(expression: TimeExpression) -> TimeRange:
    times = {time for reading in expression.readings if (time := read_date(reading))}
    if len(times) != 1:
        choices = " or ".join(expression.readings) or "several dates"
        raise UnclearTime(f"the date “{expression.text}” can mean {choices}; write it as {choices.split(' ')[0]}")
    return times.pop()


def _ordered_stays(expression: TimeExpression, record: PatientFacts) -> list[HospitalStay]:
    """Return the stays in order of time. Raises UnclearTime if the order or the number is not certain."""
    stays = list(record.stays)
    if not stays:
        raise UnclearTime(f"the record has no hospital stay with dates for “{expression.text}”; give a date")
    if any(stay.start is None or stay.end is None for stay in stays):
        raise UnclearTime(f"a hospital stay has no date, so “{expression.text}” is not clear; give a date")
    if len(join_transfers(stays)) < len(stays):
        raise UnclearTime(
            f"some hospital stays follow each other within a day, so “{expression.text}” may count them as one or as "
            "several; give a date"
        )
    return stays


def _find_stay(expression: TimeExpression, record: PatientFacts) -> HospitalStay:
    stays = _ordered_stays(expression, record)
    if expression.kind == "stay":
        if expression.count != 1 or not expression.which:
            raise UnclearTime(f"“{expression.text}” names several stays; ask for one, or give a range of dates")
        if abs(expression.which) > len(stays):
            number = "1 hospital stay" if len(stays) == 1 else f"{len(stays)} hospital stays"
            raise UnclearTime(f"the record has {number} with dates, so there is no “{expression.text}”")
        if _PRESENT.search(expression.text) and _is_over(stays[-1], record):
            raise UnclearTime(
                f"no hospital stay goes on at the end of the record: the last one is {stays[-1]}; ask for the last "
                "admission"
            )
        return _choose_stay(stays, expression)
    time = _read_readings(expression)
    matches = [stay for stay in stays if stay.covers(time)]
    edge = [stay for stay in stays if stay.start and stay.start[0].date() == time[0].date()]
    if expression.noun == "end":
        edge = [stay for stay in stays if stay.end and stay.end[0].date() == time[0].date()]
    if time[1] - time[0] < timedelta(days=1) and len(edge) == 1:
        return edge[0]
    if len(matches) != 1:
        raise UnclearTime(f"{len(matches)} hospital stays fit “{expression.text}”; give the day of admission")
    return matches[0]


def _is_over(stay: HospitalStay, record: PatientFacts) -> bool:
    """Return whether a stay ended before the last minute that the record can speak of."""
    return stay.end is not None and record.last is not None and stay.end[1] < record.last


def _choose_stay(stays: Sequence[HospitalStay], expression: TimeExpression) -> HospitalStay:
    """Return the stay with a number. Raises UnclearTime if a stay of hours, maybe an emergency visit, changes it."""
    index = expression.which - 1 if expression.which > 0 else expression.which
    longer = [stay for stay in stays if stay.start and stay.end and stay.end[1] - stay.start[0] >= _SHORT_STAY]
    chosen = stays[index]
    if longer and (abs(expression.which) > len(longer) or longer[index] is not chosen):
        days = ", ".join(str(stay.start[0].date()) for stay in stays if stay.start and stay not in longer)
        raise UnclearTime(
            f"a stay of less than a day ({days}) may be an emergency visit, so “{expression.text}” may count it; "
            "give a date"
        )
    return chosen


def _window_of_stay(text: str, stay: HospitalStay) -> TimeWindow:
    """Return the time of a stay. A day of admission or discharge belongs to the stay as a whole."""
    if stay.start is None or stay.end is None:
        raise UnclearTime(f"the stay “{text}” has no dates; give a date")
    since, until = stay.start[0], stay.end[1]
    return TimeWindow(f"{text}: {stay}", (since, since), (until, until), encounter=stay.encounter)
