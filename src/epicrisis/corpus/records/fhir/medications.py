"""Medications of FHIR: requests, statements, administrations and dispenses as facts, with their dosage in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.corpus.records.facts.fact_documents import FactEntry, end_entry
from epicrisis.corpus.records.facts.times import add_supply, describe_end, reported_since
from epicrisis.corpus.records.fhir.fhir_resources import Resource, as_list, concept_text, list_objects
from epicrisis.corpus.records.fhir.fhir_values import (
    concept_codes,
    join_concepts,
    read_concept,
    read_period,
    read_quantity,
    read_range,
    read_status,
    read_time,
)
from epicrisis.corpus.records.hl7.hl7_values import DAY_EVENTS

NamedCodes: TypeAlias = tuple[str, tuple[str, ...]]
"""The words and the codes of a medication."""
FindMedication: TypeAlias = Callable[[Any], NamedCodes]
"""Returns the medication that a reference names, empty words if no file has it."""


@dataclass(frozen=True, slots=True)
class StatedMedication:
    """What a Medication resource says, and when this version of it was written."""

    named: NamedCodes
    updated: str = ""


def choose_stated(first: StatedMedication, second: StatedMedication) -> StatedMedication:
    """Return the later of two versions of a Medication resource; the second if no time tells them apart."""
    return first if first.updated > second.updated else second


MEDICATION_TYPES = (
    "MedicationRequest",
    "MedicationOrder",
    "MedicationStatement",
    "MedicationUsage",
    "MedicationAdministration",
    "MedicationDispense",
)
_OVER = ("stopped", "completed", "ended", "cancelled", "discontinued")
_STOPPED = ("stopped", "discontinued")
_ADHERENCE = {
    **dict.fromkeys(("taking", "taking-as-directed", "taking-not-as-directed"), "active"),
    **dict.fromkeys(("not-taking", "not-taking-as-directed"), "not-taken"),
    **dict.fromkeys(("on-hold", "on-hold-as-directed"), "on-hold"),
    **dict.fromkeys(("stopped", "stopped-as-directed"), "stopped"),
}
"""The codes of R5 in the statuses of R4."""
_NEVER = ("cancelled", "draft", "intended", "not-taken", "declined", "not-done", "unknown")
"""Statuses of medications that were not begun, as far as the source says."""
_NEVER_SUPPLIED = ("declined", "cancelled", "not-done")
"""Statuses of supplies that the patient did not get."""


def read_medication(resource: Resource, find_medication: FindMedication) -> list[FactEntry]:
    """Return the facts of a resource of `MEDICATION_TYPES`. Raises ValueError if it names no medication."""
    name, codes = medication_name(resource, find_medication)
    if not name:
        raise ValueError("names no medication that is in the files; export it with its Medication resource")
    kind = str(resource["resourceType"])
    fact = ClinicalFact("medication", name, codes=codes)
    if kind in ("MedicationRequest", "MedicationOrder"):
        return _read_request(resource, fact)
    if kind == "MedicationAdministration":
        return _read_administration(resource, fact)
    if kind == "MedicationDispense":
        return _read_dispense(resource, fact)
    return _read_statement(resource, fact)


def medication_name(resource: Resource, find_medication: FindMedication) -> NamedCodes:
    """Return words and codes of the medication: coded, contained, or another resource."""
    medication = resource.get("medication")
    concept = read_concept(resource.get("medicationCodeableConcept") or medication)
    reference = resource.get("medicationReference")
    if reference is None and isinstance(medication, dict):
        reference = medication.get("reference")
        if isinstance(reference, str):
            reference = medication
    if concept[0] or not isinstance(reference, dict):
        return concept
    address = str(reference.get("reference") or "")
    if address.startswith("#"):
        for contained in as_list(resource.get("contained")):
            if isinstance(contained, dict) and contained.get("id") == address[1:]:
                return describe_medication(contained)
    name, codes = find_medication(reference)
    return name or str(reference.get("display") or "").strip(), codes


def describe_medication(medication: Resource) -> NamedCodes:
    """Return words and codes of a Medication resource, of its ingredients if it has no code."""
    name, codes = read_concept(medication.get("code"))
    if name:
        return name, codes
    ingredients = []
    for ingredient in as_list(medication.get("ingredient")):
        item = ingredient.get("itemCodeableConcept") or ingredient.get("item")
        ingredients.append(read_concept(item)[0])
    return " / ".join(filter(None, ingredients)), codes


def _read_request(resource: Resource, fact: ClinicalFact) -> list[FactEntry]:
    status = read_status(resource)
    dosages = resource.get("dosageInstruction")
    authored = read_time(resource.get("authoredOn"), resource.get("dateWritten"))
    is_forbidden = resource.get("doNotPerform") is True
    is_over = status in _OVER and status != "cancelled"
    intent = str(resource.get("intent") or "")
    is_ordered = intent not in ("proposal", "plan", "option")
    fact = replace(
        fact,
        event="start" if is_ordered and not is_forbidden and status not in _NEVER else "state",
        time=authored or None,
        value=read_dosage(dosages) or str(resource.get("renderedDosageInstruction") or ""),
        status="not-taken" if is_forbidden else "" if is_over else status,
        category="request" if is_ordered else intent,
    )
    reason = join_concepts(resource.get("reasonCode") or resource.get("reason"))
    entries = [FactEntry(fact, remark=_remark(resource, f"Reason: {reason}." if reason else ""))]
    # What was stopped did not last as long as it was meant to, but systems write the day of its stop into its period.
    first = "" if status in _STOPPED else authored
    # R5 has the period of all instructions, too.
    planned = dosage_end(dosages, first) or read_period(resource.get("effectiveDosePeriod"))[1]
    changed = read_time(resource.get("statusChanged"), resource.get("dateEnded"))
    if fact.event == "start" and (is_over or planned):
        stopped_for = join_concepts(resource.get("statusReason"))
        end = changed or planned if is_over else planned
        entries.append(end_entry(fact, end, status if is_over else "planned", stopped_for))
    return entries


def _read_statement(resource: Resource, fact: ClinicalFact) -> list[FactEntry]:
    status = read_status(resource)
    adherence = resource.get("adherence")
    if isinstance(adherence, dict):
        # R5 says there what R4 says by the status.
        codes = sorted(concept_codes(adherence.get("code")))
        words = read_concept(adherence.get("code"))[0]
        status = next((_ADHERENCE[code] for code in codes if code in _ADHERENCE), words) or status
    if resource.get("taken") == "n" or resource.get("wasNotTaken") is True:
        status = "not-taken"
    asserted = read_time(resource.get("dateAsserted"))
    start, end = read_period(resource.get("effectivePeriod"))
    time = read_time(resource.get("effectiveDateTime"))
    if status not in _OVER and status not in _NEVER and "" < asserted[:10] < (start or time)[: len(asserted[:10])]:
        status = "intended"
    is_planned = status not in _OVER and "" < asserted[:10] < end[:10]
    is_over = status in _OVER or (bool(end) and not is_planned and status not in _NEVER)
    fact = replace(
        fact,
        event="start" if start and status not in _NEVER else "state",
        time=start or time or asserted or end or None,
        value=read_dosage(resource.get("dosage")),
        status="" if is_over else status,
        category="statement",
    )
    # A start is known at the latest when it is stated, if that was before the end.
    since = asserted if not end or asserted[:10] <= end[:10] else ""
    reason = join_concepts(resource.get("reasonCode"))
    entries = [FactEntry(fact, since, remark=_remark(resource, f"Reason: {reason}." if reason else ""))]
    if (is_over or is_planned) and status not in _NEVER:
        past = "planned" if is_planned else status if status in _OVER else ""
        entries.append(end_entry(fact, end, past, since=asserted))
    return entries


def _read_administration(resource: Resource, fact: ClinicalFact) -> list[FactEntry]:
    status = read_status(resource)
    start, end = _administration_times(resource)
    dosage = resource.get("dosage")
    dosage = dosage if isinstance(dosage, dict) else {}
    dose = read_quantity(dosage.get("dose") or dosage.get("quantity"))
    rate = read_rate(dosage)
    words = " ".join(filter(None, (dose.with_unit, join_concepts(dosage.get("route")), f"at {rate}" if rate else "")))
    text = " ".join(str(dosage.get("text") or "").split())
    is_given = status not in ("not-done", "unknown") and resource.get("wasNotGiven") is not True
    fact = replace(
        fact,
        event="given" if is_given else "state",
        time=start or None,
        value=words or text,
        number=dose.number,
        unit=dose.unit,
        status=("" if status == "completed" else status) if is_given else "not-done",
        category="administration",
    )
    reason = join_concepts(resource.get("statusReason") or resource.get("reasonNotGiven"))
    remark = _remark(resource, describe_end(start, end), text if words else "", reason)
    return [FactEntry(fact, end if end[:10] > start[:10] else "", remark=remark)]


def _administration_times(resource: Resource) -> tuple[str, str]:
    # R5 misspells it.
    for prefix in ("effective", "occurence", "occurrence"):
        time = read_time(resource.get(f"{prefix}DateTime"))
        start, end = read_period(resource.get(f"{prefix}Period"))
        if time or start or end:
            return time or start or end, end
    return "", ""


def _read_dispense(resource: Resource, fact: ClinicalFact) -> list[FactEntry]:
    status = read_status(resource)
    is_declined = status in _NEVER_SUPPLIED
    prepared = read_time(resource.get("whenPrepared"))
    quantity, days = read_quantity(resource.get("quantity")), read_quantity(resource.get("daysSupply"))
    is_days = days.unit in ("", "d")
    supply = f"for {f'{days.text} days' if is_days else days.with_unit}" if days.text else ""
    parts = [read_dosage(resource.get("dosageInstruction")), quantity.with_unit, supply]
    fact = replace(
        fact,
        time=read_time(resource.get("whenHandedOver")) or prepared or None,
        value=", ".join(filter(None, parts)),
        status="not-taken" if is_declined else "" if status == "completed" else status,
        category="dispense",
    )
    entries = [FactEntry(fact, reported_since(fact.time or "", prepared), remark=_remark(resource))]
    # Nobody takes what is used up. A later supply is a course of its own.
    end = add_supply(fact.time or "", days.text.removesuffix(".0")) if is_days else ""
    end = end or _end_of_duration(fact.time or "", resource.get("daysSupply"))
    if end and not is_declined:
        entries.append(end_entry(fact, end))
    return entries


def _remark(resource: Resource, *others: str) -> str:
    notes = (str(note["text"]) for note in as_list(resource.get("note")) if note.get("text"))
    return " ".join(filter(None, (*others, *notes)))


_PERIODS = {"h": "hour", "d": "day", "wk": "week", "mo": "month", "min": "minute", "a": "year", "s": "second"}
_DAYS_OF = {"h": 1 / 24, "d": 1, "wk": 7, "mo": 31, "a": 366}
"""How many days a unit of a duration has at most."""
_DAYS = {
    "mon": "Monday",
    "tue": "Tuesday",
    "wed": "Wednesday",
    "thu": "Thursday",
    "fri": "Friday",
    "sat": "Saturday",
    "sun": "Sunday",
}


def read_dosage(dosages: Any) -> str:
    """Return dosage instructions in words: `10 mg oral once daily`."""
    steps = _list_steps(dosages)
    return "; ".join(filter(None, (_dosage_text(dosage) for step in steps for dosage in step)))


def _list_steps(dosages: Any) -> list[list[Mapping[str, Any]]]:
    """Return dosage instructions by their numbers in the sequence. Those of one number are taken at the same time."""
    steps: dict[int, list[Mapping[str, Any]]] = {}
    for dosage in list_objects(dosages):
        number = dosage.get("sequence")
        steps.setdefault(number if isinstance(number, int) else 0, []).append(dosage)
    return [steps[number] for number in sorted(steps)]


def dosage_end(dosages: Any, start: str) -> str:
    """Return the last day of the dosage instructions, which begin on `start`, if they all have one."""
    steps = _list_steps(dosages)
    for step in steps:
        ends = [_instruction_end(dosage, start) for dosage in step]
        if not all(ends):
            return ""
        start = max(ends)
    return start if steps else ""


def _instruction_end(dosage: Mapping[str, Any], start: str) -> str:
    """Return the last day of one dosage instruction that begins on `start`, or an empty string."""
    timing = dosage.get("timing")
    repeat = timing.get("repeat") if isinstance(timing, dict) else None
    repeat = repeat if isinstance(repeat, dict) else {}
    return read_period(repeat.get("boundsPeriod"))[1] or _end_of_duration(start, repeat.get("boundsDuration"))


def _end_of_duration(start: str, duration: Any) -> str:
    """Return the day on which a duration from `start` is over at the latest, or an empty string."""
    span = read_quantity(duration)
    days = (span.number or 0) * _DAYS_OF.get(span.unit, 0)
    return add_supply(start, str(math.ceil(days)))


def read_rate(dosage: Mapping[str, Any]) -> str:
    """Return `rate[x]` in words: `250 mL/h`, `8 ug/min`."""
    ratio = dosage.get("rateRatio")
    return (
        read_quantity(dosage.get("rateQuantity")).with_unit
        or read_range(dosage.get("rateRange"))
        or (_ratio_text(ratio, "/") if isinstance(ratio, dict) else "")
    )


def _ratio_text(ratio: Mapping[str, Any], sign: str) -> str:
    """Return `8 ug/min`, or `4 g per day` with the sign ` per `. The number 1 is left out below the line."""
    above, below = read_quantity(ratio.get("numerator")), read_quantity(ratio.get("denominator"))
    if not above.text or not below.text:
        return above.with_unit
    unit = _PERIODS.get(below.unit, below.written_unit) if sign != "/" else below.written_unit
    return f"{above.with_unit}{sign}{unit if below.number == 1 and unit else f'{below.text} {unit}'.strip()}"


def _dosage_text(dosage: Mapping[str, Any]) -> str:
    if text := dosage.get("text"):
        return " ".join(str(text).split())
    words = " ".join(filter(None, _dosage_parts(dosage)))
    instructions = [join_concepts(dosage.get("additionalInstruction")), str(dosage.get("patientInstruction") or "")]
    return ", ".join(filter(None, (words, *(" ".join(text.split()) for text in instructions))))


def _dosage_parts(dosage: Mapping[str, Any]) -> Iterator[str]:
    yield _dose_text(dosage)
    yield join_concepts(dosage.get("route"))
    timing = dosage.get("timing")
    if isinstance(timing, dict):
        repeat = timing.get("repeat")
        yield concept_text(timing.get("code")) or (_timing_text(repeat) if isinstance(repeat, dict) else "")
        yield _duration_text(repeat) if isinstance(repeat, dict) else ""
    if dosage.get("asNeededBoolean") is True or dosage.get("asNeeded") is True:
        yield "as needed"
    if reason := join_concepts(dosage.get("asNeededCodeableConcept") or dosage.get("asNeededFor")):
        yield f"as needed for {reason}"
    for limit in list_objects(dosage.get("maxDosePerPeriod")):
        if words := _ratio_text(limit, " per "):
            yield f"(at most {words})"


def _dose_text(dosage: Mapping[str, Any]) -> str:
    """Return dose and rate: the ordered one, and other forms of it, such as the number of tablets, in parentheses."""
    forms: list[str] = []
    for form in (*list_objects(dosage.get("doseAndRate")), dosage):
        quantity = read_quantity(form.get("doseQuantity") or form.get("dose"))
        dose = quantity.with_unit or read_range(form.get("doseRange"))
        rate = read_rate(form)
        words = f"{dose} at {rate}" if dose and rate else dose or rate
        is_ordered = "ordered" in concept_codes(form.get("type")) or join_concepts(form.get("type")) == "ordered"
        forms.insert(0 if is_ordered else len(forms), words)
    unique = list(dict.fromkeys(filter(None, forms)))
    return " ".join((*unique[:1], f"({', '.join(unique[1:])})" if unique[1:] else "")).strip()


def _timing_text(repeat: Mapping[str, Any]) -> str:
    """Return when a dose is taken: `every 4 to 6 hours`, `once daily before meals`, `on Monday`."""
    words = [_frequency_text(repeat)]
    days = [_DAYS.get(str(day), str(day)) for day in as_list(repeat.get("dayOfWeek"))]
    words.append(f"on {', '.join(days)}" if days else "")
    words += [DAY_EVENTS.get(str(event), str(event)) for event in as_list(repeat.get("when"))]
    times = [str(time).removesuffix(":00") for time in as_list(repeat.get("timeOfDay"))]
    words.append(f"at {', '.join(times)}" if times else "")
    return " ".join(filter(None, words))


def _frequency_text(repeat: Mapping[str, Any]) -> str:
    period, unit = repeat.get("period"), str(repeat.get("periodUnit") or "")
    if period is None or unit not in _PERIODS:
        return ""
    frequency, most = repeat.get("frequency") or 1, repeat.get("frequencyMax")
    longest = repeat.get("periodMax")
    times = f"{frequency} to {most}" if most and most != frequency else str(frequency)
    if period == 1 and unit == "d" and not longest:
        return {"1": "once daily", "2": "twice daily"}.get(times, f"{times} times daily")
    if longest and longest != period:
        every = f"{period} to {longest} {_PERIODS[unit]}s"
    else:
        every = _PERIODS[unit] if period == 1 else f"{period} {_PERIODS[unit]}s"
    return f"every {every}" if times == "1" else f"{times} times every {every}"


def _duration_text(repeat: Mapping[str, Any]) -> str:
    """Return for how long doses are taken, and how many."""
    duration = read_quantity(repeat.get("boundsDuration")).with_unit or read_range(repeat.get("boundsRange"))
    count = repeat.get("count")
    return ", ".join(filter(None, (f"for {duration}" if duration else "", f"{count} doses in all" if count else "")))
