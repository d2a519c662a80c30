"""The one place where text goes to the screen: every line is made printable, whoever wrote it.

Commands write with `say`, `say_lines`, `say_text` and `show_json`, errors included. Progress bars draw on the console
of `open_console`. A test checks that no other module writes to the screen.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from epicrisis.printable import printable, printable_json
from epicrisis.serialization import to_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def say(text: str = "", *, err: bool = False) -> None:
    """Write one line on standard output, or on standard error. Line breaks in the text become spaces."""
    _write(printable(text), err)


def say_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Write each text as a line of its own."""
    for line in lines:
        say(line, err=err)


def say_text(text: str) -> None:
    """Write a text of several lines, laid out by the program from printable parts, such as a table."""
    _write(printable(text, lines=True), False)


def show_json(value: object) -> None:
    """Print any value of the library as JSON, with control characters escaped, so that it stays the same data."""
    say_text(printable_json(json.dumps(to_json(value), ensure_ascii=False, indent=2)))


def _write(text: str, err: bool) -> None:
    """Write the text with a question mark for each character missing in the stream's encoding."""
    encoding = (sys.stderr if err else sys.stdout).encoding or "utf-8"
    typer.echo(text.encode(encoding, "replace").decode(encoding), err=err)


def say_above(progress: Progress, line: str) -> None:
    """Write one line above the bars of a progress display."""
    progress.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def open_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that makes every text printable.

    Names of emoji (`:pill:`) and numbers in a text stay unchanged.
    """
    return _console_type()(stderr=stderr, quiet=quiet, highlight=False, emoji=False)


def open_progress(*columns: str, quiet: bool, transient: bool = False) -> Progress:
    """Return a progress display on standard error: description, bar, count, remaining time, then `columns`.

    Each of `columns` names a field of the tasks.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    shown: list[ProgressColumn] = [
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    ]
    for column in columns:
        shown.append(TextColumn(f"{{task.fields[{column}]}}", markup=False))
    return Progress(*shown, console=open_console(stderr=True), disable=quiet, transient=transient)


def open_download_progress(*, quiet: bool) -> Progress:
    """Return a progress display of downloads, in bytes, on standard error."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    return Progress(*columns, console=open_console(stderr=True), disable=quiet)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C stop the block at once; asyncio's own handler would wait for its end."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _console_type() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """Makes every piece of text printable when it is rendered; rich's own control codes pass."""

        def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
            for segment in super().render(*arguments, **options):
                text, style, control = segment
                yield segment if control else Segment(printable(text, lines=True), style)

    return PrintableConsole
