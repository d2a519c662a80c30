"""Questions about the values of an analyte of a generated patient, with the answers that are right.

questions = ask_values(draw, "Creatinine", trap, values, stays)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeAlias

from epicrisis.evaluation.synthesis.patient_records.entry_questions import StructuredQuestion

Trap: TypeAlias = Literal[
    "none", "partial", "comparator", "corrected", "error", "unit", "molar", "urine", "same-moment", "undated"
]
"""What makes the values of an analyte hard to compute with."""
TRAPS: tuple[Trap, ...] = (
    "none",
    "none",
    "none",
    "partial",
    "comparator",
    "corrected",
    "error",
    "unit",
    "molar",
    "urine",
    "same-moment",
    "undated",
)
_ORDINALS = ("first", "second", "third", "fourth")


@dataclass(frozen=True, slots=True)
class GeneratedValue:
    """A measurement as it happened, and how the record states it."""

    at: datetime
    number: Decimal
    text: str
    time: str | None
    unit: str
    stated_number: Decimal
    stay: int | None
    comparator: str = ""

    @property
    def result(self) -> str:
        return f"{self.comparator}{self.text} {self.unit}".strip()


def ask_values(
    draw: random.Random,
    name: str,
    trap: Trap,
    values: Sequence[GeneratedValue],
    stays: Sequence[tuple[datetime, datetime]],
) -> list[StructuredQuestion]:
    """Return questions about the values of an analyte with the answers that are right."""
    word = name.lower()
    short_name = {"Alanine aminotransferase": "ALT", "C-reactive protein": "CRP", "Hemoglobin A1c": "A1c"}.get(
        name, word
    )
    word = draw.choice((word, short_name))
    if trap == "urine":
        bare = f"What is the last {word}?"
        return [
            StructuredQuestion(bare, "last urine", None),
            StructuredQuestion(f"What was the highest {word}?", "highest urine", None),
            StructuredQuestion(
                f"What is the last urine {word}?", "last urine", frozenset({f"77 {values[-1].unit}".strip()})
            ),
            StructuredQuestion(f"What is the last serum {word}?", "last urine", frozenset({values[-1].result})),
        ]
    dated = [value for value in values if value.time is not None]
    questions = _ask_whole(draw, word, trap, values, dated)
    first_day, last_day = sorted(draw.sample(range(len(dated)), 2)) if len(dated) > 1 else (0, 0)
    since, until = dated[first_day].at.date(), dated[last_day].at.date()
    inside = [value for value in dated if since <= value.at.date() <= until]
    between = f"between {since} and {until}"
    questions += _ask_window(draw, word, trap, between, "between", inside)
    number = draw.randrange(len(stays))
    start, end = stays[number]
    within = [value for value in dated if start <= value.at <= end]
    place = _ORDINALS[number] if draw.random() < 0.7 or number < len(stays) - 1 else "last"
    questions += _ask_window(draw, word, trap, f"during the {place} admission", "stay", within)
    year = draw.choice(dated).at.year
    questions += _ask_window(
        draw, word, trap, f"in {year}", "year", [value for value in dated if value.at.year == year]
    )
    day = draw.choice(dated)
    same_day = frozenset(value.result for value in dated if value.at.date() == day.at.date())
    text = draw.choice(
        (f"What was the {word} on {day.at:%Y-%m-%d}?", f"{word} on {day.at:%B} {day.at.day}, {day.at.year}")
    )
    questions.append(StructuredQuestion(text, f"day {trap}", same_day))
    return questions


def _ask_whole(
    draw: random.Random, word: str, trap: Trap, values: Sequence[GeneratedValue], dated: Sequence[GeneratedValue]
) -> list[StructuredQuestion]:
    """Return questions without a time."""
    ends = frozenset(value.result for value in dated if value.at == dated[-1].at)
    last = draw.choice(
        (
            f"What is the last {word}?",
            f"What is her most recent {word} value?",
            f"latest {word}",
            f"What is the patient's current {word}?",
        )
    )
    first = draw.choice((f"What was the first {word}?", f"earliest {word} on record"))
    count = draw.choice((f"How many times was {word} measured?", f"How many {word} values are there?"))
    course = draw.choice(
        (
            f"{word} trend",
            f"What is the trend of {word}?",
            f"Show the {word} over time",
            f"How did {word} develop over time?",
        )
    )
    return [
        StructuredQuestion(last, f"last {trap}", ends),
        StructuredQuestion(first, f"first {trap}", frozenset({dated[0].result})),
        StructuredQuestion(count, f"count {trap}", frozenset({str(len(values))})),
        StructuredQuestion(course, f"trend {trap}", _find_course(trap, dated, len(values))),
        StructuredQuestion(f"How much did {word} change?", f"change {trap}", _find_change(trap, dated)),
        *_ask_sizes(draw, word, trap, "", values),
    ]


def _ask_sizes(
    draw: random.Random, word: str, trap: Trap, when: str, values: Sequence[GeneratedValue]
) -> list[StructuredQuestion]:
    if not values:
        return []
    top = draw.choice((f"What was the highest {word}{when}?", f"peak {word}{when}", f"maximum {word}{when}"))
    bottom = draw.choice((f"What was the lowest {word}{when}?", f"nadir {word}{when}"))
    highest = max(values, key=lambda value: value.number)
    lowest = min(values, key=lambda value: value.number)
    has_molar = trap == "molar" and any(value.unit == "umol/L" for value in values) and len(values) > 1
    return [
        StructuredQuestion(top, f"highest {trap}", None if has_molar else frozenset({highest.result})),
        StructuredQuestion(bottom, f"lowest {trap}", None if has_molar else frozenset({lowest.result})),
    ]


def _ask_window(
    draw: random.Random, word: str, trap: Trap, when: str, category: str, inside: Sequence[GeneratedValue]
) -> list[StructuredQuestion]:
    """Return questions about a time. Without a value in it, none may be answered."""
    last = f"What was the last {word} {when}?"
    listing = draw.choice((f"What was the {word} {when}?", f"List the {word} values {when}"))
    if not inside:
        return [
            StructuredQuestion(last, f"{category} {trap}", None),
            StructuredQuestion(listing, f"{category} {trap}", None),
        ]
    ends = frozenset(value.result for value in inside if value.at == inside[-1].at)
    return [
        StructuredQuestion(last, f"{category} last {trap}", ends),
        StructuredQuestion(listing, f"{category} list {trap}", frozenset(value.result for value in inside)),
        *_ask_sizes(draw, word, trap, f" {when}", inside),
    ]


def _find_course(trap: Trap, dated: Sequence[GeneratedValue], total: int) -> frozenset[str] | None:
    """Return the right result of a trend: its direction and ends, or that none can be stated."""
    if trap in ("comparator", "molar", "undated", "same-moment") or total == 1:
        return frozenset({"no direction"})
    one, two = dated[0], dated[-1]
    verb = "rose" if two.number > one.number else "fell"
    factor = two.stated_number / two.number
    return frozenset({f"{verb}: {_plain(one.number * factor)} to {_plain(two.stated_number)} {two.unit}".strip()})


def _find_change(trap: Trap, dated: Sequence[GeneratedValue]) -> frozenset[str] | None:
    one, two = dated[0], dated[-1]
    is_open = bool(one.comparator or two.comparator) or trap in ("molar", "same-moment")
    if is_open or len(dated) == 1:
        return None
    factor = two.stated_number / two.number
    difference = (two.number - one.number) * factor
    return frozenset({f"{'+' if difference > 0 else ''}{_plain(difference)} {two.unit}".strip()})


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
