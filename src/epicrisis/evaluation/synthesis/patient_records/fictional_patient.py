"""The story of one fictional patient as plain values: who it is, and what happened in each stay.

Everything is drawn from one stream of draws. Knows no notes: what is stated where is decided in `facts`, how it is
written in `writing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.vocabulary import (
    Acute,
    Chronic,
    Drug,
    acutes,
    chronics,
    drugs,
    labs,
    table,
)

BASE_LABS = ("hemoglobin", "creatinine", "potassium", "sodium", "white cell count")
_FIRST_YEAR, _LAST_YEAR = 2140, 2149


@dataclass(frozen=True, slots=True)
class Change:
    """A dose changed during a stay, and why."""

    drug: Drug
    before: str
    after: str
    raised: bool

    @property
    def because(self) -> str:
        return self.drug.raised if self.raised else self.drug.lowered


@dataclass(frozen=True, slots=True)
class FictionalStay:
    """One stay, numbered from 1. Days are counted from 0, the day of admission, to `days`, that of discharge."""

    number: int
    condition: Acute
    admitted: datetime
    days: int
    discharged: datetime
    home: Mapping[str, str]
    """Drug -> dose on admission."""
    regimen: Mapping[str, str]
    """Drug -> dose at discharge."""
    changes: tuple[Change, ...]
    values: Mapping[str, tuple[float, ...]]
    """Analyte -> its value on each day."""
    operated: int | None
    """The day of the procedure, where there was one."""
    doctor: str
    units: int
    """Units of red cells that were given; no two stays of a small number have the same."""
    weights: tuple[float, float]
    """On admission and at discharge, in kg."""

    def day(self, number: int) -> str:
        """The date of a day of this stay, ISO."""
        return (self.admitted + timedelta(days=number)).date().isoformat()


@dataclass(frozen=True, slots=True)
class FictionalPatient:
    """A patient and all stays, in order of time."""

    id: str
    name: str
    female: bool
    born: int
    allergy: str
    chronic: tuple[tuple[Chronic, int], ...]
    """With the year since when."""
    stays: tuple[FictionalStay, ...]

    @property
    def words(self) -> dict[str, str]:
        """The words that fill templates."""
        he, his, him = ("she", "her", "her") if self.female else ("he", "his", "him")
        return {"he": he, "He": he.capitalize(), "his": his, "His": his.capitalize(), "him": him}


def draw_patient(draws: Draws, patient_id: str, days: tuple[int, ...]) -> FictionalPatient:
    """A patient with a stay of each of these lengths in days (at least 3)."""
    names = table("nuggets")["names"]
    female = draws.chance(50)
    admitted = datetime(draws.whole(_FIRST_YEAR, _LAST_YEAR), draws.whole(1, 12), draws.whole(1, 28))
    since = [
        (each, admitted.year - draws.whole(1, 25))
        for each in draws.several([each for each in chronics() if not (female and each.abbreviation == "BPH")], 5)
    ]
    regimen = {each.drug: drugs()[each.drug].doses[draws.whole(0, 2)] for each, _ in since}
    conditions = draws.several(acutes(), len(days))
    while len(conditions) < len(days):
        conditions += draws.several(acutes(), len(days) - len(conditions))
    units = draws.several(range(1, 10), len(days))
    weight = float(draws.whole(580, 1040)) / 10
    stays: list[FictionalStay] = []
    for number, (length, condition) in enumerate(zip(days, conditions, strict=True), 1):
        admitted = admitted.replace(hour=draws.whole(1, 22), minute=draws.whole(0, 59))
        given = units[number - 1] if number <= len(units) else draws.whole(1, 9)
        stay = _stay(draws.at("stay", number), number, condition, admitted, length, regimen, given, weight)
        stays.append(stay)
        regimen, weight = dict(stay.regimen), stay.weights[1] + draws.whole(-25, 40) / 10
        admitted = stay.discharged + timedelta(days=draws.whole(24, 160))
    name = f"{draws.pick(names['given'])} {draws.pick(names['family'])}"
    born = stays[0].admitted.year - draws.whole(47, 84)
    return FictionalPatient(patient_id, name, female, born, draws.pick(names["allergies"]), tuple(since), tuple(stays))


def _stay(
    draws: Draws,
    number: int,
    condition: Acute,
    admitted: datetime,
    days: int,
    home: Mapping[str, str],
    units: int,
    weight: float,
) -> FictionalStay:
    names = list(dict.fromkeys((*home, *condition.drugs)))
    # The list of what is taken must not grow with every stay: the oldest drugs of earlier stays are stopped.
    kept = [*names[:5], *names[5:][-5:]]
    changes = [_change(draws, drugs()[name], home[name]) for name in draws.several([n for n in kept if n in home], 2)]
    regimen = {name: home.get(name) or drugs()[name].doses[draws.whole(0, 2)] for name in kept}
    regimen |= {each.drug.name: each.after for each in changes}
    discharged = (admitted + timedelta(days=days)).replace(hour=draws.whole(11, 17), minute=draws.whole(0, 59))
    return FictionalStay(
        number=number,
        condition=condition,
        admitted=admitted,
        days=days,
        discharged=discharged,
        home=home,
        regimen=regimen,
        changes=tuple(changes),
        values={name: _course(draws, name, days) for name in dict.fromkeys((*condition.labs, *BASE_LABS))},
        operated=draws.whole(1, days - 1) if number == 1 or draws.chance(75) else None,
        doctor=draws.pick(table("nuggets")["names"]["doctors"]),
        units=units,
        weights=(weight, weight - draws.whole(5, 60) / 10),
    )


def _change(draws: Draws, drug: Drug, before: str) -> Change:
    place = drug.doses.index(before)
    raised = place == 0 or (place == 1 and draws.chance(50))
    return Change(drug, before, drug.doses[place + (1 if raised else -1)], raised)


def _course(draws: Draws, name: str, days: int) -> tuple[float, ...]:
    """From ill to better, with noise that never turns the course as a whole."""
    lab = labs()[name]
    span = lab.ill - lab.better
    start = lab.better + span * draws.whole(72, 116) / 100
    end = lab.better + span * draws.whole(-8, 8) / 100
    noise = [span * draws.whole(-110, 110) / 1000 for _ in range(days - 1)]
    between = [start + (end - start) * day / days for day in range(1, days)]
    values = [start, *(value + each for value, each in zip(between, noise, strict=True)), end]
    return tuple(round(value, lab.decimals) for value in values)
