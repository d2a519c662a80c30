"""Values of generated patients, what makes them hard to compute with, and questions with their right answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, TypeAlias

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


@dataclass(frozen=True, slots=True)
class StructuredQuestion:
    """A question with its right answer."""

    text: str
    category: str
    """`last`, `between`, `stay`, ... with the trap of its values."""
    expected: frozenset[str] | None
    """The parts of the right result in any order. None: it must not be answered."""


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
