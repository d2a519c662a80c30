"""The first screen of a report: the finding in a sentence, what it was measured with, and plain names of arms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from epicrisis.core.printable import count_noun
from epicrisis.evaluation.analysis.conclusions import describe_shares, draw_headline
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.runs.recorded_run import RunSummary

ARM_NAMES: Mapping[str, str] = {
    "adaptive-k": "RAG with adaptive k",
    "brief-context": "BriefContext",
    "brief-context+confidence": "BriefContext with confidence",
    "closed-book": "closed book",
    "focused+route": "focused, then BriefContext",
    "in-order": "RAG in document order",
    "rag": "RAG",
    "rag+route": "RAG, then BriefContext",
}
"""Names for readers. Other arms have plain names already."""
ARM_COLUMNS = frozenset({"arm", "strategy", "against"})
_LONGEST_FIRST = sorted(ARM_NAMES, key=len, reverse=True)
_ARM = re.compile(rf"(?<![\w./+-])(?:{'|'.join(map(re.escape, _LONGEST_FIRST))})(?![\w/+-])")


def name_arms(text: str) -> str:
    """Return a sentence or a heading with plain names of arms."""
    return _ARM.sub(lambda match: ARM_NAMES[match[0]], text)


def name_arms_of_table(table: Table) -> Table:
    """Return a table with plain names in its columns of arms. Its headings stay."""
    rows: list[tuple[Cell, ...]] = []
    for row in table.rows:
        cells: list[Cell] = []
        for name, cell in zip(table.columns, row, strict=True):
            cells.append(ARM_NAMES.get(cell, cell) if name in ARM_COLUMNS and isinstance(cell, str) else cell)
        rows.append(tuple(cells))
    return replace(table, rows=tuple(rows))


def write_headline(findings: Findings) -> str:
    """Return the finding in one sentence: the tested differences, or else the shares; empty without either."""
    for describe in (draw_headline, describe_shares):
        for table in findings.tables:
            if headline := describe(table):
                return name_arms(headline)
    return ""


def describe_source(source: RunSummary) -> str:
    """Return model, questions and day of a run, as far as it records them."""
    facts = source.facts
    names: dict[str, None] = {}
    for model in _read(facts, "recipe", "models").values():
        name = str(model.get("name", "")) if isinstance(model, Mapping) else ""
        names.setdefault(name.rpartition("#")[2] or name)
    parts = [f"model {' + '.join(filter(None, names))}" if any(names) else ""]
    number = _read(facts, "sample").get("n")
    questions = str(_read(facts, "questions").get("name", ""))
    counts = f", {count_noun(number, 'question')}" if isinstance(number, int) else ""
    parts.append(f"{questions}{counts}" if questions else "")
    parts.append(_read_day(facts.get("sessions")))
    return " · ".join(filter(None, parts))


def _read(facts: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    value: Any = facts
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _read_day(sessions: Any) -> str:
    """Return the day on which the last session began, such as `23 November 2026`, or empty."""
    last = sessions[-1] if isinstance(sessions, list | tuple) and sessions else None
    try:
        day = date.fromisoformat(str(last["started"])[:10] if isinstance(last, Mapping) else "")
    except (KeyError, ValueError):
        return ""
    return f"{day.day} {day:%B %Y}"
