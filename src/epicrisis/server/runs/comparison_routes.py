"""The pages that compare two finished runs: the differences, the questions that changed, and both answers to each."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from epicrisis.core.printable import printable, printable_json
from epicrisis.core.serialization import to_json
from epicrisis.evaluation.analysis.changed_cases import make_changes_table
from epicrisis.report.answer_content import describe_choice
from epicrisis.report.table_cells import table_csv
from epicrisis.server.errors import NotFound
from epicrisis.server.page.rendering import HEADERS, html_response, render
from epicrisis.server.runs.comparison_view import CHANGE_LABELS, view_answers, view_comparison
from epicrisis.server.runs.comparisons import RunComparisons, RunPair
from epicrisis.server.runs.run_routes import RunFolder
from epicrisis.server.users import CurrentCaller

_Run = Annotated[str, Query(min_length=1, max_length=255)]
_EXPORTS = {"questions.csv": "text/csv", "runs.csv": "text/csv", "json": "application/json"}


def add_comparison_pages(router: APIRouter, runs: RunFolder) -> None:
    """Add the comparison of two runs, its files, and the page of a changed question."""
    comparisons = RunComparisons(runs)

    @router.get("/comparisons")
    async def compare(first: _Run, second: _Run, caller: CurrentCaller) -> Response:
        pair = await comparisons.compare(first, second, caller)
        return html_response(render("comparison", view=view_comparison(pair), page="runs"))

    @router.get("/comparisons/questions/{number}")
    async def question(number: int, first: _Run, second: _Run, caller: CurrentCaller) -> Response:
        pair = await comparisons.compare(first, second, caller)
        case, one, other = await comparisons.find_answers(pair, number)
        answers = view_answers(pair, (one, other))
        asked = one.answer.question
        page = render(
            "comparison_question",
            question=printable(case.question),
            options=[describe_choice(one.answer, letter) for letter in asked.options],
            gold=describe_choice(one.answer, asked.gold if asked.gold in asked.options else None),
            change=CHANGE_LABELS[case.change],
            conditions=printable(case.conditions),
            answers=answers,
            address=view_comparison(pair).address,
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


def write_export(pair: RunPair, name: str) -> str:
    """Return a comparison as a file: the changed questions or the differences as CSV, or everything as JSON."""
    if name == "questions.csv":
        return table_csv(make_changes_table(pair.changes))
    if name == "runs.csv":
        return table_csv(pair.findings.tables[-1])
    data = {"findings": to_json(pair.findings), "changed": to_json(pair.changes)}
    return printable_json(json.dumps(data, ensure_ascii=False, indent=2))
