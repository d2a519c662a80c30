"""What Windows lacks is taken away on this system: the program still imports, reads files, and writes libraries.

A child process runs without the functions, signals and modules that only POSIX has. Opening a folder, syncing a file
that is open for reading only, and replacing or deleting an open file fail there as they do on Windows. This is no test
on Windows: paths, drives and locks behave differently there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_POSIX = """
import builtins, os, signal, sys, types

class Reduced(types.ModuleType):
    # What Windows has of a module.
    def __init__(self, module, missing, **changed):
        super().__init__(module.__name__)
        self.__dict__.update(changed, _module=module, _missing=missing)

    def __getattr__(self, name):
        if name in self._missing:
            raise AttributeError(f"Windows has no {name}")
        return getattr(self._module, name)

real, readers = os, set()

def refuse_open_files(name, files):
    # Everywhere: pathlib and shutil call these functions too. Windows neither replaces nor deletes an open file.
    function = getattr(os, name)

    def refuse(*paths, **options):
        open_files = set()
        for handle in real.listdir("/proc/self/fd"):
            try:
                open_files.add(real.readlink(f"/proc/self/fd/{handle}"))
            except OSError:
                pass
        for path in paths[:files]:
            if real.path.realpath(path) in open_files and not real.path.isdir(path):
                raise PermissionError(13, "The file is being used by another process", str(path))
        return function(*paths, **options)

    setattr(os, name, refuse)

if real.path.isdir("/proc/self/fd"):
    for name, files in (("replace", 2), ("rename", 2), ("unlink", 1), ("remove", 1)):
        refuse_open_files(name, files)

def open_as_windows(path, flags, mode=0o777, **options):
    if real.path.isdir(path):
        raise PermissionError(13, "Permission denied", str(path))
    handle = real.open(path, flags, mode, **options)
    readers.discard(handle)
    if flags & 3 == real.O_RDONLY:
        readers.add(handle)
    return handle

def fsync_as_windows(file):
    if file in readers:
        raise OSError(9, "Bad file descriptor")
    real.fsync(file)

POSIX_MODULES = {"fcntl", "resource", "pwd", "grp", "termios"}
REDUCED = {
    "os": Reduced(
        os,
        {"geteuid", "getuid", "getegid", "getgid", "fchmod", "chown", "fork", "sysconf", "sched_getaffinity",
         "O_CLOEXEC", "uname", "getloadavg", "killpg", "setsid", "mkfifo", "wait"},
        open=open_as_windows,
        fsync=fsync_as_windows,
    ),
    "signal": Reduced(
        signal, {"SIGALRM", "alarm", "setitimer", "pthread_sigmask", "SIGKILL", "SIGHUP", "SIGUSR1", "SIGCHLD"}
    ),
}
import_module = builtins.__import__

def import_as_windows(name, globals=None, locals=None, fromlist=(), level=0):
    # Only for this program: other packages know Windows by the name of the system, which stays the same.
    importer = (globals or {}).get("__name__", "")
    if importer != "__main__" and not importer.startswith("epicrisis"):
        return import_module(name, globals, locals, fromlist, level)
    if name in POSIX_MODULES:
        raise ModuleNotFoundError(name, name=name)
    return REDUCED.get(name) or import_module(name, globals, locals, fromlist, level)

builtins.__import__ = import_as_windows
import os, signal
"""
IMPORT_ALL = """
import importlib, pkgutil, epicrisis
for module in pkgutil.walk_packages(epicrisis.__path__, "epicrisis."):
    # The integrations need packages of their own, and nothing of the system.
    if not module.name.endswith("__main__") and ".integrations." not in module.name:
        importlib.import_module(module.name)
"""
RUN = """
import runpy
sys.argv[0] = "epicrisis"
from epicrisis.corpus import sandbox
# The children of the sandbox lack the same.
sandbox._START = BEGIN + sandbox._START
runpy.run_module("epicrisis", run_name="__main__")
"""


def run(code: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    code = f"BEGIN = {WITHOUT_POSIX!r}\n{WITHOUT_POSIX}\n{code}"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=300)


@pytest.mark.long
def test_all_modules_are_imported_without_posix() -> None:
    done = run(IMPORT_ALL)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.long
@pytest.mark.models
def test_library_is_made_and_searched_without_posix(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(f"<title>Aspirin</title><p>{'Aspirin prevents colorectal cancer. ' * 20}</p>")
    (tmp_path / "notes.txt").write_text("Statins lower cholesterol in most people who take them.")
    done = run(RUN, "library", "add", "lib", "page.html", "notes.txt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "2 documents added" in done.stdout
    done = run(RUN, "search", "lib", "aspirin and cancer", "--by", "bm25", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Aspirin prevents" in json.dumps(json.loads(done.stdout))


@pytest.mark.long
@pytest.mark.models
def test_library_is_changed_and_exported_without_posix(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Statins lower cholesterol.")
    commands = [
        ("library", "add", "lib", "notes.txt"),
        ("library", "add", "lib", "notes.txt", "--replace"),
        ("ask", "lib", "What do statins lower?", "-o", "answer.md"),
        ("ask", "lib", "What do statins lower?", "-o", "answer.md"),
        ("library", "export", "lib", "-o", "lib.jsonl"),
        ("library", "delete", "lib", "file:notes.txt"),
        ("library", "repair", "lib"),
        ("library", "check", "lib"),
    ]
    for number, command in enumerate(commands):
        done = run(RUN, *command, cwd=tmp_path)
        assert done.returncode == 0, (command, done.stderr[-2000:])
        (tmp_path / "notes.txt").write_text(f"Statins lower cholesterol. {number}")


SLOW_PARSER = """
import sys
from pathlib import Path
from epicrisis.corpus import sandbox
sandbox.SECONDS = 1
sandbox._START = BEGIN + "import time; sys.stdin.buffer.readline(); time.sleep(60)"
(item,) = sandbox.read_file("html", Path(sys.argv[1]))
print(item.reason)
# The next child has the full time again.
sandbox._START = BEGIN + "sys.exit(7)"
(item,) = sandbox.read_file("html", Path(sys.argv[1]))
print(item.reason)
"""


@pytest.mark.slow
def test_slow_parser_is_stopped_by_the_parent_without_alarms(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p>x</p>")
    done = run(SLOW_PARSER, str(tmp_path / "page.html"))
    assert done.returncode == 0, done.stderr[-2000:]
    late, crashed = done.stdout.splitlines()
    assert "took longer than 1 s and was stopped" in late
    assert "crashed (exit code 7)" in crashed


PRIVATE_FILES = """
import sys
from pathlib import Path
from epicrisis.system.local_only import open_private, restrict_to_owner
from epicrisis.server.base.private_folder import make_private_folder
from epicrisis.server.api.mcp_server import read_user_name
folder = Path(sys.argv[1])
handle = open_private(folder / "a" / "b.txt", os.O_WRONLY)
os.write(handle, b"text")
os.close(handle)
restrict_to_owner(folder)
(folder / "other").write_text("not the server's")
make_private_folder(folder)
os.environ.clear()
print((folder / "a" / "b.txt").read_text(), bool(read_user_name()))
"""


@pytest.mark.long
def test_private_files_are_written_without_owners(tmp_path: Path) -> None:
    done = run(PRIVATE_FILES, str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["text", "True"]


def test_simulation_fails_as_windows_does(tmp_path: Path) -> None:
    done = run("os.open(sys.argv[1], os.O_RDONLY)", str(tmp_path))
    assert "PermissionError" in done.stderr
    (tmp_path / "file").write_text("x")
    done = run("os.fsync(os.open(sys.argv[1], os.O_RDONLY))", str(tmp_path / "file"))
    assert "Bad file descriptor" in done.stderr
    assert "AttributeError" in run("os.geteuid()").stderr
    remove_open_file = "from pathlib import Path; path = Path(sys.argv[1]); file = path.open(); path.unlink()"
    assert "being used by another process" in run(remove_open_file, str(tmp_path / "file")).stderr
