"""What this machine has for a model: memory and cores, less where a container or the task's own limits say so.

Reads the files in which Linux tells of both; elsewhere it takes what the machine has in all. Knows no model.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path("/")

SAMPLE_SECONDS = 0.2
"""Long enough for twenty ticks of each core."""

_IDLE = slice(3, 5)
"""In the row of ticks: idle, and waiting for a disk."""


def measure_available_memory(root: Path = ROOT) -> float:
    """Bytes that can be had without swapping, caches of files that can be dropped included; infinite where nothing
    tells. `root`: where `proc` and `sys` lie."""
    limits = (*_memory_of_version_2(root), *_memory_of_version_1(root))
    return min((_memory_of_machine(root), *limits))


def count_usable_cores(root: Path = ROOT) -> int:
    """Cores that this process may keep busy at once: of two threads of one core one counts. At least 1."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    quota = min((*_cpus_of_version_2(root), *_cpus_of_version_1(root)), default=math.inf)
    cores = len(_cores(os.sched_getaffinity(0), root))
    return max(1, cores if math.isinf(quota) else min(cores, math.ceil(quota)))


def count_idle_cores(root: Path = ROOT) -> int:
    """Usable cores that nobody keeps busy just now, looked at for LOOK_SECONDS; all usable ones where nothing tells.
    At least 1."""
    before = _ticks(root)
    time.sleep(SAMPLE_SECONDS)
    passed = [after - earlier for earlier, after in zip(before, _ticks(root), strict=False)]
    cores = count_usable_cores(root)
    if len(passed) < _IDLE.stop or sum(passed) <= 0:
        return cores
    free = sum(passed[_IDLE]) / sum(passed) * (os.cpu_count() or 1)
    return max(1, min(cores, round(free)))


def _ticks(root: Path) -> list[int]:
    """What all cores together have done since the start of the machine: for users, nice, system, idle, waiting..."""
    words = _text(root / "proc/stat").partition("\n")[0].split()[1:]
    return [int(word) for word in words if word.isdecimal()]


def _cores(cpus: Iterable[int], root: Path) -> set[str]:
    folder = root / "sys/devices/system/cpu"
    return {_text(folder / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in cpus}


def _memory_of_machine(root: Path) -> float:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return float(line.split()[1]) * 1024
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


# -- control groups, of both versions -------------------------------------------------------------------------------


def _memory_of_version_2(root: Path) -> Iterator[float]:
    for group in _groups(root, ""):
        files = _numbers(group / "memory.stat", "active_file", "inactive_file")
        yield _number(group / "memory.max", math.inf) - _number(group / "memory.current", 0) + files


def _memory_of_version_1(root: Path) -> Iterator[float]:
    for group in _groups(root, "memory"):
        files = _numbers(group / "memory.stat", "total_active_file", "total_inactive_file")
        limit = _number(group / "memory.limit_in_bytes", math.inf)
        yield limit - _number(group / "memory.usage_in_bytes", 0) + files


def _cpus_of_version_2(root: Path) -> Iterator[float]:
    for group in _groups(root, ""):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if quota.isdecimal() and period.strip().isdecimal():
            yield int(quota) / int(period)


def _cpus_of_version_1(root: Path) -> Iterator[float]:
    for group in _groups(root, "cpu"):
        quota = _number(group / "cpu.cfs_quota_us", -1)
        if quota > 0:
            yield quota / _number(group / "cpu.cfs_period_us", 100_000)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's group and of those above it, whose limits hold too; `""`: version 2's.

    Inside a container its own group may be mounted as the topmost one, under another path than the one told.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controller not in controllers.split(","):
            continue
        for mount in ("sys/fs/cgroup", "sys/fs/cgroup/unified") if not controller else (f"sys/fs/cgroup/{controller}",):
            top = root / mount
            lowest = top / path.lstrip("/")
            yield from (group for group in (lowest, *lowest.parents) if group.is_relative_to(top) and group.is_dir())


def _number(path: Path, otherwise: float) -> float:
    text = _text(path).strip()
    return float(text) if text.lstrip("-").isdecimal() else otherwise


def _numbers(path: Path, *names: str) -> int:
    rows = (line.partition(" ") for line in _text(path).splitlines())
    return sum(int(value) for name, _, value in rows if name in names)


def _text(path: Path) -> str:
    """Empty where there is no such file, or none for us."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
