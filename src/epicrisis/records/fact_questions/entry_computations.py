"""Computations over medication, problems, allergies, procedures and immunizations.

A missing entry proves nothing: the answer to `ever` is then "no structured entry names it". An entry is current if it
began and has no recorded end. An entry without a sign for a long time is marked, not left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from epicrisis.core.allergy_denials import read_denial
from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.computed_values import NO_ENTRY, ComputedRow, FactOperation
from epicrisis.core.fact_kinds import KINDS
from epicrisis.core.printable import agree
from epicrisis.records.fact_questions.computation import (
    Computation,
    RowList,
    abstain,
    count_entries,
    explain_uncertain_order,
    find_extreme,
    finish,
    format_time,
    join_words,
    list_places,
    sort_facts,
)
from epicrisis.records.fact_questions.courses import (
    ENDED,
    STALE_MONTHS,
    Course,
    denies_allergy,
    find_later_stop,
    is_uncertain,
    judge_course,
    list_courses,
)
from epicrisis.records.fact_questions.question_rules import TOPIC_KINDS, FactQuestion, Topic, select_facts
from epicrisis.records.fact_questions.record import PatientFacts, is_planned_end, list_statuses, read_time
from epicrisis.records.fact_questions.subjects import EntryMatch, drug_key, match_entries, normalize
from epicrisis.records.fact_questions.time_windows import TimeWindow
from epicrisis.records.fact_questions.value_computations import format_value

_NAMES: Mapping[Topic, tuple[str, str]] = {
    **{kind.name: (kind.singular, kind.plural) for kind in KINDS.values()},
    "entries": ("entry", "entries"),
    "values": ("value", "values"),
}


def compute_entries(plan: FactQuestion, record: PatientFacts) -> Computation:
    """Return the answer to a question about entries."""
    facts = sort_facts(select_facts(plan.topic, record))
    if not facts and not plan.words and (denied := _list_denied(plan, record.withdrawn)):
        return _state_denied(plan, denied)
    if not facts:
        plural = _NAMES[plan.topic][1]
        return abstain(plan, f"The record has no structured {plural}; only its notes can answer")
    match = match_entries(plan.words, facts) if plan.words else EntryMatch(tuple(facts), ())
    return _COMPUTE[plan.operation](plan, record, match, facts)


def _list_denied(plan: FactQuestion, facts: Iterable[ClinicalFact]) -> list[ClinicalFact]:
    """Return the withdrawn entries of a topic that say that there is none, or that it was not so."""
    kinds = TOPIC_KINDS[plan.topic]
    return [fact for fact in facts if fact.kind in kinds and "entered-in-error" not in list_statuses(fact)]


def _state_denied(plan: FactQuestion, denied: Sequence[ClinicalFact]) -> Computation:
    """Return that the record names no entry except those that deny one."""
    one = _NAMES[plan.topic][0]
    names = join_words(list(dict.fromkeys(fact.name for fact in denied)))
    number = count_entries(len(denied))
    says, states = agree(len(denied), "says", "say"), agree(len(denied), "is", "are")
    statement = f"No structured {one} is stated; {number} {says} that there is none, or {states} refuted: {names}"
    return finish(plan, statement, result=NO_ENTRY, rows=_list_facts(denied))


def _row(fact: ClinicalFact, remark: str = "") -> ComputedRow:
    event = {"start": "started", "end": "ended", "given": "given", "state": ""}[fact.event]
    if is_planned_end(fact):
        event = "end"
    status = ", ".join(filter(None, (event, fact.category.replace("-", " "), fact.status)))
    return ComputedRow(
        name=fact.name, time=fact.time, value=format_value(fact), status=status, source=fact.source, remark=remark
    )


def _list_facts(facts: Sequence[ClinicalFact], remarks: Mapping[int, str] | None = None) -> RowList:
    rows = RowList()
    for fact in facts:
        rows.add(_row(fact, (remarks or {}).get(id(fact), "")), fact)
    return rows


def _describe_span(facts: Sequence[ClinicalFact]) -> str:
    """Return the number of entries and their first and last dates."""
    dated = [fact for fact in facts if read_time(fact)]
    number = count_entries(len(list_courses(facts)))
    if not dated:
        return number
    first, last = find_extreme(dated, last=False)[0], find_extreme(dated, last=True)[-1]
    return f"{number} from {format_time(first.time)} to {format_time(last.time)}"


def _place(plan: FactQuestion, facts: Sequence[ClinicalFact]) -> tuple[list[ClinicalFact], list[ClinicalFact]]:
    """Return the facts in the time of the question, and those that may be."""
    inside = [fact for fact in facts if plan.window.place(fact) == "inside"]
    return inside, [fact for fact in facts if plan.window.place(fact) == "unclear"]


def _compute_ever(
    plan: FactQuestion, record: PatientFacts, match: EntryMatch, facts: Sequence[ClinicalFact]
) -> Computation:
    """Return whether any entry names it. None shows nothing, and the statement says so."""
    certain: list[ClinicalFact] = []
    doubtful = list(match.doubtful)
    # "Is she allergic to nuts?" asks for what holds, not for what was.
    past = () if plan.window.is_restricted else _list_ended(plan, match, record.last or datetime.max)
    past = [course for course in past if course.head.kind == "allergy"]
    over = {fact for course in past for fact in course.facts}
    for fact in match.certain:
        if fact in over:
            continue
        if is_uncertain(fact) or (fact.kind == "allergy" and list_statuses(fact) & ENDED):
            doubtful.append(fact)
        elif not denies_allergy(fact):
            certain.append(fact)
    if not plan.words:
        return abstain(plan, f"Name the {_NAMES[plan.topic][0]} to look for")
    inside, unclear = _place(plan, certain)
    when = f" ({plan.window.text})" if plan.window.is_restricted else ""
    if inside:
        names = list(dict.fromkeys(fact.name for fact in inside))
        rest = f" and {len(names) - 3} more names" if len(names) > 3 else ""
        first = find_extreme(inside, last=False)
        word = "ended" if first and first[0].event == "end" else "first"
        date = f", {word} {format_time(first[0].time)}" if first else ", without a date"
        statement = f"Yes, structured entries name “{plan.subject}”{when}: {'; '.join(names[:3])}{rest}{date}"
        return finish(plan, statement, result="yes", rows=_list_facts(inside))
    unclear += _list_ongoing(plan.window, certain)
    if unclear or doubtful:
        why = "their dates may lie outside the time" if unclear else "they are uncertain, or name it among other words"
        rows = _list_facts([*unclear, *doubtful])
        return abstain(plan, f"Entries name “{plan.subject}”{when}, but {why}; read them", rows)
    if past:
        return _state_ended(plan, f"{record.last:%Y-%m-%d}" if record.last else "the last entry", past, ())
    denied = _list_denied(plan, match_entries(plan.words, record.withdrawn).certain)
    if denied:
        statement = (
            f"No structured entry says that there was “{plan.subject}”{when}; {count_entries(len(denied))} "
            f"{agree(len(denied), 'names', 'name')} it as not taken, not done, refuted or withdrawn"
        )
        return finish(plan, statement, result=NO_ENTRY, rows=_list_facts(denied))
    kind = "" if plan.topic == "entries" else f" for {_NAMES[plan.topic][1]}"
    scope = f"The record has {_describe_span(facts)}{kind}"
    statement = (
        f"No structured entry names “{plan.subject}”{when}; this does not show that there was none. {scope}. Of other "
        "words for it, only common ones are compared"
    )
    # Another allergy may be of the same class.
    listed = facts if plan.topic == "allergy" else ()
    return finish(plan, statement, result=NO_ENTRY, rows=_list_facts(listed))


def _list_ongoing(window: TimeWindow, facts: Sequence[ClinicalFact]) -> list[ClinicalFact]:
    """Return the heads of the courses that began before a time and may have gone on into it."""
    ongoing: list[ClinicalFact] = []
    for course in list_courses(facts):
        start, end = read_time(course.head), course.end
        end_time = None if end is None or is_planned_end(end) else read_time(end)
        is_over = end_time is not None and end_time[1] < window.since[0]
        lasts = KINDS[course.head.kind].lasts and course.head.event != "given"
        if window.is_restricted and lasts and not is_over and (start is None or start[0] <= window.until[1]):
            ongoing.append(course.head)
    return ongoing


def _compute_current(
    plan: FactQuestion, record: PatientFacts, match: EntryMatch, facts: Sequence[ClinicalFact]
) -> Computation:
    """Return the entries that began and did not end, as of the record's last day or the day of the question."""
    if plan.window.is_restricted and not plan.window.is_day:
        return _compute_list(plan, record, match, facts)
    at = plan.window.until[1] if plan.window.is_restricted else record.last
    if at is None:
        return abstain(plan, "No document or entry of the record has a date, so nothing is known to be current")
    day = f"{at:%Y-%m-%d}"
    rows, uncertain = RowList(), RowList()
    listed: set[tuple[str, str]] = set()
    remarks: list[str] = []
    administered: set[str] = set()
    courses = list_courses([fact for fact in facts if fact in match.certain or fact in match.doubtful])
    for course in reversed(courses):
        if (time := read_time(course.head)) and time[0] > at:
            continue
        state, remark = judge_course(course, at, is_past=plan.window.is_restricted)
        if state == "current" and plan.words and course.head not in match.certain:
            state, remark = "uncertain", "its name may mean something else"
        if state == "given":
            administered.add(course.head.name)
        key = normalize(course.head.name), format_value(course.head)
        if state in ("ended", "given") or key in listed:
            continue
        listed.add(key)
        stopped = find_later_stop(course, courses, at)
        if stopped is not None:
            remark = "; ".join(filter(None, (remark, f"another entry says it ended, {format_time(stopped.time)}")))
            state = "uncertain"
        target = rows if state == "current" else uncertain
        target.add(_row(course.head, remark), course.head, *((stopped,) if stopped is not None else ()))
    if administered - {row.name for row in rows.rows}:
        names = sorted(administered - {row.name for row in rows.rows})
        remarks.append(f"doses of {join_words(names[:8])} were given without an order that is current")
    return _state_current(plan, day, rows, uncertain, remarks, facts, _list_ended(plan, match, at))


def _list_ended(plan: FactQuestion, match: EntryMatch, at: datetime) -> list[Course]:
    """Return the courses of the entries with the words of the plan that ended before a time."""
    past: list[Course] = []
    for course in list_courses(match.certain if plan.words else ()):
        start = read_time(course.head)
        has_begun = start is None or start[0] <= at
        if has_begun and judge_course(course, at, is_past=plan.window.is_restricted)[0] == "ended":
            past.append(course)
    return past


def _state_ended(plan: FactQuestion, day: str, past: Sequence[Course], remarks: Sequence[str]) -> Computation:
    """Return that no entry with these words is current, with the entries that ended."""
    rows = RowList()
    names: list[str] = []
    for course in past:
        end = course.end
        remark = _describe_past(course)
        rows.add(_row(course.head, remark), course.head, *((end,) if end not in (None, course.head) else ()))
        names.append(f"{course.head.name} ({remark})")
    one = _NAMES[plan.topic][0]
    statement = (
        f"No structured {one} named “{plan.subject}” is current as of {day}; "
        f"{agree(len(past), 'one that ended is', 'those that ended are')} {join_words(list(dict.fromkeys(names)))}"
    )
    return finish(plan, statement, result=NO_ENTRY, rows=rows, remarks=remarks)


def _describe_past(course: Course) -> str:
    """Return when a course ended, or if no entry says when, its last status with the time of the entry."""
    end = course.end
    if end is not None and end.time:
        return f"ended {format_time(end.time)}"
    statuses = {status for fact in course.facts for status in list_statuses(fact) & ENDED}
    status = ", ".join(sorted(statuses)) or "ended"
    return f"{status}, entry of {format_time(course.head.time)}" if course.head.time else f"{status}, no date"


def _state_current(
    plan: FactQuestion,
    day: str,
    rows: RowList,
    uncertain: RowList,
    remarks: list[str],
    facts: Sequence[ClinicalFact],
    past: Sequence[Course],
) -> Computation:
    """Return the current entries and the uncertain ones as one answer, or those that ended if there are no others."""
    one, many = _NAMES[plan.topic]
    all_rows = RowList(
        [*reversed(rows.rows), *reversed(uncertain.rows)], [*reversed(rows.facts), *reversed(uncertain.facts)]
    )
    names = list(dict.fromkeys(row.name for row in reversed(rows.rows)))
    subject = f" named “{plan.subject}”" if plan.words else ""
    if uncertain.rows:
        doubtful = join_words(list(dict.fromkeys(row.name for row in reversed(uncertain.rows)))[:8])
        remarks.append(f"not certain to be current, see the remarks: {doubtful}")
    stale = sum("no sign" in row.remark for row in rows.rows)
    stale_note = f" ({stale} without a sign for {STALE_MONTHS} months or more)" if stale else ""
    denials = [row.name for row in rows.rows if plan.topic == "allergy" and read_denial(row.name) is not None]
    if denials and len(denials) == len(rows.rows):
        statement = f"Structured entries say “{join_words(denials)}” as of {day}"
        return finish(plan, statement, result="; ".join(denials), rows=all_rows, remarks=remarks)
    if denials:
        names = [name for name in names if name not in denials]
        remarks.append(f"other entries say “{join_words(denials)}”")
    if not names:
        if past and not uncertain.rows:
            return _state_ended(plan, day, past, remarks)
        if uncertain.rows:
            reason = f"No {one}{subject} is certain to be current as of {day}; the uncertain ones are listed"
            return abstain(plan, reason, all_rows, remarks)
        statement = (
            f"No structured {one}{subject} is current as of {day}, of {_describe_span(facts)}; this does not show that "
            "there was none"
        )
        if plan.words:
            statement += ". Of other words for it, only common ones are compared"
        return finish(plan, statement, result=NO_ENTRY, remarks=remarks)
    number = len(names)
    entry_number = len(rows.rows) - len(denials)
    entries = f" in {count_entries(entry_number)}" if entry_number > number else ""
    statement = f"{number} structured {agree(number, one, many)}{subject} {agree(number, 'is', 'are')} current as of "
    statement += f"{day}{entries}{stale_note}: {'; '.join(names)}"
    return finish(plan, statement, result="; ".join(names), rows=all_rows, remarks=remarks)


def _compute_list(
    plan: FactQuestion, record: PatientFacts, match: EntryMatch, facts: Sequence[ClinicalFact]
) -> Computation:
    """Return the entries of the time: a course counts if it overlaps it."""
    rows = RowList()
    unclear = 0
    for course in list_courses([*match.certain, *match.doubtful]):
        place = _place_course(course, plan.window)
        if place == "outside":
            continue
        unclear += place == "unclear"
        end = course.end
        remark = _describe_end(course)
        if place == "unclear":
            remark = "; ".join(filter(None, (remark, "may lie outside the time asked for")))
        cited = (course.head,) if end is None or end is course.head else (course.head, end)
        rows.add(_row(course.head, remark), *cited)
    one, many = _NAMES[plan.topic]
    subject = f" named “{plan.subject}”" if plan.words else ""
    when = f" ({plan.window.text})" if plan.window.is_restricted else ""
    if not rows.rows:
        statement = (
            f"No structured {one}{subject} is of this time{when}, of {_describe_span(facts)}; this does not show "
        )
        return finish(plan, f"{statement}that there was none", result=NO_ENTRY)
    names = list(dict.fromkeys(row.name for row in rows.rows))
    first_names = "; ".join(names[:10]) + (f" and {len(names) - 10} more names" if len(names) > 10 else "")
    doubt = f" ({unclear} may lie outside the time)" if unclear else ""
    number = count_entries(len(rows.rows))
    if plan.topic != "entries":
        number += f" of {many}"
    statement = f"The record has {number}{subject}{when}{doubt}: {first_names}"
    return finish(plan, statement, result="; ".join(names), rows=rows)


def _describe_end(course: Course) -> str:
    """Return when a course ended, or was planned to end, in words."""
    end = course.end
    if end is None or end is course.head:
        return ""
    return f"{'planned end' if is_planned_end(end) else 'ended'} {format_time(end.time)}"


def _place_course(course: Course, window: TimeWindow) -> str:
    """Return whether a course overlaps the window. A medication without an end goes on; others count by their date."""
    if not window.is_restricted:
        return "inside"
    places = {window.place(fact) for fact in course.facts if not is_planned_end(fact)}
    if "inside" in places:
        return "inside"
    if course.head.kind == "medication" and course.head.event in ("start", "state"):
        start, end = read_time(course.head), course.end
        end_time = read_time(end) if end is not None else None
        if start is not None and start[1] < window.since[0]:
            goes_on = (end is None or is_planned_end(end)) and not list_statuses(course.head) & ENDED
            if goes_on or (end_time is not None and end_time[0] > window.until[1]):
                return "unclear" if goes_on else "inside"
    return "unclear" if "unclear" in places else "outside"


def _compute_end_entry(
    plan: FactQuestion, record: PatientFacts, match: EntryMatch, facts: Sequence[ClinicalFact]
) -> Computation:
    """Return the first or the last entry, or when something began."""
    is_last = plan.operation == "last"
    events = [fact for fact in match.certain if fact.event != "end" and not is_uncertain(fact)]
    inside, unclear = _place(plan, events)
    one = _NAMES[plan.topic][0]
    if unclear:
        return abstain(
            plan, "The dates of some entries may lie outside the time asked for", _list_facts([*inside, *unclear])
        )
    if not inside:
        reason = f"No structured {one} names “{plan.subject}” at this time; only notes can answer"
        return abstain(plan, reason, _list_facts([*match.certain, *match.doubtful]))
    candidates = find_extreme(inside, last=is_last)
    if not candidates:
        return abstain(plan, f"The entries of “{plan.subject}” have no date", _list_facts(inside))
    if plan.operation == "started" and all(_is_undated_list(fact) for fact in inside):
        reason = f"No structured entry says when “{plan.subject}” began, so no date is known"
        reason += f"; the first list that names it is of {format_time(candidates[0].time)}"
        return abstain(plan, reason, _list_facts(inside))
    if len(list_places(candidates)) > 1:
        word = "last" if is_last else "first"
        reason = f"Which entry is the {word} cannot be told, because {explain_uncertain_order(candidates)}"
        return abstain(plan, reason, _list_facts(candidates))
    if is_last and any(fact.kind == "medication" and fact.event != "given" for fact in candidates):
        name = f"“{plan.subject}”" if plan.words else "a medication"
        reason = f"Entries say when {name} was ordered, not when it was last taken; ask when it was started or"
        return abstain(plan, f"{reason} stopped", _list_facts(candidates))
    times = [fact.time for fact in inside if read_time(fact) is None]
    remarks = [f"{count_entries(len(times))} without a date not counted"] if times else []
    names = join_words(list(dict.fromkeys(fact.name for fact in candidates)))
    date = format_time(candidates[0].time)
    word = {"last": "last", "first": "first", "started": "first"}.get(plan.operation, plan.operation)
    subject = f" of “{plan.subject}”" if plan.words else ""
    statement = f"The {word} structured entry{subject} is of {date}: {names}"
    return finish(plan, statement, result=date, rows=_list_facts(candidates), remarks=remarks)


def _is_undated_list(fact: ClinicalFact) -> bool:
    """Return whether an entry says that something was so at a time, and not that it began then."""
    return fact.event == "state" and (fact.kind in ("problem", "allergy") or fact.category == "statement")


def _compute_stopped(
    plan: FactQuestion, record: PatientFacts, match: EntryMatch, facts: Sequence[ClinicalFact]
) -> Computation:
    """Return when it ended, every time if it ended several times."""
    ends = [fact for fact in match.certain if fact.event == "end" and not is_planned_end(fact)]
    inside, unclear = _place(plan, ends)
    if unclear or not inside:
        reason = (
            f"No structured entry says when “{plan.subject}” ended" if not inside else "The date of its end is partial"
        )
        return abstain(plan, f"{reason}; its entries are listed", _list_facts(list(match.certain)))
    courses = list_courses(match.certain)
    later = [course for course in courses if course.end is None or is_planned_end(course.end)]
    changes = [fact for fact in inside if _is_change(fact, courses)]
    stops = [fact for fact in inside if fact not in changes]
    if not stops:
        days = join_words(list(dict.fromkeys(format_time(fact.time) for fact in changes)))
        reason = f"No entry says that “{plan.subject}” ended: on {days} another entry of it began, such as a new dose"
        return abstain(plan, f"{reason}; its entries are listed", _list_facts([course.head for course in courses]))
    dates = list(dict.fromkeys(format_time(fact.time) for fact in stops))
    remarks = []
    if changes:
        number = f"{len(changes)} {agree(len(changes), 'end', 'ends')}"
        remarks.append(f"{number} on a day when another entry of it began, such as a new dose, not counted")
    if later:
        remarks.append(f"another entry has no end: {later[-1].head.name}, {format_time(later[-1].head.time)}")
    times = "" if len(dates) == 1 else f" {len(dates)} times"
    statement = f"Structured entries say that “{plan.subject}” ended{times}: {join_words(dates)}"
    rows = _list_facts([*stops, *(course.head for course in later)])
    return finish(plan, statement, result="; ".join(dates), rows=rows, remarks=remarks)


def _is_change(end: ClinicalFact, courses: Sequence[Course]) -> bool:
    """Return whether another entry of the same drug began on the day of an end: a change, and no stop."""
    day = read_time(end)
    for course in courses:
        start = read_time(course.head)
        if end in course.facts or day is None or start is None or drug_key(course.head) != drug_key(end):
            continue
        if start[0].date() <= day[1].date() and day[0].date() <= start[1].date():
            return True
    return False


def _compute_count(
    plan: FactQuestion, record: PatientFacts, match: EntryMatch, facts: Sequence[ClinicalFact]
) -> Computation:
    """Return the number of entries. Several facts of one source are one entry."""
    certain = [fact for fact in match.certain if not is_uncertain(fact)]
    inside, unclear = _place(plan, certain)
    if unclear or match.doubtful:
        reason = "Some entries may lie outside the time, or name it among other words, so they are not counted"
        return abstain(plan, f"{reason}; they are listed", _list_facts([*inside, *unclear, *match.doubtful]))
    courses = [course for course in list_courses(inside) if not denies_allergy(course.head)]
    subject = f" of “{plan.subject}”" if plan.words else f" of {_NAMES[plan.topic][1]}"
    when = f" ({plan.window.text})" if plan.window.is_restricted else ""
    number = count_entries(len(courses))
    rows = _list_facts([course.head for course in courses])
    return finish(plan, f"The record has {number}{subject}{when}", result=str(len(courses)), rows=rows)


_COMPUTE: Mapping[
    FactOperation, Callable[[FactQuestion, PatientFacts, EntryMatch, Sequence[ClinicalFact]], Computation]
] = {
    "ever": _compute_ever,
    "current": _compute_current,
    "list": _compute_list,
    "value-on": _compute_list,
    "trend": _compute_list,
    "last": _compute_end_entry,
    "first": _compute_end_entry,
    "started": _compute_end_entry,
    "stopped": _compute_stopped,
    "count": _compute_count,
}
