"""Render findings as one HTML page: tables first, each plot with its data, published figures next to computed ones.

The page works offline, without JavaScript and on paper. All texts of the findings are data: the template escapes them,
and the page's content security policy keeps them from running.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.published import Published
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.analysis.table_text import count_key_columns
from epicrisis.printable import printable
from epicrisis.report.charts import Panel, Style, assign_styles, chart_program, draw_panels
from epicrisis.report.figure_errata import ERRATA
from epicrisis.report.figures import PlotFigure, plot_figure, plot_figures
from epicrisis.report.plots import PUBLISHED_PLOTS
from epicrisis.report.table_cells import NONE, CellText, printed_rows, table_csv, table_rows, with_minus

if TYPE_CHECKING:
    from jinja2 import Template

GENERATOR = "epicrisis report"
"""The generator named in the page's head."""
_ROWS_ON_PAPER = 40
"""Rows of a long curve to print."""


@dataclass(frozen=True, slots=True)
class _FigureView:
    """A plot with its charts and its legend."""

    figure: PlotFigure
    panels: tuple[Panel, ...]
    legend: Mapping[str, Style]


@dataclass(frozen=True, slots=True)
class _TableView:
    """A table on the page."""

    number: str
    table: Table
    rows: tuple[tuple[CellText, ...], ...]
    keys: int
    """Number of leading columns that name a row."""
    numeric: tuple[bool, ...]
    """For each column: whether it holds figures rather than names."""
    notes: tuple[tuple[int, str], ...]
    """New notes with their numbers in the section."""
    repeated: tuple[int, ...]
    """Numbers of notes already printed in the section."""
    csv: str
    figures: tuple[_FigureView, ...]
    step: int
    """On paper, every `step`-th row is printed, and the last one. The page says how many are left out."""
    printed: Published | None = None

    @property
    def left_out(self) -> int:
        """The number of rows not on paper."""
        return sum(not self.on_paper(row) for row in range(len(self.rows)))

    def on_paper(self, row: int) -> bool:
        """Return whether the row is printed on paper."""
        return row % self.step == 0 or row == len(self.rows) - 1

    @property
    def id(self) -> str:
        return f"table-{self.number.replace('.', '-')}"


@dataclass(frozen=True, slots=True)
class _Section:
    number: int
    heading: str
    findings: Findings
    tables: tuple[_TableView, ...]


def render_page(findings: Sequence[Findings], title: str = "Report of experiments", *, plots: bool = True) -> str:
    """Render the whole page as HTML. The same findings give the same page.

    Without the extra `report` the page has no plots and says so.
    """
    plots = plots and find_spec("vl_convert") is not None
    sections = []
    for number, (heading, one) in enumerate(zip(_headings(findings), findings, strict=True), 1):
        sections.append(_section(number, heading, one, plots))
    scripts: tuple[str, ...] = ()
    if any(table.figures for section in sections for table in section.tables):
        scripts = (chart_program().replace("</script", "<\\/script"), _read_resource("charts.js"))
    return _template().render(
        title=title,
        generator=GENERATOR,
        sections=sections,
        plots=plots,
        style=_read_resource("style.css"),
        scripts=scripts,
        policy=_content_security_policy(scripts),
        errata=ERRATA,
        list_facts=_list_facts,
        first=lambda source: next(section for section in sections if source in section.findings.sources),
        dash=NONE,
    )


def _content_security_policy(scripts: Sequence[str]) -> str:
    """Return a policy that loads nothing and runs only these scripts."""
    sources = []
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        sources.append(f"'sha256-{digest}'")
    script_sources = " ".join(sources) or "'none'"
    return (
        f"default-src 'none'; script-src {script_sources}; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'"
    )


def _section(number: int, heading: str, findings: Findings, plots: bool) -> _Section:
    sets = {source.name: source.questions for source in findings.sources}
    entries: list[tuple[Table, tuple[PlotFigure, ...], Published | None]] = []
    for table in findings.tables:
        entries.append((table, plot_figures(findings.experiment, table, findings.published, sets), None))
    for publication in findings.published:
        plot = PUBLISHED_PLOTS.get(publication.name)
        printed = () if plot is None else (plot_figure(plot, publication.table, printed=True),)
        entries.append((publication.table, printed, publication))
    # A name has one style in all figures of the section; the parts of bars have colours of their own.
    names: dict[bool, list[str]] = {False: [], True: []}
    for _, figures, _ in entries:
        for figure in figures:
            names[figure.bars] += figure.series
    styles = {bars: assign_styles(series) for bars, series in names.items()}
    notes: dict[str, int] = {}
    tables = []
    for i, (table, figures, publication_or_none) in enumerate(entries, 1):
        views = tuple(_figure_view(figure, styles[figure.bars]) for figure in figures) if plots else ()
        # Nobody reads a long curve row by row, and it would take tens of pages.
        step = math.ceil(len(table.rows) / _ROWS_ON_PAPER) if any(figure.many for figure in figures) else 1
        tables.append(_table_view(f"{number}.{i}", table, notes, views, publication_or_none, step))
    return _Section(number, heading, findings, tuple(tables))


def _headings(findings: Sequence[Findings]) -> Iterator[str]:
    """Yield the experiments' names, followed by their runs if several sections are about one experiment."""
    counts = Counter(one.experiment for one in findings)
    for one in findings:
        heading = one.experiment.replace("-", " ").capitalize()
        if counts[one.experiment] > 1:
            heading += f": {', '.join(source.name for source in one.sources)}"
        yield heading


def _table_view(
    number: str,
    table: Table,
    notes: dict[str, int],
    figures: tuple[_FigureView, ...],
    printed: Published | None,
    step: int,
) -> _TableView:
    """Return the table for the page, and add its notes to `notes`, the numbered notes of the section."""
    new_notes, repeated = [], []
    for note in table.notes:
        if note in notes:
            repeated.append(notes[note])
        else:
            notes[note] = len(notes) + 1
            new_notes.append((notes[note], note))
    return _TableView(
        number=number,
        table=table,
        rows=printed_rows(table) if printed else table_rows(table),
        keys=count_key_columns(table),
        numeric=tuple(map(_is_numeric, map(table.column, table.columns))),
        notes=tuple(new_notes),
        repeated=tuple(repeated),
        csv=f"data:text/csv;charset=utf-8,{quote(table_csv(table))}",
        figures=figures,
        step=step,
        printed=printed,
    )


def _is_numeric(cells: Iterable[object]) -> bool:
    return not any(isinstance(cell, str) for cell in cells)


def _figure_view(figure: PlotFigure, styles: Mapping[str, Style]) -> _FigureView:
    legend = {name: styles[name] for name in figure.series}
    # A legend is needless for a single series, or if each row is named like its series.
    needs_legend = len(legend) > 1 and any(mark.series != mark.row for mark in figure.marks)
    return _FigureView(figure, draw_panels(figure, styles), legend if needs_legend else {})


def _list_facts(facts: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, str]]:
    """Yield each fact with its name. The plain facts of a nested group are joined under the name of the group."""
    plain: dict[str, str] = {}
    groups: dict[str, Mapping[str, Any]] = {}
    for name, value in facts.items():
        group = _fact_group(value)
        if group is None:
            plain[name] = _fact_text(value)
        else:
            groups[name] = group
    if not parent:
        yield from plain.items()
    elif plain:
        yield parent, "; ".join(f"{name} {text}" for name, text in plain.items())
    for name, group in groups.items():
        yield from _list_facts(group, f"{parent}, {name}" if parent else name)


def _fact_group(value: Any) -> Mapping[str, Any] | None:
    """Return nested facts, those of a list by their number, or None for a plain value."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        return {str(i): item for i, item in enumerate(value, 1)}
    return None


def _fact_text(value: Any) -> str:
    match value:
        case None:
            return NONE
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(map(_fact_text, value)) or NONE
        case _:
            return str(value)


@cache
def _read_resource(name: str) -> str:
    return resources.files("epicrisis.report").joinpath(name).read_text("utf-8")


def _printable(value: object) -> object:
    """Remove characters from a text that reorder or hide it. Markup of this program is not a plain `str` and stays."""
    return printable(value, lines=True) if type(value) is str else value


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_printable
    )
    environment.filters["with_minus"] = with_minus
    environment.filters["printable"] = printable
    return environment.from_string(_read_resource("page.html.jinja"))
