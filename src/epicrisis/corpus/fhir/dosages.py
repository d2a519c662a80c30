"""Write dosage instructions of FHIR in words: `650 mg (2 tablet) oral every 4 to 6 hours as needed for pain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from epicrisis.corpus.fhir.resources import as_list, concept_text, list_objects
from epicrisis.corpus.fhir.values import concept_codes, join_concepts, read_period, read_quantity, read_range
from epicrisis.corpus.hl7.values import DAY_EVENTS

_PERIODS = {"h": "hour", "d": "day", "wk": "week", "mo": "month", "min": "minute", "a": "year", "s": "second"}
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
    return "; ".join(filter(None, map(_dosage_text, list_objects(dosages))))


def dosage_end(dosages: Any) -> str:
    """Return the last day of the dosage instructions, if they all have one."""
    ends = []
    for dosage in list_objects(dosages):
        timing = dosage.get("timing")
        repeat = timing.get("repeat") if isinstance(timing, dict) else None
        ends.append(read_period(repeat.get("boundsPeriod") if isinstance(repeat, dict) else None)[1])
    return max(ends) if ends and all(ends) else ""


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
