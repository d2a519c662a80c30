"""Limits of this process that the system enforces, where it can. Processes that this one starts inherit them.

set_soft_limit("RLIMIT_DATA", 4 * 1024**3)
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def set_soft_limit(name: str, value: int | None) -> None:
    """Set a soft limit of this process, such as `RLIMIT_CPU`, at most to the hard one; None: to the hard one.

    A system without this limit is left as it is.
    """
    with suppress(ImportError, AttributeError, OSError, ValueError):
        import resource

        kind: int = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        if value is None or (hard != resource.RLIM_INFINITY and hard < value):
            value = hard
        resource.setrlimit(kind, (value, hard))


def disable_core_dumps() -> None:
    """Let this process leave no core dump, which would hold the text that it reads."""
    set_soft_limit("RLIMIT_CORE", 0)


def read_memory(kind: str) -> int:
    """Return the bytes of memory of this process, as Linux counts them: `VmData` allocated, `VmHWM` the peak in use.

    0 if the system does not say.
    """
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{kind}:"):
                return int(line.split()[1]) * 1024
    return 0
