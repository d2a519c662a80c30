"""The result of a computation over the structured facts of a record, with one row for each value it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

FactOperation: TypeAlias = Literal[
    "last",
    "first",
    "value-on",
    "trend",
    "list",
    "current",
    "ever",
    "count",
    "highest",
    "lowest",
    "change",
    "started",
    "stopped",
]


COMPUTATION = "computation"
"""Value of `Claim.checked_by` for the computed sentence, and for words that were compared with it."""
NO_ENTRY = "no entry"
"""The result where no structured entry names what was asked for, which does not show that there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedRow:
    """One structured entry behind a computed answer."""

    name: str
    time: str | None
    value: str
    """The value or dose with its unit, as written: `<0.2 mg/dL`. Empty for an entry without a value."""
    status: str = ""
    source: str = ""
    remark: str = ""
    """What a reader must know of this entry: `no sign of it for 14 months`."""
    number: float | None = None
    """The value in `ComputedAnswer.unit`, for a chart. None for a value that is no exact number in it."""
    citations: tuple[int, ...] = ()
    """Numbers of `Answer.citations`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedAnswer:
    """What the structured entries say about a question, computed without a chat model."""

    operation: FactOperation
    subject: str
    """What was asked for, in words of the record or of the question."""
    state: Literal["answered", "abstained"]
    statement: str
    """The answer in one sentence, or the reason for none and its cure."""
    result: str = ""
    """The answer alone: `1.8 mg/dL`, `+0.7 mg/dL`, `7`, `yes`. Empty without one."""
    rows: tuple[ComputedRow, ...] = ()
    """In order of time."""
    unit: str = ""
    """The common unit of the rows. Empty if there is none."""
    remarks: tuple[str, ...] = ()
    """What was not counted, and why."""
    window: str = ""
    """The time that the question names, as it was understood."""
    planned_by: str = "rules"
    """What understood the question: `rules`, or the name of the chat model. Neither computes with a model."""

    def describe(self) -> tuple[str, ...]:
        """Return the statement, the remarks and the rows, one line each."""
        lines = [self.statement, *self.remarks]
        for row in self.rows:
            pieces = (row.time or "no date", row.name, row.value, row.status, row.remark)
            lines.append(", ".join(filter(None, pieces)))
        return tuple(lines)
