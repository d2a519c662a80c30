"""Courses of medications, problems and allergies: from the first entry of a source to its end.

    for course in list_courses(facts):
        state, remark = judge_course(course, at, is_past=False)

A course is current if it began and nothing says that it ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from epicrisis.core.allergy_denials import read_denial
from epicrisis.core.clinical_facts import FAMILY_HISTORY, ClinicalFact
from epicrisis.core.fact_kinds import KINDS
from epicrisis.core.fact_times import is_later
from epicrisis.records.fact_questions.computation import find_extreme, format_time, sort_facts
from epicrisis.records.fact_questions.record import list_statuses, read_time
from epicrisis.records.fact_questions.subjects import drug_key

CourseState: TypeAlias = Literal["current", "ended", "given", "uncertain"]
"""`given`: only doses are recorded, no order."""

STALE_MONTHS = 12
"""Months without a sign of an entry from which a current one is marked."""
_DAYS_A_MONTH = 30.44
ENDED = frozenset(
    {"stopped", "completed", "ended", "resolved", "inactive", "remission", "abated", "discontinued", "expired"}
)
_UNCERTAIN = frozenset(
    {
        *("draft", "unconfirmed", "provisional", "differential", "preparation", "planned", "proposed", "intended"),
        *("unknown", "ruled-out", "rule-out", "ruled", "rule", "excluded", "aborted", "suspected", "possible"),
        *("probable", "questionable", "working", FAMILY_HISTORY),
    }
)
_PROPOSED = frozenset({"proposal", "plan", "option"})
"""Categories of orders that were never placed."""
_PAUSED = frozenset({"on-hold", "suspended"})


@dataclass(frozen=True, slots=True)
class Course:
    """The facts of one source, such as a prescription: from its beginning to its end."""

    facts: tuple[ClinicalFact, ...]

    @property
    def head(self) -> ClinicalFact:
        """The first entry that is no end. It says what the course is of."""
        return next((fact for fact in self.facts if fact.event != "end"), self.facts[0])

    @property
    def end(self) -> ClinicalFact | None:
        """The fact that it ended, or None."""
        return next((fact for fact in reversed(self.facts) if fact.event == "end"), None)

    @property
    def last_sign(self) -> ClinicalFact:
        """The latest dated fact, or the first fact without a date."""
        return (find_extreme(self.facts, last=True) or list(self.facts))[-1]


def list_courses(facts: Sequence[ClinicalFact]) -> list[Course]:
    """Return the facts by source, in order of their first times. A fact without a source stands alone."""
    groups: dict[str, list[ClinicalFact]] = defaultdict(list)
    for fact in facts:
        groups[fact.source or f"{fact.document_id}:{fact.start}"].append(fact)
    return [Course(tuple(sort_facts(group))) for group in groups.values()]


def is_uncertain(fact: ClinicalFact) -> bool:
    """Return whether an entry is only proposed, or its status says that it is not certain."""
    return not list_statuses(fact).isdisjoint(_UNCERTAIN) or fact.category in _PROPOSED


def denies_allergy(fact: ClinicalFact) -> bool:
    """Return whether an allergy entry says that there is none."""
    return fact.kind == "allergy" and read_denial(fact.name) is not None


def judge_course(course: Course, at: datetime, *, is_past: bool) -> tuple[CourseState, str]:
    """Return whether a course is `current` at a time, `ended`, `given` only or `uncertain`, and a remark."""
    head, end = course.head, course.end
    start = read_time(head)
    if KINDS[head.kind].is_done:
        return "uncertain", "done at that time"
    if all(fact.event == "given" or "administration" in fact.category for fact in course.facts):
        return ("given" if head.kind == "medication" else "current"), ""
    if end is not None:
        return _judge_end(end, at)
    statuses = frozenset[str]().union(*(list_statuses(fact) for fact in course.facts))
    if statuses & ENDED:
        return ("uncertain", f"status {head.status}, at an unknown time") if is_past else ("ended", "")
    if FAMILY_HISTORY in statuses:
        return "uncertain", "family history"
    if statuses & (_UNCERTAIN | _PAUSED) or is_uncertain(head):
        return "uncertain", f"only a {head.category}" if head.category in _PROPOSED else f"status {head.status}"
    if start is None:
        return ("uncertain" if is_past else "current"), "no date"
    if start[1] > at:
        return "uncertain", f"began at an unknown time of {format_time(head.time)}"
    months = _months_between(course, at)
    if head.kind == "medication" and months >= STALE_MONTHS:
        return "current", f"no sign of it for {months} months"
    return "current", ""


def _judge_end(end: ClinicalFact, at: datetime) -> tuple[CourseState, str]:
    """Return whether a course with an end was current at a time, and a remark."""
    time = read_time(end)
    if time is None:
        return "ended", ""
    if time[0] > at:
        return "current", ""
    if "planned" in list_statuses(end):
        return "uncertain", f"its planned end was {format_time(end.time)}, and no entry says that it ended"
    if time[1] > at:
        return "uncertain", f"ended at an unknown time of {format_time(end.time)}"
    return "ended", ""


def _months_between(course: Course, at: datetime) -> int:
    time = read_time(course.last_sign)
    return 0 if time is None else int((at - time[1]).days / _DAYS_A_MONTH)


def find_later_stop(course: Course, courses: Sequence[Course], at: datetime) -> ClinicalFact | None:
    """Return a later statement of another source that the drug was stopped, or None."""
    if course.head.kind != "medication":
        return None
    for other in courses:
        if other is course or drug_key(other.head) != drug_key(course.head) or other.head.category != "statement":
            continue
        end = other.end or (other.head if list_statuses(other.head) & ENDED else None)
        end_time = None if end is None else read_time(end)
        if end is not None and end_time is not None and end_time[0] <= at and is_later(end, course.last_sign):
            return end
    return None
