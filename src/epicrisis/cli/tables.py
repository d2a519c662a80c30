"""Tables and findings on the screen: as wide as the terminal, in a pipe one line a row, ASCII where the encoding is not
UTF-8. Knows no computation."""

from __future__ import annotations

import math
import os
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from epicrisis.cli.common import show_json
from epicrisis.cli.terminal import say, say_text
from epicrisis.serialization import to_json

if TYPE_CHECKING:
    from epicrisis.evaluation.analysis.findings import Findings
    from epicrisis.evaluation.analysis.table import Table


def width() -> int | None:
    """Characters a line may have; `None` in a pipe, where nobody said (COLUMNS)."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def ascii_only() -> bool:
    """Whether standard output takes nothing but ASCII for certain."""
    return "utf" not in (sys.stdout.encoding or "").lower()


def say_sentence(sentence: str) -> None:
    """One sentence, wrapped to the terminal."""
    from epicrisis.evaluation.analysis.table_text import wrap_text

    say_text(wrap_text(sentence, width()))


def show_table(table: Table) -> None:
    """The table, and a blank line after it."""
    from epicrisis.evaluation.analysis.table_text import format_table

    say_text(format_table(table, width()) + "\n")


def show_forest(table: Table, plain: bool = False) -> None:
    """The table's differences as intervals, where it has any."""
    from epicrisis.evaluation.analysis.table_text import draw_forest_plot

    if drawn := draw_forest_plot(table, min(width() or 100, 100), ascii_only=plain or ascii_only()):
        say_text(drawn + "\n")


def show_findings(findings: Findings, *, plain: bool = False, drawn: bool = False) -> None:
    """The question, the tables, where asked for each with its differences drawn, and last what they show."""
    say_sentence(findings.about)
    say()
    tables = findings.tables
    common = [note for note in tables[0].notes if all(note in table.notes for table in tables)] if tables[1:] else []
    for table in tables:
        show_table(replace(table, notes=tuple(note for note in table.notes if note not in common)))
        if drawn:
            show_forest(table, plain)
    for sentence in common:
        say_sentence(sentence)
    if common:
        say()
    for sentence in findings.conclusions:
        say_sentence(f"* {sentence}")


def show_data(value: object) -> None:
    """Any value here as JSON on standard output; what was not scored is null."""
    show_json(_finite(to_json(value)))


def _finite(value: Any) -> Any:
    """NaN is no JSON."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
