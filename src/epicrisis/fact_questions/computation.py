"""The result of a computation before its rows have citations, and what computations share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from epicrisis.clinical_facts import ClinicalFact
from epicrisis.computed_values import ComputedAnswer, ComputedRow
from epicrisis.fact_questions.question_rules import FactQuestion
from epicrisis.fact_questions.record import read_time


@dataclass(frozen=True, slots=True)
class Computation:
    """A computed answer with the facts behind its rows."""

    answer: ComputedAnswer
    facts: tuple[tuple[ClinicalFact, ...], ...] = ()
    """The facts of each row."""


@dataclass(frozen=True, slots=True)
class RowList:
    """Rows with their facts while they are collected."""

    rows: list[ComputedRow] = field(default_factory=list)
    facts: list[tuple[ClinicalFact, ...]] = field(default_factory=list)

    def add(self, row: ComputedRow, *facts: ClinicalFact) -> None:
        """Add a row with the facts that it cites."""
        self.rows.append(row)
        self.facts.append(facts)


def finish(
    plan: FactQuestion,
    statement: str,
    *,
    result: str = "",
    rows: RowList | None = None,
    unit: str = "",
    remarks: Iterable[str] = (),
    state: Literal["answered", "abstained"] = "answered",
) -> Computation:
    """Return the computation with its statement as a sentence."""
    rows = rows or RowList()
    sentence = f"{statement[:1].upper()}{statement[1:]}"
    sentence = sentence if sentence.endswith((".", "?")) else f"{sentence}."
    answer = ComputedAnswer(
        plan.operation,
        plan.subject,
        state,
        sentence,
        result,
        tuple(rows.rows),
        unit,
        tuple(filter(None, remarks)),
        plan.window.text,
        plan.planned_by,
    )
    return Computation(answer, tuple(rows.facts))


def abstain(plan: FactQuestion, reason: str, rows: RowList | None = None, remarks: Iterable[str] = ()) -> Computation:
    """Return the computation that gives no answer, with the reason and its cure."""
    return finish(plan, reason, rows=rows, remarks=remarks, state="abstained")


def format_time(time: str | None) -> str:
    """Return a partial ISO date for a reader: `2150-03-04 10:30`."""
    return (time or "no date").replace("T", " ")


def sort_facts(facts: Iterable[ClinicalFact]) -> list[ClinicalFact]:
    """Return the facts by time, undated ones last."""

    def order(fact: ClinicalFact) -> tuple[object, ...]:
        time = read_time(fact)
        return (time is None, time or (), fact.document_id, fact.start)

    return sorted(facts, key=order)


def find_extreme(facts: Sequence[ClinicalFact], *, last: bool) -> list[ClinicalFact]:
    """Return the dated facts that may be the last, or the first: no other fact is certainly later, or earlier."""
    dated = [(fact, time) for fact in facts if (time := read_time(fact))]
    if not dated:
        return []
    latest_start = max(time[0] for _, time in dated)
    earliest_end = min(time[1] for _, time in dated)
    candidates: list[ClinicalFact] = []
    for fact, time in dated:
        if time[1] >= latest_start if last else time[0] <= earliest_end:
            candidates.append(fact)
    return sort_facts(candidates)


def count_undated(facts: Iterable[ClinicalFact]) -> int:
    """Return how many facts have no readable date."""
    return sum(read_time(fact) is None for fact in facts)


def join_words(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: `A, B and C`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def count_entries(number: int) -> str:
    """Return a number of entries in words: `1 structured entry`."""
    return f"{number:,} structured {'entry' if number == 1 else 'entries'}"
