"""The result of a computation before its rows have citations, and what computations share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.computed_values import ComputedAnswer, ComputedRow
from epicrisis.core.dates import TimeRange
from epicrisis.core.fact_times import FactClock, is_reordered
from epicrisis.records.fact_questions.question_rules import FactQuestion
from epicrisis.records.fact_questions.record import read_time


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
    rows = mark_time_zones(rows or RowList())
    sentence = f"{statement[:1].upper()}{statement[1:]}"
    sentence = sentence if sentence.endswith((".", "?")) else f"{sentence}."
    answer = ComputedAnswer(
        operation=plan.operation,
        subject=plan.subject,
        state=state,
        statement=sentence,
        result=result,
        rows=tuple(rows.rows),
        unit=unit,
        remarks=tuple(filter(None, remarks)),
        window=plan.window.text,
        planned_by=plan.planned_by,
    )
    return Computation(answer, tuple(rows.facts))


def abstain(plan: FactQuestion, reason: str, rows: RowList | None = None, remarks: Iterable[str] = ()) -> Computation:
    """Return the computation that gives no answer, with the reason and its cure."""
    return finish(plan, reason, rows=rows, remarks=remarks, state="abstained")


def format_time(time: str | None) -> str:
    """Return a partial ISO date for a reader: `2150-03-04 10:30`."""
    return (time or "no date").replace("T", " ")


def mark_time_zones(rows: RowList) -> RowList:
    """Return the rows with the time zones of their times, if the order of the rows differs from that of local times."""
    heads = [facts[0] for facts in rows.facts if facts]
    if not is_reordered(heads):
        return rows
    zoned_rows = RowList()
    for row, facts in zip(rows.rows, rows.facts, strict=True):
        zone = f"UTC{facts[0].utc_offset}" if facts and facts[0].utc_offset else "no time zone"
        remark = "; ".join(filter(None, (row.remark, zone if row.time else "")))
        zoned_rows.add(replace(row, remark=remark), *facts)
    return zoned_rows


def explain_uncertain_order(facts: Sequence[ClinicalFact]) -> str:
    """Return why the order of these facts cannot be told."""
    offsets = {fact.utc_offset for fact in facts if fact.time}
    return "dates are partial" if len(offsets) < 2 else "dates are partial, or times lack their time zone"


def sort_facts(facts: Iterable[ClinicalFact]) -> list[ClinicalFact]:
    """Return the facts by time, undated ones last."""
    facts = list(facts)
    clock = FactClock.build(facts)

    def order(fact: ClinicalFact) -> tuple[object, ...]:
        time = clock.place(fact)
        return (time is None, time or (), fact.document_id, fact.start)

    return sorted(facts, key=order)


def find_extreme(facts: Sequence[ClinicalFact], *, last: bool) -> list[ClinicalFact]:
    """Return the dated facts that may be the last, or the first: no other fact is certainly later, or earlier."""
    clock = FactClock.build(facts)
    dated = [(fact, time) for fact in facts if (time := clock.place(fact))]
    if not dated:
        return []
    latest_start = max(time[0] for _, time in dated)
    earliest_end = min(time[1] for _, time in dated)
    candidates = [fact for fact, time in dated if (time[1] >= latest_start if last else time[0] <= earliest_end)]
    return sort_facts(candidates)


def list_places(facts: Sequence[ClinicalFact]) -> set[TimeRange | None]:
    """Return the different times of facts on their common clock."""
    clock = FactClock.build(facts)
    return {clock.place(fact) for fact in facts}


def count_undated(facts: Iterable[ClinicalFact]) -> int:
    """Return how many facts have no readable date."""
    return sum(read_time(fact) is None for fact in facts)


def join_words(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: `A, B and C`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def count_entries(number: int) -> str:
    """Return a number of entries in words: `1 structured entry`."""
    return f"{number:,} structured {'entry' if number == 1 else 'entries'}"
