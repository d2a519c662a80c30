"""What a session takes of time and energy: measured where the machine tells, else estimated, else unknown.

Processors and their memory by RAPL, through Linux's powercap; NVIDIA's cards by NVML, with the extra `energy`. Both are
of the whole machine, whatever else it does meanwhile. Joules and seconds; what is unknown is `None`, never 0. Contacts
nothing. Knows no run and no table; why it is so is in `docs/design/energy.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, Self, TypeAlias

from epicrisis.privacy import parse_host, remote_host
from epicrisis.settings import Settings

EnergyBasis: TypeAlias = Literal["measured", "estimated", "unknown"]

ROOT = Path("/")
SAMPLE_SECONDS = 1.0
"""A counter of 64 kJ begins anew after two minutes at 500 W, so it must be looked at more often; and a card without a
counter tells its power of the moment alone."""
_SAME_JOULES = 1.0
"""Two dies of one package whose counters are so near show one counter: it grows so much between two readings."""
_OF_WHOLE = "the whole machine's, whatever else it did"


@dataclass(frozen=True, slots=True)
class EquipmentEnergy:
    """What one part of the equipment took during a session."""

    what: Literal["processors", "cards", "endpoints"]
    known: EnergyBasis
    joules: float | None
    """`None` where it is unknown."""
    how: str
    """By which meter, or by which assumption, or why it is unknown and what would tell."""


@dataclass(frozen=True, slots=True)
class SessionEnergy:
    """What a session took while it asked."""

    seconds: float
    """By the clock on the wall."""
    kg_co2_per_kwh: float
    """As the settings said then."""
    parts: tuple[EquipmentEnergy, ...]

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Self:
        """As a manifest holds it. Raises TypeError, KeyError."""
        return cls(**{**values, "parts": tuple(EquipmentEnergy(**part) for part in values["parts"])})


class MeterUnavailable(Exception):
    """A meter does not tell, or not any more: why, and what would help."""


# -- meters -----------------------------------------------------------------------------------------------------------


class RaplMeter:
    """The counters of all packages and of their memory, in joules since the object was made.

    Raises Untold where there are none, where one cannot be read, or where one is lost on the way.
    """

    def __init__(self, root: Path = ROOT) -> None:
        powercap = root / "sys/class/powercap"
        zones = {zone: _words(zone / "name") for zone in sorted(powercap.glob("intel-rapl:*"))}
        # Cores and uncore are within their package, and psys around it.
        wanted = {zone: name for zone, name in zones.items() if name.startswith("package") or name == "dram"}
        if not any(name.startswith("package") for name in wanted.values()):
            raise MeterUnavailable("this machine shows no energy counter of its processors (RAPL)")
        self._last = {zone: _microjoules(zone / "energy_uj") for zone in wanted}
        for zone in _shown_twice(wanted, self._last):
            del self._last[zone]
        self._ranges = {zone: _words(zone / "max_energy_range_uj") for zone in self._last}
        self._taken = 0
        self.how = f"RAPL's counters of {', '.join(wanted[zone] for zone in self._last)}; {_OF_WHOLE}"

    def look(self) -> float:
        """Joules until now. To be called before a counter can have begun anew twice."""
        for zone, before in self._last.items():
            now = _microjoules(zone / "energy_uj")
            if now < before:
                if not self._ranges[zone].isdecimal():
                    raise MeterUnavailable("a counter of RAPL began anew and does not tell its range")
                self._taken += int(self._ranges[zone])
            self._taken += now - before
            self._last[zone] = now
        return self._taken / 1e6


def _shown_twice(zones: Mapping[Path, str], counters: Mapping[Path, int]) -> Iterator[Path]:
    """Dies of one package that show one counter between them: all but the first of each."""
    kept: list[Path] = []
    for zone, name in zones.items():
        package = name.partition("-die-")[0]
        alike = (
            abs(counters[zone] - counters[other]) <= _SAME_JOULES * 1e6
            for other in kept
            if zones[other].partition("-die-")[0] == package
        )
        if "-die-" in name and any(alike):
            yield zone
        else:
            kept.append(zone)


def _words(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _microjoules(path: Path) -> int:
    try:
        return int(path.read_text(encoding="utf-8"))
    except PermissionError:
        raise MeterUnavailable(
            f"RAPL's counters are root's alone to read: let this user read {path.name} below /sys/class/powercap, or "
            "run as root"
        ) from None
    except (OSError, ValueError):
        raise MeterUnavailable(f"RAPL's counter {path.parent.name} cannot be read") from None


class NvmlMeter:
    """All NVIDIA cards, in joules since the object was made: by their counters, else by their power times the time
    between two looks.

    Raises Untold where there is no card or no library, or where a card is lost on the way.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            self._nvml: Any = import_module("pynvml")
        except ImportError:
            raise MeterUnavailable(
                "this machine's NVIDIA cards tell what they take with the extra: pip install 'epicrisis[energy]'"
            ) from None
        with self._told():
            self._nvml.nvmlInit()
            cards = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(self._nvml.nvmlDeviceGetCount())]
        counters = [(card, self._counter(card)) for card in cards]
        self._counted = [(card, counter) for card, counter in counters if counter is not None]
        self._sampled = [card for card, counter in counters if counter is None]
        self._joules, self._clock, self._at = 0.0, clock, clock()
        if not cards:
            raise MeterUnavailable("this machine has no NVIDIA card that it shows")
        by = f"power, looked at every {SAMPLE_SECONDS:g} s" if self._sampled else "counter"
        self.how = f"NVML, {len(cards)} NVIDIA card{'s' * (len(cards) > 1)} by {by}; {_OF_WHOLE}"

    def look(self) -> float:
        """Joules until now. Of cards without a counter it is the sum over the looks."""
        now = self._clock()
        with self._told():
            counted = [self._nvml.nvmlDeviceGetTotalEnergyConsumption(card) - first for card, first in self._counted]
            watts = sum(self._nvml.nvmlDeviceGetPowerUsage(card) for card in self._sampled) / 1e3
        if any(each < 0 for each in counted):
            raise MeterUnavailable("the counter of an NVIDIA card began anew: its driver was loaded again")
        self._joules += watts * (now - self._at)
        self._at = now
        return float(sum(counted)) / 1e3 + self._joules

    def _counter(self, card: Any) -> int | None:
        """Millijoules; `None` where the card has no counter, as those before Volta."""
        try:
            return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(card))
        except self._nvml.NVMLError:
            return None

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise MeterUnavailable(f"NVML does not tell: {error}") from None


class _Watched:
    """A meter for as long as it tells, and then why not any more."""

    def __init__(self, made: Callable[[], RaplMeter | NvmlMeter]) -> None:
        self.joules, self.lost = 0.0, ""
        self.meter: RaplMeter | NvmlMeter | None = None
        try:
            self.meter = made()
        except MeterUnavailable as why:
            self.lost = str(why)

    def look(self) -> None:
        if self.meter is not None:
            try:
                self.joules = self.meter.look()
            except MeterUnavailable as why:
                self.meter, self.lost = None, str(why)


# -- a session --------------------------------------------------------------------------------------------------------


class SessionMeter:
    """What is taken since the object was made. `look` is called often, by one thread at a time."""

    def __init__(
        self,
        settings: Settings,
        root: Path = ROOT,
        clock: Callable[[], float] = time.monotonic,
        processor_seconds: Callable[[], float] = time.process_time,
    ) -> None:
        self.calls = 0
        """Calls to models, to be counted by the caller: an endpoint that nobody asked took nothing."""
        self._settings = settings
        self._processors, self._cards = _Watched(lambda: RaplMeter(root)), _Watched(lambda: NvmlMeter(clock))
        # NVML may be installed where there is no card.
        self._has_cards = self._cards.meter is not None or (root / "proc/driver/nvidia").exists()
        self._clock, self._processor_seconds = clock, processor_seconds
        self._began, self._worked = clock(), processor_seconds()

    def look(self) -> None:
        """Reads the counters."""
        self._processors.look()
        self._cards.look()

    def taken(self) -> SessionEnergy:
        """Until now."""
        self.look()
        seconds = self._clock() - self._began
        parts = (self._of_processors(), self._of_cards(), self._of_endpoints(seconds))
        energy = self._settings.energy
        return SessionEnergy(seconds, energy.kg_co2_per_kwh, tuple(part for part in parts if part is not None))

    def _of_processors(self) -> EquipmentEnergy:
        watched = self._processors
        if watched.meter is not None:
            return EquipmentEnergy("processors", "measured", watched.joules, watched.meter.how)
        worked, watts = self._processor_seconds() - self._worked, self._settings.energy.watts_per_core
        how = f"this program's processor seconds at {watts:g} W a core (energy.watts_per_core), as {watched.lost}"
        return EquipmentEnergy("processors", "estimated", worked * watts, how)

    def _of_cards(self) -> EquipmentEnergy | None:
        watched = self._cards
        if watched.meter is not None:
            return EquipmentEnergy("cards", "measured", watched.joules, watched.meter.how)
        return EquipmentEnergy("cards", "unknown", None, watched.lost) if self._has_cards else None

    def _of_endpoints(self, seconds: float) -> EquipmentEnergy | None:
        """What answers on the network, if anything was asked."""
        asked, watts = _endpoints(self._settings) if self.calls else (), self._settings.energy.endpoint_watts
        elsewhere = [host for address in asked if (host := remote_host(address)) is not None]
        hosts = " and ".join(dict.fromkeys(elsewhere or filter(None, map(parse_host, asked))))
        if not asked or (watts is None and not elsewhere and self._processors.meter is not None):
            return None
        if watts is not None:
            how = f"{watts:g} W (energy.endpoint_watts) of {hosts} for as long as the session took"
            return EquipmentEnergy("endpoints", "estimated", watts * seconds, how)
        why = "is another machine" if elsewhere else "is another program"
        return EquipmentEnergy(
            "endpoints", "unknown", None, f"{hosts} {why}: say what it draws with energy.endpoint_watts"
        )


def _endpoints(settings: Settings) -> tuple[str, ...]:
    """The addresses of the models that are asked over a network."""
    models = (settings.model_for(role).name for role in settings.roles)
    return tuple(name for name in (*models, settings.rerank.name, settings.examples.rerank) if name and "://" in name)


@contextmanager
def measure_energy(
    settings: Settings, keep: Callable[[SessionEnergy], None], root: Path = ROOT
) -> Iterator[SessionMeter]:
    """What the block takes, handed to `keep` however it ends. The counters are looked at every LOOK_SECONDS."""
    meter, over = SessionMeter(settings, root), Event()

    def watch() -> None:
        while not over.wait(SAMPLE_SECONDS):
            meter.look()

    thread = Thread(target=watch, name="energy", daemon=True)
    thread.start()
    try:
        yield meter
    except BaseException:
        # Calls that were broken off are in no count.
        meter.calls += 1
        raise
    finally:
        over.set()
        thread.join()
        keep(meter.taken())
