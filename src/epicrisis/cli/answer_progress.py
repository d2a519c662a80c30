"""One line on standard error while a question is answered: seconds, calls, tokens. Each minute without a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from epicrisis.cli.progress import say_each_minute
from epicrisis.cli.terminal import counted, open_console
from epicrisis.core.answers import (
    AnswerStarted,
    Event,
    MapFinished,
    MapStarted,
    ModelCalled,
    Retrieved,
    SentencesSelected,
    TextDelta,
    Usage,
    Voted,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class AnswerProgress:
    """Follows the events of a question. As a rich renderable it shows the present state, whenever it is drawn."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._step = "Opening the library and the model"
        self._parts = self._parts_done = self._votes = self._pieces = 0
        self._usage = Usage()

    def follow(self, event: Event) -> None:
        """Note an event."""
        match event:
            case Retrieved() | SentencesSelected():
                self._step = "Reading"
            case MapStarted():
                self._parts += 1
            case MapFinished():
                self._parts_done += 1
            case Voted():
                self._votes += 1
            case AnswerStarted():
                self._step = "Writing the answer"
            case TextDelta():
                self._pieces += 1
            case ModelCalled():
                self._usage += event.usage
                self._pieces = 0

    def describe(self) -> str:
        """Return the step, seconds, parts and tokens, such as `Reading, 12 s, 2 of 4 parts, 1,204 tokens`."""
        pieces = [self._step, f"{time.monotonic() - self._start:.0f} s"]
        if self._parts:
            pieces.append(f"{self._parts_done} of {self._parts} parts")
        if self._votes:
            pieces.append(counted(self._votes, "vote"))
        tokens = self._usage.prompt_tokens + self._usage.completion_tokens + self._pieces
        if tokens:
            pieces.append(counted(tokens, "token"))
        return ", ".join(pieces)

    def __rich__(self) -> Text:
        """Return the line for rich, which draws it again several times a second."""
        from rich.text import Text

        return Text(self.describe())


class ProgressLine:
    """The line on a terminal, which can be taken away while something else is written."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.live import Live

        self._console = console or open_console(stderr=True)
        self._progress = AnswerProgress()
        self._live = Live(self._progress, console=self._console, transient=True, refresh_per_second=4)

    @contextmanager
    def running(self) -> Iterator[ProgressLine]:
        """Show the line during the block."""
        if not self._console.is_terminal:
            with say_each_minute(lambda: [self._progress.describe()]):
                yield self
            return
        self.show()
        try:
            yield self
        finally:
            self.hide()

    def follow(self, event: Event) -> None:
        """Note an event."""
        self._progress.follow(event)

    def show(self) -> None:
        """Show the line if standard error is a terminal."""
        if self._console.is_terminal:
            self._live.start(refresh=True)

    def hide(self) -> None:
        """Take the line away."""
        self._live.stop()
