"""Run the import of an upload in a process of its own, with limits on memory and processor time.

    result = await run_import(task, show)

The task goes to the process as a line of JSON, and each of its messages comes back as one.
Parsers have a process of their own already (`corpus.sandbox`). What is left, such as the encoder and the tables of the
library, is C and Rust code too: a file that makes it use all memory, loop or crash costs its own import, and neither
the server nor the questions that it answers. The process ends when the server ends, however that happens.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from epicrisis.core.errors import EpicrisisError
from epicrisis.library.base.skipped_items import SkippedReason
from epicrisis.server.base.error_log import log_described_fault

OUT_OF_MEMORY = 3
"""The exit code of a process that reached its memory limit."""
END_SECONDS = 10.0
"""How long a cancelled import may take for its current commit, before it is killed. The next import of the library
completes or removes what a killed one left."""
_MAX_MESSAGE_BYTES = 64 * 1024**2
_NEW_GROUP = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file of an upload."""

    name: str
    """As the sender calls it, printable."""
    stored: str
    """The random name under which it is stored. Empty for a file that was not stored."""
    bytes: int
    refusal: str = ""
    """Why the file was not stored, and what to do. Empty for a stored one."""


class ImportTask(BaseModel):
    """What a process imports, and how."""

    model_config = ConfigDict(frozen=True)

    library: str = Field(repr=False)
    """The folder of the library, or its URL, which may hold a password."""
    files: tuple[ReceivedFile, ...]
    folder: Path
    """Where the files are."""
    originals: Path
    """Where PDFs stay, so that their pages can be shown."""
    replace_others: bool = False
    """Replace documents of the same id from other files."""
    encoder: str | None = None
    """As the settings name it. None: that of the library."""
    home: Path
    threads: int | None = None
    local_only: bool = False
    memory_bytes: int
    """The limit of the process."""
    processor_seconds: int
    """The limit between two signs of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportProgress:
    """What an import has done so far."""

    file: str = ""
    """The name of the file that is read."""
    files_read: int = 0
    files: int = 0
    documents: int = 0
    """Documents read."""
    saved: int = 0
    """Documents in the library."""
    skipped: int = 0
    passages: int = 0
    passages_per_second: float = 0.0
    seconds_left: float | None = None
    """Estimated from the bytes of the files read so far; None before the first is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """How an import ended."""

    added: int
    replaced: int
    unchanged: int
    skipped: int
    passages: int
    seconds: float
    reasons: tuple[SkippedReason, ...] = ()
    more_skipped: int = 0
    """Skipped documents without a listed reason, in records of earlier versions."""
    remarks: tuple[str, ...] = ()
    """What to know of files whose name or content was in the library already."""


class ImportMessage(BaseModel):
    """A message of the process. One of the fields is set."""

    progress: ImportProgress | None = None
    result: ImportResult | None = None
    error: str | None = None
    """The message of an error that has a cure."""
    fault: str | None = None
    """Class and place of a fault of the program. Its message may hold text of a document."""


class ImportFailed(EpicrisisError):
    """The process of an import crashed or reached a limit. The message says why and what to do."""


async def run_import(task: ImportTask, show: Callable[[ImportProgress], None]) -> ImportResult:
    """Import the files, and return the result. `show` gets each sign of progress. A cancellation ends the process.

    Raises EpicrisisError for what the process reports, and ImportFailed.
    """
    # -P: no module of the working folder is imported. The task, which may hold a password, is no argument.
    command = [sys.executable, "-P", "-m", "epicrisis.server.work.import_worker"]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Messages of libraries may hold text of documents.
            stderr=subprocess.DEVNULL,
            limit=_MAX_MESSAGE_BYTES,
            start_new_session=True,
            creationflags=_NEW_GROUP,
        )
    except OSError as error:
        raise EpicrisisError(f"no process can be started for the import ({error.strerror}): free some memory") from None
    assert process.stdin is not None, "stdin and stdout are pipes"
    assert process.stdout is not None, "stdin and stdout are pipes"
    file = ""
    try:
        process.stdin.write(task.model_dump_json().encode() + b"\n")
        async for line in process.stdout:
            if not line.endswith(b"\n"):
                # The process was killed while it wrote.
                break
            message = ImportMessage.model_validate_json(line)
            if message.progress is not None:
                file = message.progress.file
                show(message.progress)
            elif message.result is not None:
                return message.result
            elif message.error is not None:
                raise EpicrisisError(message.error)
            elif message.fault is not None:
                log_described_fault(message.fault)
                raise EpicrisisError("a fault of the program; its place is in the log of the server")
        raise ImportFailed(describe_end(await process.wait(), task, file))
    finally:
        await _end(process)


def describe_end(code: int, task: ImportTask, file: str) -> str:
    """Return why a process ended without a result, and what to do. `file` was being read, or no file yet."""
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    if code == OUT_OF_MEMORY:
        reason = f"needed more than {task.memory_bytes / 2**30:.1f} GB of memory"
    elif how == "SIGXCPU":
        reason = f"took more than {task.processor_seconds:,} s of processor time without progress"
    else:
        reason = f"crashed ({how}) or ran out of memory"
    where = f" while it read {file}" if file else ""
    part = file or "the largest file"
    return (
        f"the import {reason}{where}, and was stopped: delete the upload, split {part} or save it as text, and send "
        "the files again"
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process, after its current commit if it can, and what it started."""
    if process.returncode is None and os.name == "posix":
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    await process.wait()
