"""Files that only their owner can read, from their first byte on. Knows nothing of what is in them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

OWNER_ONLY = 0o600


def open_private(path: Path, flags: int) -> int:
    """A descriptor of the file, which is made where it is not there, in a folder that is made likewise.

    Whoever else could read the file so far no longer can, whatever the umask; a file of another owner, or a device,
    stays as it is. A new file's name is durable in its folder. Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = not path.exists()
    descriptor = os.open(path, flags | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), OWNER_ONLY)
    if os.name == "posix":
        there = os.fstat(descriptor)
        ours = stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid()
        if ours and stat.S_IMODE(there.st_mode) != OWNER_ONLY:
            os.fchmod(descriptor, OWNER_ONLY)
        if new:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    return descriptor
