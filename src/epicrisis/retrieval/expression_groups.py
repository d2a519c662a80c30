"""Groups of time expressions: families whose notes are taken together, and questions that need the entire record."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from epicrisis.retrieval.time_expressions import FAMILIES, TimeExpression


def group_by_family(expressions: Sequence[TimeExpression]) -> list[list[TimeExpression]]:
    """Return the expressions in groups whose notes are taken together: stays, days, each range, and notes.

    The groups narrow the record in this order. A group may be empty.
    """
    stays, days, notes = (
        [expression for expression in expressions if expression.kind in family] for family in FAMILIES
    )
    ranges = [[expression] for expression in expressions if expression.kind == "range"]
    return [stays, days, *ranges, notes]


def find_unrestricted(expressions: Sequence[TimeExpression]) -> TimeExpression | None:
    """Return the first expression that needs the entire record, or None.

    It asks for an order, a span or every stay. Or it is a comparison or a readmission, and the question mentions only
    one of its two sides, so that any note may hold the other.
    """
    for expression in expressions:
        match expression.kind:
            case "all":
                return expression
            case "compared" if not all(_count_sides(group) > 1 for group in group_by_family(expressions) if group):
                return expression
            case "readmission" if not all(map(_is_open_range, _restricting(expressions))):
                return expression
    return None


def _restricting(expressions: Sequence[TimeExpression]) -> list[TimeExpression]:
    return list(itertools.chain.from_iterable(group_by_family(expressions)))


def _is_open_range(expression: TimeExpression) -> bool:
    return expression.relation in ("after", "since", "between")


def _count_sides(expressions: Sequence[TimeExpression]) -> int:
    """Return the number of stays, days or notes. A span between two of them has both."""
    counts: dict[tuple[object, ...], int] = {}
    spans = 0
    for expression in expressions:
        counts[expression.kind, expression.which, expression.noun, expression.readings] = expression.count
        spans += expression.relation == "between"
    return sum(counts.values()) + spans
