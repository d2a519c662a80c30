"""Memory, cores and cards that this machine, or the limits of a container or task, allow for a model."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
SAMPLE_SECONDS = 0.2
"""Long enough for twenty ticks of each core."""
_IDLE = slice(3, 5)
"""The positions of the ticks spent idle and waiting for a disk."""


CARD_SECONDS = 10.0
"""Limit of asking NVIDIA's driver, which may first have to wake a card."""


@dataclass(frozen=True, slots=True)
class GraphicsCard:
    """An NVIDIA card, with its whole memory."""

    name: str
    memory_bytes: int


def list_graphics_cards() -> list[GraphicsCard]:
    """Return the NVIDIA cards that `nvidia-smi` shows, or none without it. Cards of other makers are not seen."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=CARD_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return []
    cards: list[GraphicsCard] = []
    for line in process.stdout.splitlines() if process.returncode == 0 else ():
        name, _, mebibytes = line.rpartition(",")
        # A card that shares the machine's memory reports `[N/A]`.
        if name and mebibytes.strip().isdecimal():
            cards.append(GraphicsCard(name.strip(), int(mebibytes) << 20))
    return cards


def measure_available_memory(root: Path = ROOT) -> float:
    """Return the bytes available without swapping; infinity if unknown. `root` is the folder of `proc` and `sys`."""
    limits = []
    with suppress(AttributeError, ValueError, OSError):
        limits.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    if (available := _read_statistics(root / "proc/meminfo").get("MemAvailable:")) is not None:
        limits = [available * 1024.0]
    # What is left of each control group's limit, with the file caches that can be dropped.
    for controller, limit, usage, prefix in (
        ("", "memory.max", "memory.current", ""),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        for group in _find_groups(root, controller):
            statistics = _read_statistics(group / "memory.stat")
            caches = statistics.get(f"{prefix}active_file", 0) + statistics.get(f"{prefix}inactive_file", 0)
            limits.append(_read_number(group / limit, math.inf) - _read_number(group / usage, 0) + caches)
    return min(limits, default=math.inf)


def count_usable_cores(root: Path = ROOT) -> int:
    """Return how many cores this process may keep busy, at least 1. Two threads of one core count as one."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        cores.add(_read_text(siblings) or str(cpu))
    limit = len(cores)
    for group in _find_groups(root, ""):
        quota, _, period = _read_text(group / "cpu.max").partition(" ")
        if quota.isdecimal() and period.strip().isdecimal():
            limit = min(limit, math.ceil(int(quota) / int(period)))
    for group in _find_groups(root, "cpu"):
        microseconds = _read_number(group / "cpu.cfs_quota_us", -1)
        if microseconds > 0:
            limit = min(limit, math.ceil(microseconds / _read_number(group / "cpu.cfs_period_us", 100_000)))
    return max(1, limit)


def count_idle_cores(root: Path = ROOT) -> int:
    """Return how many usable cores are idle now, measured for SAMPLE_SECONDS; all if unknown. At least 1."""
    before = _read_ticks(root)
    time.sleep(SAMPLE_SECONDS)
    ticks = [end - start for start, end in zip(before, _read_ticks(root), strict=False)]
    cores = count_usable_cores(root)
    if len(ticks) < _IDLE.stop or sum(ticks) <= 0:
        return cores
    idle = sum(ticks[_IDLE]) / sum(ticks) * (os.cpu_count() or 1)
    return max(1, min(cores, round(idle)))


def _read_ticks(root: Path) -> list[int]:
    """Return the ticks of all cores since the start of the machine: user, nice, system, idle, waiting..."""
    words = _read_text(root / "proc/stat").partition("\n")[0].split()[1:]
    return [int(word) for word in words if word.isdecimal()]


def _find_groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and of those above it, whose limits apply too.

    In a container the process's group may be mounted at the top, under another path than the reported one.
    """
    mounts = [f"sys/fs/cgroup/{controller}"] if controller else ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controller not in controllers.split(","):
            continue
        for mount in mounts:
            top = root / mount
            lowest = top / path.lstrip("/")
            for group in (lowest, *lowest.parents):
                if group.is_relative_to(top) and group.is_dir():
                    yield group


def _read_number(path: Path, default: float) -> float:
    text = _read_text(path).strip()
    return float(text) if text.lstrip("-").isdecimal() else default


def _read_statistics(path: Path) -> dict[str, int]:
    """Return the whole numbers of a file with a name and a number on each line."""
    numbers = {}
    for line in _read_text(path).splitlines():
        name, value, *_ = [*line.split(), "", ""]
        if value.isdecimal():
            numbers[name] = int(value)
    return numbers


def _read_text(path: Path) -> str:
    """Return the text of a file, or an empty string if it is missing or unreadable."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
