"""A comparison of two runs as its page shows it: conclusions, figures, tables, and the questions that changed.

All texts are printable; the templates escape them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from epicrisis.core.printable import printable
from epicrisis.evaluation.analysis.changed_cases import CHANGES, CaseChange, CaseSummary, ChangedCase
from epicrisis.evaluation.analysis.table import Table
from epicrisis.pipeline.recording.record import RunRecord
from epicrisis.report.answer_content import AnswerContent, build_answer_content, describe_choice
from epicrisis.report.figures import PlotFigure, plot_figures
from epicrisis.report.table_cells import table_rows, with_minus
from epicrisis.server.runs.comparisons import RunPair

CHANGE_LABELS: Mapping[CaseChange, str] = {
    "lost": "right, then wrong or no answer",
    "won": "wrong or no answer, then right",
}
SHOWN_CHANGES = 500
"""Changed questions on the page. The files have all."""
_WIDTH = 300
_EXPERIMENT = "compare"


@dataclass(frozen=True, slots=True)
class FigureMark:
    """A figure with its interval, in the units of the drawing."""

    label: str
    detail: str
    x: int
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureView:
    """A plot of a table."""

    title: str
    description: str
    marks: tuple[FigureMark, ...]
    zero: int | None
    """Where no difference is, if it is in the drawing."""
    left: str
    right: str
    """The figures at the edges."""
    width: int = _WIDTH


@dataclass(frozen=True, slots=True)
class TableView:
    """A table with its cells as text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeView:
    """A changed question in the list."""

    href: str
    question: str
    change: CaseChange
    label: str
    conditions: str
    first: str
    second: str
    gold: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """Everything the page shows of a comparison."""

    first: str
    second: str
    address: str
    """The query of the pages and files of this comparison."""
    conclusions: tuple[str, ...]
    figures: tuple[FigureView, ...]
    tables: tuple[TableView, ...]
    counts: tuple[tuple[str, int], ...]
    changes: tuple[ChangeView, ...]
    more: int


@dataclass(frozen=True, slots=True)
class CaseAnswerView:
    """The answer of one run to a changed question."""

    run: str
    state: str
    choice: str
    content: AnswerContent


def view_comparison(pair: RunPair) -> ComparisonView:
    """Return the view of a comparison."""
    address = urlencode({"first": pair.first, "second": pair.second})
    figures: list[FigureView] = []
    for table in pair.findings.tables:
        figures += map(view_figure, plot_figures(_EXPERIMENT, table))
    totals = Counter(case.change for case in pair.changes)
    changes: list[ChangeView] = []
    for number, case in enumerate(pair.changes[:SHOWN_CHANGES], 1):
        changes.append(_view_change(case, f"/comparisons/questions/{number}?{address}"))
    return ComparisonView(
        first=printable(pair.first),
        second=printable(pair.second),
        address=address,
        conclusions=tuple(printable(with_minus(sentence)) for sentence in pair.findings.conclusions),
        figures=tuple(figures),
        tables=tuple(map(view_table, pair.findings.tables)),
        counts=tuple((CHANGE_LABELS[change], totals[change]) for change in CHANGES),
        changes=tuple(changes),
        more=len(pair.changes) - len(changes),
    )


def view_table(table: Table) -> TableView:
    """Return a table with its cells as text."""
    rows: list[tuple[str, ...]] = []
    for row in table_rows(table):
        rows.append(tuple(printable(str(cell)) for cell in row))
    columns, notes = tuple(map(printable, table.columns)), tuple(map(printable, table.notes))
    return TableView(printable(table.title), columns, tuple(rows), notes)


def view_figure(figure: PlotFigure) -> FigureView:
    """Return a plot with its figures at places in the drawing: differences around zero, shares from 0 to 100."""
    values: list[float] = []
    for mark in figure.marks:
        values += [value for value in (mark.value, mark.low, mark.high) if value is not None]
    if figure.unit == "%":
        low, high = 0.0, 100.0
    else:
        reach = max(5.0, *map(abs, values))
        low, high = -reach, reach

    def place(value: float) -> int:
        return round(6 + (_WIDTH - 12) * (min(max(value, low), high) - low) / (high - low))

    marks: list[FigureMark] = []
    for mark in figure.marks:
        ends = [None if value is None else place(value) for value in (mark.low, mark.high)]
        label = ", ".join(filter(None, (mark.panel, mark.row, mark.series)))
        marks.append(FigureMark(printable(label), printable(mark.detail), place(mark.value), *ends))
    unit = figure.unit and f" {figure.unit}"
    return FigureView(
        title=printable(figure.plot.title),
        description=printable(figure.description),
        marks=tuple(marks),
        zero=place(0.0) if low < 0 else None,
        left=f"{low:.0f}{unit}".replace("-", "−"),
        right=f"{high:+.0f}{unit}" if low < 0 else f"{high:.0f}{unit}",
    )


def _view_change(case: ChangedCase, href: str) -> ChangeView:
    return ChangeView(
        href=href,
        question=printable(case.question),
        change=case.change,
        label=CHANGE_LABELS[case.change],
        conditions=printable(case.conditions),
        first=_describe_end(case.first),
        second=_describe_end(case.second),
        gold=printable(case.gold or ""),
    )


def _describe_end(summary: CaseSummary) -> str:
    return printable(f"{summary.choice} ({summary.state})" if summary.choice else summary.state)


def view_answers(pair: RunPair, records: Sequence[RunRecord]) -> tuple[CaseAnswerView, ...]:
    """Return the answers of both runs to a question, the first run's first."""
    views: list[CaseAnswerView] = []
    for run, record in zip((pair.first, pair.second), records, strict=True):
        answer = record.answer
        choice = describe_choice(answer, answer.choice if answer.choice in answer.question.options else None)
        views.append(CaseAnswerView(printable(run), answer.state, choice, build_answer_content(answer)))
    return tuple(views)
