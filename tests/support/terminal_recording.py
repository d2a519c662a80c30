"""Record the commands of the ten-minute start and the tutorials in a terminal of a given width.

    python -m tests.support.terminal_recording 60 80 120    # writes build/recordings/60.txt, ...

All commands of a recording run in one process, whose standard streams are a pseudo-terminal, so that they draw bars,
wrap lines and lay out tables as on a screen. Needs the models minilm and smollm2-135m.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "library add lib {demo}/documents.jsonl",
    "library list lib",
    "library list lib --documents --limit 3",
    "library show lib demo:aspirin-lynch-syndrome",
    "library info lib",
    "search lib 'aspirin to prevent cancer in Lynch syndrome' -k 3",
    "ask lib 'Does low-dose aspirin lower the risk of preterm pre-eclampsia?'",
    "plan lib --file {demo}/questions.jsonl --model smollm2-135m --strategy rag -k 2",
    "ask lib 'Which infection causes most duodenal ulcers?' --model smollm2-135m --strategy focused -k 2",
    "evaluate questions.jsonl --library lib --strategy rag -k 2 --model smollm2-135m --yes -o rag",
    "evaluate questions.jsonl --library lib --strategy zero-shot --model smollm2-135m --yes -o zero-shot",
    "compare zero-shot rag",
    "synthesize-record -o records --patients 2 --tokens 4000",
    "library add ward records/record/notes.csv",
    "library patients ward",
    "ask ward --patient fict0-001 'Which antibiotic was given during the last stay?'",
    "models list",
    "models recommend --memory 16",
    "questions list",
    "settings",
    "doctor --local-only",
    "--help",
    "ask --help",
    "library add --help",
)
MISTAKES = (
    "ask nowhere 'Does aspirin help?'",
    "library add lib nowhere.pdf",
    "search lib aspirin --setting votes.m=3",
    "search lib aspirin --byy words",
)
"""Commands that end with one line on what to do, and exit code 2."""
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_NEW_LINE = re.compile(r"\r?\n|\r")
_END = "\x1e"


@dataclass(frozen=True)
class Recording:
    """What one command wrote."""

    command: str
    exit_code: int
    lines: tuple[str, ...]
    """Every line that was ever on the screen, those that a progress display wrote over among them."""


def record_commands(commands: Sequence[str], columns: int, folder: Path) -> list[Recording]:
    """Run `epicrisis COMMAND` for each command in `folder`, in a terminal of this width, and return what it shows."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    variables |= {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    words = [shlex.split(command) for command in commands]
    arguments = [sys.executable, "-m", "tests.support.terminal_recording", "--run", json.dumps(words)]
    with subprocess.Popen(
        arguments, cwd=folder, env=variables, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    ):
        os.close(slave)
        text = _read_all(master)
    os.close(master)
    recordings: list[Recording] = []
    for command, part in zip(commands, text.split(_END), strict=False):
        *lines, code = _NEW_LINE.split(_CONTROL.sub("", part).rstrip())
        recordings.append(Recording(command, int(code), tuple(line.rstrip() for line in lines)))
    return recordings


def _read_all(master: int) -> str:
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux's way to say that the other side has ended.
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode("utf-8", "replace")


def prepare_folder(folder: Path) -> list[str]:
    """Write the questions of the recording into `folder`, and return the commands."""
    demo = ROOT / "demo"
    questions = (demo / "questions.jsonl").read_text("utf-8").splitlines()
    with_options = [line for line in questions if '"options"' in line]
    (folder / "questions.jsonl").write_text("\n".join(with_options[:2]) + "\n", "utf-8")
    return [command.format(demo=demo) for command in COMMANDS]


def _run_commands(commands: Sequence[Sequence[str]]) -> None:
    from epicrisis.cli.program import app

    for arguments in commands:
        code: str | int | None = 1
        try:
            app(arguments, prog_name="epicrisis")
        except SystemExit as end:
            code = end.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout.write(f"\n{code}{_END}")
        sys.stdout.flush()


def main(widths: Sequence[int]) -> None:
    """Write a recording for each width."""
    target = ROOT / "build" / "recordings"
    target.mkdir(parents=True, exist_ok=True)
    for columns in widths:
        with tempfile.TemporaryDirectory() as name:
            commands = [*prepare_folder(Path(name)), *MISTAKES]
            recordings = record_commands(commands, columns, Path(name))
        lines: list[str] = []
        for recording in recordings:
            lines += ["", f"$ epicrisis {recording.command}", *recording.lines, f"[exit code {recording.exit_code}]"]
        (target / f"{columns}.txt").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        _run_commands(json.loads(sys.argv[2]))
    else:
        main([int(columns) for columns in sys.argv[1:]])
