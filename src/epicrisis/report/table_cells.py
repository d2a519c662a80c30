"""Table cells as text for readers and as values for CSV files.

In text, shares are percentages with one decimal, and differences of shares are percentage points with a sign. A CSV
file has every figure in full.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from epicrisis.core.printable import without_formula
from epicrisis.evaluation.analysis.published import FIGURE, derive_accuracies
from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.analysis.table_text import PERCENT, is_p_column

CellUnit: TypeAlias = Literal["share", "number", "p"]

NONE = "–"

_NOT_SHARES = {
    *("calls", "tokens", "spent", "input", "cached", "output", "seconds", "US dollars", "input beyond RAG's", "area"),
    *("kappa interval", "alpha interval", "AURC", "excess AURC", "Brier score", "ECE"),
}
_SHARES = {
    *("precision", "recall", "specificity", "F1", "skipped", "SD over places", "SD over repeats", "agreement"),
    *("tokens saved", "average"),
}
"""Columns whose plain figures are shares."""
_DETAILS = {
    "low": (Mean, Difference, Interval),
    "high": (Mean, Difference, Interval),
    "n": (Mean, Difference),
    "unscored": (Mean,),
    "p": (Difference,),
    "clusters": (Difference,),
}
"""Further columns of a CSV file, with the types of cells that have them."""


@dataclass(frozen=True, slots=True)
class CellText:
    """A cell as text: the figure, and the details in smaller print (interval, n, p)."""

    figure: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.figure} ({', '.join(self.details)})" if self.details else self.figure


def column_unit(column: str, cells: Sequence[Cell]) -> CellUnit:
    """Return the unit of a column. Shares are 0 to 1."""
    if is_p_column(column):
        return "p"
    if column in _SHARES or column.endswith(PERCENT):
        return "share"
    has_estimates = not {Mean, Difference, Interval}.isdisjoint(map(type, cells))
    return "share" if has_estimates and column not in _NOT_SHARES else "number"


def cell_text(cell: Cell, unit: CellUnit, *, own_p: bool = False) -> CellText:
    """Return a cell as text. With `own_p`, a difference shows its uncorrected p, for tables without a p column."""
    match cell:
        case None:
            return CellText(NONE)
        case str():
            return CellText(cell)
        case int():
            return CellText(_format(cell, 0))
        case float():
            return CellText(format_p(cell) if unit == "p" else format_figure(cell, unit))
        case Interval():
            return CellText(_format_interval(cell, unit, False, _decimals(cell.high)))
        case Mean() | Difference():
            return _estimate_text(cell, unit, own_p)


def _estimate_text(cell: Mean | Difference, unit: CellUnit, own_p: bool) -> CellText:
    is_difference = isinstance(cell, Difference)
    interval = _format_interval(cell.interval, unit, is_difference, _decimals(cell.value))
    details = [f"{interval}, n {cell.n}"]
    if isinstance(cell, Mean):
        if math.isnan(cell.value):
            details = [f"n {cell.n}"]
        if cell.unscored:
            details.append(f"{cell.unscored} not scored")
    else:
        if cell.clusters != cell.n:
            details.append(f"of {cell.clusters} questions")
        if own_p:
            details.append(f"p {format_p(cell.p)}")
    return CellText(format_figure(cell.value, unit, signed=is_difference), tuple(details))


def table_rows(table: Table) -> tuple[tuple[CellText, ...], ...]:
    """Return the rows of a computed table as text."""
    units = list(map(column_unit, table.columns, (table.column(column) for column in table.columns)))
    own_p = not any(map(is_p_column, table.columns))
    return tuple(
        tuple(cell_text(cell, unit, own_p=own_p) for cell, unit in zip(row, units, strict=True)) for row in table.rows
    )


def printed_rows(table: Table) -> tuple[tuple[CellText, ...], ...]:
    """Return the rows of a published table as printed. A table of changes has two decimals, its changes have signs."""
    places = 2 if FIGURE in table.columns else None
    rows = []
    for row, final_row in zip(table.rows, derive_accuracies(table).rows, strict=True):
        texts = []
        for cell, final in zip(row, final_row, strict=True):
            if not isinstance(cell, float):
                texts.append(cell_text(cell, "number"))
            elif places is None:
                texts.append(CellText(str(cell)))
            else:
                # The accuracy after a change differs from the change itself.
                texts.append(CellText(_format(cell, places, signed=cell != final)))
        rows.append(tuple(texts))
    return tuple(rows)


def format_figure(value: float, unit: CellUnit, *, signed: bool = False) -> str:
    """Format one number: a share as a percentage (percentage points if signed), other numbers with three digits."""
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if unit == "share":
        return _format(100 * value, 1, signed) + (" pp" if signed else " %")
    return _format(value, _decimals(value), signed)


def format_p(p: float) -> str:
    """Format a p value with two decimals, or more if these would hide a small value or its side of 0.05. Never 0."""
    if math.isnan(p):
        return NONE
    if p < 0.001:
        return "<0.001"
    places = 3 if p < 0.01 else next((n for n in (2, 3, 4) if round(p, n) != 0.05), 2)
    return f"{p:.{places}f}"


def with_minus(sentence: str) -> str:
    """Replace hyphens before figures by minus signs, which do not break at the end of a line."""
    return re.sub(r"(?<=[ (])-(?=\d)", "−", sentence)


def _format_interval(interval: Interval, unit: CellUnit, signed: bool, decimals: int) -> str:
    if math.isnan(interval.low) or math.isnan(interval.high):
        return NONE
    scale, places = (100, 1) if unit == "share" else (1, decimals)
    low, high = _format(scale * interval.low, places, signed), _format(scale * interval.high, places, signed)
    # Bounds are certain, and their column says what they are.
    confidence = "" if interval.confidence in (0.95, 1.0) else f" ({100 * interval.confidence:g} %)"
    return f"{low} to {high}{confidence}"


def _decimals(value: float) -> int:
    """Return the decimals that give at least three digits."""
    size = abs(value)
    if math.isnan(size) or size >= 100 or size == 0:
        return 0
    return 2 if size >= 1 else min(6, 2 - math.floor(math.log10(size)))


def _format(value: float, places: int, signed: bool = False) -> str:
    """Format a number with a minus sign. A number rounded to 0 has no sign."""
    rounded = round(value, places)
    return f"{rounded or 0.0:{'+' if signed and rounded else ''}.{places}f}".replace("-", "−")


def table_csv(table: Table) -> str:
    """Return the table as CSV with figures in full.

    A mean has further columns for its interval, n and unscored cases; a difference for its interval, p, n and
    questions. Missing values are empty.
    """
    header, details = [], []
    for column in table.columns:
        kinds = set(map(type, table.column(column)))
        names = [name for name, with_detail in _DETAILS.items() if not kinds.isdisjoint(with_detail)]
        details.append(names)
        header += [without_formula(column), *map(f"{column}: ".__add__, names)]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        values = []
        for cell, names in zip(row, details, strict=True):
            values.append(_csv_value(cell))
            for name in names:
                owner = cell.interval if isinstance(cell, Mean | Difference) and name in ("low", "high") else cell
                values.append(_csv_value(getattr(owner, name, None)))
        writer.writerow(values)
    return file.getvalue()


def _csv_value(cell: Cell) -> object:
    if isinstance(cell, Mean | Difference):
        cell = cell.value
    if cell is None or isinstance(cell, Interval) or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return without_formula(cell) if isinstance(cell, str) else cell
