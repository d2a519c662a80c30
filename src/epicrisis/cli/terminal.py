"""Print text on the screen. Only this module does, and it makes every line printable.

Commands write with `say`, `say_lines`, `say_text` and `show_json`, errors included. `cli.progress` draws bars on the
console of `open_console`. A test checks that no other module writes to the screen. Lines, tables and findings are at
most as wide as the terminal; in a pipe, each row is one line. Plots of intervals use ASCII characters unless the
encoding is UTF-8.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

import typer

from epicrisis.core.printable import GUTTER, printable, printable_json

if TYPE_CHECKING:
    from rich.console import Console

    from epicrisis.evaluation.analysis.findings import Findings
    from epicrisis.evaluation.analysis.table import Table


_UNDIVIDED_SPACE = "\xa0"
"""No white space for `textwrap`."""


def say(text: str = "", *, err: bool = False) -> None:
    """Write one line on standard output, or on standard error. Line breaks in the text become spaces.

    A line that is wider than the terminal is divided between words, and its further lines are indented.
    """
    line = printable(text)
    stream = sys.stderr if err else sys.stdout
    width = _terminal_width(stream) if stream.isatty() else 0
    _write(_wrap_line(line, width) if 0 < width < len(line) else line, err)


def say_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Write each text as a line of its own."""
    for line in lines:
        say(line, err=err)


def say_text(text: str) -> None:
    """Write a text of several lines, laid out by the program from printable parts, such as a table."""
    _write(printable(text, lines=True), False)


def show_json(value: object) -> None:
    """Print any value of the library as JSON, with control characters escaped, so that it stays the same data."""
    from epicrisis.core.serialization import to_json

    say_text(printable_json(json.dumps(to_json(value), ensure_ascii=False, indent=2)))


def show_report(value: object, lines: Iterable[str], *, json: bool) -> None:
    """Print a value as JSON for programs, or its lines for readers."""
    if json:
        show_json(value)
    else:
        say_lines(lines)


def _write(text: str, err: bool) -> None:
    """Write the text with a question mark for each character missing in the stream's encoding."""
    encoding = (sys.stderr if err else sys.stdout).encoding or "utf-8"
    typer.echo(text.encode(encoding, "replace").decode(encoding), err=err)


def _terminal_width(stream: TextIO) -> int:
    """Return the columns of the terminal that `stream` writes to, or 0 if they are unknown."""
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return 0


def _wrap_line(line: str, width: int) -> str:
    """Return a printable line in lines of this width. Links, and code in backticks that fits, are never divided."""
    if line.startswith(GUTTER):
        leading = indent = GUTTER
    else:
        leading = line[: len(line) - len(line.lstrip())]
        indent = f"{leading}    "
    pieces = line.removeprefix(leading).split("`")
    for number in range(1, len(pieces), 2):
        if len(pieces[number]) + len(indent) + 4 < width:
            pieces[number] = pieces[number].replace(" ", _UNDIVIDED_SPACE)
    wrapped = textwrap.fill(
        "`".join(pieces),
        width,
        initial_indent=leading,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapped.replace(_UNDIVIDED_SPACE, " ")


def counted(count: int, noun: str) -> str:
    """Return `1 note` or `1,200 notes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def open_console(*, stderr: bool = False, quiet: bool = False, file: TextIO | None = None) -> Console:
    """Return a console for any text, made printable. It writes to `file`, if given.

    Names of emoji (`:pill:`) and numbers in a text stay unchanged. A pipe is no terminal even under FORCE_COLOR (set by
    notebooks): bars of progress would fill it with lines.
    """
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """Makes every piece of text printable when it is rendered; rich's own control codes pass."""

        def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
            for segment in super().render(*arguments, **options):
                text, style, control = segment
                yield segment if control else Segment(printable(text, lines=True), style)

    is_terminal = (file or (sys.stderr if stderr else sys.stdout)).isatty()
    return PrintableConsole(
        stderr=stderr, quiet=quiet, file=file, highlight=False, emoji=False, force_terminal=is_terminal
    )


@contextmanager
def interruptible() -> Iterator[None]:
    """Stop the block at once on Ctrl-C. asyncio's own handler would wait for its end."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def line_width() -> int | None:
    """Return the number of characters per line; None in a pipe without COLUMNS."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def say_sentence(sentence: str) -> None:
    """Write one sentence, wrapped to the terminal."""
    from epicrisis.evaluation.analysis.table_text import wrap_text

    say_text(wrap_text(sentence, line_width()))


def show_tables(tables: Iterable[Table], conclusions: Iterable[str] = ()) -> None:
    """Write tables, each with a blank line, then the sentences concluded from them."""
    from epicrisis.evaluation.analysis.table_text import format_table

    for table in tables:
        say_text(format_table(table, line_width()) + "\n")
    for sentence in conclusions:
        say_sentence(sentence)


def show_conclusions(tables: Sequence[Table], conclusions: Sequence[str], *, json: bool) -> None:
    """Write tables and the sentences concluded from them, or print them as JSON."""
    if json:
        show_data({"conclusions": conclusions, "tables": tables})
    else:
        show_tables(tables, conclusions)


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
        show_tables([replace(table, notes=tuple(note for note in table.notes if note not in common))])
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
    from epicrisis.core.serialization import to_json

    show_json(_without_nan(to_json(value)))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
