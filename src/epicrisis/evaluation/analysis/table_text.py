"""Tables as text: aligned columns for a terminal or a pipe, and intervals as a forest plot.

Nothing is cut: columns that do not fit a line continue below, after the same row labels.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, filterfalse

from epicrisis.core.printable import printable
from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean
from epicrisis.evaluation.analysis.table import Cell, Table

PERCENT = "%"
"""Ends a heading of shares in percent with two decimals, as the papers print them."""
AGAINST = "against"
"""The heading of the names that the rows are compared with."""
_GAP = 2
_UNICODE_MARKS, _ASCII_MARKS = tuple("├─┤●│"), tuple("|-|o:")
"""Start, line and end of an interval, its value, and 0."""


def format_cell(value: Cell, heading: str = "", *, p: bool = False) -> str:
    """Return a cell as text, empty for None; with `p`, a difference with its own, uncorrected p value."""
    percent = heading.endswith(PERCENT)
    match value:
        case None:
            return ""
        case str():
            return printable(value)
        case int():
            return f"{value:,}"
        case Interval():
            return _format_interval(value, _decimals(value.low, value.high), percent=percent)
        case Mean():
            decimals = _decimals(value.value, value.interval.low, value.interval.high)
            number = _format_number(value.value, decimals, percent=percent)
            return f"{number} {_format_interval(value.interval, decimals, percent=percent)}" if number else ""
        case Difference():
            decimals = _decimals(value.value, value.interval.low, value.interval.high)
            interval = _format_interval(value.interval, decimals, "+")
            difference = f"{_format_number(value.value, decimals, '+')} {interval}"
            return f"{difference} {format_p_equation(value.p)}" if p else difference
        case _:
            return format_p(value) if is_p_column(heading) else _format_number(value, _decimals(value), percent=percent)


def is_p_column(heading: str) -> bool:
    """Return whether a column with this heading holds p values."""
    return heading == "p" or heading.startswith("p (")


def format_p(p: float) -> str:
    """Return a p value with two digits, never as 0."""
    return "<0.0001" if p < 0.0001 else f"{p:.2g}"


def format_p_equation(p: float) -> str:
    """Return a p value for a sentence: `p = 0.02`, `p < 0.0001`."""
    text = format_p(p)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def _format_number(value: float, decimals: int, sign: str = "-", *, percent: bool = False) -> str:
    if math.isnan(value):
        return ""
    if percent:
        return f"{value:{sign}.2%}".replace("%", " %")
    # A number that is not 0 must not look like 0.
    small = value != 0 and abs(value) < 10**-decimals
    return f"{value:{sign}.2g}" if small else f"{value:{sign},.{decimals}f}"


def _decimals(*values: float) -> int:
    """Return the number of decimals: three for shares, fewer for counts in tens or hundreds."""
    largest = max(map(abs, filterfalse(math.isnan, values)), default=0)
    return 3 if largest <= 1 else 2 if largest < 100 else 1


def _format_interval(interval: Interval, decimals: int, sign: str = "-", *, percent: bool = False) -> str:
    if math.isnan(interval.low):
        return ""
    if percent:
        return f"[{100 * interval.low:.2f}, {100 * interval.high:.2f}]"
    return f"[{interval.low:{sign},.{decimals}f}, {interval.high:{sign},.{decimals}f}]"


def format_cells(table: Table) -> list[list[str]]:
    """Return the texts of all rows. Uncorrected p values are omitted if the table has a column of p values."""
    has_p = any(map(is_p_column, table.columns))
    rows: list[list[str]] = []
    for row in table.rows:
        rows.append([format_cell(value, head, p=not has_p) for head, value in zip(table.columns, row, strict=True)])
    return rows


def count_key_columns(table: Table) -> int:
    """Return the number of leading columns that identify a row: at least one, and all leading columns of words."""
    numbers = range(1, len(table.columns))
    identifying = next((n for n in numbers if len({row[:n] for row in table.rows}) == len(table.rows)), 1)
    words = next((n for n in numbers if any(not isinstance(row[n], str) for row in table.rows)), 1)
    return max(identifying, words)


def label_row(table: Table, row: Sequence[Cell], without: Sequence[str] = ()) -> str:
    """Return the name of a row for a sentence: its leading cells, without those that all rows share.

    Columns in `without` are left out too. The heading is added to numbers, to the name that the row is compared with,
    and to all cells after that.
    """
    headings = table.columns
    first_with_heading = headings.index(AGAINST) if AGAINST in headings else len(headings)
    parts: list[str] = []
    for index in _label_columns(table, without):
        if row[index] not in (None, ""):
            bare = isinstance(row[index], str) and index < first_with_heading
            text = format_cell(row[index])
            parts.append(text if bare else f"{printable(headings[index])} {text}")
    return ", ".join(parts)


def _label_columns(table: Table, without: Sequence[str] = ()) -> list[int]:
    """Return the leading columns in which rows differ, or all leading columns if rows do not differ."""
    keys = list(filterfalse(lambda index: table.columns[index] in without, range(count_key_columns(table))))
    return [index for index in keys if len({row[index] for row in table.rows}) > 1] or keys


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of text: each cell as its lines, the heading first."""

    cells: list[list[str]]
    width: int
    right: bool

    def line(self, row: int, number: int) -> str:
        """Return one line of a cell, padded to the width of the column."""
        from rich.cells import cell_len

        lines = self.cells[row]
        text = lines[number] if number < len(lines) else ""
        blank = " " * (self.width - cell_len(text))
        return blank + text if self.right else text + blank


def format_table(table: Table, width: int | None = None) -> str:
    """Return the table in aligned columns with its title, source and notes.

    It is at most `width` characters wide, if the row labels and one figure fit. Columns without space follow below,
    after the columns with the names of the rows. Without `width`, a row is one line.
    """
    wrap = partial(wrap_text, width=width)
    columns = _make_columns(table, width)
    gap = " " * _GAP
    lines = [*map(wrap, filter(None, (table.title, table.source)))]
    bands, labels = [list(range(count_key_columns(table)))], _label_columns(table)
    # A p value stays in the band of its figure.
    groups: list[list[int]] = []
    for index in range(len(bands[0]), len(columns)):
        if groups and is_p_column(table.columns[index]):
            groups[-1].append(index)
        else:
            groups.append([index])
    for group in groups:
        needed = sum(columns[index].width + _GAP for index in (*bands[-1], *group)) - _GAP
        if width is not None and needed > width and len(bands[-1]) > len(labels):
            bands.append([*labels])
        bands[-1] += group
    for band in bands:
        lines.append("")
        band_columns = [columns[item] for item in band]
        for row in range(len(table.rows) + 1):
            height = max(len(column.cells[row]) for column in band_columns)
            for number in range(height):
                lines.append(gap.join(column.line(row, number) for column in band_columns).rstrip())
            if row == 0:
                lines.append(gap.join("-" * column.width for column in band_columns))
    if table.notes:
        lines += ["", *map(wrap, table.notes)]
    return "\n".join(lines)


def wrap_text(line: str, width: int | None) -> str:
    """Return a sentence in lines of at most this width. Further lines of an item (`* ...`) are indented."""
    line = printable(line)
    indent = "  " if line.startswith("* ") else ""
    return line if width is None else textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False)


def _make_columns(table: Table, width: int | None) -> list[_Column]:
    from rich.cells import cell_len

    rows = format_cells(table)
    columns: list[_Column] = []
    for index, heading in enumerate(map(printable, table.columns)):
        texts = [row[index] for row in rows]
        right = any(not isinstance(row[index], str | None) for row in table.rows)
        longest_text = max(map(cell_len, texts), default=0)
        if width is None:
            cells = [[text] for text in (heading, *texts)]
        else:
            # Words may take several lines, figures never do.
            room = longest_text if right else min(longest_text, max(12, width // 3))
            longest_word = max(map(len, heading.split()), default=0)
            cells = [textwrap.wrap(heading, max(room, longest_word)) or [""]]
            for text in texts:
                cells.append([text] if right else textwrap.wrap(text, max(room, 1)) or [""])
        columns.append(_Column(cells, max(map(cell_len, chain.from_iterable(cells))), right))
    return columns


def draw_forest_plot(table: Table, width: int = 80, *, ascii_only: bool = False) -> str:
    """Return the first column of differences as intervals around 0, a line for each row.

    Empty if the table has no differences.
    """
    labels: list[list[str]] = []
    differences: list[Difference] = []
    heading = ""
    for index, column in enumerate(table.columns):
        for row in table.rows:
            if isinstance(difference := row[index], Difference):
                labels.append(textwrap.wrap(label_row(table, row), width // 3, break_on_hyphens=False) or [""])
                differences.append(difference)
        if differences:
            heading = column
            break
    if not differences:
        return ""
    margin = max(map(len, chain.from_iterable(labels))) + _GAP
    low = min(0.0, *(difference.interval.low for difference in differences))
    high = max(0.0, *(difference.interval.high for difference in differences))
    scale = _Scale(low, high if high > low else low + 0.01, max(20, width - margin))
    lines = [f"{heading}, with its {differences[0].interval.confidence:.0%} interval".replace("%", " %")]
    for label, difference in zip(labels, differences, strict=True):
        interval = scale.draw(difference, _ASCII_MARKS if ascii_only else _UNICODE_MARKS)
        lines += [f"{label[0]:<{margin}}{interval}", *label[1:]]
    lines.append(" " * margin + scale.axis())
    return "\n".join(map(str.rstrip, lines))


@dataclass(frozen=True, slots=True)
class _Scale:
    """The values from `low` to `high` over `width` characters."""

    low: float
    high: float
    width: int

    def position(self, value: float) -> int:
        """Return the index of the character at a value."""
        return round((value - self.low) / (self.high - self.low) * (self.width - 1))

    def draw(self, difference: Difference, marks: tuple[str, ...]) -> str:
        """Return the interval of a difference, its value and 0 as a line of characters."""
        start, line, end, point, zero = marks
        characters = [" "] * self.width
        characters[self.position(0)] = zero
        first, last = self.position(difference.interval.low), self.position(difference.interval.high)
        characters[first : last + 1] = [start, *[line] * (last - first - 1), end][: last - first + 1]
        characters[self.position(difference.value)] = point
        return "".join(characters)

    def axis(self) -> str:
        """Return the ends and 0, each below its position if there is room."""
        axis = ""
        for value in sorted({self.low, 0.0, self.high}):
            number = f"{value:+.3g}" if value else "0"
            start = min(max(0, self.position(value) - len(number) // 2), self.width - len(number))
            if not axis or start > len(axis):
                axis = axis.ljust(start) + number
        return axis
