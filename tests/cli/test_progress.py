"""What a long command shows while it works: bars in a terminal, lines without one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from rich.progress import Progress

from epicrisis.cli import progress as progress_module
from epicrisis.cli.progress import STALLED_SECONDS, Clock, open_download_progress, open_progress, show_ingest
from epicrisis.core.errors import LibraryError
from epicrisis.core.printable import format_seconds
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import Skipped
from epicrisis.corpus.base.reading_progress import ReadingProgress
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.library.core.library_store import LibraryStore
from tests.support.unsafe_text import unsafe_in

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FAST_LINES = "from epicrisis.cli import progress; progress.SECONDS_BETWEEN_LINES = 0.01\n"
RUN = "import sys; from epicrisis.cli.program import app; app(sys.argv[1:], prog_name='epicrisis')\n"


def has_saved(library: Path) -> bool:
    """Return whether a library has documents. One that is being created cannot be opened yet."""
    with suppress(LibraryError), LibraryStore.open(library) as store:
        return store.count()[0] > 0
    return False


class Lines:
    """Collects what is said, and waits for the first line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[str] = []
        self._is_there = threading.Event()
        monkeypatch.setattr(progress_module, "SECONDS_BETWEEN_LINES", 0.01)
        monkeypatch.setattr(progress_module, "say", self._collect)

    def _collect(self, text: str, *, err: bool) -> None:
        assert err, "progress is not on standard output"
        self.texts.append(text)
        self._is_there.set()

    def wait(self) -> str:
        """Return the next line."""
        self._is_there.clear()
        assert self._is_there.wait(30)
        return self.texts[-1]


def test_task_without_terminal_is_one_line_with_count_field_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(monkeypatch)
    with open_progress("so_far", quiet=False) as progress:
        task = progress.add_task("Answering", total=40, so_far="")
        for number in range(3):
            progress.update(task, advance=4, so_far=f"{number} right")
        line = lines.wait()
    assert re.fullmatch(r"Answering: 12 of 40, [\d,]+ per (s|min|h), 2 right, \d+ s left", line)


def test_task_without_total_shows_its_time_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(monkeypatch)
    with open_progress("step", quiet=False) as progress:
        progress.add_task("Optimizing", total=None, step="comparing checksums")
        assert re.fullmatch(r"Optimizing: comparing checksums, \d+ s so far", lines.wait())


def test_download_without_terminal_is_in_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(monkeypatch)
    with open_download_progress(quiet=False) as progress:
        progress.update(progress.add_task("minilm"), completed=12_000_000, total=90_000_000)
        assert lines.wait().startswith("minilm: 12.0 of 90.0 MB, ")


def test_quiet_and_finished_tasks_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(monkeypatch)
    with open_progress(quiet=True) as progress:
        progress.add_task("Answering", total=40)
        threading.Event().wait(0.1)
    assert lines.texts == []
    with open_progress(quiet=False) as progress:
        progress.add_task("Answering", total=1, completed=1)
        other = progress.add_task("Grading", total=1)
        lines.wait()
        progress.advance(other)
    assert all(text.startswith("Grading") for text in lines.texts)


def test_times_are_rounded_as_a_person_says_them() -> None:
    assert [format_seconds(seconds) for seconds in (0.4, 89, 200, 9000)] == ["0 s", "89 s", "3 min", "2.5 h"]


@pytest.mark.slow
def test_reading_progress_counts_files_and_bytes(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("Aspirin. " * 100)
    (tmp_path / "3.jsonl").write_text('{"id": "x", "text": "A line."}\n' * 40_000)
    seen: list[str] = []
    progress = ReadingProgress(lambda: seen.append(progress.current))
    items = read_sources([tmp_path], progress=progress)
    assert (progress.files, progress.files_read, progress.bytes_read) == (4, 0, 0)
    for item in items:
        if isinstance(item, Document | Skipped) and progress.files_read == 3:
            break
    assert 2700 < progress.bytes_read < progress.bytes, "part of the fourth file has been read"
    for _ in items:
        pass
    assert (progress.files_read, progress.bytes_read) == (4, progress.bytes)
    assert seen == ["0.txt", "1.txt", "2.txt", "3.jsonl"]


def test_ingest_display_with_hostile_file_name_is_printable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = Lines(monkeypatch)
    (tmp_path / "a\x1b[31m\u202e\n.txt").write_text("Aspirin.")
    with show_ingest("Adding", quiet=False) as display:
        list(zip(range(1), read_sources([tmp_path], progress=display.files), strict=False))
        line = lines.wait()
    assert unsafe_in(line) == []
    assert line.startswith("Adding: 1 of 1 file, ")


@pytest.mark.long
@pytest.mark.models
def test_add_in_a_terminal_of_80_columns_shows_file_count_and_rate(tmp_path: Path, model_home: Path) -> None:
    import pty

    for number in range(6):
        (tmp_path / f"paper{number}.txt").write_text(f"Aspirin lowers the risk of stroke number {number}. " * 300)
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "EPICRISIS_HOME": str(model_home)}
    command = [sys.executable, "-c", RUN, "library", "add", str(tmp_path / "library"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, text=True, env=environment) as process:
        os.close(follower)
        pieces = []
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:
                break
            if not piece:
                break
            pieces.append(piece)
        assert process.stdout is not None
        assert process.stdout.read().startswith("6 documents added")
    os.close(leader)
    screen = ANSI.sub("", b"".join(pieces).decode())
    drawn = [line.strip() for line in re.split(r"[\r\n]+", screen) if line.startswith("Adding")]
    assert any("of 6 files" in line and "passages per s" in line for line in drawn)
    assert any(re.search(r"paper\d", line) for line in drawn)
    assert max(map(len, drawn)) <= 80


@pytest.mark.slow
def test_sigterm_ends_like_ctrl_c_with_code_143(tmp_path: Path) -> None:
    """The command has begun when its first line of progress appears."""
    code = FAST_LINES + (
        "import asyncio, sys, typer\n"
        "from epicrisis.cli import command, progress\n"
        "def wait(how: str) -> None:\n"
        "    '''Wait.'''\n"
        "    async def sleep():\n"
        "        await asyncio.sleep(600)\n"
        "    with progress.open_progress(quiet=False) as bars:\n"
        "        bars.add_task('Waiting', total=None)\n"
        "        if how == 'asyncio':\n"
        "            asyncio.run(sleep())\n"
        "        import time; time.sleep(600)\n"
        "app = typer.Typer(pretty_exceptions_enable=False)\n"
        "command.command(examples=[''])(wait).add_to(app, 'wait')\n"
        "app([sys.argv[1]], prog_name='epicrisis')\n"
    )
    for how in ("asyncio", "thread"):
        child = [sys.executable, "-c", code, how]
        with subprocess.Popen(child, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("Waiting: ")
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 143
        assert errors.splitlines()[-1].startswith("epicrisis: stopped. What was saved is kept; the same command")
        assert "Traceback" not in errors


@pytest.mark.long
@pytest.mark.models
def test_add_ended_by_sigterm_keeps_its_work_and_continues(tmp_path: Path, model_home: Path) -> None:
    source = tmp_path / "many.jsonl"
    rows = (
        f'{{"id": "d{number}", "text": "Aspirin in trial {number}. {"It helped. " * 40}"}}\n' for number in range(400)
    )
    source.write_text("".join(rows))
    library = tmp_path / "library"
    environment = {**os.environ, "EPICRISIS_HOME": str(model_home)}
    command = [sys.executable, "-c", FAST_LINES + RUN, "library", "add", str(library), str(source)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "passages per s" in line and has_saved(library):
                break
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "the same command continues from there" in errors.splitlines()[-1]
    second = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=True)
    added, unchanged = map(int, re.findall(r"(\d+) documents added, (\d+) unchanged", second.stdout)[0])
    assert added + unchanged == 400
    assert unchanged, "the first process had saved documents"


def test_remaining_time_grows_while_nothing_advances_and_a_stalled_task_says_so() -> None:
    now = 0.0
    progress, clock = Progress(get_time=lambda: now, disable=True), Clock()
    progress.add_task("Adding", total=100)
    (task,) = progress.tasks

    def advance_to(completed: int, at: float) -> str:
        nonlocal now
        now = at
        progress.update(task.id, completed=completed)
        return clock.describe(task)

    said = [advance_to(done, float(done)) for done in (0, 10, 20, 50)]
    assert said[-1] == "50 s left"
    assert advance_to(50, 80.0) == "80 s left", "as 50 of 100 took 80 s"
    assert advance_to(50, 50 + STALLED_SECONDS) == "no progress for 60 s"
    assert advance_to(60, 120.0).endswith("left")
