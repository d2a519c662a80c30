"""Computations over laboratory values, vital signs and other observations of one analyte.

Nothing is guessed. If a partial date, a comparator or a unit without conversion leaves the order or size of values
open, the answer is an abstention and shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.computed_values import ComputedRow, FactOperation
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.ucum import convert
from epicrisis.records.fact_questions.computation import (
    Computation,
    RowList,
    abstain,
    count_undated,
    explain_uncertain_order,
    find_extreme,
    finish,
    format_time,
    join_words,
    list_places,
    sort_facts,
)
from epicrisis.records.fact_questions.question_rules import FactQuestion
from epicrisis.records.fact_questions.record import PatientFacts, is_preliminary, read_time

_PLACES = Decimal("0.0000000001")
_ROUTINE_STATUSES = frozenset({"", "final", "active", "completed"})
_MAX_STATED = 6
"""Values that the sentence of a list states. The table has all."""
_LISTING: frozenset[FactOperation] = frozenset({"list", "trend", "value-on"})


@dataclass(frozen=True, slots=True)
class BoundedValue:
    """A value as a number in the common unit, with what a comparator leaves open."""

    fact: ClinicalFact
    low: Decimal
    high: Decimal

    @property
    def is_exact(self) -> bool:
        """Whether the value has no comparator."""
        return self.low == self.high


def compute_values(plan: FactQuestion, record: PatientFacts) -> Computation:
    """Return the answer to a question about values."""
    assert plan.series is not None
    series = plan.series.series
    if plan.series.is_pressure and plan.operation not in _LISTING | {"last", "first", "count"}:
        return abstain(plan, "Blood pressure is two values; ask for the systolic or for the diastolic blood pressure")
    if len(series) > 1 and not plan.series.is_pressure:
        names = [f"“{entry.name}” ({count_noun(len(entry.facts), 'value')})" for entry in series]
        return abstain(plan, f"“{plan.subject}” can mean {join_words(names)}; ask for one of them by its full name")
    facts = sort_facts(fact for entry in series for fact in entry.facts)
    inside = [fact for fact in facts if plan.window.place(fact) == "inside"]
    unclear = [fact for fact in facts if plan.window.place(fact) == "unclear"]
    if not inside and not unclear:
        return _report_none(plan, facts)
    remarks = _describe_withdrawn(facts, record)
    if plan.operation in _LISTING:
        date_remarks = {id(fact): "its date may lie outside the time asked for" for fact in unclear}
        return _COMPUTE[plan.operation](plan, sort_facts([*inside, *unclear]), remarks, date_remarks)
    compute = _COMPUTE[plan.operation]
    if not unclear:
        return compute(plan, inside, remarks, {})
    both = compute(plan, sort_facts([*inside, *unclear]), remarks, {})
    alone = compute(plan, inside, remarks, {}) if inside else None
    if alone is not None and alone.answer.result == both.answer.result and alone.answer.state == "answered":
        return alone
    dates = join_words([format_time(fact.time) for fact in unclear[:5]])
    reason = f"The date of {count_noun(len(unclear), 'value')} ({dates}) may or may not lie in the time asked for"
    return abstain(plan, f"{reason}; ask for a longer time, or for the list", _list_rows(unclear, None, {}), remarks)


def _report_none(plan: FactQuestion, facts: Sequence[ClinicalFact]) -> Computation:
    """Return the abstention for a time without a value, with the nearest values."""
    dated = [fact for fact in facts if read_time(fact)]
    if not dated:
        return abstain(
            plan, f"None of the {len(facts)} values of {plan.subject} has a date", _list_rows(facts, None, {})
        )
    before = [fact for fact in dated if (time := read_time(fact)) and time[1] < plan.window.since[0]]
    after = [fact for fact in dated if (time := read_time(fact)) and time[0] > plan.window.until[1]]
    nearest = [*find_extreme(before, last=True), *find_extreme(after, last=False)]
    reason = f"No structured value of {plan.subject} is of the time “{plan.window.text}”"
    outside = f"; the record has {count_noun(len(dated), 'value')} of other times"
    return abstain(plan, f"{reason}{outside if dated else ''}; the nearest are listed", _list_rows(nearest, None, {}))


def _describe_withdrawn(facts: Sequence[ClinicalFact], record: PatientFacts) -> list[str]:
    """Return a remark on the versions of these values that were withdrawn or corrected."""
    names = {(fact.name, fact.codes) for fact in facts}
    number = sum((fact.name, fact.codes) in names for fact in record.withdrawn)
    if not number:
        return []
    return [
        f"{count_noun(number, 'withdrawn, preliminary or replaced value')} {agree(number, 'is', 'are')} not counted"
    ]


def format_value(fact: ClinicalFact) -> str:
    """Return the value with its unit as written: `<0.2 mg/dL`. A dose is written with its unit and route."""
    value = fact.value
    if fact.kind == "medication" and value:
        return value
    if not value and fact.number is not None:
        value = f"{fact.comparator}{fact.number:g}"
    if fact.comparator and not value.startswith(("<", ">")):
        # A bound in words ("GREATER THAN 15") is written with its sign.
        is_number = value[:1].isdigit() or fact.number is None
        value = f"{fact.comparator}{value}" if is_number else f"{fact.comparator} {fact.number:g}"
    unit = fact.unit if fact.unit and fact.unit not in value.split() else ""
    return f"{value} {unit}".strip()


def _remark_on(fact: ClinicalFact, unit: str | None, date_remarks: Mapping[int, str]) -> str:
    pieces = [date_remarks.get(id(fact), "")]
    measurement = None if unit is None else measure(fact, unit)
    if measurement is not None and unit and fact.unit != unit and measurement.is_exact:
        pieces.append(f"{_show(measurement.low)} {unit}")
    return "; ".join(filter(None, (*pieces, fact.interpretation)))


def _list_rows(facts: Sequence[ClinicalFact], unit: str | None, date_remarks: Mapping[int, str]) -> RowList:
    """Return one row for each value. Routine statuses are left out."""
    rows = RowList()
    for fact in facts:
        measurement = None if unit is None else measure(fact, unit)
        number = float(measurement.low) if measurement is not None and measurement.is_exact else None
        status = "" if fact.status.lower() in _ROUTINE_STATUSES else fact.status
        remark = _remark_on(fact, unit, date_remarks)
        rows.add(
            ComputedRow(
                name=fact.name,
                time=fact.time,
                value=format_value(fact),
                status=status,
                source=fact.source,
                remark=remark,
                number=number,
            ),
            fact,
        )
    return rows


def measure(fact: ClinicalFact, unit: str) -> BoundedValue | None:
    """Return the value in a unit, or None for a value without a number or with a unit that does not convert."""
    if fact.number is None:
        return None
    number = convert_number(read_number(fact), fact.unit, unit)
    if number is None:
        return None
    low = Decimal("-Infinity") if fact.comparator.startswith("<") else number
    high = Decimal("Infinity") if fact.comparator.startswith(">") else number
    return BoundedValue(fact, low, high)


def convert_number(number: Decimal, unit: str, target: str) -> Decimal | None:
    """Return the number in the target unit, or None if the units do not convert. Equal units keep every digit."""
    if unit == target:
        return number
    converted = convert(float(number), unit, target)
    return None if converted is None else Decimal(str(converted))


def read_number(fact: ClinicalFact) -> Decimal:
    """Return the number of a fact with the digits that are written."""
    text = fact.value.lstrip("<>=≤≥ ").split(" ")[0]
    try:
        number = Decimal(text)
    except InvalidOperation:
        return Decimal(str(fact.number))
    return number if float(number) == fact.number else Decimal(str(fact.number))


def choose_unit(facts: Sequence[ClinicalFact]) -> str | None:
    """Return the unit of the last number if all others convert to it, or None."""
    numbers = [fact for fact in facts if fact.number is not None]
    if not numbers:
        return None
    unit = numbers[-1].unit
    return unit if all(measure(fact, unit) for fact in numbers) else None


def _show(number: Decimal) -> str:
    """Return a number without a needless exponent or zeros that conversion added."""
    text = f"{number.quantize(_PLACES) if abs(number) < 10**12 else number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _name_series(plan: FactQuestion, facts: Sequence[ClinicalFact]) -> str:
    assert plan.series is not None
    if plan.series.is_pressure:
        return plan.subject
    name, analyte = facts[-1].name, plan.series.series[0].name
    return f"{name} ({analyte})" if "urine" in analyte and "urin" not in name.lower() else name


def _in_window(plan: FactQuestion) -> str:
    return f" ({plan.window.text})" if plan.window.is_restricted else ""


def _compute_end(
    plan: FactQuestion, facts: Sequence[ClinicalFact], remarks: Sequence[str], _: Mapping[int, str]
) -> Computation:
    """Return the last or the first value."""
    assert plan.series is not None
    is_last = plan.operation == "last"
    undated = count_undated(facts)
    if undated == len(facts):
        reason = f"None of the {len(facts)} values has a date, so the {plan.operation} one cannot be told"
        return abstain(plan, f"{reason}; ask for the list", _list_rows(facts, None, {}))
    remarks = list(remarks)
    if undated:
        remarks.append(f"{count_noun(undated, 'value')} without a date {agree(undated, 'is', 'are')} not counted")
    results: list[str] = []
    rows: list[ClinicalFact] = []
    for entry in plan.series.series:
        ids = set(map(id, entry.facts))
        candidates = find_extreme([fact for fact in facts if id(fact) in ids], last=is_last)
        if not candidates:
            continue
        values = list(dict.fromkeys(map(format_value, candidates)))
        if len(values) > 1 and len(list_places(candidates)) > 1:
            why = explain_uncertain_order(candidates)
            reason = f"Each of {len(candidates)} values may be the {plan.operation} one, because {why}"
            return abstain(plan, f"{reason}; they are listed", _list_rows(candidates, None, {}), remarks)
        results.append(join_words(values))
        rows += candidates
    rows = sort_facts(rows)
    time = format_time((rows[-1] if is_last else rows[0]).time)
    name = _name_series(plan, rows)
    if plan.series.is_pressure:
        pressures = [
            f"{entry.name.split(' ')[0]} {value}" for entry, value in zip(plan.series.series, results, strict=False)
        ]
        results = [join_words(pressures)]
    word = "last dated" if undated and is_last else str(plan.operation)
    word += " (preliminary)" if any(map(is_preliminary, rows)) else ""
    several = " (several values at that time)" if len(rows) > 1 and not plan.series.is_pressure else ""
    statement = f"The {word} {name}{_in_window(plan)} is {results[0]}, of {time}{several}"
    if len({fact.name for fact in rows}) == 1 and len(set(map(format_value, rows))) == 1:
        statement = f"The {word} {name}{_in_window(plan)} is {results[0]}, of {time}"
    return finish(plan, statement, result=results[0], rows=_list_rows(rows, None, {}), remarks=remarks)


def _compute_list(
    plan: FactQuestion, facts: Sequence[ClinicalFact], remarks: Sequence[str], date_remarks: Mapping[int, str]
) -> Computation:
    """Return all values of the time."""
    name = _name_series(plan, facts)
    unit = choose_unit(facts)
    rows = _list_rows(facts, unit, date_remarks)
    unclear = f" ({len(date_remarks)} of them may lie outside the time)" if date_remarks else ""
    values = list(map(format_value, facts))
    if plan.operation == "value-on" and len(facts) <= _MAX_STATED:
        verb = agree(len(facts), "is", "are")
        statement = f"{name} {plan.window.text} {verb} {join_words(values)}{unclear}"
    else:
        first, last = format_time(facts[0].time), format_time(facts[-1].time)
        span = f"from {first} to {last}" if len(facts) > 1 else f"of {first}"
        number = count_noun(len(facts), "structured value")
        statement = f"The record has {number} of {name}{_in_window(plan)}, {span}{unclear}"
        if len(facts) <= _MAX_STATED and not (plan.series is not None and plan.series.is_pressure):
            statement += f": {join_words(values)}"
    return finish(plan, statement, result="; ".join(values), rows=rows, unit=unit or "", remarks=remarks)


def _compute_trend(
    plan: FactQuestion, facts: Sequence[ClinicalFact], remarks: Sequence[str], date_remarks: Mapping[int, str]
) -> Computation:
    """Return the course: the first and the last value, the direction between them, and the extremes."""
    assert plan.series is not None
    unit = choose_unit(facts)
    name = _name_series(plan, facts)
    measurements = [measure(fact, unit) for fact in facts] if unit is not None else []
    exact = [value for value in measurements if value is not None and value.is_exact]
    dated = [fact for fact in facts if read_time(fact)]
    if plan.series.is_pressure or len(facts) == 1 or len(exact) < len(facts) or len(dated) < len(facts):
        return _explain_no_course(plan, facts, remarks, date_remarks, unit)
    first, last = find_extreme(facts, last=False), find_extreme(facts, last=True)
    start = {value.low for value in exact if value.fact in first}
    end = {value.low for value in exact if value.fact in last}
    if len(start) > 1 or len(end) > 1 or (set(map(id, first)) & set(map(id, last))):
        return _explain_no_course(plan, facts, remarks, date_remarks, unit)
    one, two = start.pop(), end.pop()
    verb = "rose" if two > one else "fell" if two < one else "was the same"
    numbers = [value.low for value in exact]
    ends = f"from {_show(one)} ({format_time(first[0].time)}) to {_show(two)} {unit} ({format_time(last[-1].time)})"
    extremes = f"lowest {_show(min(numbers))}, highest {_show(max(numbers))}"
    statement = f"{name}{_in_window(plan)} {verb}, {ends}; {len(facts)} values, {extremes}"
    rows = _list_rows(facts, unit, date_remarks)
    result = f"{verb}: {_show(one)} to {_show(two)} {unit}".strip()
    return finish(plan, statement, result=result, rows=rows, unit=unit or "", remarks=remarks)


def _explain_no_course(
    plan: FactQuestion,
    facts: Sequence[ClinicalFact],
    remarks: Sequence[str],
    date_remarks: Mapping[int, str],
    unit: str | None,
) -> Computation:
    """Return the list of values, with the reason why no direction is stated."""
    listing = _compute_list(plan, facts, remarks, date_remarks)
    assert plan.series is not None
    if len(facts) == 1:
        reason = "one value has no trend"
    elif plan.series.is_pressure:
        reason = "the two pressures are listed together; ask for one of them for a direction"
    elif unit is None and any(fact.number is not None for fact in facts):
        units = sorted({fact.unit or "no unit" for fact in facts})
        reason = f"no direction is stated, because these units do not convert: {', '.join(units)}"
    else:
        reason = "no direction is stated, because a value is not an exact number or its time is not exact"
    answer = replace(listing.answer, remarks=(*listing.answer.remarks, reason), result="no direction")
    return replace(listing, answer=answer)


def _compute_count(
    plan: FactQuestion, facts: Sequence[ClinicalFact], remarks: Sequence[str], _: Mapping[int, str]
) -> Computation:
    number = len(facts)
    statement = f"The record has {count_noun(number, 'structured value')} of {_name_series(plan, facts)}"
    rows = _list_rows(facts, choose_unit(facts), {})
    return finish(plan, f"{statement}{_in_window(plan)}", result=str(number), rows=rows, remarks=remarks)


def _compute_size(
    plan: FactQuestion, facts: Sequence[ClinicalFact], remarks: Sequence[str], _: Mapping[int, str]
) -> Computation:
    """Return the highest or the lowest value."""
    numbers = [fact for fact in facts if fact.number is not None]
    if not numbers:
        return abstain(plan, f"No value of {plan.subject} is a number; ask for the list", _list_rows(facts, None, {}))
    unit = choose_unit(facts)
    if unit is None:
        return _refuse_units(plan, facts, remarks)
    is_high = plan.operation == "highest"
    measurements = [value for fact in numbers if (value := measure(fact, unit))]
    best = (
        max(measurements, key=lambda value: value.low) if is_high else min(measurements, key=lambda value: value.high)
    )
    bound = best.low if is_high else best.high
    open_values: list[ClinicalFact] = []
    ties: list[ClinicalFact] = []
    for value in measurements:
        reach = value.high if is_high else -value.low
        if (value.low, value.high) == (best.low, best.high):
            ties.append(value.fact)
        elif reach > (bound if is_high else -bound):
            open_values.append(value.fact)
    if not bound.is_finite() or open_values:
        reason = f"The {plan.operation} value cannot be told, because values have only a bound"
        rows = _list_rows(sort_facts({id(fact): fact for fact in [*ties, *open_values]}.values()), unit, {})
        return abstain(plan, f"{reason}; they are listed", rows, remarks)
    result = format_value(ties[-1])
    times = join_words([format_time(fact.time) for fact in ties[:5]])
    rest = f" and {len(ties) - 5} more times" if len(ties) > 5 else ""
    name = _name_series(plan, facts)
    compared = count_noun(len(numbers), "value")
    statement = f"The {plan.operation} {name}{_in_window(plan)} is {result}, of {times}{rest}, among {compared}"
    if others := [fact for fact in facts if fact.number is None]:
        words = join_words(list(dict.fromkeys(map(format_value, others)))[:_MAX_STATED])
        number = count_noun(len(others), "value")
        statement += f"; {number} without a number {agree(len(others), 'is', 'are')} not compared ({words})"
    return finish(plan, statement, result=result, rows=_list_rows(ties, unit, {}), unit=unit, remarks=remarks)


def _refuse_units(plan: FactQuestion, facts: Sequence[ClinicalFact], remarks: Sequence[str]) -> Computation:
    units = sorted({fact.unit or "no unit" for fact in facts if fact.number is not None})
    reason = f"Values of {plan.subject} in {join_words(units)} cannot be compared, because these units do not convert"
    return abstain(plan, f"{reason}; ask for the list", _list_rows(facts, None, {}), remarks)


def _compute_change(
    plan: FactQuestion, facts: Sequence[ClinicalFact], remarks: Sequence[str], _: Mapping[int, str]
) -> Computation:
    """Return the difference of the last and the first value."""
    if len(facts) < 2:
        return abstain(plan, "One value has no change; ask for the last value", _list_rows(facts, None, {}), remarks)
    unit = choose_unit(facts)
    if unit is None:
        return _refuse_units(plan, facts, remarks)
    undated = count_undated(facts)
    ends: list[BoundedValue] = []
    for is_last in (False, True):
        candidates = find_extreme(facts, last=is_last)
        values = [value for fact in candidates if (value := measure(fact, unit))]
        if not values or len(values) < len(candidates) or len({(value.low, value.high) for value in values}) > 1:
            word = "last" if is_last else "first"
            reason = f"The {word} value is not a single number, so the change is not computed; ask for the list"
            return abstain(plan, reason, _list_rows(candidates, unit, {}), remarks)
        ends.append(values[-1 if is_last else 0])
    first, last = ends
    if first.fact is last.fact or not (first.is_exact and last.is_exact):
        reason = "A value with a comparator, or a single dated value, has no exact change; ask for the list"
        return abstain(plan, reason, _list_rows([first.fact, last.fact], unit, {}), remarks)
    remarks = list(remarks)
    if undated:
        remarks.append(f"{count_noun(undated, 'value')} without a date {agree(undated, 'is', 'are')} not counted")
    difference = last.low - first.low
    result = f"{'+' if difference > 0 else ''}{_show(difference)} {unit}".strip()
    one = f"{_show(first.low)} ({format_time(first.fact.time)})"
    two = f"{_show(last.low)} {unit} ({format_time(last.fact.time)})"
    statement = f"{_name_series(plan, facts)}{_in_window(plan)} changed by {result}, from {one} to {two}"
    rows = _list_rows([first.fact, last.fact], unit, {})
    return finish(plan, statement, result=result, rows=rows, unit=unit, remarks=remarks)


_COMPUTE: Mapping[
    FactOperation, Callable[[FactQuestion, Sequence[ClinicalFact], Sequence[str], Mapping[int, str]], Computation]
] = {
    "last": _compute_end,
    "first": _compute_end,
    "list": _compute_list,
    "value-on": _compute_list,
    "trend": _compute_trend,
    "count": _compute_count,
    "highest": _compute_size,
    "lowest": _compute_size,
    "change": _compute_change,
}
