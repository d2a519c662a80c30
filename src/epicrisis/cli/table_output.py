"""Tables and findings on the screen: as wide as the terminal; in a pipe, one line per row.

Plots of intervals use ASCII characters where the encoding is not UTF-8.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from epicrisis.cli.terminal import say, say_text, show_json
from epicrisis.serialization import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from epicrisis.evaluation.analysis.findings import Findings
    from epicrisis.evaluation.analysis.table import Table


def line_width() -> int | None:
    """Return the number of characters per line; None in a pipe without COLUMNS."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def say_sentence(sentence: str) -> None:
    """Write one sentence, wrapped to the terminal."""
    from epicrisis.evaluation.analysis.table_text import wrap_text

    say_text(wrap_text(sentence, line_width()))


def show_table(table: Table) -> None:
    """Write the table and a blank line."""
    from epicrisis.evaluation.analysis.table_text import format_table

    say_text(format_table(table, line_width()) + "\n")


def show_tables(tables: Iterable[Table], conclusions: Iterable[str] = ()) -> None:
    """Write tables, then the sentences concluded from them."""
    for table in tables:
        show_table(table)
    for sentence in conclusions:
        say_sentence(sentence)


def show_findings(findings: Findings, *, ascii_only: bool = False, with_intervals: bool = False) -> None:
    """Write the question, the tables (optionally with their differences as intervals), and the conclusions."""
    from epicrisis.evaluation.analysis.table_text import draw_forest_plot

    say_sentence(findings.about)
    say()
    tables = findings.tables
    common = []
    if len(tables) > 1:
        common = [note for note in tables[0].notes if all(note in table.notes for table in tables)]
    ascii_only = ascii_only or "utf" not in (sys.stdout.encoding or "").lower()
    for table in tables:
        show_table(replace(table, notes=tuple(note for note in table.notes if note not in common)))
        plot = draw_forest_plot(table, min(line_width() or 100, 100), ascii_only=ascii_only) if with_intervals else ""
        if plot:
            say_text(plot + "\n")
    for note in common:
        say_sentence(note)
    if common:
        say()
    for sentence in findings.conclusions:
        say_sentence(f"* {sentence}")


def show_data(value: object) -> None:
    """Print any value as JSON. Figures without a value (NaN) become null."""
    show_json(_without_nan(to_json(value)))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
