"""Time, energy and CO2 of finished runs, as in Tables 3 and 13 of the context-retrieval study.

The sessions of a run are added up. If a session or a part of the equipment is unknown, there is no total.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

from epicrisis.core.printable import count_noun
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.runs.energy import EnergyBasis, EquipmentEnergy, SessionEnergy
from epicrisis.evaluation.runs.outcomes import score_record
from epicrisis.evaluation.runs.recorded_run import RecordedRun
from epicrisis.settings.tables import EnergySettings

JOULES_PER_KWH = 3.6e6
_ENERGY_COLUMNS = ("kWh", "kg CO2", "kWh per 1,000 questions", "Wh per right answer")
_RUN_COUNTS = ("questions", "calls", "replayed", "sessions", "unknown")
_RUN_COLUMNS = ("run", "hours", "kWh measured", "kWh estimated", *_ENERGY_COLUMNS, *_RUN_COUNTS)
_ARM_COLUMNS = ("run", "arm", "questions", "seconds of calls", *_ENERGY_COLUMNS)

_RUN_NOTES = (
    "kWh: measured and estimated energy added up; if a part is unknown, this cell and all that follow from it are "
    "empty. It covers the time from the first question of a session to its last, without preparation, and without "
    "disks, fans, cooling, and memory that has no counter.",
    "Per 1,000 questions: a question under one condition counts once. Per right answer: the energy of the run by its "
    "right answers; open answers are right if the run's graders say so. Empty if no answer is right or known to be.",
    "Replayed: replies from the cache, which took no energy here. If another run made them, this run shows less than "
    "its answers take.",
)
_ARM_NOTES = (
    "A meter cannot separate arms: the energy of a run is divided by the seconds of the calls whose answers are in the "
    "records. An arm with replies from the cache shows less than its answers take.",
)
_DEFAULT_RATE = EnergySettings().kg_co2_per_kwh
TITLES = ("Time, energy and CO2", "Energy by arm")
_DEFAULT_SOURCE = "the context-retrieval study's, Table 13: 197.31 kg for 962.48 kWh; yours: energy.kg_co2_per_kwh"

GradedRight: TypeAlias = Callable[[Path], Collection[str]]
"""Returns the keys of the cases in a run folder whose open answers graders call right."""


@dataclass(frozen=True, slots=True)
class RunEnergy:
    """The energy of the sessions of one run."""

    run: RecordedRun
    sessions: tuple[SessionEnergy, ...]
    """Sessions with figures."""
    count: int
    """The number of these sessions and of those without figures. Sessions that made no call do not count."""

    @property
    def parts(self) -> list[EquipmentEnergy]:
        """The parts of the equipment in all sessions."""
        return list(chain.from_iterable(session.parts for session in self.sessions))

    def joules(self, basis: EnergyBasis) -> float | None:
        """Return the energy that is known on this basis, or None if there is none."""
        total: float | None = None
        for part in self.parts:
            if part.known == basis:
                total = (total or 0.0) + (part.joules or 0.0)
        return total

    @property
    def unknown(self) -> tuple[str, ...]:
        """The names of the parts without a figure."""
        names: list[str] = [part.what for part in self.parts if part.joules is None]
        if missing := self.count - len(self.sessions):
            names.append(f"{missing} of {count_noun(self.count, 'session')}")
        return tuple(dict.fromkeys(names))

    @property
    def total(self) -> tuple[float, float] | None:
        """Joules and kg of CO2, or None if a part is unknown."""
        if self.unknown:
            return None
        joules = co2 = 0.0
        for session in self.sessions:
            energy = sum(part.joules or 0.0 for part in session.parts)
            joules += energy
            co2 += energy / JOULES_PER_KWH * session.kg_co2_per_kwh
        return joules, co2


@dataclass(slots=True)
class _Arm:
    """The finished cases of one arm."""

    questions: int = 0
    right: int = 0
    seconds: float = 0.0
    """The sum over their calls."""


def _sum_run_energy(run: RecordedRun) -> RunEnergy | None:
    """Return the energy of a run, or None for a file of answers and a run without figures."""
    sessions: list[SessionEnergy] = []
    missing = 0
    for session in run.manifest.sessions if run.manifest else ():
        if session.taken is None:
            missing += 1
        elif session.taken.parts:
            sessions.append(session.taken)
    return RunEnergy(run, tuple(sessions), len(sessions) + missing) if sessions else None


def make_energy_tables(runs: Iterable[RecordedRun], graded_right: GradedRight = lambda folder: ()) -> tuple[Table, ...]:
    """Return a table of the runs with energy figures, and one of their arms if a run has several."""
    run_rows: list[tuple[Cell, ...]] = []
    arm_rows: list[tuple[Cell, ...]] = []
    bases: dict[str, None] = {}
    rates: dict[str, None] = {}
    for run in runs:
        energy = _sum_run_energy(run)
        if energy is None:
            continue
        for part in energy.parts:
            bases[f"{part.known.capitalize()}, {part.what}: {part.how}."] = None
        for session in energy.sessions:
            rate = f"{session.kg_co2_per_kwh:g}"
            rates[f"{rate} ({_DEFAULT_SOURCE})" if session.kg_co2_per_kwh == _DEFAULT_RATE else rate] = None
        arms: dict[str, _Arm] = defaultdict(_Arm)
        right = graded_right(run.path.parent)
        for record in run.records():
            arm = arms[str(record.condition.get("arm", ""))]
            arm.questions += 1
            arm.right += score_record(record).right is True or record.key in right
            arm.seconds += record.answer.usage.seconds
        run_rows.append(_make_run_row(energy, arms))
        arm_rows += _make_arm_rows(energy, arms)
    tables: list[Table] = []
    if run_rows:
        notes = (*_RUN_NOTES, *bases, f"CO2: kg a kWh of electricity: {', '.join(rates)}.")
        tables.append(Table(TITLES[0], _RUN_COLUMNS, tuple(run_rows), notes))
    if arm_rows:
        tables.append(Table(TITLES[1], _ARM_COLUMNS, tuple(arm_rows), _ARM_NOTES))
    return tuple(tables)


def _make_run_row(energy: RunEnergy, arms: dict[str, _Arm]) -> tuple[Cell, ...]:
    usage = energy.run.manifest.usage if energy.run.manifest else {}
    questions, right = (sum(map(attrgetter(name), arms.values())) for name in ("questions", "right"))
    return (
        energy.run.name,
        sum(session.seconds for session in energy.sessions) / 3600,
        _to_kwh(energy.joules("measured")),
        _to_kwh(energy.joules("estimated")),
        *_make_energy_cells(energy.total, questions, right),
        questions,
        usage.get("calls"),
        usage.get("replayed_calls"),
        energy.count,
        ", ".join(energy.unknown) or None,
    )


def _to_kwh(joules: float | None) -> float | None:
    return None if joules is None else joules / JOULES_PER_KWH


def _make_energy_cells(total: tuple[float, float] | None, questions: int, right: int) -> tuple[Cell, ...]:
    """Return the cells under _ENERGY_COLUMNS."""
    if total is None:
        return (None,) * len(_ENERGY_COLUMNS)
    kwh, co2 = total[0] / JOULES_PER_KWH, total[1]
    return kwh, co2, 1000 * kwh / questions if questions else None, 1000 * kwh / right if right else None


def _make_arm_rows(energy: RunEnergy, arms: dict[str, _Arm]) -> list[tuple[Cell, ...]]:
    """Return the rows of a run with several arms and a known total."""
    total_seconds = sum(arm.seconds for arm in arms.values())
    if len(arms) < 2 or energy.total is None or not total_seconds:
        return []
    joules, co2 = energy.total
    planned = energy.run.manifest.plan.arguments.get("arms", ()) if energy.run.manifest else ()
    order = [*planned, *sorted(arms)]
    rows: list[tuple[Cell, ...]] = []
    for name in sorted(arms, key=order.index):
        arm = arms[name]
        part = joules * arm.seconds / total_seconds, co2 * arm.seconds / total_seconds
        cells = _make_energy_cells(part, arm.questions, arm.right)
        rows.append((energy.run.name, name, arm.questions, arm.seconds, *cells))
    return rows
