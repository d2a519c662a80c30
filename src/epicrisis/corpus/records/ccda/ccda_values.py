"""Values of coded C-CDA entries: concepts with their codes, quantities, times, and texts of the narrative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from epicrisis.core.ucum import to_ucum
from epicrisis.corpus.records.ccda.narrative import narrative_lines
from epicrisis.corpus.records.facts.fact_values import (
    COMPARATORS,
    INTERPRETATIONS,
    FactValue,
    choose_name,
    name_code,
    parse_value,
)
from epicrisis.corpus.records.facts.times import read_fact_time
from epicrisis.corpus.records.hl7.hl7_values import iso_time

if TYPE_CHECKING:
    from lxml.etree import _Element

TYPE = "{http://www.w3.org/2001/XMLSchema-instance}type"
Narrative: TypeAlias = Mapping[str, "_Element"]
"""The elements of a section's narrative by their ID."""


def read_attribute(element: _Element | None, name: str = "value") -> str:
    """Return an attribute, empty if it or the element is missing, or if the element has a nullFlavor."""
    if element is None or element.get("nullFlavor"):
        return ""
    return " ".join((element.get(name) or "").split())


def read_encounter_id(element: _Element | None) -> str:
    """Return the id of an encounter: the extension of its `id`, or its root."""
    return read_attribute(element, "extension") or read_attribute(element, "root")


def read_text(element: _Element | None, narrative: Narrative) -> str:
    """Return the text of an element: its own, or that of the narrative which it refers to."""
    if element is None:
        return ""
    reference = element if element.tag == "reference" else element.find("reference")
    address = "" if reference is None else (reference.get("value") or "").removeprefix("#")
    if address in narrative:
        return " ".join(narrative_lines(narrative[address]))
    return " ".join(narrative_lines(element))


def read_concept(element: _Element | None, narrative: Narrative) -> tuple[str, tuple[str, ...]]:
    """Return words and codes of a coded element and its translations. A code with a nullFlavor may still have words."""
    if element is None:
        return "", ()
    parts = [element, *element.iterchildren("translation")]
    codes: list[str] = []
    for part in parts:
        if code := read_attribute(part, "code"):
            codes.append(name_code(part.get("codeSystem") or "", code))
    names = [read_attribute(element, "displayName"), read_text(element.find("originalText"), narrative)]
    names += [read_attribute(part, "displayName") for part in parts[1:]]
    return choose_name(names), tuple(dict.fromkeys(codes))


def read_quantity(element: _Element | None) -> FactValue:
    """Return a physical quantity, whose unit is UCUM by the standard; as a code if it was written otherwise."""
    text, unit = read_attribute(element), read_attribute(element, "unit")
    unit = "" if unit == "1" else unit
    value = parse_value(text, unit)
    code = to_ucum(value.unit) or value.unit
    return replace(value, unit=code, written_unit=value.written_unit if value.written_unit != code else "")


def read_value(element: _Element | None, narrative: Narrative) -> FactValue:
    """Return a value of any type: quantity, interval, number, code, text. Without one, `text` is empty."""
    if element is None:
        return FactValue()
    # A quantity whose unit is not in UCUM is a translation with the unit in words.
    other = element.find("translation")
    if element.get("nullFlavor") and read_attribute(other):
        return parse_value(read_attribute(other), read_text(_find(other, "originalText"), narrative))
    if element.get("nullFlavor") and element.find("originalText") is None:
        return FactValue()
    kind = (element.get(TYPE) or "").rpartition(":")[2]
    if kind == "IVL_PQ":
        return _read_interval(element)
    if kind in ("CD", "CE", "CO", "CV", "CS"):
        name, codes = read_concept(element, narrative)
        return FactValue(name or ", ".join(codes))
    if kind == "BL":
        return FactValue({"true": "yes", "false": "no"}.get(read_attribute(element), ""))
    if kind.startswith("RTO"):
        above, below = read_quantity(element.find("numerator")), read_quantity(element.find("denominator"))
        return FactValue(f"{above.with_unit}:{below.with_unit}" if above.text and below.text else "")
    if kind == "TS":
        return FactValue(iso_time(read_attribute(element)).replace("T", " "))
    if element.get("value") is not None:
        return read_quantity(element)
    return parse_value(read_text(element, narrative))


def _find(element: _Element | None, path: str) -> _Element | None:
    return None if element is None else element.find(path)


def read_amount(element: _Element | None) -> str:
    """Return a quantity, or the range of one, with its unit: `1 to 2 mg`."""
    low, high = read_quantity(_find(element, "low")), read_quantity(_find(element, "high"))
    if low.text and high.text:
        return f"{low.text} to {high.text} {high.unit}".strip()
    value = next((value for value in (read_quantity(element), low, high) if value.text), FactValue())
    return f"{value.text} {value.unit}".strip()


def _read_interval(element: _Element) -> FactValue:
    """Return an interval; one with a single bound is a number with a comparator."""
    bounds: list[FactValue] = []
    for name, sign in (("low", ">"), ("high", "<")):
        bound = element.find(name)
        value = read_quantity(bound)
        if bound is not None and value.text:
            comparator = COMPARATORS[sign if bound.get("inclusive") == "false" else f"{sign}="]
            text = f"{comparator} {value.text}"
            bounds.append(FactValue(text, value.number, comparator, value.unit, value.written_unit))
    if len(bounds) == 1:
        return bounds[0]
    return FactValue(" and ".join(f"{bound.text} {bound.unit}".strip() for bound in bounds))


def read_reference_range(observation: _Element, narrative: Narrative) -> str:
    """Return the reference ranges in words: `0.6 to 1.2 mg/dL`, or as they are written."""
    ranges: list[str] = []
    for span in observation.iterfind("referenceRange/observationRange"):
        words = read_text(span.find("text"), narrative)
        low, high = read_quantity(span.find("value/low")), read_quantity(span.find("value/high"))
        if not words and low.text and high.text:
            words = f"{low.text} to {high.text} {high.unit}"
        elif not words and (low.text or high.text):
            words = f"at least {low.text} {low.unit}" if low.text else f"at most {high.text} {high.unit}"
        ranges.append(words.strip())
    return "; ".join(filter(None, ranges))


def read_interpretation(observation: _Element) -> str:
    """Return what the source says of a value: `high`."""
    words: list[str] = []
    for code in observation.iterchildren("interpretationCode"):
        flag = read_attribute(code, "code")
        words.append(INTERPRETATIONS.get(flag.upper(), "") or read_attribute(code, "displayName") or flag)
    return ", ".join(filter(None, words))


def read_time(element: _Element | None) -> str:
    """Return a time as a partial ISO date with its offset from UTC, or an empty string."""
    return read_fact_time(iso_time(read_attribute(element)))


def read_period(entry: _Element) -> tuple[str, str]:
    """Return start and end of an entry. A single time is the start; a schedule is no time."""
    for time in entry.iterchildren("effectiveTime"):
        if (time.get(TYPE) or "").rpartition(":")[2] in ("PIVL_TS", "EIVL_TS"):
            continue
        low, high = read_time(time.find("low")), read_time(time.find("high"))
        if low or high:
            return low, high
        if single := read_time(time) or read_time(time.find("center")):
            return single, ""
    return "", ""
