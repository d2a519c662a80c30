"""Compare computed answers with the right answers of generated questions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

from epicrisis.core.computed_values import ComputedAnswer

ComputedGrade: TypeAlias = Literal["exact", "abstained", "rightly-abstained", "not-understood", "wrong"]
COMPUTED_GRADES: tuple[ComputedGrade, ...] = get_args(ComputedGrade)


WITH_FACTS = "+facts"
"""The end of the names of arms that read structured entries and compute answers from them."""
PARTS_SEPARATOR = "; "
"""Between the parts of a right answer in a question set."""


def read_parts(gold: str) -> frozenset[str] | None:
    """Return the parts of a right answer. None for an empty one: the question must not be answered."""
    return frozenset(gold.split(PARTS_SEPARATOR)) if gold else None


def grade_computed(computed: ComputedAnswer | None, expected: frozenset[str] | None) -> ComputedGrade:
    """Return how a computed answer compares with the right one.

    A list with marked rows is exact if the right answer has all others, and perhaps some of the marked.
    """
    if computed is None:
        return "not-understood" if expected is not None else "rightly-abstained"
    if computed.state == "abstained":
        return "abstained" if expected is not None else "rightly-abstained"
    if expected is None:
        return "wrong"
    if split_result(computed.result, expected) == expected:
        return "exact"
    if computed.result == "no direction":
        return "abstained"
    certain: set[str] = set()
    uncertain: set[str] = set()
    for row in computed.rows:
        (uncertain if "may lie outside" in row.remark else certain).add(row.value)
    return "exact" if uncertain and certain <= expected <= certain | uncertain else "wrong"


def split_result(result: str, expected: Iterable[str]) -> frozenset[str]:
    """Return the parts of a computed result. Names and values are separated by `; ` or `and`."""
    if len(frozenset(expected)) == 1:
        return frozenset({result})
    parts: list[str] = []
    for part in result.split("; "):
        parts += part.replace(", ", " and ").split(" and ")
    return frozenset(parts)
