"""The table and the line of a computed answer, for the screen, files and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from epicrisis.core.answers import Answer, Citation
from epicrisis.core.computed_values import ComputedAnswer, ComputedRow
from epicrisis.core.dates import time_range
from epicrisis.core.printable import count_noun, printable

MAX_ROWS = 40
"""Rows for a reader: the last ones. The JSON form has all."""
HEADING = "Computed from structured entries"
WIDTH, HEIGHT, _MARGIN = 320.0, 64.0, 6.0
_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = ("Time", "Entry", "Value", "Status", "Remark", "Source")
_MIN_POINTS = 3


@dataclass(frozen=True, slots=True)
class ValueTable:
    """A table of printable cells, with a line of its values if they are a series."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sparkline: str = ""
    """The values as bars of text, with the range that they span. Empty without a series."""
    points: tuple[tuple[float, float], ...] = ()
    """The values in a box of WIDTH by HEIGHT, time from left to right. Empty without a series."""
    description: str = ""
    """The line in words."""


def build_computed_table(answer: Answer) -> ValueTable | None:
    """Return the rows of the computed answer as a table, or None without rows. Empty columns are left out."""
    computed = answer.computed
    if computed is None or not computed.rows:
        return None
    citations = {citation.number: citation for citation in answer.citations}
    cells = [_list_cells(row, citations) for row in computed.rows[-MAX_ROWS:]]
    has_one_name = len({row.name for row in computed.rows}) == 1 and any(
        row.number is not None for row in computed.rows
    )
    places: list[int] = []
    for place in range(len(_COLUMNS)):
        is_filled = any(row[place] for row in cells)
        if is_filled and not (place == 1 and has_one_name):
            places.append(place)
    rows = tuple(tuple(row[place] for place in places) for row in cells)
    columns = tuple(_COLUMNS[place] for place in places)
    series = _list_series(computed)
    if len(series) < _MIN_POINTS:
        return ValueTable(columns, rows)
    numbers = [number for _, number in series]
    span = printable(f"{min(numbers):g} to {max(numbers):g} {computed.unit}".strip())
    description = printable(f"{count_noun(len(numbers), 'value')} of {computed.subject} over time, {span}")
    return ValueTable(columns, rows, f"{draw_bars(numbers)}  {span}", _place_points(series), description)


def describe_left_out(computed: ComputedAnswer) -> str:
    """Return how many rows a reader is not shown, or an empty text."""
    left_out = len(computed.rows) - MAX_ROWS
    return f"{count_noun(left_out, 'earlier row')} not shown here; the JSON form of the answer has all." * (
        left_out > 0
    )


def list_computed_numbers(answer: Answer) -> frozenset[int]:
    """Return the citations of computed rows alone. The table shows them."""
    if answer.computed is None:
        return frozenset()
    numbers = {number for row in answer.computed.rows for number in row.citations}
    for claim in answer.claims:
        if not claim.is_computed:
            numbers -= set(claim.citations)
    return frozenset(numbers)


def _list_cells(row: ComputedRow, citations: Mapping[int, Citation]) -> tuple[str, ...]:
    places: list[str] = []
    for number in row.citations:
        citation = citations.get(number)
        place = "" if citation is None else f" {citation.document_id}, characters {citation.start} to {citation.end}"
        places.append(f"[{number}]{place}")
    time = (row.time or "no date").replace("T", " ")
    return tuple(map(printable, (time, row.name, row.value, row.status, row.remark, "; ".join(places))))


def _list_series(computed: ComputedAnswer) -> list[tuple[float, float]]:
    """Return the times in days and the numbers of the rows of a series; empty for other operations and names."""
    if computed.operation not in ("trend", "list", "value-on") or len({row.name for row in computed.rows}) > 1:
        return []
    series: list[tuple[float, float]] = []
    for row in computed.rows:
        try:
            start = time_range(row.time or "")[0]
        except ValueError:
            continue
        if row.number is not None:
            series.append((start.timestamp() / 86_400, row.number))
    return series


def draw_bars(numbers: Sequence[float]) -> str:
    """Return one bar for each number, the lowest as the lowest bar. Equal numbers have bars in the middle."""
    low, high = min(numbers), max(numbers)
    bars: list[str] = []
    for number in numbers[-MAX_ROWS:]:
        share = 0.5 if high == low else (number - low) / (high - low)
        bars.append(_BARS[round(share * (len(_BARS) - 1))])
    return "".join(bars)


def _place_points(series: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    times = [time for time, _ in series]
    numbers = [number for _, number in series]
    span, size = max(times) - min(times) or 1.0, max(numbers) - min(numbers) or 1.0
    points: list[tuple[float, float]] = []
    for time, number in series:
        x = _MARGIN + (WIDTH - 2 * _MARGIN) * (time - min(times)) / span
        y = HEIGHT - _MARGIN - (HEIGHT - 2 * _MARGIN) * (number - min(numbers)) / size
        points.append((round(x, 1), round(y, 1)))
    return tuple(points)
