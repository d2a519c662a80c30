"""Memory and CPU of a server of several processes, such as PostgreSQL, until it ends or this is interrupted.

    python benchmarks/server_memory.py PID FILE

A line every two seconds: the time, gigabytes of all processes (shared memory counted once), and the CPU seconds of the
server so far, ended processes included.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from many_users import read_tree_cpu


def main() -> None:
    """Write the lines."""
    server, output = int(sys.argv[1]), Path(sys.argv[2])
    while memory := read_tree_memory(server):
        with output.open("a", encoding="utf-8") as file:
            file.write(f"{time.time():.0f} {memory / 1e6:.3f} {read_tree_cpu(server):.1f}\n")
        time.sleep(2)


def read_tree_memory(server: int) -> int:
    """Return the kilobytes of a process and its children, 0 without it. Pages of files do not count."""
    own, shared = 0, 0
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            lines = (path / "status").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        values = dict(line.split(":", 1) for line in lines)
        if server not in (int(path.name), int(values["PPid"])) or "RssAnon" not in values:
            continue
        own += int(values["RssAnon"].split()[0])
        shared = max(shared, int(values["RssShmem"].split()[0]))
    return own + shared


if __name__ == "__main__":
    main()
