"""Structured facts of HL7 v2 segments: allergies, diagnoses, problems, procedures, vaccinations and drugs.

    for record in StatementFacts().build_records(statement, header, patient): ...

The fields are those of the standard from 2.3 to 2.8. A later message about the same allergy, problem or order replaces
what an earlier one said of it. What was deleted or entered in error is withdrawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.fact_kinds import LASTING_KINDS
from epicrisis.corpus.records.facts.fact_documents import FactEntry, FactRecord, end_entry, order_ends
from epicrisis.corpus.records.facts.fact_values import (
    FactValue,
    choose_name,
    name_allergy,
    name_code,
    name_status,
    parse_value,
)
from epicrisis.corpus.records.facts.times import add_supply
from epicrisis.corpus.records.hl7.hl7_facts import first_time, read_codes
from epicrisis.corpus.records.hl7.hl7_values import DAY_EVENTS, iso_time
from epicrisis.corpus.records.hl7.messages import Hl7Segment
from epicrisis.corpus.records.hl7.notes import concept_name
from epicrisis.corpus.records.hl7.statements import Hl7Statement

_ALLERGY_TYPES = {
    "DA": "medication, allergy",
    "FA": "food, allergy",
    "EA": "environment, allergy",
    "AA": "environment, allergy",
    "PA": "environment, allergy",
    "LA": "environment, allergy",
    "MA": "allergy",
    "MC": "contraindication",
}
"""What an allergy is against, by table 0127."""
_SENSITIVITIES = {"AL": "allergy", "IN": "intolerance", "CT": "contraindication", "AD": "adverse reaction"}
_SEVERITIES = {"SV": "severe", "MO": "moderate", "MI": "mild", "U": ""}
_ALLERGY_STATUSES = {
    "C": "",
    "I": "inactive",
    "U": "unconfirmed",
    "P": "unconfirmed",
    "S": "suspected",
    "D": "suspected",
}
"""Table 0438; the code `E` withdraws."""
_DIAGNOSIS_TYPES = {"A": "admitting", "W": "working", "F": ""}
_PAST = frozenset(("resolved", "inactive", "remission"))
"""Kinds of facts that end."""
_DELETIONS = frozenset(("D", "DE", "UN", "DELETE", "DELETED", "ERRONEOUS", "ENTERED-IN-ERROR"))
"""Action codes of tables 0206, 0287 and 0323, and what senders write for them."""
_CANCELLED_ADMISSIONS = ("A11", "A27", "A38")
_ORDER_CONTROLS = {
    **dict.fromkeys(("CA", "OC", "CR", "UA"), "cancelled"),
    **dict.fromkeys(("DC", "OD", "DR", "RP", "RU", "RQ"), "stopped"),
    **dict.fromkeys(("HD", "OH", "HR"), "on-hold"),
}
"""What ORC-1 says of an order."""
_ORDER_STATUSES = {"CA": "cancelled", "DC": "stopped", "RP": "stopped", "HD": "on-hold", "CM": "completed"}
"""What ORC-5 says of an order."""
_NOT_DONE = {"RE": "refused", "NA": "not administered"}
_NO_VACCINE = "cvx:998"
"""The code which says that nothing was administered."""
_UNKNOWN_AMOUNT = "999"
_NO_NUMBER = ("", "9999")
_DURATION = re.compile(r"([DW])(\d{1,3})|(\d{1,3}) ?(d|day|days|wk|week|weeks)", re.IGNORECASE)
_Identified = tuple[str, tuple[str, ...]]


class StatementFacts:
    """Build the facts of statements in the order of the messages, which may stop a drug without naming it."""

    def __init__(self) -> None:
        self._facts: dict[tuple[str, str], ClinicalFact] = {}
        """By patient and source."""

    def build_records(self, statement: Hl7Statement, header: Hl7Segment, patient: str) -> Iterator[FactRecord]:
        """Yield the facts of a statement, its beginning and its end apart; none if it names nothing."""
        if statement.segment.name == "ORC":
            yield from self._stop(statement, header, patient)
            return
        source = _Source(statement, header)
        course = _READERS[statement.segment.name](source)
        if course is None:
            return
        fact = course.start.fact
        previous = self._facts.get((patient, fact.source))
        if previous is not None and fact.event == "state" and fact.time == source.time(source.sent):
            # Without a date of its own, it is known since a message first said it.
            fact = replace(fact, time=min(filter(None, (previous.time, fact.time)), default=None))
            course = replace(course, start=replace(course.start, fact=fact))
        if course.is_end_only and previous is None and _read_timing(source).start:
            course = replace(course, is_end_only=False)
        self._facts[patient, fact.source] = fact
        yield from _list_records(course, patient, iso_time(header.text(7)))

    def _stop(self, statement: Hl7Statement, header: Hl7Segment, patient: str) -> Iterator[FactRecord]:
        """Yield the end of a drug that an earlier message ordered."""
        source = _Source(statement, header)
        key = f"hl7:{source.facility}:RX:{source.order_number}"
        if (fact := self._facts.get((patient, key))) is not None:
            course = _state_order(source, fact, FactEntry(fact), "")
            yield from _list_records(course, patient, iso_time(header.text(7)))


@dataclass(frozen=True, slots=True)
class _Source:
    """A statement with the header of its message."""

    statement: Hl7Statement
    header: Hl7Segment

    @property
    def segment(self) -> Hl7Segment:
        return self.statement.segment

    @property
    def facility(self) -> str:
        return self.header.text(4) or self.header.text(3)

    @property
    def sent(self) -> str:
        return iso_time(self.header.text(7))

    @property
    def order_number(self) -> str:
        """The placer's number of the order, which all messages about it have, else the filler's."""
        order = self.statement.order
        return "" if order is None else order.text(2) or order.text(3)

    @property
    def control(self) -> str:
        return "" if self.statement.order is None else self.statement.order.text(1).upper()

    def time(self, *times: str) -> str:
        """Return the first of the times that can be read, as `first_time` does."""
        return first_time(self.sent, *map(iso_time, times))

    def order_text(self, field_number: int) -> str:
        return "" if self.statement.order is None else self.statement.order.text(field_number)

    def name_source(self, kind: str, *parts: str) -> str:
        return ":".join(filter(None, ("hl7", self.facility, kind, *parts)))

    @property
    def comments(self) -> list[str]:
        return [" ".join(comment.free_text(3).split()) for comment in self.statement.details if comment.name == "NTE"]


@dataclass(frozen=True, slots=True)
class _Course:
    """What a statement says: when something began or is, and when it ended."""

    start: FactEntry
    end: FactEntry | None = None
    is_withdrawn: bool = False
    is_end_only: bool = False
    """Whether the beginning is that of an earlier message."""


def _list_records(course: _Course, patient: str, sent: str) -> Iterator[FactRecord]:
    """Yield the records of beginning and end. A statement without an end withdraws an earlier one."""
    fact = course.start.fact
    if not course.is_end_only:
        yield FactRecord(patient, fact.source, (course.start,), sent, course.is_withdrawn, is_separate=True)
    if fact.kind in LASTING_KINDS and fact.event != "given" and fact.category != "encounter-diagnosis":
        end = course.end or FactEntry(replace(fact, event="end"))
        is_withdrawn = course.is_withdrawn or course.end is None
        _, end = order_ends((course.start, end))
        yield FactRecord(patient, f"{fact.source}:stop", (end,), sent, is_withdrawn, is_separate=True)


def _identify(segment: Hl7Segment, number: int, *others: str, system: str = "") -> _Identified:
    """Return the words and the codes of a coded field; `others` are words of other fields, `system` is its own."""
    codes = read_codes(segment, number)
    if system and segment.text(number) and not segment.text(number, 3):
        codes = (name_code(system, segment.text(number)), *codes)
    words = (segment.text(number, component) for component in (2, 9, 5))
    return choose_name((*words, *others, segment.text(number))), codes


def _read_allergy(source: _Source) -> _Course | None:
    """Return an allergy of AL1, or of IAM, which has an action, a date of onset and a status."""
    segment, is_list = source.segment, source.segment.name == "IAM"
    code = segment.text(3)
    names = [segment.text(3, component) for component in (2, 9, 5)]
    # A number names nothing beside words, even if they are a placeholder such as `OTHER`.
    names.append(code if not any(names) or any(map(str.isalpha, code)) else "")
    reactions = "; ".join(filter(None, (_words(row) for row in segment.repetitions(5))))
    name, value = name_allergy(names, reactions)
    if not name:
        return None
    status = segment.text(17).upper() if is_list else ""
    onset = source.time(segment.text(11)) if is_list else ""
    recorded = source.time(segment.text(13 if is_list else 6), source.sent)
    severity = concept_name(segment, 4)
    severity = _SEVERITIES.get(segment.text(4).upper(), severity).lower()
    kind = _ALLERGY_TYPES.get(segment.text(2).upper(), "")
    sensitivity = _SENSITIVITIES.get(segment.text(9).upper(), "") if is_list else ""
    category = f"{kind.partition(',')[0]}, {sensitivity}" if kind and sensitivity else kind or sensitivity
    words = _read_status(segment, 17) if is_list else ""
    state = _ALLERGY_STATUSES.get(status, words)
    fact = ClinicalFact(
        "allergy",
        name,
        event="start" if onset else "state",
        time=onset or recorded or None,
        codes=read_codes(segment, 3),
        value=f"{value} ({severity})" if value and severity else value,
        interpretation=f"severity {severity}" if severity and not value else "",
        status="" if state in _PAST else state,
        category=category,
        encounter=source.statement.visit,
        # Several allergies may have the code of a placeholder.
        source=source.name_source("AL", (code if value == reactions else "") or name.lower()),
    )
    is_withdrawn = is_list and (not _DELETIONS.isdisjoint((segment.text(6).upper(), state.upper())) or status == "E")
    onset_words = segment.text(12) if is_list else ""
    remark = " ".join(filter(None, (f"Onset: {onset_words}." if onset_words else "", *source.comments)))
    start = FactEntry(fact, recorded if onset else "", remark=remark)
    return _Course(start, end_entry(fact, "", state) if state in _PAST else None, is_withdrawn)


def _read_status(segment: Hl7Segment, number: int) -> str:
    """Return the status of a coded field in FHIR's words, whose first component may be the words."""
    return name_status((segment.text(number),), segment.text(number, 2) or segment.text(number))


def _read_diagnosis(source: _Source) -> _Course | None:
    segment = source.segment
    name, codes = _identify(segment, 3, segment.text(4), system=segment.text(2))
    if not name:
        return None
    visit = source.statement.visit
    kind = segment.text(6).upper()
    priority = segment.text(15)
    fact = ClinicalFact(
        "problem",
        name,
        time=source.time(segment.text(5), segment.text(19), source.sent) or None,
        codes=codes,
        status=_DIAGNOSIS_TYPES.get(kind, concept_name(segment, 6).lower()),
        category="encounter-diagnosis",
        encounter=visit,
        source=source.name_source("DG1", segment.text(20) or visit, segment.text(3) or name.lower()),
    )
    is_withdrawn = segment.text(21).upper() in _DELETIONS or source.header.text(9, 2).upper() in _CANCELLED_ADMISSIONS
    remarks = ["Primary diagnosis." if priority == "1" else "", *source.comments]
    return _Course(FactEntry(fact, remark=" ".join(filter(None, remarks))), None, is_withdrawn)


def _read_problem(source: _Source) -> _Course | None:
    segment = source.segment
    name, codes = _identify(segment, 3)
    if not name:
        return None
    onset, end = source.time(segment.text(16)), source.time(segment.text(9))
    established = source.time(segment.text(7), segment.text(2), source.sent)
    # Senders write the state of the problem into either field.
    states = [_read_status(segment, number) for number in (14, 13)]
    past = next((state for state in states if state in _PAST), "")
    others = [state for state in dict.fromkeys(states) if state not in (*_PAST, "", "active", "confirmed")]
    is_past = bool(past or end)
    fact = ClinicalFact(
        "problem",
        name,
        event="start" if onset else "state",
        time=onset or established or None,
        codes=codes,
        status=", ".join(others),
        encounter="",
        source=source.name_source("PRB", segment.text(4) or segment.text(3) or name.lower()),
    )
    words = segment.text(17)
    remark = " ".join(filter(None, (f"Onset: {words}." if words else "", *source.comments)))
    is_withdrawn = any(not _DELETIONS.isdisjoint((action.upper(),)) for action in (segment.text(1), *states))
    time = end or (source.time(segment.text(15)) if past else "")
    ending = end_entry(fact, time, past or "resolved") if is_past else None
    return _Course(FactEntry(fact, established if onset else "", remark=remark), ending, is_withdrawn)


def _read_procedure(source: _Source) -> _Course | None:
    segment = source.segment
    name, codes = _identify(segment, 3, segment.text(4), system=segment.text(2))
    if not name:
        return None
    time = source.time(segment.text(5))
    key = segment.text(19) or f"{source.statement.visit}:{time}"
    fact = ClinicalFact(
        "procedure", name, time=time or None, codes=codes, encounter=source.statement.visit,
        source=source.name_source("PR1", key, segment.text(3) or name.lower()),
    )  # fmt: skip
    entry = FactEntry(fact, remark=" ".join(source.comments), written_time="" if time else segment.text(5))
    return _Course(entry, None, segment.text(20).upper() in _DELETIONS)


def _read_administration(source: _Source) -> _Course | None:
    """Return a vaccination, or a dose of a drug (RAS)."""
    segment = source.segment
    name, codes = _identify(segment, 5)
    if not name:
        return None
    is_drug = source.header.text(9).upper() == "RAS" and not any(code.startswith("cvx:") for code in codes)
    completion, refusal = segment.text(20).upper(), concept_name(segment, 18)
    is_done = completion not in _NOT_DONE and not refusal and _NO_VACCINE not in codes
    dose = FactValue() if segment.text(6) == _UNKNOWN_AMOUNT else _read_amount(segment, 6, 6, 7)
    time = source.time(segment.text(3))
    number = source.order_number
    key = (segment.text(5) or name.lower()) if number not in _NO_NUMBER else f"{segment.text(5) or name.lower()}:{time}"
    is_history = segment.text(9) == "01"
    fact = ClinicalFact(
        "medication" if is_drug else "immunization",
        name,
        event="given" if is_done else "state",
        time=time or None,
        codes=codes,
        value=_join(dose.with_unit, _routes(source)) if is_drug else dose.text,
        number=dose.number,
        unit=dose.unit,
        status="partial" if completion == "PA" else "" if is_done else "not-done",
        category="administration" if is_drug else "",
        encounter=source.statement.visit,
        source=source.name_source("RXA", number if number not in _NO_NUMBER else "", key),
    )
    reason = refusal or ("" if is_done else _NOT_DONE.get(completion, ""))
    remarks = [f"Reason: {reason}." if reason else "", "Historical record." if is_history else "", *source.comments]
    entry = FactEntry(fact, "", dose.written_unit, " ".join(filter(None, remarks)), "" if time else segment.text(3))
    return _Course(entry, None, segment.text(21).upper() in _DELETIONS)


def _read_request(source: _Source) -> _Course | None:
    """Return an order of a drug as the pharmacy encoded it (RXE), or as it was requested (RXO)."""
    segment = source.segment
    name, codes = _identify(segment, 2) if segment.name == "RXE" else _identify_request(segment)
    if not name:
        return None
    dose, directions = _read_directions(segment, source)
    timing = _read_timing(source)
    times = (timing.start, source.order_text(15), source.order_text(9), segment.text(32), source.sent)
    start = source.time(*times)
    number = source.order_number or (segment.text(15) if segment.name == "RXE" else "")
    fact = ClinicalFact(
        "medication",
        name,
        event="start",
        time=start or None,
        codes=codes,
        value=directions,
        number=dose.number,
        unit=dose.unit,
        category="request",
        encounter=source.statement.visit,
        source=source.name_source("RX", number or name.lower()),
    )
    strength_field, reason_field = (25, 27) if segment.name == "RXE" else (18, 20)
    strength = _join(segment.text(strength_field), concept_name(segment, strength_field + 1), sign=" ")
    reason = concept_name(segment, reason_field)
    components = "; ".join(filter(None, map(_component, source.statement.find("RXC"))))
    remarks = [f"Strength: {strength}." if strength else "", f"Components: {components}." if components else ""]
    remarks += [_other_drug(source, name), f"Reason: {reason}." if reason else "", *source.comments]
    entry = FactEntry(fact, remark=" ".join(filter(None, remarks)))
    planned = source.time(timing.end) or add_supply(start, timing.days)
    return _state_order(source, fact, entry, planned)


def _identify_request(segment: Hl7Segment) -> _Identified:
    """Return the drug that was requested (RXO-1), or that is to be dispensed (RXO-10)."""
    drug = _identify(segment, 1)
    return drug if drug[0] else _identify(segment, 10)


def _read_directions(segment: Hl7Segment, source: _Source) -> tuple[FactValue, str]:
    """Return the dose of an order (RXE or RXO), and its directions: dose, form, route, rate, times, words."""
    first, rate_field = (3, 23) if segment.name == "RXE" else (2, 21)
    dose = _read_amount(segment, first, first + 1, first + 2)
    rate = _join(segment.text(rate_field), concept_name(segment, rate_field + 1), sign=" ")
    parts = [dose.with_unit, concept_name(segment, first + 3), _routes(source), f"at {rate}" if rate else ""]
    instructions = [_words(row) for row in segment.repetitions(7)]
    return dose, _join(*parts, *_read_timing(source).words, *instructions)


def _other_drug(source: _Source, name: str) -> str:
    """Return what was requested if the pharmacy encoded or dispensed a drug of another name."""
    requests = [*source.statement.find("RXO"), *source.statement.find("RXE")]
    names = [(_identify_request(row) if row.name == "RXO" else _identify(row, 2))[0] for row in requests]
    others = [other for other in dict.fromkeys(names) if other and other.lower() != name.lower()]
    return f"Requested: {', '.join(others)}." if others else ""


def _state_order(source: _Source, fact: ClinicalFact, entry: FactEntry, planned: str) -> _Course:
    """Return an order with what its ORC says of it: stopped, cancelled, on hold, or completed."""
    order_status = source.order_text(5).upper()
    status = _ORDER_CONTROLS.get(source.control, "") or _ORDER_STATUSES.get(order_status, "")
    if status == "cancelled":
        return _Course(replace(entry, fact=replace(fact, event="state", status=status)))
    if status in ("stopped", "completed"):
        stop = source.time(source.order_text(15), source.order_text(9), source.sent)
        if status == "completed" and planned and planned[:10] <= stop[:10]:
            stop = planned
        return _Course(entry, end_entry(fact, stop, status), is_end_only=status == "stopped")
    entry = replace(entry, fact=replace(fact, status=status))
    return _Course(entry, end_entry(fact, planned, "planned") if planned else None)


def _read_dispense(source: _Source) -> _Course | None:
    segment = source.segment
    name, codes = _identify(segment, 2)
    if not name:
        return None
    amount = _read_amount(segment, 4, 4, 5)
    timing = _read_timing(source)
    quantity = f"quantity {amount.with_unit}" if amount.text else ""
    requests = source.statement.find("RXE") or source.statement.find("RXO")
    directions = [_read_directions(request, source)[1] for request in requests[:1]] or [_routes(source), *timing.words]
    notes = [_words(row) for row in segment.repetitions(9)]
    time = source.time(segment.text(3))
    control = _ORDER_CONTROLS.get(source.control, "")
    number = segment.text(7) or source.order_number or name.lower()
    fact = ClinicalFact(
        "medication",
        name,
        time=time or source.time(source.sent) or None,
        codes=codes,
        value=_join(*directions, *notes, quantity),
        status="cancelled" if control == "cancelled" else "",
        category="dispense",
        encounter=source.statement.visit,
        source=source.name_source("RXD", number, segment.text(1)),
    )
    # Nobody takes what is used up, or was to be taken until a day.
    end = source.time(timing.end) or add_supply(time, timing.days or _supply_days(segment))
    remark = " ".join(filter(None, (_other_drug(source, name), *source.comments)))
    entry = FactEntry(fact, remark=remark, written_time="" if time else segment.text(3))
    return _Course(entry, end_entry(fact, end) if end and not fact.status else None)


def _supply_days(segment: Hl7Segment) -> str:
    """Return for how many days an amount lasts, if the total daily dose (RXD-12) is in its unit; else nothing."""
    signs = segment.delimiters
    unit = segment.text(12, 2).partition(signs.subcomponent)[0]
    amount, daily = parse_value(segment.text(4)).number, parse_value(segment.text(12)).number
    if not amount or not daily or daily < 0 or unit.lower() != segment.text(5).lower():
        return ""
    return str(int(amount // daily))


@dataclass(frozen=True, slots=True)
class _Timing:
    """When a drug is to be taken."""

    words: tuple[str, ...] = ()
    start: str = ""
    end: str = ""
    days: str = ""


def _read_timing(source: _Source) -> _Timing:
    """Return the timing of an order: TQ1, or in versions before 2.5 the first field of RXE or ORC-7."""
    if rows := source.statement.find("TQ1"):
        words: list[str] = []
        for row in rows:
            patterns = [_pattern(row, parts[0]) for parts in row.repetitions(3)]
            priority = "as needed" if row.text(9).upper() == "PRN" else ""
            words += [*patterns, priority, *(row.free_text(number) for number in (10, 11))]
        last = rows[-1]
        duration = _join(last.text(6), last.text(6, 2).partition(last.delimiters.subcomponent)[0], sign=" ")
        ends = [row.text(8) for row in rows]
        end = max(ends) if all(ends) else ""
        return _Timing(_list_words(words), rows[0].text(7), end, _count_days(duration))
    fields = [(segment, 1) for segment in (source.segment, *source.statement.find("RXE")) if segment.name == "RXE"]
    fields += [(source.statement.order, 7)] if source.statement.order is not None else []
    for segment, number in fields:
        if any(map(any, segment.repetitions(number))):
            priority = "as needed" if segment.text(number, 6).upper() == "PRN" else ""
            words = [
                _pattern(segment, segment.text(number, 2)),
                priority,
                segment.text(number, 7),
                segment.text(number, 8),
            ]
            days = _count_days(segment.text(number, 3))
            return _Timing(_list_words(words), segment.text(number, 4), segment.text(number, 5), days)
    return _Timing()


def _list_words(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in (" ".join(text.split()) for text in words) if word))


def _pattern(segment: Hl7Segment, text: str) -> str:
    """Return a repeat pattern in words: its own text, else the words of its code, else the code."""
    code, _, words = text.partition(segment.delimiters.subcomponent)
    return words.partition(segment.delimiters.subcomponent)[0] or DAY_EVENTS.get(code.upper(), code)


def _count_days(duration: str) -> str:
    """Return the days of a duration such as `D10`, `W2` or `10 d`; nothing for another one."""
    match = _DURATION.fullmatch(duration.strip())
    if match is None:
        return ""
    unit, count = (match[1] or match[4]).lower(), int(match[2] or match[3])
    return str(count * 7 if unit.startswith("w") else count)


def _read_amount(segment: Hl7Segment, least: int, most: int, unit_field: int) -> FactValue:
    """Return an amount with its unit; a range as `1 to 2`."""
    low, high, unit = segment.text(least), segment.text(most), concept_name(segment, unit_field)
    if low and high and low != high:
        return FactValue(f"{low} to {high}", unit=unit, written_unit=unit)
    return parse_value(low or high, unit if low or high else "")


def _component(segment: Hl7Segment) -> str:
    """Return a component of a mixture (RXC) with its amount."""
    return _join(concept_name(segment, 2), _read_amount(segment, 3, 3, 4).with_unit, sign=" ")


def _routes(source: _Source) -> str:
    return ", ".join(dict.fromkeys(filter(None, (concept_name(route, 1) for route in source.statement.find("RXR")))))


def _words(row: list[str]) -> str:
    """Return the words of a concept or a text."""
    return next((part.strip() for part in (*row[1:2], *row[:1]) if part.strip()), "")


def _join(*parts: str, sign: str = ", ") -> str:
    return sign.join(filter(None, parts))


_READERS: Mapping[str, Callable[[_Source], _Course | None]] = {
    "AL1": _read_allergy,
    "IAM": _read_allergy,
    "DG1": _read_diagnosis,
    "PRB": _read_problem,
    "PR1": _read_procedure,
    "RXA": _read_administration,
    "RXE": _read_request,
    "RXO": _read_request,
    "RXD": _read_dispense,
}
