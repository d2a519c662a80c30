"""Time and energy of a session: measured if the machine has meters, otherwise estimated or unknown.

Processors and their memory are measured by RAPL, through Linux's powercap; NVIDIA cards by NVML, with the extra
`energy`. Both measure the whole machine. Values are joules and seconds; unknown values are None, never 0.
`docs/design/energy.md` gives the reasons.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, TypeAlias

from epicrisis.settings.settings import Settings
from epicrisis.system.local_only import parse_host, remote_host, split_addresses

EnergyBasis: TypeAlias = Literal["measured", "estimated", "unknown"]

ROOT = Path("/")
SAMPLE_SECONDS = 1.0
"""A counter of 64 kJ wraps around after two minutes at 500 W, and a card without a counter reports only its current
power."""
_SAME_JOULES = 1.0
"""Two dies of a package with counters this close share one counter: it grows by this much between two readings."""
_WHOLE_MACHINE = "the whole machine's, whatever else it did"


@dataclass(frozen=True, slots=True)
class EquipmentEnergy:
    """The energy of one part of the equipment during a session."""

    what: Literal["processors", "cards", "endpoints"]
    known: EnergyBasis
    joules: float | None
    """None if unknown."""
    how: str
    """The meter, or the assumption, or the reason why it is unknown and the remedy."""


@dataclass(frozen=True, slots=True)
class SessionEnergy:
    """The energy of a session while it made calls."""

    seconds: float
    """Wall-clock time."""
    kg_co2_per_kwh: float
    """The rate in the settings of the session."""
    parts: tuple[EquipmentEnergy, ...]


class MeterUnavailable(Exception):
    """A meter has no reading, or none any more: the reason, and the remedy."""


class RaplMeter:
    """The counters of all processor packages and of their memory.

    Raises MeterUnavailable if there are none, or if one cannot be read.
    """

    def __init__(self, root: Path = ROOT) -> None:
        powercap = root / "sys/class/powercap"
        # Cores and uncore are part of their package, and psys contains it.
        names: dict[Path, str] = {}
        for zone in sorted(powercap.glob("intel-rapl:*")):
            name = _read_text(zone / "name")
            if name.startswith("package") or name == "dram":
                names[zone] = name
        if set(names.values()) <= {"dram"}:
            raise MeterUnavailable("this machine shows no energy counter of its processors (RAPL)")
        self._last: dict[Path, int] = {}
        for zone, name in names.items():
            counter = _read_microjoules(zone / "energy_uj")
            # Dies may show the counter of an earlier die of their package.
            package = name.partition("-die-")[0]
            shared = False
            for other, other_counter in self._last.items() if package != name else ():
                same_package = names[other].partition("-die-")[0] == package
                shared |= same_package and abs(counter - other_counter) <= _SAME_JOULES * 1e6
            if not shared:
                self._last[zone] = counter
        self._ranges = {zone: _read_text(zone / "max_energy_range_uj") for zone in self._last}
        self._microjoules = 0
        self.how = f"RAPL's counters of {', '.join(names[item] for item in self._last)}; {_WHOLE_MACHINE}"

    def read(self) -> float:
        """Return the joules since the object was created. Call it before a counter can wrap around twice."""
        for zone, before in self._last.items():
            now = _read_microjoules(zone / "energy_uj")
            if now < before:
                if not self._ranges[zone].isdecimal():
                    raise MeterUnavailable("a counter of RAPL wrapped around and does not report its range")
                self._microjoules += int(self._ranges[zone])
            self._microjoules += now - before
            self._last[zone] = now
        return self._microjoules / 1e6


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _read_microjoules(path: Path) -> int:
    try:
        return int(path.read_text(encoding="utf-8"))
    except PermissionError:
        raise MeterUnavailable(
            f"only root may read RAPL's counters: let this user read {path.name} below /sys/class/powercap, or run as "
            "root"
        ) from None
    except (OSError, ValueError):
        raise MeterUnavailable(f"RAPL's counter {path.parent.name} cannot be read") from None


class NvmlMeter:
    """All NVIDIA cards, by their counters, or by their power times the time between two readings.

    Raises MeterUnavailable if there is no card or no library, or if a card is lost.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            self._nvml: Any = import_module("pynvml")
        except ImportError:
            raise MeterUnavailable(
                "the energy of this machine's NVIDIA cards can be read with an extra: pip install 'epicrisis[energy]'"
            ) from None
        self._first: list[tuple[Any, int]] = []
        """Cards with a counter, and its first reading in millijoules."""
        self._without_counter: list[Any] = []
        with self._map_errors():
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            for index in range(count):
                card = self._nvml.nvmlDeviceGetHandleByIndex(index)
                try:
                    self._first.append((card, int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(card))))
                except self._nvml.NVMLError:
                    # As those before Volta.
                    self._without_counter.append(card)
        self._joules, self._clock, self._time = 0.0, clock, clock()
        if not count:
            raise MeterUnavailable("this machine shows no NVIDIA card")
        source = f"power, read every {SAMPLE_SECONDS:g} s" if self._without_counter else "counter"
        self.how = f"NVML, {count} NVIDIA card{'s' * (count > 1)} by {source}; {_WHOLE_MACHINE}"

    def read(self) -> float:
        """Return the joules since the object was created."""
        now, millijoules = self._clock(), 0
        with self._map_errors():
            for card, first in self._first:
                difference = self._nvml.nvmlDeviceGetTotalEnergyConsumption(card) - first
                if difference < 0:
                    raise MeterUnavailable("the counter of an NVIDIA card restarted: its driver was reloaded")
                millijoules += difference
            watts = sum(self._nvml.nvmlDeviceGetPowerUsage(item) for item in self._without_counter) / 1e3
        self._joules += watts * (now - self._time)
        self._time = now
        return float(millijoules) / 1e3 + self._joules

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise MeterUnavailable(f"NVML reports no value: {error}") from None


class _SafeMeter:
    """A meter, or the reason why it has no reading."""

    def __init__(self, create: Callable[[], RaplMeter | NvmlMeter]) -> None:
        self.joules, self.reason = 0.0, ""
        self.meter: RaplMeter | NvmlMeter | None = None
        try:
            self.meter = create()
        except MeterUnavailable as error:
            self.reason = str(error)

    def read(self) -> None:
        if self.meter is not None:
            try:
                self.joules = self.meter.read()
            except MeterUnavailable as error:
                self.meter, self.reason = None, str(error)


class SessionMeter:
    """The energy since the object was created. One thread at a time calls `read`, often."""

    def __init__(
        self,
        settings: Settings,
        root: Path = ROOT,
        clock: Callable[[], float] = time.monotonic,
        processor_seconds: Callable[[], float] = time.process_time,
    ) -> None:
        self.calls = 0
        """Calls to models, counted by the caller: an endpoint without a call took no energy."""
        self._settings = settings
        self._processors, self._cards = _SafeMeter(lambda: RaplMeter(root)), _SafeMeter(lambda: NvmlMeter(clock))
        # NVML may be installed on a machine without cards.
        self._has_cards = self._cards.meter is not None or (root / "proc/driver/nvidia").exists()
        self._clock, self._processor_seconds = clock, processor_seconds
        self._start, self._processor_start = clock(), processor_seconds()

    def read(self) -> None:
        """Read the counters."""
        self._processors.read()
        self._cards.read()

    def measure(self) -> SessionEnergy:
        """Return the energy until now."""
        self.read()
        seconds = self._clock() - self._start
        settings, processors, cards = self._settings.energy, self._processors, self._cards
        parts: list[EquipmentEnergy] = []
        if processors.meter is not None:
            parts.append(EquipmentEnergy("processors", "measured", processors.joules, processors.meter.how))
        else:
            busy, watts = self._processor_seconds() - self._processor_start, settings.watts_per_core
            how = f"this program's processor seconds at {watts:g} W a core (energy.watts_per_core), as "
            parts.append(EquipmentEnergy("processors", "estimated", busy * watts, f"{how}{processors.reason}"))
        if cards.meter is not None:
            parts.append(EquipmentEnergy("cards", "measured", cards.joules, cards.meter.how))
        elif self._has_cards:
            parts.append(EquipmentEnergy("cards", "unknown", None, cards.reason))
        endpoints = self._estimate_endpoints(seconds)
        if endpoints is not None:
            parts.append(endpoints)
        return SessionEnergy(seconds, settings.kg_co2_per_kwh, tuple(parts))

    def _estimate_endpoints(self, seconds: float) -> EquipmentEnergy | None:
        """Return the energy of endpoints on the network, or None if none was called."""
        settings, watts = self._settings, self._settings.energy.endpoint_watts
        models = (item.name for item in (settings.model_for(role) for role in settings.roles))
        addresses: list[str] = []
        for name in (*models, settings.rerank.name, settings.examples.rerank) if self.calls else ():
            if name and "://" in name:
                addresses += split_addresses(name)
        elsewhere = [host for host in map(remote_host, addresses) if host is not None]
        names = list(dict.fromkeys(elsewhere or filter(None, map(parse_host, addresses))))
        hosts = " and ".join(names)
        if not addresses or (watts is None and not elsewhere and self._processors.meter is not None):
            return None
        if watts is not None:
            how = f"{watts:g} W (energy.endpoint_watts) of {hosts} for as long as the session took"
            return EquipmentEnergy("endpoints", "estimated", watts * seconds, how)
        if len(names) > 1:
            reason = "are other machines" if elsewhere else "are other programs"
        else:
            reason = "is another machine" if elsewhere else "is another program"
        return EquipmentEnergy(
            "endpoints", "unknown", None, f"{hosts} {reason}: give its power in watts with energy.endpoint_watts"
        )


@contextmanager
def measure_energy(
    settings: Settings, store: Callable[[SessionEnergy], None], root: Path = ROOT
) -> Iterator[SessionMeter]:
    """Measure the energy of the block and pass it to `store` when the block ends, also after an error."""
    meter, stop = SessionMeter(settings, root), Event()

    def sample() -> None:
        while not stop.wait(SAMPLE_SECONDS):
            meter.read()

    thread = Thread(target=sample, name="energy", daemon=True)
    thread.start()
    try:
        yield meter
    except BaseException:
        # Interrupted calls are not counted by the caller.
        meter.calls += 1
        raise
    finally:
        stop.set()
        thread.join()
        store(meter.measure())
