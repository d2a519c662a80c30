"""The one place where text goes to the screen: every line is printable, whoever wrote what stands in it.

Commands write with `say`, `say_lines` and `say_text`, errors included; progress bars draw on what
`open_console` returns. Nothing else in the package calls `typer.echo` or makes a `rich` console: a test holds it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import typer

from epicrisis.printable import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def say(text: str = "", *, err: bool = False) -> None:
    """Write one line on standard output, or on standard error: line breaks in the text become spaces."""
    _write(printable(text), err)


def say_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Write each of these as a line of its own."""
    for line in lines:
        say(line, err=err)


def say_text(text: str) -> None:
    """Write a text of several lines that the program has laid out from printable parts, such as a table."""
    _write(printable(text, lines=True), False)


def _write(text: str, err: bool) -> None:
    """Write the text with a question mark for what the stream's encoding lacks: a name must not end a command."""
    encoding = (sys.stderr if err else sys.stdout).encoding or "utf-8"
    typer.echo(text.encode(encoding, "replace").decode(encoding), err=err)


def say_above(progress: Progress, line: str) -> None:
    """Write one line above the bars of a progress display."""
    progress.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def open_console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console that draws colours and bars of its own, and every text on them printable.

    Names of emoji (`:pill:`) and numbers in a text stay as they are.
    """
    return _console_type()(stderr=stderr, quiet=quiet, highlight=False, emoji=False)


def _console_type() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """Makes every piece of text printable as it is rendered; rich's own control codes pass."""

        def render(self, *arguments: Any, **named: Any) -> Iterator[Segment]:
            for segment in super().render(*arguments, **named):
                text, style, control = segment
                yield segment if control else Segment(printable(text, lines=True), style)

    return PrintableConsole
