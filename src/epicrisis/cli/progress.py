"""How far a long command is: bars in a terminal, one line a minute without one. Everything goes to standard error.

    with open_progress("so_far", quiet=json) as progress:
        task = progress.add_task("Answering", total=len(questions), so_far="")
        progress.update(task, advance=1, so_far="12 right")

Tasks are those of rich's `Progress`. A task without a total shows its seconds, other tasks rate and remaining time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from epicrisis.cli.terminal import counted, open_console, say
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
from epicrisis.core.printable import count_noun, format_seconds, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task
    from rich.text import Text

    from epicrisis.library.write.ingest_batches import IngestProgress

SECONDS_BETWEEN_LINES = 60.0
"""Seconds between two lines on the progress of a command without a terminal."""
STALLED_SECONDS = 60.0
"""Seconds without progress after which a task says so."""
_WIDE_ENOUGH_FOR_BARS = 72
"""Columns of a terminal. In a narrower one, the words have the place of the bar."""
_SPEED_SECONDS = 600
"""Seconds over which the rate is measured: a call of a chat model may take a minute."""


@contextmanager
def open_progress(*fields: str, quiet: bool, transient: bool = False, counts: bool = True) -> Iterator[Progress]:
    """Show tasks during the block: description, bar, count, rate, remaining time, then `fields` of the tasks.

    `counts` is False where a field says count and rate better. `transient` removes the bars at the end.
    """
    with _show((_count_of, _rate_of) if counts else (), fields, quiet, transient) as progress:
        yield progress


@contextmanager
def open_download_progress(*, quiet: bool) -> Iterator[Progress]:
    """Show tasks whose amounts are bytes during the block, with rate and remaining time."""
    with _show((_megabytes_of, _megabyte_rate_of), (), quiet, False) as progress:
        yield progress


@contextmanager
def say_each_minute(describe: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Write the lines of `describe` on standard error each minute during the block. For commands without a terminal."""
    has_ended = threading.Event()

    def run() -> None:
        while not has_ended.wait(SECONDS_BETWEEN_LINES):
            for line in describe():
                say(line, err=True)

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def say_above(progress: Progress, line: str) -> None:
    """Write one line above the bars of a progress display, wrapped to the terminal."""
    is_pipe = not progress.console.is_terminal
    progress.console.print(printable(line), markup=False, highlight=False, soft_wrap=is_pipe)


@contextmanager
def _show(
    amounts: Sequence[Callable[[Task], str]], fields: Sequence[str], quiet: bool, transient: bool
) -> Iterator[Progress]:
    from rich.progress import BarColumn, Progress, ProgressColumn
    from rich.table import Column
    from rich.text import Text

    class PhraseColumn(ProgressColumn):
        """Shows a function's phrase about a task. Only a long phrase is cut in a narrow terminal."""

        def __init__(self, phrase: Callable[[Task], str], *, long: bool = False) -> None:
            # rich narrows columns that may wrap before the others; the text itself never wraps.
            super().__init__(Column(no_wrap=not long))
            self._phrase = phrase

        def render(self, task: Task) -> Text:
            return Text(self._phrase(task), no_wrap=True, overflow="ellipsis")

    clock = Clock()

    def describe() -> Iterator[str]:
        tasks = list(progress.tasks)
        # When all amounts are complete, the last task may still write its results.
        for task in [task for task in tasks if not _is_complete(task)] or tasks[-1:]:
            phrases = [*(amount(task) for amount in amounts), *(str(task.fields[name]) for name in fields)]
            yield f"{task.description}: {', '.join(filter(None, (*phrases, clock.describe(task))))}"

    console = open_console(stderr=True)
    columns: list[ProgressColumn] = [PhraseColumn(lambda task: task.description)]
    if console.width >= _WIDE_ENOUGH_FOR_BARS:
        columns.append(BarColumn(14))
    columns += map(PhraseColumn, (*amounts, clock.describe))
    for name in fields:
        columns.append(PhraseColumn(lambda task, name=name: str(task.fields[name]), long=True))  # type: ignore[misc]
    progress = Progress(
        *columns,
        console=console,
        disable=quiet or not console.is_terminal,
        transient=transient,
        speed_estimate_period=_SPEED_SECONDS,
    )
    with nullcontext() if quiet or console.is_terminal else say_each_minute(describe), progress:
        yield progress


def _is_complete(task: Task) -> bool:
    return task.total is not None and task.completed >= task.total


def _count_of(task: Task) -> str:
    return "" if task.total is None else f"{task.completed:,.0f} of {task.total:,.0f}"


def _megabytes_of(task: Task) -> str:
    total = "" if task.total is None else f" of {task.total / 1e6:,.1f}"
    return f"{task.completed / 1e6:,.1f}{total} MB"


def _megabyte_rate_of(task: Task) -> str:
    return f"{task.speed / 1e6:,.1f} MB per s" if task.speed else ""


def _rate_of(task: Task) -> str:
    """Return the rate, in the unit that gives a number above one."""
    speed = task.speed
    if task.total is None or not speed:
        return ""
    for per, seconds in (("s", 1), ("min", 60)):
        if speed * seconds >= 1:
            return f"{speed * seconds:,.0f} per {per}"
    return f"{speed * 3600:,.0f} per h"


class Clock:
    """Says how long tasks will take, or how long they have stood still."""

    def __init__(self) -> None:
        self._advanced: dict[int, tuple[float, float]] = {}
        """By task: what was completed at last, and when that was first seen."""

    def describe(self, task: Task) -> str:
        """Return the remaining time if it is known, else the seconds so far.

        The estimate grows while nothing advances, and a task that stands still says so.
        """
        elapsed = task.elapsed or 0.0
        completed, since = self._advanced.get(task.id, (-1.0, 0.0))
        if task.completed != completed:
            self._advanced[task.id] = (task.completed, elapsed)
            since = elapsed
        if task.total is None or not task.completed or _is_complete(task):
            return f"{format_seconds(elapsed)} so far"
        if elapsed - since >= STALLED_SECONDS:
            return f"no progress for {format_seconds(elapsed - since)}"
        on_average = (task.total - task.completed) * elapsed / task.completed
        return f"{format_seconds(max(task.time_remaining or 0.0, on_average))} left"


class IngestDisplay:
    """Shows the counts of an addition, and the files that are read, if `files` is given to their reader."""

    def __init__(self, progress: Progress, description: str) -> None:
        from epicrisis.corpus.base.reading_progress import ReadingProgress

        self.files = ReadingProgress(self.show)
        self._progress = progress
        self._task = progress.add_task(description, total=None, counts="", file="")
        self._last: IngestProgress | None = None

    def show(self, counts: IngestProgress | None = None) -> None:
        """Show the present file, and new counts if there are any."""
        self._last = last = counts or self._last
        files = self.files
        parts = []
        if files.files:
            parts.append(f"{min(files.files_read + 1, files.files):,} of {count_noun(files.files, 'file')}")
        elif last is not None:
            parts.append(f"{last.documents:,} read, {last.saved:,} saved")
        if last is not None:
            parts.append(last.step or f"{last.passages / max(last.seconds, 1e-9):,.0f} passages per s")
        self._progress.update(
            self._task,
            total=files.bytes or None,
            completed=files.bytes_read,
            counts=", ".join(parts),
            file=files.current,
        )


@contextmanager
def show_ingest(description: str, *, quiet: bool) -> Iterator[IngestDisplay]:
    """Show the progress of an addition during the block, if not `quiet`."""
    with open_progress("counts", "file", quiet=quiet, transient=True, counts=False) as progress:
        yield IngestDisplay(progress, description)


def describe_counts(added: int, counts: Mapping[str, int]) -> str:
    """Return what an addition did, without zeros: `3 documents added, 1 replaced, 2 skipped`."""
    parts = [count_noun(added, "document") + " added"]
    for name, count in counts.items():
        if count:
            parts.append(f"{count:,} {name}")
    return ", ".join(parts)


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
