"""The cases that two runs answered differently: right in one and not in the other.

Cases are paired as in `run_comparison`: the same question under the same conditions that both runs have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from epicrisis.core.types import AnswerState, Question
from epicrisis.evaluation.analysis.grouping import score_outcome
from epicrisis.evaluation.analysis.run_comparison import REPEATED, find_varying_conditions
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.runs.outcomes import Outcome, score_record
from epicrisis.evaluation.runs.recorded_run import RecordedRun

CaseChange: TypeAlias = Literal["lost", "won"]
"""`lost`: right in the first run and not in the second. `won`: the reverse. A failed case is not right."""
CHANGES: tuple[CaseChange, ...] = ("lost", "won")
_COLUMNS = ("question id", "question", "change", "first state", "first choice", "second state", "second choice", "gold")


@dataclass(frozen=True, slots=True)
class CaseSummary:
    """How a run answered a case."""

    key: str
    """`RunRecord.key`."""
    state: AnswerState
    choice: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCase:
    """A case with another score in the second run than in the first."""

    question_id: str
    question: str
    gold: str | None
    change: CaseChange
    first: CaseSummary
    second: CaseSummary
    conditions: str
    """The conditions under which both were asked, such as `place 50`. Empty without any."""


@dataclass(frozen=True, slots=True)
class _ScoredCase:
    outcome: Outcome
    summary: CaseSummary
    question: Question


def list_changed_cases(first: RecordedRun, second: RecordedRun) -> tuple[ChangedCase, ...]:
    """Return the changed cases: those that the second run lost, then those it won.

    Raises InputError for unreadable records.
    """
    ones, others = _read_cases(first), _read_cases(second)
    names = _pairing_conditions(ones, others)
    by_pair: dict[tuple[object, ...], list[_ScoredCase]] = defaultdict(list)
    for case in others:
        by_pair[_pairing_key(case.outcome, names)].append(case)
    changed: list[ChangedCase] = []
    for one in ones:
        for other in by_pair[_pairing_key(one.outcome, names)]:
            change = _find_change(one.outcome, other.outcome)
            if change is not None:
                conditions = ", ".join(f"{name} {one.outcome.condition.get(name)}" for name in names)
                changed.append(
                    ChangedCase(
                        question_id=one.question.id,
                        question=one.question.text,
                        gold=one.question.gold,
                        change=change,
                        first=one.summary,
                        second=other.summary,
                        conditions=conditions,
                    )
                )
    return tuple(sorted(changed, key=lambda case: CHANGES.index(case.change)))


def make_changes_table(changes: Sequence[ChangedCase]) -> Table:
    """Return the changed cases as a table, for a file."""
    rows: list[tuple[Cell, ...]] = []
    for case in changes:
        first, second = case.first, case.second
        states = (first.state, first.choice, second.state, second.choice)
        rows.append((case.question_id, case.question, case.change, *states, case.gold))
    return Table("Changed questions", _COLUMNS, tuple(rows))


def _read_cases(run: RecordedRun) -> list[_ScoredCase]:
    """Return the cases whose answers can be scored: of questions with options and a gold letter."""
    cases: list[_ScoredCase] = []
    for record in run.records():
        answer = record.answer
        if answer.question.options and answer.question.gold is not None:
            summary = CaseSummary(record.key, answer.state, answer.choice)
            cases.append(_ScoredCase(score_record(record), summary, answer.question))
    return cases


def _pairing_conditions(ones: Sequence[_ScoredCase], others: Sequence[_ScoredCase]) -> tuple[str, ...]:
    """Return the conditions that must agree: those asked repeatedly or varied in a run, if both runs have them."""
    first, second = [case.outcome for case in ones], [case.outcome for case in others]
    varying = (*find_varying_conditions((first, second)), *REPEATED)
    shared: list[str] = []
    for name in dict.fromkeys(varying):
        if all(any(name in outcome.condition for outcome in outcomes) for outcomes in (first, second)):
            shared.append(name)
    return tuple(shared)


def _pairing_key(outcome: Outcome, names: Sequence[str]) -> tuple[object, ...]:
    return (outcome.question, *(outcome.condition.get(name) for name in names))


def _find_change(one: Outcome, other: Outcome) -> CaseChange | None:
    first, second = score_outcome(one, "right"), score_outcome(other, "right")
    if first is None or second is None or first == second:
        return None
    return "lost" if first > second else "won"
