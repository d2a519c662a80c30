"""Which table is drawn, and how: a plot is declared by the columns of the table that it shows.

Every mark is a cell of that table. Knows the experiments' tables by their columns alone, computes nothing, and knows
nothing of how a mark is drawn (`charts`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import filter as matching
from types import MappingProxyType
from typing import Literal, TypeAlias

from epicrisis.evaluation.statistics import Difference, Mean
from epicrisis.evaluation.tables.published import Published, accuracies
from epicrisis.evaluation.tables.showing import label
from epicrisis.evaluation.tables.table import Cell, Table

from .cells import NONE, Shown, shown, unit_of

Kind: TypeAlias = Literal["line", "points", "bars"]
Unit: TypeAlias = Literal["%", "percentage points", ""]


@dataclass(frozen=True, slots=True)
class Plot:
    """How a table is drawn. Of `series` and `panel` those columns count that the table has."""

    title: str
    kind: Kind
    values: tuple[str, ...]
    """Columns of figures, by name or pattern. Several are a series each; bars of several are stacked."""
    along: tuple[str, ...] = ()
    """What the figures stand along: of a line the column of numbers, else those whose cells name a row each (none: all
    that tell the table's rows apart and are neither series nor panel)."""
    series: tuple[str, ...] = ()
    panel: tuple[str, ...] = ("model", "k")
    axis: str = ""
    """Of a line: what the numbers are; default: the column's name."""
    log2: bool = False
    beside: tuple[str, ...] = ()
    """Columns that name the method of a row: beside it stand the papers' figures of the same, on the row's `set`."""
    measured: str = ""
    """Rows whose name does not begin so are predictions, and drawn hollow. Empty: all are measured."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One figure of the table, where it stands. Shares are percentages here."""

    panel: str
    row: str
    """The row's name; of a line empty."""
    x: float | None
    """Of a line; `None`: it holds wherever one looks, as a bound does."""
    series: str
    value: float
    low: float | None
    high: float | None
    label: str
    """The figure in words."""
    told: str
    """With interval and n."""
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """A plot of a table: at least one mark."""

    plot: Plot
    marks: tuple[Mark, ...]
    unit: Unit
    value: str
    """The column of the figures, where it is one, without its unit."""

    @property
    def described(self) -> str:
        """What one sees, in a sentence."""
        unit = f"in {self.unit}" if self.unit else ""
        said = [", ".join(each for each in (self.value, unit) if each) or "counts"]
        if not self.many and any(mark.low is not None for mark in self.marks):
            said.append("with 95 % intervals")
        if any(mark.hollow for mark in self.marks):
            said.append(f"hollow: {'predicted' if self.plot.measured else 'as printed'}")
        return "; ".join(said)

    @property
    def bars(self) -> bool:
        return self.plot.kind == "bars"

    @property
    def many(self) -> bool:
        """Whether a line has so many figures that marks and intervals of each would be a blot."""
        return max(Counter((mark.panel, mark.series) for mark in self.marks).values()) > _MOST

    @property
    def panels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(mark.panel for mark in self.marks))

    @property
    def series(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(mark.series for mark in self.marks))


_MOST = 60
"""Figures of a line that are drawn one by one, with their intervals."""
_SHARE = "share right"
_ARM = ("arm",)
_BY_PLACE = Plot(
    "Share right by the place of the key document", "line", (_SHARE,), ("place",), _ARM,
    axis="place of the key document (percentile)",
)  # fmt: skip
_ARMS = Plot("Share right by arm", "points", (_SHARE,), _ARM, _ARM)
_AGAINST = Plot("Differences by arm", "points", ("difference to *",), _ARM, _ARM, _ARMS.panel)
_SETS = ("model", "set")
_MODEL, _VOTED, _BY_SOURCE = ("model",), ("arm", "votes"), ("model", "examples")
_SHARES = Plot("Share right", "points", (_SHARE,), panel=_MODEL)
_DIFFERENCES = Plot("Differences", "points", ("difference to *",), panel=_MODEL)
_POSITIONS = (
    (_BY_PLACE,),
    (_ARMS, _AGAINST),
    (Plot("What the middle loses", "points", ("lost in the middle",), _ARM, _ARM),),
)
_TOOK = (Plot("Input tokens a question", "points", ("input",), _ARM, _ARM),)
_SPENT = (Plot("Tokens a case", "points", ("tokens",)), Plot("Calls a case", "points", ("calls",)))
_RATES, _ERRORS = ("recall", "specificity"), ("missed where needed", "run where not needed")


def _refined(size: str, of: str) -> tuple[Plot, ...]:
    """By the number of these."""
    return tuple(
        Plot(f"{title} by {of}", "line", (value,), (size,), _ARM, _BY_SOURCE, f"{of} ({size.upper()})")
        for title, value in (("Share right", _SHARE), ("Differences to one draft", "difference to one draft *"))
    )


_FIRST = "difference to the first library, or without reranker"
PLOTS: Mapping[str, tuple[tuple[Plot, ...], ...]] = {
    "positions": _POSITIONS,
    "probe": (*_POSITIONS, _TOOK),
    "context-length": (
        (
            Plot(
                "Share right by the number of documents", "line", (_SHARE,), ("k",), _ARM, ("model",), log2=True,
                axis="documents (k)",
            ),
        ),
        (Plot("What a doubling of the documents changes", "points", ("change a doubling",), _ARM, _ARM),),
    ),
    "attention-bias": ((_SHARES, _DIFFERENCES),),
    "integration": (
        (
            Plot("Share right by arm", "points", (_SHARE,), _ARM, _ARM, _SETS, beside=_ARM),
            Plot("Differences by arm", "points", ("difference to *",), _ARM, _ARM, _SETS),
        ),
    ),
    "conflicts": (
        (Plot("Conflict cases against RAG", "bars", ("win", "tie", "lose"), ("place",)),),
        (Plot("How often a rule is followed, and how right it is", "points", ("followed", "rule right"), ("rule",)),),
    ),
    "preflight": (
        (Plot("Both rates of a rule", "points", _RATES, ("rule",), panel=("issue: key document",)),),
        (Plot("Both errors of a rule", "points", _ERRORS, ("rule",)),),
        (Plot("Specificity at the recall of the papers' rule", "points", ("specificity",), ("signal",)),),
        (Plot("Every threshold", "line", ("recall",), ("specificity",), axis="specificity (%)"),),
        (Plot("Questions that skip map-reduce", "points", ("skipped*",), ("guard",), panel=("rule",)),),
        (Plot("Where the key documents stand", "bars", ("place *", "2 to *", "4 to *", "not *"), ("set",)),),
    ),
    "cost": (
        _TOOK,
        (Plot("Input tokens, predicted and measured", "points", ("input",), ("what",), measured="measured"),),
    ),
    "open-ended": (
        (Plot("Better, same, worse", "bars", ("better", "same", "worse"), ("judge",)),),
        (Plot("By the place of the answer", "bars", ("first better", "tie", "second better"), ("judge",)),),
    ),
    "ensembles": (
        (
            Plot("Share right by method", "points", (_SHARE,), _VOTED, _ARM, _MODEL, beside=_VOTED),
            Plot("Differences by method", "points", ("difference to chain-of-thought",), _VOTED, _ARM, _MODEL),
        ),
        (Plot("What shuffled options change", "points", ("difference to options as they are",), ("votes",)),),
        (
            Plot("Share right by the number of votes", "line", (_SHARE,), ("votes",), _ARM, _MODEL),
            Plot("What more votes change", "line", ("difference to the same arm *",), ("votes",), _ARM, _MODEL),
        ),
        (
            Plot("Tokens a case", "line", ("tokens",), ("votes",), _ARM, _MODEL),
            Plot("Calls a case", "line", ("calls",), ("votes",), _ARM, _MODEL),
        ),
    ),
    "medprompt": (
        (Plot("Differences between examples", "points", (_FIRST,), panel=_MODEL),),
        (_SHARES, _DIFFERENCES),
        tuple(replace(each, along=("examples",)) for each in _SPENT),
    ),
    "models": (
        (
            Plot("Gains over one prediction", "points", ("difference to zero-shot",), _MODEL + _ARM, _ARM, ("set",)),
            Plot("Share right", "points", (_SHARE,), _MODEL + _ARM, _ARM, ("set",), beside=_ARM),
        ),
        (Plot("What the examples bring", "points", ("difference to *",), _MODEL, _MODEL, ("set",)),),
        (Plot("Leaderboard", "points", ("average",), _MODEL + _ARM, _ARM, ()),),
        tuple(replace(each, along=_ARM, series=_ARM, panel=_SETS) for each in _SPENT),
    ),
    "openmedprompt": (
        (_SHARES, Plot("Differences to no examples", "points", ("difference to no examples",), panel=_MODEL)),
        _refined("n", "drafts or rounds"),
        _refined("k", "examples"),
        tuple(replace(each, along=("examples", "k", "n"), series=_ARM, panel=_MODEL + _ARM) for each in _SPENT),
    ),
    "evaluate": ((_SHARES,), (_DIFFERENCES,)),
    "compare": ((_SHARES,), (_DIFFERENCES,)),
}  # fmt: skip
"""By experiment: the plots of a table, the first ones that all have their columns there."""

_ENERGY = tuple(
    tuple(Plot(title, "points", (value,), along, along, panel) for title, value in (
        ("Energy for questions", "kWh per 1,000 questions"), ("Energy for right answers", "Wh per right answer"),
    ))
    for along, panel in ((_ARM, ("run",)), (("run",), ()))
)  # fmt: skip
"""Plots of tables that runs of any experiment may have."""

_STUDIED = ("CareQA", "MedMCQA", "MedQA", "MMLU")
PRINTED: Mapping[str, Plot] = {
    "positions": Plot(_BY_PLACE.title, "line", ("RAG", "BriefContext"), ("place",), axis=_BY_PLACE.axis),
    "integration": Plot("Accuracy", "points", ("MedMCQA", "PubMedQA", "BioASQ"), ("method",)),
    "open-ended": Plot("Verdicts", "bars", ("percent",), ("verdict",)),
    "conflicts": Plot("Conflict cases against RAG", "bars", ("win", "tie", "lose"), ("place",)),
    "ensembles-baseline": Plot("Accuracy by method", "points", _STUDIED, ("method",)),
    "ensembles-shuffling": Plot("Accuracy with shuffled options", "points", _STUDIED, ("options",), panel=("votes",)),
    "ensembles-votes": Plot("Accuracy by the number of votes", "line", _STUDIED, ("votes",)),
    "medprompt-encoders": Plot("Accuracy by encoder", "points", _STUDIED, ("encoder",)),
    "models": Plot("Accuracy without context retrieval and with", "points", _STUDIED, _MODEL, panel=("method",)),
    "models-leaderboard": Plot("Leaderboard", "points", ("average",), ("model", "method"), ("source",), ()),
    "open-baseline": Plot("Accuracy with options and without", "points", ("accuracy (%)",), ("type", "examples")),
    "openmedprompt-refining": Plot("Accuracy by the number of drafts", "line", ("CoT", "ToT"), ("drafts",)),
    "openmedprompt-reflection": Plot("Accuracy by the number of rounds", "line", ("CoT", "ToT"), ("rounds",)),
}
"""By the name of a published table: its plot, of percentages as they are printed."""


def drawings(
    experiment: str, table: Table, printed: Sequence[Published] = (), sets: Mapping[str, str] = MappingProxyType({})
) -> tuple[Drawing, ...]:
    """The table's plots, in order; none where nothing is said of it, or where there is no figure to draw, or a lone one
    without an interval. `printed`: what the papers print, to stand beside; `sets`: by model the question set that it
    was asked, where it was one."""
    groups = (*PLOTS.get(experiment, ()), *_ENERGY)
    plots = next((group for group in groups if all(_fits(plot, table) for plot in group)), ())
    drawn = [each for each in (drawing(plot, table) for plot in plots) if each.marks]
    return tuple(
        replace(each, marks=each.marks + tuple(_beside(each.plot, table, printed, sets)))
        for each in drawn
        if len(each.marks) > 1 or each.marks[0].low is not None
    )


def drawing(plot: Plot, table: Table, *, printed: bool = False) -> Drawing:
    """The plot of a table that has its columns; `printed`: its figures are a paper's, percentages already, and changes
    are drawn as the accuracies that follow from them."""
    table = accuracies(table) if printed else table
    columns = [name for pattern in plot.values for name in matching(table.columns, pattern)]
    cells = [cell for name in columns for cell in table.column(name)]
    # A table of means may have a row of their differences: another scale.
    kind = next((each for each in (Mean, Difference) if any(isinstance(cell, each) for cell in cells)), None)
    shares = not printed and all(unit_of(name, table.column(name)) == "share" for name in columns)
    marks = [
        mark
        for row in table.rows
        for name in columns
        if (mark := _mark(plot, _Row(table, row), name, kind, shares, printed, len(columns) > 1)) is not None
    ]
    if plot.kind == "line":
        # Along each line: rows may stand in the order in which their cases happened to end.
        names = list(dict.fromkeys((mark.panel, mark.series) for mark in marks))
        marks.sort(key=lambda mark: (names.index((mark.panel, mark.series)), mark.x or 0.0, -mark.value))
    counts = plot.kind == "bars" and not printed
    unit: Unit = "" if counts or not (shares or printed) else "percentage points" if kind is Difference else "%"
    return Drawing(plot, tuple(marks), unit, columns[0].removesuffix(" (%)") if len(columns) == 1 else "")


def _fits(plot: Plot, table: Table) -> bool:
    return all(matching(table.columns, name) for name in (*plot.values, *plot.along))


@dataclass(frozen=True, slots=True)
class _Row:
    table: Table
    cells: tuple[Cell, ...]

    def __getitem__(self, column: str) -> Cell:
        return self.cells[self.table.columns.index(column)]

    def named(self, columns: Sequence[str]) -> str:
        """What these columns say of the row, of those that it has; what is no text by its heading."""
        said = [(name, self[name]) for name in columns if name in self.table.columns and self[name] is not None]
        return ", ".join(
            cell if isinstance(cell, str) else f"{name} {shown(cell, 'number').figure}" for name, cell in said
        )


def _mark(
    plot: Plot, row: _Row, column: str, kind: type | None, shares: bool, printed: bool, many: bool
) -> Mark | None:
    """`None` where there is no figure, or where the plot has no place for it."""
    cell = row[column]
    value = _number(cell)
    if value is None or (isinstance(cell, Mean | Difference) and type(cell) is not kind):
        return None
    x = None
    if plot.kind == "line":
        at = row[plot.along[0]]
        x = _number(at)
        if x is None and at is not None:
            return None
        if isinstance(at, Mean) and x is not None:
            x *= 100
    name = row.named(plot.along) if plot.along else label(row.table, row.cells, (*plot.series, *plot.panel))
    scale = 100 if shares else 1
    text = Shown(f"{cell} %") if printed else shown(cell, "share" if shares else "number")
    interval = cell.interval if isinstance(cell, Mean | Difference) else None
    return Mark(
        panel=row.named(plot.panel),
        row="" if plot.kind == "line" else name or NONE,
        x=x,
        series=", ".join(each for each in (row.named(plot.series), column if many else "") if each),
        value=scale * value,
        low=None if interval is None else scale * interval.low,
        high=None if interval is None else scale * interval.high,
        label=text.figure,
        told=str(text),
        # Printed bars are told apart by their colours, so those keep them.
        hollow=(plot.kind != "bars" if printed else not name.startswith(plot.measured)),
    )


def _beside(plot: Plot, table: Table, printed: Sequence[Published], sets: Mapping[str, str]) -> Iterator[Mark]:
    """The papers' figures of the same method on the same set, one for each of their models."""
    if not plot.beside:
        return
    tables = [accuracies(each.table) for each in printed if each.table.columns[:2] == ("model", "method")]
    for row in (_Row(table, cells) for cells in table.rows):
        method = _plain(row.named(plot.beside))
        dataset = _plain(row["set"] if "set" in table.columns else sets.get(str(row["model"]), ""))
        for theirs in (_Row(each, cells) for each in tables for cells in each.rows if _plain(cells[1]) == method):
            for column in (name for name in theirs.table.columns if _plain(name) == dataset):
                text, value = f"{theirs[column]} %", _number(theirs[column])
                if value is not None:
                    series = f"{theirs['model']}, as printed"
                    at = row.named(plot.panel), row.named(plot.along), None
                    yield Mark(*at, series, value, None, None, text, text, hollow=True)


_ALIKE = {
    "chainofthought": "cot", "macroaverage": "average", "sccot": "selfconsistencyvotes5", "withcr": "medprompt",
}  # fmt: skip
"""What the papers, or we, call what has another name there: SC-CoT has five votes in Table 1."""


def _plain(name: Cell) -> str:
    """A method or a question set, whoever names it."""
    plain = "".join(filter(str.isalnum, str(name).rpartition("/")[2].casefold()))
    return _ALIKE.get(plain, plain)


def _number(cell: Cell) -> float | None:
    """A cell's figure, where it has a finite one."""
    if isinstance(cell, Mean | Difference):
        cell = cell.value
    return float(cell) if isinstance(cell, int | float) and math.isfinite(cell) else None
