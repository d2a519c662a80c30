"""Time, energy and CO2 of finished runs, as in Tables 3 and 13 of the context-retrieval study, and for what.

Sums the sessions of each run. Nothing is made of what is not known: where a session told nothing, or a part of the
equipment, there is no total. Asks nothing, draws nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.grading.correctness import CORRECTNESS_FOLDER, read_correctness_verdicts
from epicrisis.evaluation.runs.energy import EnergyBasis, SessionEnergy
from epicrisis.evaluation.runs.outcomes import score_record
from epicrisis.evaluation.runs.recorded_run import RecordedRun
from epicrisis.settings import EnergySettings

JOULES_PER_KWH = 3.6e6
_FOR_WHAT = ("kWh", "kg CO2", "kWh per 1,000 questions", "Wh per right answer")
_RUNS = (
    "run",
    "hours",
    "kWh measured",
    "kWh estimated",
    *_FOR_WHAT,
    "questions",
    "calls",
    "replayed",
    "sessions",
    "unknown",
)
_ARMS = ("run", "arm", "questions", "seconds of calls", *_FOR_WHAT)

_HOW = (
    "kWh: measured and estimated together, where both are; with CO2 and all that follows it is none where a part is "
    "unknown. Counted is from a session's first question to its last: not opening and preparing, nor disks, fans, "
    "cooling, and memory without a counter.",
    "Per 1,000 questions: a question asked once under one condition counts as one. Per right answer: the run's energy "
    "by its right answers, of open ones those that the run's judges mark correct; none where nothing is right, or "
    "nobody can say.",
    "Replayed: replies out of the cache, which took nothing here. Where another run had paid for them, this one shows "
    "less than its answers take.",
)
_SHARED = (
    "A meter cannot tell arms apart: each run's energy is shared out by the seconds of the calls whose answers were "
    "kept. An arm that took replies out of the cache shows less than its answers take.",
)
_DEFAULT = EnergySettings().kg_co2_per_kwh


@dataclass(frozen=True, slots=True)
class RunEnergy:
    """What the sessions of one run took."""

    run: RecordedRun
    told: tuple[SessionEnergy, ...]
    """Of the sessions that told."""
    sessions: int
    """Those and the ones that did not; without those that asked nothing."""

    def joules(self, known: EnergyBasis) -> float | None:
        """Of all parts that are known that way; `None` where there is none."""
        found = [part.joules for each in self.told for part in each.parts if part.known == known]
        return sum(joules for joules in found if joules is not None) if found else None

    @property
    def unknown(self) -> tuple[str, ...]:
        """What is not known, by name; empty where all is."""
        untold = self.sessions - len(self.told)
        parts = (part.what for each in self.told for part in each.parts if part.joules is None)
        return (*dict.fromkeys(parts), *([f"{untold} of {self.sessions} sessions"] if untold else ()))

    @property
    def whole(self) -> tuple[float, float] | None:
        """Joules, and kg of CO2; `None` where anything is not known."""
        if self.unknown:
            return None
        sums = [(sum(part.joules or 0.0 for part in each.parts), each.kg_co2_per_kwh) for each in self.told]
        return sum(joules for joules, _ in sums), sum(joules / JOULES_PER_KWH * rate for joules, rate in sums)


def tables(runs: Iterable[RecordedRun]) -> tuple[Table, ...]:
    """What the runs took, and their arms where one has several; nothing of runs that tell nothing of it."""
    spent = [each for each in map(spent_by, runs) if each is not None]
    ended = [_ended(each.run) for each in spent]
    rows = [_row(each, arms) for each, arms in zip(spent, ended, strict=True)]
    shared = [row for each, arms in zip(spent, ended, strict=True) for row in _shared(each, arms)]
    made = [Table("Time, energy and CO2", _RUNS, tuple(rows), (*_HOW, *_known(spent)))] if rows else []
    if shared:
        made.append(Table("Energy by arm", _ARMS, tuple(shared), _SHARED))
    return tuple(made)


def spent_by(run: RecordedRun) -> RunEnergy | None:
    """`None` where none of its sessions told: an older program's, or a file of answers."""
    sessions = [session.taken for session in (run.manifest.sessions if run.manifest else ())]
    asked = [each for each in sessions if each is None or each.parts]
    told = tuple(each for each in asked if each is not None)
    return RunEnergy(run, told, len(asked)) if told else None


@dataclass(slots=True)
class _Ended:
    """Cases of one arm."""

    questions: int = 0
    right: int = 0
    seconds: float = 0.0
    """Of their calls."""


_Arms: TypeAlias = dict[str, _Ended]


def _ended(run: RecordedRun) -> _Arms:
    arms: _Arms = defaultdict(_Ended)
    folder = run.path.parent
    verdicts = read_correctness_verdicts(folder) if (folder / CORRECTNESS_FOLDER).is_dir() else {}
    for record in run.records():
        arm = arms[str(record.condition.get("arm", ""))]
        arm.questions += 1
        # An open answer is right where its judges say so.
        arm.right += score_record(record).right is True or verdicts.get(record.key) == "correct"
        arm.seconds += record.answer.usage.seconds
    return arms


def _row(spent: RunEnergy, arms: _Arms) -> tuple[Cell, ...]:
    usage = spent.run.manifest.usage if spent.run.manifest else {}
    questions, right = (sum(getattr(arm, name) for arm in arms.values()) for name in ("questions", "right"))
    return (
        spent.run.name,
        sum(each.seconds for each in spent.told) / 3600,
        *(None if (joules := spent.joules(known)) is None else joules / JOULES_PER_KWH for known in _KINDS),
        *_for_what(spent.whole, questions, right),
        questions,
        usage.get("calls"),
        usage.get("replayed_calls"),
        spent.sessions,
        ", ".join(spent.unknown) or None,
    )


_KINDS: tuple[EnergyBasis, ...] = ("measured", "estimated")


def _for_what(whole: tuple[float, float] | None, questions: int, right: int) -> tuple[Cell, ...]:
    """The cells under _FOR_WHAT."""
    if whole is None:
        return (None,) * len(_FOR_WHAT)
    kwh, co2 = whole[0] / JOULES_PER_KWH, whole[1]
    return kwh, co2, 1000 * kwh / questions if questions else None, 1000 * kwh / right if right else None


def _shared(spent: RunEnergy, arms: _Arms) -> list[tuple[Cell, ...]]:
    """The rows of a run with several arms whose energy is known."""
    seconds = sum(arm.seconds for arm in arms.values())
    if len(arms) < 2 or spent.whole is None or not seconds:
        return []
    joules, co2 = spent.whole
    asked = [*(spent.run.manifest.plan.arguments.get("arms", ()) if spent.run.manifest else ()), *sorted(arms)]
    return [
        (
            spent.run.name,
            name,
            arm.questions,
            arm.seconds,
            *_for_what((joules * arm.seconds / seconds, co2 * arm.seconds / seconds), arm.questions, arm.right),
        )
        for name, arm in sorted(arms.items(), key=lambda each: asked.index(each[0]))
    ]


def _known(spent: Sequence[RunEnergy]) -> tuple[str, ...]:
    """By what the figures are known, and by what rate they become CO2: each once, however many sessions say it."""
    told = [each for run in spent for each in run.told]
    parts = dict.fromkeys((part.known, part.what, part.how) for each in told for part in each.parts)
    rates = dict.fromkeys(each.kg_co2_per_kwh for each in told)
    study = "the context-retrieval study's, Table 13: 197.31 kg for 962.48 kWh; yours: energy.kg_co2_per_kwh"
    said = ", ".join(f"{rate:g} ({study})" if rate == _DEFAULT else f"{rate:g}" for rate in rates)
    return (
        *(f"{known.capitalize()}, {what}: {how}." for known, what, how in parts),
        f"CO2: kg a kWh of electricity: {said}.",
    )
