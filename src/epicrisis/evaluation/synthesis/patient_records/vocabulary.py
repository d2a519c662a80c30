"""What fictional patients can have, take and be told, read from the files beside. Knows no patient."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

HOME = "epicrisis.evaluation.synthesis.patient_records"


@dataclass(frozen=True, slots=True)
class Acute:
    """A condition that leads to an admission; texts may hold slots (`Draws.fill`) and one `[[answer]]`."""

    name: str
    abbreviation: str
    lay: str
    service: str
    complaint: str
    history: tuple[str, ...]
    causes: tuple[str, ...]
    exam: tuple[str, ...]
    labs: tuple[str, ...]
    drugs: tuple[str, ...]
    treatment: str
    study: str
    found: str
    denied: str
    procedure: str
    detail: str
    complication: str
    advice: str


@dataclass(frozen=True, slots=True)
class Chronic:
    """A condition of the past medical history and the drug for it."""

    name: str
    abbreviation: str
    lay: str
    drug: str


@dataclass(frozen=True, slots=True)
class Drug:
    """Three doses, low to high, how it is taken, and why a dose was lowered or raised."""

    name: str
    doses: tuple[str, str, str]
    how: str
    lowered: str
    raised: str


@dataclass(frozen=True, slots=True)
class Lab:
    """An analyte with its unit, its range, and values when ill and when better."""

    name: str
    unit: str
    low: float
    high: float
    decimals: int
    ill: float
    better: float

    def told(self, value: float) -> str:
        """The value as a report tells it, with the unit."""
        return f"{value:.{self.decimals}f} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Once:
    """What stands once in a record: in which kind of note, how it is asked, how it is said with its `[[answer]]`."""

    note: str
    ask: str
    say: str


@dataclass(frozen=True, slots=True)
class Absent:
    """What no record says: the question, a word that must not stand in the record, and options that sound right."""

    ask: str
    word: str
    options: tuple[str, ...]


@cache
def table(name: str) -> Mapping[str, Any]:
    """One of the files, as it is."""
    return tomllib.loads(resources.files(HOME).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


@cache
def acutes() -> tuple[Acute, ...]:
    """In the file's order."""
    rows: list[dict[str, Any]] = table("conditions")["acute"]
    return tuple(Acute(**{key: _frozen(value) for key, value in row.items()}) for row in rows)


@cache
def chronics() -> tuple[Chronic, ...]:
    """In the file's order."""
    return tuple(Chronic(*row) for row in table("conditions")["chronic"][0]["list"])


@cache
def drugs() -> Mapping[str, Drug]:
    """By name."""
    rows = table("drugs")["drugs"].items()
    return {name: Drug(name, (row[0], row[1], row[2]), row[3], row[4], row[5]) for name, row in rows}


@cache
def labs() -> Mapping[str, Lab]:
    """By name."""
    return {name: Lab(name, *row) for name, row in table("drugs")["labs"].items()}


@cache
def once() -> tuple[Once, ...]:
    """In the file's order."""
    return tuple(Once(**row) for row in table("nuggets")["once"])


@cache
def absent() -> tuple[Absent, ...]:
    """In the file's order."""
    return tuple(Absent(ask, word, tuple(options)) for ask, word, options in table("nuggets")["absent"]["topics"])


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
