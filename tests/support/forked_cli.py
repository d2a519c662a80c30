"""Runs `epicrisis ARGUMENTS...` in processes that may kill themselves. Run as a module, by the tests of kills.

Everything heavy is imported once; each line of input (JSON) is then a process of its own, and its exit code one line of
output. The keys: `commands` (the arguments of each, run in turn; the log says the exit code of each), `log` (the file
that takes both standard streams), and for a kill `folder` and `kill_at`: the process ends with SIGKILL right before its
n-th change of that folder. Changes are what Python reports of itself (`sys.addaudithook`): files opened, folders
created, files renamed and removed, and databases opened. `wait` names a pipe that is read once before the first command
begins, so that a tracer can attach.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

_CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.connect"}
_HEAVY = ("lancedb", "tantivy", "pyarrow.compute", "onnxruntime", "tokenizers", "rich.progress")
EXIT = "=== exit code "
_OURS = (
    "settings.configuration",
    "corpus.readers.sources",
    "library.write.ingest",
    "library.write.health",
    "models.encoders",
    "pipeline.components",
)


def kill_before(number: int, folder: Path) -> None:
    """Ends this process with SIGKILL right before its n-th change within the folder, 1 for the first."""
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event not in _CHANGES or not arguments or not isinstance(arguments[0], (str, os.PathLike)):
            return
        if not Path(arguments[0]).absolute().is_relative_to(folder):
            return
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _commands(request: dict[str, Any]) -> int:
    """Runs the commands and returns the last one's exit code, 1 for an error that none of them translated."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if "wait" in request:
        Path(request["wait"]).read_bytes()
    if "kill_at" in request:
        kill_before(request["kill_at"], Path(request["folder"]))
    from epicrisis.cli.program import app

    code = 0
    for arguments in request["commands"]:
        code = 1
        # Nothing ends the commands after it.
        with suppress(BaseException):
            try:
                app(arguments, prog_name="epicrisis")
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
            except BaseException:
                traceback.print_exc()
                raise
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(log, f"\n{EXIT}{code}\n".encode())
    return code


def forked(request: dict[str, Any], announce: bool) -> int:
    """Returns the exit code of the command in a process of its own, negative for a signal."""
    child = os.fork()
    if child:
        if announce:
            sys.stdout.write(f"{child}\n")
            sys.stdout.flush()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        code = _commands(request)
    finally:
        # Python's own end would run the server's loop on.
        os._exit(code)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="lancedb fork support")
    for _module in (*_HEAVY, *(f"epicrisis.{name}" for name in _OURS)):
        importlib.import_module(_module)
    for _line in sys.stdin:
        _request = json.loads(_line)
        sys.stdout.write(f"{forked(_request, 'wait' in _request)}\n")
        sys.stdout.flush()
