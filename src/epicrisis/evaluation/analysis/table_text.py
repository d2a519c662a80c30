"""Tables as text: aligned columns for a terminal or a pipe, and intervals drawn as a forest plot.

Nothing is cut: what does not fit a line goes on below, under the same row labels. Knows no terminal and no experiment.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.printable import printable

PERCENT = "%"
"""Ends a heading under which shares are shown as percent, to two places: as the papers print them."""
AGAINST = "against"
"""Heads the names of what the rows are compared with."""
_GAP = 2
_FULL, _ASCII = tuple("├─┤●│"), tuple("|-|o:")
"""Where an interval begins, goes on and ends, the value, and 0."""


# -- cells ------------------------------------------------------------------------------------------------------------


def cell(value: Cell, heading: str = "", *, p: bool = False) -> str:
    """A figure with its interval, empty where there is none; `p`: with a difference's own p value, uncorrected."""
    percent = heading.endswith(PERCENT)
    match value:
        case None:
            return ""
        case str():
            return printable(value)
        case int():
            return f"{value:,}"
        case Interval():
            return _bracket(value, _places(value.low, value.high), percent=percent)
        case Mean():
            places = _places(value.value, value.interval.low, value.interval.high)
            shown = _number(value.value, places, percent=percent)
            return f"{shown} {_bracket(value.interval, places, percent=percent)}" if shown else ""
        case Difference():
            places = _places(value.value, value.interval.low, value.interval.high)
            shown = f"{_number(value.value, places, '+')} {_bracket(value.interval, places, '+')}"
            return f"{shown} {p_told(value.p)}" if p else shown
        case _:
            return p_value(value) if is_p(heading) else _number(value, _places(value), percent=percent)


def is_p(heading: str) -> bool:
    """Whether p values stand under this heading."""
    return heading == "p" or heading.startswith("p (")


def p_value(p: float) -> str:
    """Two digits, and never 0."""
    return "<0.0001" if p < 0.0001 else f"{p:.2g}"


def p_told(p: float) -> str:
    """In a sentence: `p = 0.02`, `p < 0.0001`."""
    shown = p_value(p)
    return f"p < {shown[1:]}" if shown.startswith("<") else f"p = {shown}"


def _number(value: float, places: int, sign: str = "-", *, percent: bool = False) -> str:
    if math.isnan(value):
        return ""
    if percent:
        return f"{value:{sign}.2%}".replace("%", " %")
    # What is not 0 is not shown as 0.
    small = value != 0 and abs(value) < 10**-places
    return f"{value:{sign}.2g}" if small else f"{value:{sign},.{places}f}"


def _places(*values: float) -> int:
    """Digits behind the point: three of shares, fewer of what is counted in tens or hundreds."""
    largest = max((abs(value) for value in values if not math.isnan(value)), default=0)
    return 3 if largest <= 1 else 2 if largest < 100 else 1


def _bracket(interval: Interval, places: int, sign: str = "-", *, percent: bool = False) -> str:
    if math.isnan(interval.low):
        return ""
    if percent:
        return f"[{100 * interval.low:.2f}, {100 * interval.high:.2f}]"
    low, high = (f"{end:{sign},.{places}f}" for end in (interval.low, interval.high))
    return f"[{low}, {high}]"


def cells(table: Table) -> list[list[str]]:
    """Every row's texts. Where corrected p values have their column the uncorrected ones are not shown."""
    own_p = not any(map(is_p, table.columns))
    return [[cell(value, head, p=own_p) for head, value in zip(table.columns, row, strict=True)] for row in table.rows]


# -- rows by their names ----------------------------------------------------------------------------------------------


def key_columns(table: Table) -> int:
    """How many leading columns tell the rows apart: at least one, and all that begin the table with words."""
    numbers = range(1, len(table.columns))
    apart = next((n for n in numbers if len({row[:n] for row in table.rows}) == len(table.rows)), 1)
    figured = (n for n in numbers if any(not isinstance(row[n], str) for row in table.rows))
    return max(apart, next(figured, 1))


def label(table: Table, row: Sequence[Cell], without: Sequence[str] = ()) -> str:
    """What a row is called in a sentence: its leading cells, without those in which all rows are alike, or that stand
    under a heading in `without`. Named by their heading are numbers, what the row is compared with, and what follows
    that."""
    return _label(table, row, _telling(table, without))


def labels(table: Table, without: Sequence[str] = ()) -> list[str]:
    """What each row is called, as `label` has it."""
    telling = _telling(table, without)
    return [_label(table, row, telling) for row in table.rows]


def _label(table: Table, row: Sequence[Cell], telling: Sequence[int]) -> str:
    columns = table.columns
    plain = columns.index(AGAINST) if AGAINST in columns else len(columns)
    names = [i for i in telling if row[i] not in (None, "")]
    parts = []
    for i in names:
        is_name = isinstance(row[i], str) and i < plain
        parts.append(cell(row[i]) if is_name else f"{printable(columns[i])} {cell(row[i])}")
    return ", ".join(parts)


def _telling(table: Table, without: Sequence[str] = ()) -> list[int]:
    """Of the leading columns those in which rows differ; all of them where no two do."""
    keys = [i for i in range(key_columns(table)) if table.columns[i] not in without]
    return [i for i in keys if len({row[i] for row in table.rows}) > 1] or keys


# -- plain text -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    """Each cell as the lines it takes, the heading first."""

    cells: list[list[str]]
    width: int
    right: bool

    def line(self, row: int, number: int) -> str:
        """One line of one cell, as wide as the column."""
        from rich.cells import cell_len

        lines = self.cells[row]
        text = lines[number] if number < len(lines) else ""
        blank = " " * (self.width - cell_len(text))
        return blank + text if self.right else text + blank


def text(table: Table, width: int | None = None) -> str:
    """The table in aligned columns with its title, source and notes.

    Not wider than `width` characters, as far as a row's labels and one figure fit there: columns that do not fit follow
    below, each time after the columns that tell the rows apart. Without `width` a row is one line.
    """
    columns = _columns(table, width)
    blocks = [_block([columns[i] for i in band]) for band in _bands(table, [each.width for each in columns], width)]
    head = [wrapped(line, width) for line in (table.title, table.source) if line]
    notes = [wrapped(note, width) for note in table.notes]
    return "\n".join(["\n".join(head), "", "\n\n".join(blocks), *(["", *notes] if notes else [])])


def wrapped(line: str, width: int | None) -> str:
    """A sentence in lines of at most this width."""
    line = printable(line)
    return line if width is None else textwrap.fill(line, width, break_on_hyphens=False)


def _columns(table: Table, width: int | None) -> list[_Column]:
    from rich.cells import cell_len

    shown = cells(table)
    made = []
    for i, heading in enumerate(map(printable, table.columns)):
        texts = [row[i] for row in shown]
        right = any(not isinstance(row[i], str | None) for row in table.rows)
        widest = max(map(cell_len, texts), default=0)
        if width is None:
            heads, lines = [heading], [[each] for each in texts]
        else:
            # Words may take several lines, figures never do.
            room = widest if right else min(widest, max(12, width // 3))
            longest = max((len(word) for word in heading.split()), default=0)
            heads = textwrap.wrap(heading, max(room, longest)) or [""]
            lines = [[each] if right else textwrap.wrap(each, max(room, 1)) or [""] for each in texts]
        every = [heads, *lines]
        made.append(_Column(every, max(cell_len(line) for each in every for line in each), right))
    return made


def _bands(table: Table, widths: Sequence[int], width: int | None) -> list[list[int]]:
    """The columns (by number) that stand beside each other; a p value stands with what it is the p of."""
    bands, names = [list(range(key_columns(table)))], _telling(table)
    together: list[list[int]] = []
    for i in range(len(bands[0]), len(widths)):
        if together and is_p(table.columns[i]):
            together[-1].append(i)
        else:
            together.append([i])
    for group in together:
        needed = sum(widths[i] + _GAP for i in (*bands[-1], *group)) - _GAP
        if width is not None and needed > width and len(bands[-1]) > len(names):
            bands.append([*names])
        bands[-1] += group
    return bands


def _block(columns: Sequence[_Column]) -> str:
    gap = " " * _GAP
    lines: list[str] = []
    for row in range(len(columns[0].cells)):
        height = max(len(each.cells[row]) for each in columns)
        lines += [gap.join(each.line(row, number) for each in columns).rstrip() for number in range(height)]
        if row == 0:
            lines.append(gap.join("-" * each.width for each in columns))
    return "\n".join(lines)


# -- forest plot ------------------------------------------------------------------------------------------------------


def forest(table: Table, width: int = 80, *, ascii_only: bool = False) -> str:
    """The first column of differences as intervals about 0, one line a row; empty where the table has none."""
    places = [i for i in range(len(table.columns)) if any(isinstance(row[i], Difference) for row in table.rows)]
    if not places:
        return ""
    heading = table.columns[places[0]]
    rows = [(label(table, row), each) for row in table.rows if isinstance(each := row[places[0]], Difference)]
    names = [textwrap.wrap(name, width // 3) or [""] for name, _ in rows]
    left = max(len(line) for name in names for line in name) + _GAP
    low = min(0.0, *(each.interval.low for _, each in rows))
    high = max(0.0, *(each.interval.high for _, each in rows))
    scale = _Scale(low, high if high > low else low + 0.01, max(20, width - left))
    lines = [f"{heading}, with its {rows[0][1].interval.confidence:.0%} interval".replace("%", " %")]
    for name, (_, each) in zip(names, rows, strict=True):
        drawn = scale.draw(each, _ASCII if ascii_only else _FULL)
        lines += [f"{name[0]:<{left}}{drawn}", *name[1:]]
    lines.append(" " * left + scale.axis())
    return "\n".join(line.rstrip() for line in lines)


@dataclass(frozen=True, slots=True)
class _Scale:
    """From `low` to `high` over `width` characters."""

    low: float
    high: float
    width: int

    def at(self, value: float) -> int:
        """The character's place of a value."""
        return round((value - self.low) / (self.high - self.low) * (self.width - 1))

    def draw(self, each: Difference, marks: tuple[str, ...]) -> str:
        begin, line, end, point, zero = marks
        drawn = [" "] * self.width
        drawn[self.at(0)] = zero
        first, last = self.at(each.interval.low), self.at(each.interval.high)
        drawn[first : last + 1] = [begin, *[line] * (last - first - 1), end][: last - first + 1]
        drawn[self.at(each.value)] = point
        return "".join(drawn)

    def axis(self) -> str:
        """The ends and 0, each below its place as far as there is room."""
        drawn = ""
        for value in sorted({self.low, 0.0, self.high}):
            shown = f"{value:+.3g}" if value else "0"
            start = min(max(0, self.at(value) - len(shown) // 2), self.width - len(shown))
            if not drawn or start > len(drawn):
                drawn = drawn.ljust(start) + shown
        return drawn
