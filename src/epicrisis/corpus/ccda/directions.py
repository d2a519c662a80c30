"""Write the directions of C-CDA medications in words: `1 to 2 Oral every 4 to 6 h as needed for pain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epicrisis.corpus.ccda.values import Narrative, read_amount, read_attribute, read_concept, read_text

if TYPE_CHECKING:
    from lxml.etree import _Element

_DIRECTIONS_CODE = "76662-6"
"""The code of a medication's directions as free text."""


def read_directions(statement: _Element, name: str, narrative: Narrative) -> str:
    """Return how a medication of this name is taken: as the source words it, else dose, route and interval.

    Without a number among these, the narrative of the entry is used, where vendors write the directions.
    """
    for inner in statement.iterfind("entryRelationship/substanceAdministration"):
        is_free_text = read_attribute(inner.find("code"), "code") == _DIRECTIONS_CODE
        if is_free_text and (words := read_text(inner.find("text"), narrative)):
            return words
    words = _describe_dose(statement, narrative)
    text = read_text(statement.find("text"), narrative)
    return text if text and text != name and not any(map(str.isdigit, words)) else words


def _describe_dose(statement: _Element, narrative: Narrative) -> str:
    """Return dose, rate, route, interval, reason and limit."""
    dose, rate = (read_amount(statement.find(name)) for name in ("doseQuantity", "rateQuantity"))
    parts = [dose, f"at {rate}" if dose and rate else rate]
    parts += [read_concept(statement.find("routeCode"), narrative)[0], _schedule(statement)]
    for criterion in statement.iterfind("precondition/criterion"):
        reason = read_concept(criterion.find("value"), narrative)[0] or read_text(criterion.find("text"), narrative)
        parts.append(f"as needed for {reason}" if reason else "as needed")
    limit = statement.find("maxDoseQuantity")
    if limit is not None and (most := read_amount(limit.find("numerator"))):
        period = read_amount(limit.find("denominator"))
        parts.append(f"(at most {most} per {period.removeprefix('1 ')})" if period else f"(at most {most})")
    return " ".join(filter(None, parts))


def _schedule(statement: _Element) -> str:
    """Return how often a medication is taken: `every 12 h`."""
    for time in statement.iterchildren("effectiveTime"):
        if period := read_amount(time.find("period")):
            return f"every {period}"
    return ""
