"""A table's cells as a reader sees them, and as a file of figures keeps them.

Shares become percentages with one decimal, their differences percentage points with a sign; the file (CSV) has every
figure in full, as it is in the table. Knows no markup.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from epicrisis.evaluation.analysis.published import FIGURE, accuracies
from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.analysis.table_text import PERCENT, is_p

CellUnit: TypeAlias = Literal["share", "number", "p"]

NONE = "–"

_NOT_SHARES = {
    "calls",
    "tokens",
    "input",
    "cached",
    "output",
    "seconds",
    "US dollars",
    "input beyond RAG's",
    "area",
    "kappa interval",
    "alpha interval",
}
"""Columns whose means, differences and intervals are of other things than shares."""
_SHARES = {
    "precision",
    "recall",
    "specificity",
    "F1",
    "skipped",
    "SD over places",
    "SD over repeats",
    "agreement",
    "tokens saved",
    "average",
}
"""Columns whose bare figures are shares."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class CellText:
    """A cell in words: the figure, and what stands smaller beside it (interval, n, p), a text each."""

    figure: str
    beside: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.figure} ({', '.join(self.beside)})" if self.beside else self.figure


def unit_of(column: str, cells: Sequence[Cell]) -> CellUnit:
    """What the figures under this head are: shares are 0 to 1."""
    if is_p(column):
        return "p"
    if column in _SHARES or column.endswith(PERCENT):
        return "share"
    means = [cell for cell in cells if isinstance(cell, Mean | Difference | Interval)]
    return "share" if means and column not in _NOT_SHARES else "number"


def shown(cell: Cell, unit: CellUnit, *, own_p: bool = False) -> CellText:
    """The cell in words; `own_p`: a difference with its uncorrected p, for tables without a column of p values."""
    match cell:
        case None:
            return CellText(NONE)
        case str():
            return CellText(cell)
        case int():
            return CellText(_number(cell, 0))
        case float():
            return CellText(p_value(cell) if unit == "p" else figure(cell, unit))
        case Interval():
            return CellText(_interval(cell, unit, False, _scale(cell.high)))
        case Mean():
            return _mean(cell, unit)
        case Difference():
            return _difference(cell, unit, own_p)


def rows_of(table: Table) -> tuple[tuple[CellText, ...], ...]:
    """The rows of a table of ours."""
    units = [unit_of(name, table.column(name)) for name in table.columns]
    own_p = not any(map(is_p, table.columns))
    return tuple(
        tuple(shown(cell, unit, own_p=own_p) for cell, unit in zip(row, units, strict=True)) for row in table.rows
    )


def as_printed(table: Table) -> tuple[tuple[CellText, ...], ...]:
    """The rows of a paper's table as it prints them: of one that has changes each figure to two places, and those with
    their sign."""
    places = 2 if FIGURE in table.columns else None
    # What follows from a change is another figure than the change.
    pairs = (zip(row, followed, strict=True) for row, followed in zip(table.rows, accuracies(table).rows, strict=True))
    return tuple(
        tuple(
            CellText(str(cell) if places is None else _number(cell, places, signed=cell != follows))
            if isinstance(cell, float)
            else shown(cell, "number")
            for cell, follows in row
        )
        for row in pairs
    )


def figure(value: float, unit: CellUnit, *, signed: bool = False) -> str:
    """One number: a share as a percentage (a signed one as percentage points), another with about three digits."""
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if unit == "share":
        return _number(100 * value, 1, signed) + (" pp" if signed else " %")
    return _number(value, _scale(value), signed)


def p_value(p: float) -> str:
    """Two decimals; more where those would hide that it is small, or on which side of 0.05 it lies. Never 0."""
    if math.isnan(p):
        return NONE
    if p < 0.001:
        return "<0.001"
    places = 3 if p < 0.01 else next((n for n in (2, 3, 4) if round(p, n) != 0.05), 2)
    return f"{p:.{places}f}"


def _mean(cell: Mean, unit: CellUnit) -> CellText:
    unscored = (f"{cell.unscored} not scored",) if cell.unscored else ()
    if math.isnan(cell.value):
        return CellText(NONE, (f"n {cell.n}", *unscored))
    interval = _interval(cell.interval, unit, False, _scale(cell.value))
    return CellText(figure(cell.value, unit), (f"{interval}, n {cell.n}", *unscored))


def _difference(cell: Difference, unit: CellUnit, own_p: bool) -> CellText:
    questions = (f"of {cell.clusters} questions",) if cell.clusters != cell.n else ()
    p = (f"p {p_value(cell.p)}",) if own_p else ()
    interval = _interval(cell.interval, unit, True, _scale(cell.value))
    return CellText(figure(cell.value, unit, signed=True), (f"{interval}, n {cell.n}", *questions, *p))


def _interval(each: Interval, unit: CellUnit, signed: bool, decimals: int) -> str:
    if math.isnan(each.low) or math.isnan(each.high):
        return NONE
    scale, places = (100, 1) if unit == "share" else (1, decimals)
    low, high = (_number(scale * end, places, signed) for end in (each.low, each.high))
    told = "" if each.confidence == 0.95 else f" ({100 * each.confidence:g} %)"
    return f"{low} to {high}{told}"


def _scale(value: float) -> int:
    """Decimals that give three digits or more."""
    size = abs(value)
    if math.isnan(size) or size >= 100 or size == 0:
        return 0
    return 2 if size >= 1 else min(6, 2 - math.floor(math.log10(size)))


def _number(value: float, places: int, signed: bool = False) -> str:
    """With a minus sign; what is shown as 0 has no sign."""
    rounded = round(value, places)
    return f"{rounded or 0.0:{'+' if signed and rounded else ''}.{places}f}".replace("-", "−")


def with_minus(sentence: str) -> str:
    """The sentence with minus signs where it has hyphens before figures: they do not break at a line's end."""
    return re.sub(r"(?<=[ (])-(?=\d)", "−", sentence)


# -- the file of figures ----------------------------------------------------------------------------------------------


def csv_of(table: Table) -> str:
    """The table as CSV, figures in full: a mean takes columns for its interval, n and what was not scored, a difference
    for its interval, p, n and questions. What there is none of is empty."""
    parts = [_parts(cells) for cells in zip(*table.rows, strict=True)] if table.rows else [()] * len(table.columns)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    heads = zip(table.columns, parts, strict=True)
    writer.writerow([text for name, more in heads for text in (_safe(name), *(f"{name}: {each}" for each in more))])
    for row in table.rows:
        writer.writerow(
            [value for cell, more in zip(row, parts, strict=True) for value in (_value(cell), *_details(cell, more))]
        )
    return file.getvalue()


def _parts(cells: Sequence[Cell]) -> tuple[str, ...]:
    kinds = {type(cell) for cell in cells}
    names = (
        *(("low", "high") if kinds & {Mean, Difference, Interval} else ()),
        *(("n",) if kinds & {Mean, Difference} else ()),
        *(("unscored",) if Mean in kinds else ()),
        *(("p", "clusters") if Difference in kinds else ()),
    )
    return tuple(names)


def _details(cell: Cell, names: Sequence[str]) -> list[object]:
    if isinstance(cell, Mean | Difference):
        whole = {"low": cell.interval.low, "high": cell.interval.high}
        return [_value(whole.get(name, getattr(cell, name, None))) for name in names]
    return [_value(getattr(cell, name, None)) for name in names]


def _value(cell: Cell) -> object:
    if isinstance(cell, Mean | Difference):
        cell = cell.value
    if cell is None or isinstance(cell, Interval) or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return _safe(cell) if isinstance(cell, str) else cell


def _safe(text: str) -> str:
    """A name that a spreadsheet would run as a formula is kept from it by an apostrophe."""
    return f"'{text}" if text.startswith(_FORMULA) else text
