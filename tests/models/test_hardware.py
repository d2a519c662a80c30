"""Memory and cores, told by the files of made-up machines and by the real one."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from epicrisis.models.hardware import count_idle_cores, count_usable_cores, measure_available_memory

GIB = 2**30
V1, V2 = "4:memory:{}\n3:cpu,cpuacct:{}\n1:name=systemd:/", "0::{}"


def machine(root: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{content}\n")
    return root


def meminfo(gib: float) -> str:
    return f"MemTotal:       {64 * 2**20} kB\nMemFree:        1024 kB\nMemAvailable:   {int(gib * 2**20)} kB"


def v2(group: str, gib: float | str, used: float, files: float = 0.0) -> dict[str, object]:
    folder = f"sys/fs/cgroup{group}"
    half = int(files * GIB / 2)
    return {
        f"{folder}/memory.max": gib if isinstance(gib, str) else int(gib * GIB),
        f"{folder}/memory.current": int(used * GIB),
        f"{folder}/memory.stat": f"anon 5\nactive_file {half}\ninactive_file {half}\nfile 7",
    }


def v1(group: str, limit: int, used: float, files: float = 0.0) -> dict[str, object]:
    folder = f"sys/fs/cgroup/memory{group}"
    half = int(files * GIB / 2)
    return {
        f"{folder}/memory.limit_in_bytes": limit,
        f"{folder}/memory.usage_in_bytes": int(used * GIB),
        f"{folder}/memory.stat": f"inactive_file 1\ntotal_active_file {half}\ntotal_inactive_file {half}",
    }


# -- memory ---------------------------------------------------------------------------------------------------------


def test_available_memory_without_limits_is_meminfo_available(tmp_path: Path) -> None:
    assert measure_available_memory(machine(tmp_path, {"proc/meminfo": meminfo(3.5)})) == 3.5 * GIB
    unlimited = v2("/app", "max", 1.0) | v1("/app", 9223372036854771712, 1.0)
    machine(tmp_path, unlimited | {"proc/self/cgroup": V1.format("/app", "/app") + "\n" + V2.format("/app")})
    assert measure_available_memory(tmp_path) == 3.5 * GIB


def test_available_memory_without_meminfo_is_physical_memory(tmp_path: Path) -> None:
    assert measure_available_memory(tmp_path) == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(("outer", "inner"), [(2.0, 6.0), (6.0, 2.0)])
def test_available_memory_cgroup_v2_uses_tightest_nested_limit(tmp_path: Path, outer: float, inner: float) -> None:
    files = {"proc/meminfo": meminfo(20), "proc/self/cgroup": V2.format("/slice/app.scope")}
    machine(tmp_path, files | v2("/slice", outer, 0.5) | v2("/slice/app.scope", inner, 0.5, files=0.25))
    assert measure_available_memory(tmp_path) == min(outer - 0.5, inner - 0.25) * GIB


@pytest.mark.parametrize(("outer", "inner"), [(2, 6), (6, 2)])
def test_available_memory_cgroup_v1_uses_tightest_nested_limit(tmp_path: Path, outer: int, inner: int) -> None:
    files = {"proc/meminfo": meminfo(20), "proc/self/cgroup": V1.format("/outer/inner", "/")}
    machine(tmp_path, files | v1("/outer", outer * GIB, 0.5) | v1("/outer/inner", inner * GIB, 0.5, files=0.25))
    assert measure_available_memory(tmp_path) == min(outer - 0.5, inner - 0.25) * GIB


@pytest.mark.parametrize("path", ["/", "/docker/0123abc", "/../.."])
def test_available_memory_container_uses_root_cgroup(tmp_path: Path, path: str) -> None:
    machine(tmp_path, {"proc/meminfo": meminfo(20), "proc/self/cgroup": V2.format(path)} | v2("", 4.0, 1.0))
    assert measure_available_memory(tmp_path) == 3 * GIB


def test_available_memory_ignores_limit_of_other_cgroup(tmp_path: Path) -> None:
    files = {"proc/meminfo": meminfo(20), "proc/self/cgroup": V2.format("/ours")}
    machine(tmp_path, files | v2("/ours", "max", 0.1) | v2("/theirs", 1.0, 0.1))
    assert measure_available_memory(tmp_path) == 20 * GIB


def test_available_memory_hybrid_cgroups_uses_either_limit(tmp_path: Path) -> None:
    files = {"proc/meminfo": meminfo(20), "proc/self/cgroup": V1.format("/a", "/") + "\n" + V2.format("/b")}
    machine(tmp_path, files | v1("/a", 8 * GIB, 1.0) | v2("/unified/b", 3.0, 1.0))
    assert measure_available_memory(tmp_path) == 2 * GIB


# -- cores ----------------------------------------------------------------------------------------------------------


def count_cores(monkeypatch: pytest.MonkeyPatch, root: Path, allowed: set[int], files: dict[str, object]) -> int:
    """Count the usable cores of a machine of 4 cores with two threads each (0 and 4, 1 and 5, ...)."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
    siblings = {
        f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)
    }
    return count_usable_cores(machine(root, siblings | files))


@pytest.mark.parametrize(
    ("allowed", "expected"), [(set(range(8)), 4), ({0, 1}, 2), ({0, 4}, 1), ({0, 1, 5}, 2), ({0, 1, 2, 3}, 4)]
)
def test_usable_cores_sibling_threads_count_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: set[int], expected: int
) -> None:
    assert count_cores(monkeypatch, tmp_path, allowed, {}) == expected


def test_usable_cores_without_topology_counts_each_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert count_usable_cores(tmp_path) == 3


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 4), ("250000 100000", 3), ("200000 100000", 2), ("50000 100000", 1), ("900000 100000", 4)],
)
def test_usable_cores_cgroup_v2_quota_limits_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str, expected: int
) -> None:
    files: dict[str, object] = {"proc/self/cgroup": V2.format("/pod/app"), "sys/fs/cgroup/pod/app/cpu.max": quota}
    assert count_cores(monkeypatch, tmp_path, set(range(8)), files) == expected
    machine(tmp_path, {"sys/fs/cgroup/pod/cpu.max": "100000 100000"})
    assert count_usable_cores(tmp_path) == 1


@pytest.mark.parametrize(("quota", "expected"), [(-1, 4), (250_000, 3), (20_000, 1)])
def test_usable_cores_cgroup_v1_quota_limits_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: int, expected: int
) -> None:
    folder = "sys/fs/cgroup/cpu/docker/app"
    files = {"proc/self/cgroup": V1.format("/", "/docker/app"), f"{folder}/cpu.cfs_quota_us": quota}
    assert (
        count_cores(monkeypatch, tmp_path, set(range(8)), files | {f"{folder}/cpu.cfs_period_us": 100_000}) == expected
    )


@pytest.mark.parametrize(
    ("before", "after", "idle"),
    [
        ("cpu 0 0 0 1000 0 0", "cpu 0 0 0 1080 0 0", 4),
        ("cpu 0 0 0 1000 0 0", "cpu 20 0 20 1040 0 0", 2),
        ("cpu 0 0 0 1000 0 0", "cpu 10 10 0 1040 20 0", 3),
        ("cpu 0 0 0 1000 0 0", "cpu 80 0 0 1000 0 0", 1),
        ("cpu 0 0 0 1000 0 0", "cpu 0 0 0 1000 0 0", 4),
        ("", "", 4),
    ],
)
def test_idle_cores_excludes_busy_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str, after: str, idle: int
) -> None:
    machine(tmp_path, {"proc/stat": before})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr("time.sleep", lambda _: machine(tmp_path, {"proc/stat": after}))
    assert count_idle_cores(tmp_path) == idle


def test_usable_cores_without_affinity_is_at_least_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert count_usable_cores(tmp_path) == 1


def test_hardware_of_this_machine_is_plausible() -> None:
    assert 0 < measure_available_memory() < math.inf
    assert 1 <= count_idle_cores() <= count_usable_cores() <= (os.cpu_count() or 1)
