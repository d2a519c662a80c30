"""Conditions, drugs, laboratory tests and phrases of fictional patients, from the TOML files of this package."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import starmap
from typing import Any

PACKAGE = "epicrisis.evaluation.synthesis.patient_records"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcuteCondition:
    """A reason for admission. Texts may contain slots (`Draws.fill`) and one `[[answer]]`."""

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
    finding: str
    ruled_out: str
    procedure: str
    detail: str
    complication: str
    advice: str


@dataclass(frozen=True, slots=True)
class ChronicCondition:
    """A condition of the past medical history and its drug."""

    name: str
    abbreviation: str
    lay: str
    drug: str


@dataclass(frozen=True, slots=True)
class Drug:
    """A drug with three doses from low to high, its directions, and reasons to lower or raise the dose."""

    name: str
    doses: tuple[str, str, str]
    how: str
    lowered: str
    raised: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A laboratory test with its unit, its normal range, and typical values of an ill and a recovered patient."""

    name: str
    unit: str
    low: float
    high: float
    decimals: int
    ill: float
    better: float

    def format(self, value: float) -> str:
        """Return a value with its unit as in a laboratory report."""
        return f"{value:.{self.decimals}f} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class SingleMention:
    """A fact stated once in a record: its kind of note, its question, and its sentence with an `[[answer]]`."""

    note: str
    ask: str
    say: str


@dataclass(frozen=True, slots=True)
class UnansweredTopic:
    """A question without an answer in any record, a word that must not occur in the record, and plausible options."""

    ask: str
    word: str
    options: tuple[str, ...]


@cache
def read_table(name: str) -> Mapping[str, Any]:
    """Read one of the TOML files."""
    return tomllib.loads(resources.files(PACKAGE).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


@cache
def acute_conditions() -> tuple[AcuteCondition, ...]:
    """Return the acute conditions in the order of the file."""
    conditions = []
    for row in read_table("conditions")["acute"]:
        values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        conditions.append(AcuteCondition(**values))
    return tuple(conditions)


@cache
def chronic_conditions() -> tuple[ChronicCondition, ...]:
    """Return the chronic conditions in the order of the file."""
    return tuple(starmap(ChronicCondition, read_table("conditions")["chronic"][0]["list"]))


@cache
def drugs() -> Mapping[str, Drug]:
    """Return the drugs by name."""
    rows = read_table("drugs")["drugs"].items()
    return {name: Drug(name, (row[0], row[1], row[2]), *row[3:]) for name, row in rows}


@cache
def labs() -> Mapping[str, Lab]:
    """Return the laboratory tests by name."""
    columns = ("unit", "low", "high", "decimals", "ill", "better")
    rows = read_table("drugs")["labs"].items()
    return {name: Lab(name=name, **dict(zip(columns, row, strict=True))) for name, row in rows}


@cache
def single_mentions() -> tuple[SingleMention, ...]:
    """Return the facts that a record states once, in the order of the file."""
    return tuple(SingleMention(**row) for row in read_table("nuggets")["once"])


@cache
def unanswered_topics() -> tuple[UnansweredTopic, ...]:
    """Return the questions without an answer, in the order of the file."""
    rows = read_table("nuggets")["absent"]["topics"]
    return tuple(UnansweredTopic(ask, word, tuple(options)) for ask, word, options in rows)
