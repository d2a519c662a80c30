"""Write the directions of C-CDA medications in words: `1 to 2 Oral every 4 to 6 h as needed for pain`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from epicrisis.corpus.ccda.values import Narrative, read_amount, read_attribute, read_concept, read_text
from epicrisis.corpus.hl7.values import DAY_EVENTS

if TYPE_CHECKING:
    from lxml.etree import _Element

_DIRECTIONS_CODE = "76662-6"
"""The code of a medication's directions as free text."""
_WORD = re.compile(r"[^\W_]+")
_TAKEN = frozenset(
    word
    for words in (
        "daily day days every each once twice thrice times hour hours hr hrs h bedtime morning evening night",
        "noon meal meals breakfast lunch dinner needed prn qd bid tid qid qhs hs qam qpm qod weekly week",
        "weeks monthly month take inhale apply inject instill chew swallow dissolve place use give tablet",
        "tablets capsule capsules puff puffs drop drops unit units spray sprays patch patches mouth orally",
    )
    for word in words.split()
)
"""Words of directions."""


def read_directions(statement: _Element, name: str, narrative: Narrative) -> str:
    """Return how a medication of this name is taken: as the source words it, else dose, route and interval.

    The narrative of the entry is used if it says more than the name, since codes leave out what they have no code for.
    """
    for inner in statement.iterfind("entryRelationship/substanceAdministration"):
        is_free_text = read_attribute(inner.find("code"), "code") == _DIRECTIONS_CODE
        if is_free_text and (words := read_text(inner.find("text"), narrative)):
            return words
    words = _describe_dose(statement, narrative)
    text = read_text(statement.find("text"), narrative)
    beyond_name = [word for word in _WORD.findall(text.lower()) if word not in set(_WORD.findall(name.lower()))]
    is_direction = not _TAKEN.isdisjoint(beyond_name) or (bool(beyond_name) and not any(map(str.isdigit, words)))
    return text if is_direction else words


def _describe_dose(statement: _Element, narrative: Narrative) -> str:
    """Return dose, rate, route, interval, reason and limit."""
    dose, rate = (_read_dose(statement.find(name), narrative) for name in ("doseQuantity", "rateQuantity"))
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


def _read_dose(element: _Element | None, narrative: Narrative) -> str:
    """Return an amount, in the source's own words if its code has no unit: `30 units` for 30."""
    amount = read_amount(element)
    if element is not None and not any(map(str.isalpha, amount)):
        for original in element.iterfind("translation/originalText"):
            if words := read_text(original, narrative):
                return words
    return amount


def _schedule(statement: _Element) -> str:
    """Return when a medication is taken: `every 12 h`, `at bedtime`."""
    parts: list[str] = []
    times = [part for time in statement.iterchildren("effectiveTime") for part in (time, *time.iter("comp"))]
    for time in times:
        if period := read_amount(time.find("period")):
            parts.append(f"every {period}")
        event = read_attribute(time.find("event"), "code").upper()
        if event:
            parts.append(DAY_EVENTS.get(event, f"at {event}"))
    return ", ".join(dict.fromkeys(parts))
