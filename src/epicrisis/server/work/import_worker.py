"""The process of `import_process`: reads its task as a line of JSON, imports the files, and writes messages."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from epicrisis.core.errors import EpicrisisError
from epicrisis.corpus import sandbox
from epicrisis.server.base.error_log import describe_fault
from epicrisis.server.work.import_process import OUT_OF_MEMORY, ImportMessage, ImportProgress, ImportTask
from epicrisis.server.work.upload_import import UploadImport
from epicrisis.system import telemetry
from epicrisis.system.local_only import set_local_only
from epicrisis.system.process_limits import disable_core_dumps, read_memory, set_soft_limit

_LAST_CHOICE = "1000"
"""The highest score of Linux's out-of-memory killer: it ends this process, and never the server for its sake."""

_NEARLY_ALL = 0.75
"""The share of the limit from which on an error is one of memory: what was refused is not counted."""


def main() -> None:
    """Import the files of the task, and end with the server."""
    # Output of libraries is discarded: the pipe is for messages.
    messages = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _choose_signals()
    task = ImportTask.model_validate_json(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_server, daemon=True).start()
    _limit_memory(task)

    def send(message: ImportMessage) -> None:
        messages.write(message.model_dump_json(exclude_unset=True).encode() + b"\n")
        messages.flush()

    def show(progress: ImportProgress) -> None:
        set_soft_limit("RLIMIT_CPU", int(time.process_time()) + task.processor_seconds)
        send(ImportMessage(progress=progress))

    try:
        set_local_only(task.local_only)
        telemetry.start(local_only=task.local_only)
        message = ImportMessage(result=UploadImport(task, show).run())
    except Exception as error:  # noqa: BLE001 - the message of a fault may hold text of a document
        if _lacks_memory(error, task.memory_bytes):
            os._exit(OUT_OF_MEMORY)
        if isinstance(error, EpicrisisError):
            message = ImportMessage(error=error.message)
        else:
            message = ImportMessage(fault=describe_fault(error))
    send(message)


def _choose_signals() -> None:
    """Let SIGINT end the import after its current commit, as Ctrl-C ends `library add`, and ignore SIGTERM.

    A service manager sends SIGTERM to all processes of a service. The server then decides, and is waited for.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _end_with_server() -> None:
    """Wait for the end of the server, which holds the other end of the pipe, and kill this process and its parsers."""
    sys.stdin.buffer.read()
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _limit_memory(task: ImportTask) -> None:
    """Limit the memory of this process and of each parser, and let them be the first to die where it is short.

    RLIMIT_DATA counts what is allocated, and not the files of a large library, which are mapped.
    """
    sandbox.PROCESS_GROUP = None
    disable_core_dumps()
    set_soft_limit("RLIMIT_DATA", task.memory_bytes)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_LAST_CHOICE, encoding="ascii")


def _lacks_memory(error: BaseException | None, limit: int) -> bool:
    """Return whether an error says that no memory was left, or came when little was.

    Native code then says that a model or a library is damaged.
    """
    if read_memory("VmData") > _NEARLY_ALL * limit:
        return True
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        error = error.__cause__ or error.__context__
    return False


if __name__ == "__main__":
    main()
