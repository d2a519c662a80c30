"""How a run stands while it goes on: right answers so far by arm, and what it has cost. Knows no screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from epicrisis.answers import Answer, Usage
from epicrisis.evaluation.analysis.grouping import score
from epicrisis.evaluation.analysis.statistics import Mean, wilson
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome, score_case

ALL = "all"
"""The arm of a run whose cases have none."""


class Standing:
    """Counts of ended cases, by arm."""

    def __init__(self) -> None:
        self.usage = Usage()
        """Of this session."""
        self.ended: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.right: Counter[str] = Counter()
        self.scored: Counter[str] = Counter()

    def known(self, outcomes: Iterable[Outcome]) -> None:
        """Counts cases of earlier sessions; failed ones are asked again and not counted."""
        for outcome in outcomes:
            if outcome.state != "failed":
                self._count(outcome)

    def add(self, case: Case, answer: Answer) -> None:
        """Counts a case that has just ended."""
        self.usage += answer.usage
        self._count(score_case(case, answer))

    def _count(self, outcome: Outcome) -> None:
        arm = str(outcome.condition.get("arm", ALL))
        value = score(outcome, "right")
        self.ended[arm] += 1
        if value is None or outcome.chance is None:
            self.failed[arm] += outcome.state == "failed"
            return
        self.scored[arm] += 1
        self.right[arm] += int(value)

    def share(self, arm: str) -> Mean | None:
        """Right among those that did not fail, with Wilson's interval as if no question stood there twice; `None` where
        nothing can be right or wrong yet."""
        n = self.scored[arm]
        if not n:
            return None
        return Mean(self.right[arm] / n, wilson(self.right[arm], n), n, self.failed[arm])


def arm_of(case: Case) -> str:
    """Under which arm the case is counted."""
    return str(case.condition.get("arm", ALL))
