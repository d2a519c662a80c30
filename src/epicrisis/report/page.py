"""One HTML page of findings: tables first, each plot with its data, the papers' figures beside ours.

It works offline, without JavaScript and on paper. Every text of the findings is data: escaped by the template, and kept
from running by the page's own policy as well. Computes nothing and reads no run.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.published import Published
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.analysis.table_text import key_columns
from epicrisis.printable import printable
from epicrisis.report.charts import Panel, Style, panels, program, styles
from epicrisis.report.figure_errata import ERRATA
from epicrisis.report.figures import PlotFigure, drawing, drawings
from epicrisis.report.plots import PRINTED
from epicrisis.report.table_cells import NONE, CellText, as_printed, csv_of, rows_of, with_minus

if TYPE_CHECKING:
    from jinja2 import Template

GENERATOR = "epicrisis report"
"""Says, in the page's head, whose page it is."""
_ON_PAPER = 40
"""Rows of a long curve that are printed."""


@dataclass(frozen=True, slots=True)
class _Figure:
    """A plot with its charts and its legend."""

    drawing: PlotFigure
    panels: tuple[Panel, ...]
    legend: Mapping[str, Style]


@dataclass(frozen=True, slots=True)
class _Shown:
    """A table as the page has it."""

    number: str
    table: Table
    rows: tuple[tuple[CellText, ...], ...]
    keys: int
    """Leading columns that name a row."""
    figured: tuple[bool, ...]
    """Of each column: it holds figures, no names."""
    notes: tuple[tuple[int, str], ...]
    """By their number in the section, those that no table before has."""
    repeated: tuple[int, ...]
    """Numbers of the others."""
    csv: str
    figures: tuple[_Figure, ...]
    step: int
    """On paper every one of so many rows stands, and the last; the page says how many do not."""
    printed: Published | None = None

    @property
    def left_out(self) -> int:
        """Rows that are not on paper."""
        return sum(not self.on_paper(i) for i in range(len(self.rows)))

    def on_paper(self, row: int) -> bool:
        return row % self.step == 0 or row == len(self.rows) - 1

    @property
    def id(self) -> str:
        return f"table-{self.number.replace('.', '-')}"


@dataclass(frozen=True, slots=True)
class _Section:
    number: int
    heading: str
    findings: Findings
    tables: tuple[_Shown, ...]


def page(findings: Sequence[Findings], title: str = "Report of experiments", *, plots: bool = True) -> str:
    """The page as HTML, whole; the same findings give the same page. Without the extra `report` it has no plots, and
    says so."""
    plots = plots and _can_draw()
    headed = zip(_headings(findings), findings, strict=True)
    sections = [_section(number, heading, each, plots) for number, (heading, each) in enumerate(headed, 1)]
    drawn = any(table.figures for section in sections for table in section.tables)
    scripts = (program().replace("</script", "<\\/script"), _file("charts.js")) if drawn else ()
    return _template().render(
        title=title,
        generator=GENERATOR,
        sections=sections,
        plots=plots,
        style=_file("style.css"),
        scripts=scripts,
        policy=_policy(scripts),
        errata=ERRATA,
        facts=_facts,
        first=lambda source: next(each for each in sections if source in each.findings.sources),
        dash=NONE,
    )


def _can_draw() -> bool:
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        return False
    return True


def _policy(scripts: Sequence[str]) -> str:
    """Nothing is loaded from anywhere, and no script runs but these."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes) or "'none'"
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


# -- sections ---------------------------------------------------------------------------------------------------------


def _section(number: int, heading: str, findings: Findings, plots: bool) -> _Section:
    sets = {source.name: source.questions for source in findings.sources}
    made: list[tuple[Table, tuple[PlotFigure, ...], Published | None]] = [
        (table, drawings(findings.experiment, table, findings.published, sets), None) for table in findings.tables
    ]
    for each in findings.published:
        plot = PRINTED.get(each.name)
        made.append((each.table, () if plot is None else (drawing(plot, each.table, printed=True),), each))
    # One look for one name in all figures of the section; the parts of bars have colours of their own.
    looks = {
        bars: styles(each for _, drawn, _ in made for one in drawn if one.bars == bars for each in one.series)
        for bars in (False, True)
    }
    notes: dict[str, int] = {}
    tables = []
    for i, (table, drawn, printed) in enumerate(made, 1):
        figures = tuple(_figure(each, looks[each.bars]) for each in drawn) if plots else ()
        # Row by row a long curve is read by nobody, and takes tens of pages.
        step = math.ceil(len(table.rows) / _ON_PAPER) if any(each.many for each in drawn) else 1
        tables.append(_table(f"{number}.{i}", table, notes, figures, printed, step))
    return _Section(number, heading, findings, tuple(tables))


def _headings(findings: Sequence[Findings]) -> list[str]:
    """The experiments' names, with those of their runs where several sections are of one."""
    often = Counter(each.experiment for each in findings)
    runs = (", ".join(source.name for source in each.sources) for each in findings)
    return [
        each.experiment.replace("-", " ").capitalize() + (f": {names}" if often[each.experiment] > 1 else "")
        for each, names in zip(findings, runs, strict=True)
    ]


def _table(
    number: str, table: Table, notes: dict[str, int], figures: tuple[_Figure, ...], printed: Published | None, step: int
) -> _Shown:
    """`notes`: those of the section so far with their numbers; it grows by this table's."""
    known = dict(notes)
    for note in table.notes:
        notes.setdefault(note, len(notes) + 1)
    return _Shown(
        number=number,
        table=table,
        rows=as_printed(table) if printed else rows_of(table),
        keys=key_columns(table),
        figured=tuple(not any(isinstance(cell, str) for cell in table.column(name)) for name in table.columns),
        notes=tuple((notes[note], note) for note in table.notes if note not in known),
        repeated=tuple(known[note] for note in table.notes if note in known),
        csv=f"data:text/csv;charset=utf-8,{quote(csv_of(table))}",
        figures=figures,
        step=step,
        printed=printed,
    )


def _figure(each: PlotFigure, looks: Mapping[str, Style]) -> _Figure:
    mine = {name: looks[name] for name in each.series}
    # Where each row has its series' name, or all marks are of one, there is nothing to tell apart.
    told = len(mine) > 1 and any(mark.series != mark.row for mark in each.marks)
    return _Figure(each, panels(each, looks), mine if told else {})


def _facts(facts: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Each plain fact by its name; those that stand within another one together, by its name."""
    nested = {name: inner for name, value in facts.items() if (inner := _inner(value)) is not None}
    plain = {name: _said(value) for name, value in facts.items() if name not in nested}
    if not within:
        yield from plain.items()
    elif plain:
        yield within, "; ".join(f"{name} {said}" for name, said in plain.items())
    for name, inner in nested.items():
        yield from _facts(inner, f"{within}, {name}" if within else name)


def _inner(value: Any) -> Mapping[str, Any] | None:
    """What has facts of its own; those of a list by their number."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
        return {str(i): each for i, each in enumerate(value, 1)}
    return None


def _said(value: Any) -> str:
    match value:
        case None:
            return NONE
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(map(_said, value)) or NONE
        case _:
            return str(value)


# -- files ------------------------------------------------------------------------------------------------------------


@cache
def _file(name: str) -> str:
    return resources.files("epicrisis.report").joinpath(name).read_text("utf-8")


def _printable(value: object) -> object:
    """Return a text without what reorders or hides it; markup that this program has made stays as it is."""
    return printable(value, lines=True) if type(value) is str else value


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_printable
    )
    environment.filters["with_minus"] = with_minus
    environment.filters["printable"] = printable
    return environment.from_string(_file("page.html.jinja"))
