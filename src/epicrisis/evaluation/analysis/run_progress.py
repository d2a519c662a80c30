"""The progress of a run: right answers by arm so far, and their cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from epicrisis.core.answers import Answer, Usage
from epicrisis.evaluation.analysis.grouping import score_outcome
from epicrisis.evaluation.analysis.statistics import Mean, wilson
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome, score_case

ALL_CASES = "all"
"""The arm of cases without one."""


class RunProgress:
    """Counts of finished cases, by arm."""

    def __init__(self) -> None:
        self.usage = Usage()
        """The usage of this session."""
        self.finished: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.right: Counter[str] = Counter()
        self.scored: Counter[str] = Counter()

    def add_earlier(self, outcomes: Iterable[Outcome]) -> None:
        """Count cases of earlier sessions, except failed ones, which are answered again."""
        for outcome in outcomes:
            if outcome.state != "failed":
                self._count(outcome)

    def add(self, case: Case, answer: Answer) -> None:
        """Count a case that has just been answered."""
        self.usage += answer.usage
        self._count(score_case(case, answer))

    def _count(self, outcome: Outcome) -> None:
        arm = str(outcome.condition.get("arm", ALL_CASES))
        value = score_outcome(outcome, "right")
        self.finished[arm] += 1
        self.failed[arm] += outcome.state == "failed"
        if value is None or outcome.chance is None:
            return
        self.scored[arm] += 1
        self.right[arm] += int(value)

    def share_right(self, arm: str) -> Mean | None:
        """Return the share right among the cases of an arm that can be scored, or None if there are none.

        The interval is Wilson's, as if each question occurred once.
        """
        n = self.scored[arm]
        if not n:
            return None
        return Mean(self.right[arm] / n, wilson(self.right[arm], n), n)


def find_arm(case: Case) -> str:
    """Return the arm under which a case is counted."""
    return str(case.condition.get("arm", ALL_CASES))
