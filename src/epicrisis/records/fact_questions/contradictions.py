"""Find words of a chat model that contradict a computed answer: another number, another day, a denial.

    claims = mark_contradictions(answer.claims, answer.computed, answer.question.text)

Only answers of one value, one day or a yes are compared. Words without a mark may still be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from epicrisis.core.answers import Claim
from epicrisis.core.computed_values import COMPUTATION, NO_ENTRY, ComputedAnswer, FactOperation
from epicrisis.core.quantities import (
    CLOCK,
    DATE,
    DIASTOLIC,
    ORDINAL,
    SYSTOLIC,
    Quantity,
    find_quantities,
    match_quantities,
)

_OPERATION_WORDS: dict[FactOperation, re.Pattern[str]] = {
    "last": re.compile(r"(?i)\b(?:last|latest|most recent|newest|current(?:ly)?)\b"),
    "first": re.compile(r"(?i)\b(?:first|earliest|initial(?:ly)?)\b"),
    "highest": re.compile(r"(?i)\b(?:highest|maxim\w+|peak\w*|max)\b"),
    "lowest": re.compile(r"(?i)\b(?:lowest|minim\w+|nadir|min)\b"),
    "change": re.compile(r"(?i)\b(?:chang\w+|differ\w+|ros\w+|fell|increas\w+|decreas\w+)\b"),
    "count": re.compile(r"(?i)\b(?:times|number|count)\b"),
    "value-on": re.compile(r"(?i)\b(?:was|is)\b"),
    "started": re.compile(r"(?i)\b(?:start\w*|began|begun|initiat\w+|diagnos\w+)\b"),
    "stopped": re.compile(r"(?i)\b(?:stop\w*|discontinu\w+|ended)\b"),
}
"""Operations with one result, and the words that say that a claim states it."""
_DENIAL = re.compile(
    r"^\W*(?:no|none)\b|\bno (?:known|active|current|history|record|evidence)\b|\bnever\b|"
    r"\b(?:not|n['’]t)\s+(?:\w+\s+)?(?:on|taking|take|taken|have|had|allergic|prescribed)\b",
    re.IGNORECASE,
)
_NOTHING_STATED = re.compile(
    r"\b(?:documents?|entr(?:y|ies)|notes?|records?|sources?)\s+(?:do|does|did)\s+not\s+"
    r"(?:answer|state|say|mention|provide|contain|specify|give|include|indicate|report)\b",
    re.IGNORECASE,
)
"""Words that deny what the structured entries among the documents say."""
_BARE_UNITS = re.compile(r"(?<=\d) ?(?:(?:[x×*] ?)?10 ?[*^] ?\d{1,2} ?/ ?\w+|\[\w+\]|\{\w+\})|\b10[*^]\d{1,2}/\w+")
"""Units that are read as further numbers, or not at all: `10*3/uL`, `[degF]`."""
_COUNT = re.compile(
    r"\b\d+\s+(?:times?|values?|measurements?|tests?|results?|notes?|documents?|entr(?:y|ies))\b", re.IGNORECASE
)
_CITATION = re.compile(r"\[\d{1,4}\]|\(doc \d+\)")
_NOT_COMPARED = frozenset({CLOCK, ORDINAL, "year", "month", "h"})
_SAME_KIND = ({"", "time"}, {"", "mmHg", SYSTOLIC, DIASTOLIC})
"""Units of one kind: a count with or without the word "times", and blood pressures with or without their side."""


def mark_contradictions(claims: Sequence[Claim], computed: ComputedAnswer, question: str) -> tuple[Claim, ...]:
    """Return the claims, those that contradict the computed answer marked so, with the computed result as the reason.

    If any claim states the result, another value contradicts it only beside a word such as "last" or "highest".
    """
    if computed.state != "answered" or computed.result == NO_ENTRY or not claims:
        return tuple(claims)
    if computed.operation in ("ever", "current"):
        opposites = [claim for claim in claims if _is_denial(claim.text, computed)]
    else:
        opposites = _find_other_results(claims, computed, question)
    reason = f"the computed answer is {computed.result}"
    checked: list[Claim] = []
    for claim in claims:
        if claim in opposites or _NOTHING_STATED.search(claim.text):
            claim = replace(claim, support="contradicted", reason=reason, checked_by=COMPUTATION)
        checked.append(claim)
    return tuple(checked)


def _is_denial(text: str, computed: ComputedAnswer) -> bool:
    """Return whether a claim denies what was computed as there. A claim that names an entry may deny something else."""
    names = [row.name.split()[0].lower() for row in computed.rows if row.name]
    is_about = not any(name in text.lower() for name in names) or computed.operation == "ever"
    return is_about and _DENIAL.search(text) is not None


def _find_other_results(claims: Sequence[Claim], computed: ComputedAnswer, question: str) -> list[Claim]:
    """Return the claims that state another value or day in the place of the computed one."""
    pattern = _OPERATION_WORDS.get(computed.operation)
    results = _read_quantities(computed.result)
    if pattern is None or not results or (computed.operation == "value-on" and len(computed.rows) != 1):
        return []
    row_quantities = _read_quantities("\n".join((question, *computed.describe())))
    rivals: list[tuple[Claim, bool]] = []
    is_stated = False
    for claim in claims:
        text = claim.text if computed.operation == "count" else _COUNT.sub(" ", claim.text)
        quantities = _read_quantities(text)
        states = any(_agrees(result, quantity) for result in results for quantity in quantities)
        is_stated = is_stated or states
        others = [quantity for quantity in quantities if _competes(quantity, results, row_quantities)]
        if others and not states:
            rivals.append((claim, pattern.search(claim.text) is not None))
    return [claim for claim, names_operation in rivals if names_operation or not is_stated]


def _read_quantities(text: str) -> list[Quantity]:
    """Return the quantities of a text without its citations, and without units that would be read as numbers."""
    text = _BARE_UNITS.sub(" ", _CITATION.sub(" ", text.replace("mm[Hg]", "mmHg")))
    return [quantity for quantity in find_quantities(text) if quantity.unit not in _NOT_COMPARED]


def _agrees(result: Quantity, quantity: Quantity) -> bool:
    """Return whether a quantity is the result."""
    if DATE in (result.unit, quantity.unit):
        return match_quantities(result, quantity) != "none" or match_quantities(quantity, result) != "none"
    if any({result.unit, quantity.unit} <= kind for kind in _SAME_KIND):
        return abs(result.low - quantity.low) < 1e-9 * max(abs(result.low), 1.0)
    return match_quantities(result, quantity) == "same"


def _competes(quantity: Quantity, results: Iterable[Quantity], row_quantities: Iterable[Quantity]) -> bool:
    """Return whether a quantity may stand in the place of a result: of its kind, and not shown elsewhere.

    `row_quantities`: those of the question and of the computed rows, such as the two values behind a change.
    """
    if any(_agrees(other, quantity) for other in row_quantities):
        return False
    for result in results:
        units = {result.unit, quantity.unit}
        is_bare = not quantity.unit and result.unit != DATE
        if len(units) == 1 or is_bare or any(units <= kind for kind in _SAME_KIND):
            return True
    return False
