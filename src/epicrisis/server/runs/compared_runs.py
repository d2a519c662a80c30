"""Two finished runs of the server's folder, compared as `epicrisis compare` does: pages, files, changed questions."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.responses import Response

from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError
from epicrisis.core.printable import printable_json
from epicrisis.core.serialization import to_json
from epicrisis.evaluation.analysis.changed_cases import (
    CaseChange,
    ChangedCase,
    list_changed_cases,
    make_changes_table,
)
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.run_comparison import compare_runs
from epicrisis.evaluation.runs.recorded_run import RecordedRun, open_runs, refuse_mismatched_records
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.answer_record import RunRecord
from epicrisis.report.answer_content import build_answer_content, describe_choice
from epicrisis.report.figures import PlotFigure, plot_figures
from epicrisis.report.table_cells import table_csv, table_rows, with_minus
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.users import Caller, CurrentCaller
from epicrisis.server.page.rendering import HEADERS, html_response, render
from epicrisis.server.runs.run_routes import RunFolder

CHANGE_LABELS: Mapping[CaseChange, str] = {
    "lost": "right, then wrong or no answer",
    "won": "wrong or no answer, then right",
}
SHOWN_CHANGES = 500
"""Changed questions on the page. The files have all."""
_KEPT = 8
"""Comparisons that are remembered, as pages and exports of one read the same records."""
_WIDTH = 300
"""Of the drawing of a figure."""
_EXPERIMENT = "compare"
_Run = Annotated[str, Query(min_length=1, max_length=255)]
_EXPORTS = {"questions.csv": "text/csv", "runs.csv": "text/csv", "json": "application/json"}


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two runs, and what is different."""

    first: str
    second: str
    findings: Findings
    changes: tuple[ChangedCase, ...]
    runs: tuple[RecordedRun, RecordedRun]

    @property
    def address(self) -> str:
        """The query of the pages and files of this comparison."""
        return urlencode({"first": self.first, "second": self.second})


class RunComparisons:
    """Compares the runs of a folder for callers."""

    def __init__(self, runs: RunFolder) -> None:
        self._runs = runs
        self._kept: OrderedDict[tuple[object, ...], RunPair] = OrderedDict()

    async def compare(self, first: str, second: str, caller: Caller) -> RunPair:
        """Return the comparison of two runs that the caller may read. The access log has both if they are of patients.

        Raises NotFound, and InputError for the same run twice and for runs without records.
        """
        return await asyncio.to_thread(self._compare, first, second, caller)

    def _compare(self, first: str, second: str, caller: Caller) -> RunPair:
        if first == second:
            raise InputError("a comparison needs two runs: choose another one on one side")
        folders = [self._runs.find(name, caller) for name in (first, second)]
        key = (first, second, *map(_describe_state, folders))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        with refuse_mismatched_records(folders):
            one, other = open_runs(folders)
            pair = RunPair(first, second, compare_runs([one, other]), list_changed_cases(one, other), (one, other))
        self._kept[key] = pair
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return pair

    async def find_answers(self, pair: RunPair, number: int) -> tuple[ChangedCase, RunRecord, RunRecord]:
        """Return a changed case by its number, from 1, with both records. Raises NotFound."""
        if not 1 <= number <= len(pair.changes):
            raise NotFound("the comparison has no such question")
        case = pair.changes[number - 1]
        first = await asyncio.to_thread(_find_record, pair.runs[0], case.first.key)
        second = await asyncio.to_thread(_find_record, pair.runs[1], case.second.key)
        return case, first, second


def add_comparison_pages(router: APIRouter, runs: RunFolder) -> None:
    """Add the comparison of two runs, its files, and the page of a changed question."""
    comparisons = RunComparisons(runs)

    @router.get("/comparisons")
    async def compare(first: _Run, second: _Run, caller: CurrentCaller) -> Response:
        return html_response(render_comparison(await comparisons.compare(first, second, caller)))

    @router.get("/comparisons/questions/{number}")
    async def question(number: int, first: _Run, second: _Run, caller: CurrentCaller) -> Response:
        pair = await comparisons.compare(first, second, caller)
        case, *records = await comparisons.find_answers(pair, number)
        answers = [record.answer for record in records]
        page = render(
            "comparison_question",
            case=case,
            options=[describe_choice(answers[0], letter) for letter in answers[0].question.options],
            gold=_describe_option(answers[0], answers[0].question.gold),
            change=CHANGE_LABELS[case.change],
            answers=[
                (run, _describe_option(answer, answer.choice), build_answer_content(answer))
                for run, answer in zip((pair.first, pair.second), answers, strict=True)
            ],
            address=pair.address,
            number=number,
            count=len(pair.changes),
            page="runs",
        )
        return html_response(page)

    @router.get("/comparisons/export/{name}")
    async def export(name: str, first: _Run, second: _Run, caller: CurrentCaller) -> Response:
        if name not in _EXPORTS:
            raise NotFound(f"a comparison is exported as {', '.join(_EXPORTS)}")
        pair = await comparisons.compare(first, second, caller)
        file_name = name if "." in name else f"comparison.{name}"
        headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{file_name}"'}
        return Response(write_export(pair, name).encode(), media_type=_EXPORTS[name], headers=headers)


def render_comparison(pair: RunPair) -> str:
    """Return the page of a comparison: conclusions, figures, tables, and the questions that changed."""
    figures = [figure for table in pair.findings.tables for figure in plot_figures(_EXPERIMENT, table)]
    return render(
        "comparison",
        pair=pair,
        conclusions=[with_minus(sentence) for sentence in pair.findings.conclusions],
        figures=[(figure, FigureScale.fit(figure)) for figure in figures],
        tables=[(table, table_rows(table)) for table in pair.findings.tables],
        labels=CHANGE_LABELS,
        totals=Counter(case.change for case in pair.changes),
        most=SHOWN_CHANGES,
        page="runs",
    )


@dataclass(frozen=True, slots=True)
class FigureScale:
    """The scale of a figure's drawing: differences around zero, shares from 0 to 100."""

    low: float
    high: float
    unit: str
    width: int = _WIDTH

    @classmethod
    def fit(cls, figure: PlotFigure) -> FigureScale:
        """Return the scale that has room for every mark of the figure."""
        unit = figure.unit and f" {figure.unit}"
        if figure.unit == "%":
            return cls(0.0, 100.0, unit)
        ends = [end for mark in figure.marks for end in (mark.value, mark.low, mark.high) if end is not None]
        reach = max(5.0, *map(abs, ends))
        return cls(-reach, reach, unit)

    def place(self, value: float) -> int:
        """Return the place of a figure in the drawing."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(6 + (self.width - 12) * share)

    @property
    def edges(self) -> tuple[str, str]:
        """The figures at the left and the right edge."""
        right = f"{self.high:+.0f}{self.unit}" if self.low < 0 else f"{self.high:.0f}{self.unit}"
        return f"{self.low:.0f}{self.unit}".replace("-", "−"), right


def write_export(pair: RunPair, name: str) -> str:
    """Return a comparison as a file: the changed questions or the differences as CSV, or everything as JSON."""
    if name == "questions.csv":
        return table_csv(make_changes_table(pair.changes))
    if name == "runs.csv":
        return table_csv(pair.findings.tables[-1])
    data = {"findings": to_json(pair.findings), "changed": to_json(pair.changes)}
    return printable_json(json.dumps(data, ensure_ascii=False, indent=2))


def _describe_state(folder: Path) -> tuple[int, int]:
    """Return what changes when records are added to a run."""
    try:
        status = (folder / RECORDS).stat()
    except FileNotFoundError:
        raise InputError(f"the run {folder.name} has no records: choose another one") from None
    return status.st_size, status.st_mtime_ns


def _describe_option(answer: Answer, letter: str | None) -> str:
    """Return an option in words, or nothing for a letter that is no option."""
    return describe_choice(answer, letter) if letter in answer.question.options else ""


def _find_record(run: RecordedRun, key: str) -> RunRecord:
    for record in run.records():
        if record.key == key:
            return record
    raise NotFound("the record is no longer in the run: compare the runs again")
