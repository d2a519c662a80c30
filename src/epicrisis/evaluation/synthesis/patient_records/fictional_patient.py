"""The story of one fictional patient: who it is, and what happened in each hospital stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.vocabulary import (
    AcuteCondition,
    ChronicCondition,
    Drug,
    acute_conditions,
    chronic_conditions,
    drugs,
    labs,
    read_table,
)

BASE_LABS = ("hemoglobin", "creatinine", "potassium", "sodium", "white cell count")
_FIRST_YEAR, _LAST_YEAR = 2140, 2149


@dataclass(frozen=True, slots=True)
class DoseChange:
    """A dose changed during a stay."""

    drug: Drug
    before: str
    after: str
    raised: bool

    @property
    def reason(self) -> str:
        return self.drug.raised if self.raised else self.drug.lowered


@dataclass(frozen=True, slots=True, kw_only=True)
class FictionalStay:
    """One hospital stay, numbered from 1. Day 0 is the day of admission, day `days` that of discharge."""

    number: int
    condition: AcuteCondition
    admitted: datetime
    days: int
    discharged: datetime
    home: Mapping[str, str]
    """Drug -> dose on admission."""
    regimen: Mapping[str, str]
    """Drug -> dose at discharge."""
    changes: tuple[DoseChange, ...]
    values: Mapping[str, tuple[float, ...]]
    """Laboratory test -> value on each day."""
    procedure_day: int | None
    """Day of the procedure, or None without a procedure."""
    doctor: str
    units: int
    """Units of red cells given. They differ between the first nine stays of a patient."""
    weights: tuple[float, float]
    """Weight on admission and at discharge, in kg."""

    def day(self, number: int) -> str:
        """Return the ISO date of a day of this stay."""
        return (self.admitted + timedelta(days=number)).date().isoformat()


@dataclass(frozen=True, slots=True, kw_only=True)
class FictionalPatient:
    """A patient with all stays in order of time."""

    id: str
    name: str
    female: bool
    born: int
    allergy: str
    chronic: tuple[tuple[ChronicCondition, int], ...]
    """Chronic conditions, each with the year of its diagnosis."""
    stays: tuple[FictionalStay, ...]

    @property
    def words(self) -> dict[str, str]:
        """The pronouns for the slots of templates."""
        he, his, him = ("she", "her", "her") if self.female else ("he", "his", "him")
        return {"he": he, "He": he.capitalize(), "his": his, "His": his.capitalize(), "him": him}


def draw_patient(draws: Draws, patient_id: str, days: tuple[int, ...]) -> FictionalPatient:
    """Draw a patient with one stay for each length in `days` (at least 3 each)."""
    names = read_table("nuggets")["names"]
    female = draws.chance(50)
    admitted = datetime(draws.integer(_FIRST_YEAR, _LAST_YEAR), draws.integer(1, 12), draws.integer(1, 28))
    candidates = [c for c in chronic_conditions() if not (female and c.abbreviation == "BPH")]
    chronic = [(condition, admitted.year - draws.integer(1, 25)) for condition in draws.sample(candidates, 5)]
    regimen = {condition.drug: drugs()[condition.drug].doses[draws.integer(0, 2)] for condition, _ in chronic}
    acute = draws.sample(acute_conditions(), len(days))
    while len(acute) < len(days):
        acute += draws.sample(acute_conditions(), len(days) - len(acute))
    units = draws.sample(range(1, 10), len(days))
    weight = float(draws.integer(580, 1040)) / 10
    stays: list[FictionalStay] = []
    for number, (length, reason) in enumerate(zip(days, acute, strict=True), 1):
        admitted = admitted.replace(hour=draws.integer(1, 22), minute=draws.integer(0, 59))
        unit_count = units[number - 1] if number <= len(units) else draws.integer(1, 9)
        stay_draws = draws.substream("stay", number)
        stay = _draw_stay(stay_draws, number, reason, admitted, length, regimen, unit_count, weight)
        stays.append(stay)
        regimen, weight = dict(stay.regimen), stay.weights[1] + draws.integer(-25, 40) / 10
        admitted = stay.discharged + timedelta(days=draws.integer(24, 160))
    name = f"{draws.pick(names['given'])} {draws.pick(names['family'])}"
    born = stays[0].admitted.year - draws.integer(47, 84)
    return FictionalPatient(
        id=patient_id,
        name=name,
        female=female,
        born=born,
        allergy=draws.pick(names["allergies"]),
        chronic=tuple(chronic),
        stays=tuple(stays),
    )


def _draw_stay(
    draws: Draws,
    number: int,
    condition: AcuteCondition,
    admitted: datetime,
    days: int,
    home: Mapping[str, str],
    units: int,
    weight: float,
) -> FictionalStay:
    names = list(dict.fromkeys((*home, *condition.drugs)))
    # The list of drugs must not grow with every stay: stop the oldest drugs of earlier stays.
    continued = [*names[:5], *names[5:][-5:]]
    changes = []
    for name in draws.sample([item for item in continued if item in home], 2):
        drug = drugs()[name]
        place = drug.doses.index(home[name])
        raised = place == 0 or (place == 1 and draws.chance(50))
        changes.append(DoseChange(drug, home[name], drug.doses[place + (1 if raised else -1)], raised))
    regimen = {name: home.get(name) or drugs()[name].doses[draws.integer(0, 2)] for name in continued}
    for change in changes:
        regimen[change.drug.name] = change.after
    discharged = (admitted + timedelta(days=days)).replace(hour=draws.integer(11, 17), minute=draws.integer(0, 59))
    return FictionalStay(
        number=number,
        condition=condition,
        admitted=admitted,
        days=days,
        discharged=discharged,
        home=home,
        regimen=regimen,
        changes=tuple(changes),
        values={name: _draw_course(draws, name, days) for name in dict.fromkeys((*condition.labs, *BASE_LABS))},
        procedure_day=draws.integer(1, days - 1) if number == 1 or draws.chance(75) else None,
        doctor=draws.pick(read_table("nuggets")["names"]["doctors"]),
        units=units,
        weights=(weight, weight - draws.integer(5, 60) / 10),
    )


def _draw_course(draws: Draws, name: str, days: int) -> tuple[float, ...]:
    """Draw the daily values of a laboratory test, from ill to better. The noise never reverses the whole course."""
    lab = labs()[name]
    span = lab.ill - lab.better
    start = lab.better + span * draws.integer(72, 116) / 100
    end = lab.better + span * draws.integer(-8, 8) / 100
    values = [start]
    for day in range(1, days):
        noise = span * draws.integer(-110, 110) / 1000
        values.append(start + (end - start) * day / days + noise)
    values.append(end)
    return tuple(round(value, lab.decimals) for value in values)
