"""Test energy meters with a fake sysfs, fake cards and fake clocks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from epicrisis.core.serialization import to_json
from epicrisis.evaluation.runs.energy import (
    EquipmentEnergy,
    MeterUnavailable,
    NvmlMeter,
    RaplMeter,
    SessionEnergy,
    SessionMeter,
    measure_energy,
)
from epicrisis.settings.settings import Settings

RANGE = 262_143_328_850
DRIVER = "proc/driver/nvidia"
REMOTE = {"models": {"writer": {"name": "https://example.org/v1#m"}}}
HERE = {"models": {"writer": {"name": "http://127.0.0.1:8000/v1#m"}}}
POOL = {"models": {"writer": {"name": "http://127.0.0.1:8000/v1,https://two.example/v1,https://three.example/v1#m"}}}


@pytest.fixture(autouse=True)
def no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the graphics cards of this machine."""
    monkeypatch.setitem(sys.modules, "pynvml", None)


def make_zone(root: Path, name: str, label: str, microjoules: int, largest: int | None = RANGE) -> Path:
    """Write a powercap zone and return the file of its counter."""
    folder = root / "sys/class/powercap" / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{label}\n")
    if largest is not None:
        (folder / "max_energy_range_uj").write_text(f"{largest}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    return folder / "energy_uj"


class Time:
    """Keep a time that only the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Card:
    def __init__(self, millijoules: int | None = None, milliwatts: int = 0) -> None:
        self.millijoules, self.milliwatts = millijoules, milliwatts
        self.lost = False


def install_nvml(monkeypatch: pytest.MonkeyPatch, cards: Sequence[Card], starts: bool = True) -> None:
    """Install a fake `pynvml` with these cards."""

    class NVMLError(Exception):
        pass

    def told(card: Card, value: int | None) -> int:
        if card.lost or value is None:
            raise NVMLError("GPU is lost" if card.lost else "Not Supported")
        return value

    def init() -> None:
        if not starts:
            raise NVMLError("Driver Not Loaded")

    module: Any = ModuleType("pynvml")
    module.NVMLError = NVMLError
    module.nvmlInit = init
    module.nvmlDeviceGetCount = lambda: len(cards)
    module.nvmlDeviceGetHandleByIndex = lambda i: cards[i]
    module.nvmlDeviceGetTotalEnergyConsumption = lambda card: told(card, card.millijoules)
    module.nvmlDeviceGetPowerUsage = lambda card: told(card, card.milliwatts)
    monkeypatch.setitem(sys.modules, "pynvml", module)


def parts_by_name(taken: SessionEnergy) -> dict[str, EquipmentEnergy]:
    return {part.what: part for part in taken.parts}


# -- RAPL -------------------------------------------------------------------------------------------------------------


def test_rapl_meter_sums_packages_and_memory_only(tmp_path: Path) -> None:
    counted = [
        make_zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000),
        make_zone(tmp_path, "intel-rapl:0:1", "dram", 1_000_000),
        make_zone(tmp_path, "intel-rapl:1", "package-1", 0),
    ]
    others = [
        make_zone(tmp_path, "intel-rapl:0:0", "core", 0),
        make_zone(tmp_path, "intel-rapl:1:0", "uncore", 0),
        make_zone(tmp_path, "intel-rapl:2", "psys", 0),
        make_zone(tmp_path, "intel-rapl-mmio:0", "package-0", 5_000_000),
    ]
    rapl = RaplMeter(tmp_path)
    for file, more in zip(counted, (30_000_000, 2_000_000, 10_000_000), strict=True):
        file.write_text(str(int(file.read_text()) + more))
    for file in others:
        file.write_text("999999999")
    assert rapl.read() == 42.0
    assert rapl.how == ("RAPL's counters of package-0, dram, package-1; the whole machine's, whatever else it did")


@pytest.mark.slow
@given(
    start=st.integers(0, RANGE - 1),
    steps=st.lists(st.integers(0, RANGE - 1), max_size=6),
)
def test_rapl_meter_handles_counter_overflow(
    tmp_path_factory: pytest.TempPathFactory, start: int, steps: Sequence[int]
) -> None:
    root = tmp_path_factory.mktemp("sysfs")
    file = make_zone(root, "intel-rapl:0", "package-0", start)
    rapl, at, looked = RaplMeter(root), start, 0.0
    for step in steps:
        at += step
        file.write_text(str(at % RANGE))
        looked = rapl.read()
    assert looked == pytest.approx(sum(steps) / 1e6)


def test_rapl_meter_with_unknown_range_refuses_overflow(tmp_path: Path) -> None:
    file = make_zone(tmp_path, "intel-rapl:0", "package-0", 10, largest=None)
    rapl = RaplMeter(tmp_path)
    file.write_text("25")
    assert rapl.read() == 15e-6
    file.write_text("5")
    with pytest.raises(MeterUnavailable, match="does not report its range"):
        rapl.read()


def test_rapl_meter_counts_shared_counter_of_dies_once(tmp_path: Path) -> None:
    """As some AMD processors do; dies with counters of their own are all counted, and so are like packages."""
    files = [
        make_zone(tmp_path, "intel-rapl:0", "package-0-die-0", 70_000_000_000),
        make_zone(tmp_path, "intel-rapl:1", "package-0-die-1", 70_000_100_000),
        make_zone(tmp_path, "intel-rapl:2", "package-1-die-0", 70_000_000_000),
        make_zone(tmp_path, "intel-rapl:3", "package-1-die-1", 12_000_000_000),
    ]
    rapl = RaplMeter(tmp_path)
    for file in files:
        file.write_text(str(int(file.read_text()) + 1_000_000))
    assert rapl.read() == 3.0
    assert "package-0-die-0, package-1-die-0, package-1-die-1;" in rapl.how


def test_rapl_meter_without_package_is_unavailable(tmp_path: Path) -> None:
    make_zone(tmp_path, "intel-rapl:0:0", "dram", 0)
    with pytest.raises(MeterUnavailable, match="shows no energy counter of its processors"):
        RaplMeter(tmp_path)


# -- cards ------------------------------------------------------------------------------------------------------------


def test_nvml_meter_reads_counters_or_integrates_power(monkeypatch: pytest.MonkeyPatch) -> None:
    new, old, clock = Card(millijoules=7_000), Card(milliwatts=50_000), Time()
    install_nvml(monkeypatch, [new, old])
    cards = NvmlMeter(clock)
    clock.now += 2
    new.millijoules, old.milliwatts = 10_000, 100_000
    assert cards.read() == 3 + 200
    clock.now += 1
    old.milliwatts = 20_000
    assert cards.read() == 3 + 220
    assert cards.how.startswith("NVML, 2 NVIDIA cards by power, read every 1 s; the whole machine's")


def test_nvml_meter_after_driver_reload_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(millijoules=9_000)
    install_nvml(monkeypatch, [card])
    cards = NvmlMeter()
    assert cards.how.startswith("NVML, 1 NVIDIA card by counter;")
    card.millijoules = 10
    with pytest.raises(MeterUnavailable, match="its driver was reloaded"):
        cards.read()


@pytest.mark.parametrize(
    ("driver", "installed", "said"),
    [(True, False, "pip install 'epicrisis[energy]'"), (True, True, "Driver Not Loaded"), (False, True, None)],
)
def test_session_meter_reports_unreadable_cards_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: bool, installed: bool, said: str | None
) -> None:
    if installed:
        install_nvml(monkeypatch, [], starts=False)
    if driver:
        (tmp_path / DRIVER).mkdir(parents=True)
    part = parts_by_name(SessionMeter(Settings(), tmp_path).measure()).get("cards")
    if said is None:
        assert part is None, "a library without any card is nothing to report"
    else:
        assert part is not None
        assert (part.known, part.joules) == ("unknown", None)
        assert said in part.how


def test_session_meter_reports_lost_card_as_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(millijoules=0)
    install_nvml(monkeypatch, [card])
    meter = SessionMeter(Settings(), tmp_path)
    card.millijoules = 5_000
    meter.read()
    assert parts_by_name(meter.measure())["cards"].joules == 5.0
    card.lost = True
    assert parts_by_name(meter.measure())["cards"] == EquipmentEnergy(
        "cards", "unknown", None, "NVML reports no value: GPU is lost"
    )


# -- a session --------------------------------------------------------------------------------------------------------


def test_session_meter_without_counter_estimates_processors(tmp_path: Path) -> None:
    clock, worked = Time(), Time()
    meter = SessionMeter(Settings(energy={"watts_per_core": 10, "kg_co2_per_kwh": 0.5}), tmp_path, clock, worked)
    clock.now += 8
    worked.now += 30
    session = meter.measure()
    assert (session.seconds, session.kg_co2_per_kwh) == (8, 0.5)
    assert session.parts == (
        EquipmentEnergy(
            "processors",
            "estimated",
            300,
            "this program's processor seconds at 10 W a core (energy.watts_per_core), as this machine shows no energy "
            "counter of its processors (RAPL)",
        ),
    )


def test_session_meter_without_permission_states_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an error that is made up: the tests may be root's, who reads every file."""
    refused = make_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    read = Path.read_text

    def denied(path: Path, *arguments: Any, **fields: Any) -> str:
        if path == refused:
            raise PermissionError(13, "Permission denied")
        return read(path, *arguments, **fields)

    monkeypatch.setattr(Path, "read_text", denied)
    part = parts_by_name(SessionMeter(Settings(), tmp_path).measure())["processors"]
    assert part.known == "estimated"
    assert "only root may read RAPL's counters: let this user read energy_uj" in part.how


def test_session_meter_with_vanished_counter_estimates_whole_session(tmp_path: Path) -> None:
    """Never the sum of what was measured until then and an estimate."""
    worked = Time()
    files = [make_zone(tmp_path, f"intel-rapl:{i}", f"package-{i}", 0) for i in range(2)]
    meter = SessionMeter(Settings(), tmp_path, processor_seconds=worked)
    files[0].write_text("5000000")
    assert parts_by_name(meter.measure())["processors"].joules == 5.0
    worked.now += 2
    files[1].unlink()
    part = parts_by_name(meter.measure())["processors"]
    assert (part.known, part.joules) == ("estimated", 24.0)
    assert part.how.endswith("as RAPL's counter intel-rapl:1 cannot be read")
    files[1].write_text("1")
    assert parts_by_name(meter.measure())["processors"].known == "estimated", "it was not looked at all the time"


@pytest.mark.parametrize(
    ("settings", "rapl", "said"),
    [
        ({}, False, None),
        (REMOTE, True, "example.org is another machine: give its power in watts with energy.endpoint_watts"),
        (HERE, False, "127.0.0.1 is another program: give its power in watts with energy.endpoint_watts"),
        (HERE, True, None),
        ({"rerank": {"name": "https://other.example/v1/rerank"}}, True, "other.example is another machine"),
        (POOL, True, "two.example and three.example are other machines"),
    ],
)
def test_session_meter_reports_remote_endpoint_as_unknown(
    tmp_path: Path, settings: dict[str, Any], rapl: bool, said: str | None
) -> None:
    if rapl:
        make_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = SessionMeter(Settings.model_validate(settings), tmp_path)
    assert "endpoints" not in parts_by_name(meter.measure()), "nobody was asked yet"
    meter.calls += 1
    part = parts_by_name(meter.measure()).get("endpoints")
    if said is None:
        assert part is None
    else:
        assert part is not None
        assert (part.known, part.joules) == ("unknown", None)
        assert said in part.how


def test_session_meter_estimates_endpoint_from_configured_watts(tmp_path: Path) -> None:
    clock = Time()
    meter = SessionMeter(Settings.model_validate({**REMOTE, "energy": {"endpoint_watts": 700}}), tmp_path, clock)
    clock.now += 10
    assert "endpoints" not in parts_by_name(meter.measure()), "replies out of the cache take nothing there"
    meter.calls += 1
    assert parts_by_name(meter.measure())["endpoints"] == EquipmentEnergy(
        "endpoints", "estimated", 7000.0, "700 W (energy.endpoint_watts) of example.org for as long as the session took"
    )


def test_measure_energy_records_interrupted_session(tmp_path: Path) -> None:
    saved: list[SessionEnergy] = []
    settings = Settings.model_validate(REMOTE)
    with pytest.raises(KeyboardInterrupt), measure_energy(settings, saved.append, tmp_path):
        raise KeyboardInterrupt
    assert [part.what for part in saved[0].parts] == ["processors", "endpoints"]
    with measure_energy(settings, saved.append, tmp_path):
        pass
    assert [part.what for part in saved[1].parts] == ["processors"]


def test_measure_energy_on_this_machine_reports_processors(tmp_path: Path) -> None:
    """Whatever it has: a figure with how it is known, and back from a manifest the same."""
    saved: list[SessionEnergy] = []
    with measure_energy(Settings(), saved.append):
        sum(range(200_000))
    part = parts_by_name(saved[0])["processors"]
    assert part.known in ("measured", "estimated")
    assert part.joules is not None
    assert part.how
    assert TypeAdapter(SessionEnergy).validate_python(to_json(saved[0])) == saved[0]
