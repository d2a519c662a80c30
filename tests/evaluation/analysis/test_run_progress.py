"""Test the counts that the progress bars of a run show."""

from __future__ import annotations

import pytest

from epicrisis.cli.run_progress import ALL_CASES, RunProgress, find_arm
from epicrisis.core.answers import Answer, Failure, Usage
from epicrisis.core.types import AnswerState, Question
from epicrisis.evaluation.analysis.statistics import wilson
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.pipeline.recording.case import Case

ASKED = Question("Does it?", options={"A": "yes", "B": "no"}, form="choice", id="1", gold="A")


def make_answer(state: AnswerState, choice: str | None = None, asked: Question = ASKED) -> Answer:
    failure = Failure("EndpointBusy", "busy") if state == "failed" else None
    return Answer(
        question=asked,
        strategy="rag",
        state=state,
        text="It does.",
        choice=choice,
        usage=Usage(calls=1),
        failure=failure,
    )


def test_run_progress_counts_right_answers_by_arm_and_failures_apart() -> None:
    standing = RunProgress()
    for arm, result in (
        ("rag", make_answer("answered", "A")),
        ("rag", make_answer("answered", "B")),
        ("rag", make_answer("abstained")),
        ("rag", make_answer("failed")),
        ("oracle", make_answer("answered", "A")),
    ):
        standing.add(Case(ASKED, {"arm": arm}), result)
    share = standing.share_right("rag")
    assert share is not None
    assert share.value == pytest.approx(1 / 4)
    assert (share.n, standing.failed["rag"], share.interval) == (4, 1, wilson(1, 4))
    assert standing.finished == {"rag": 4, "oracle": 1}
    assert standing.usage.calls == 5


def test_run_progress_counts_earlier_answers_without_failures() -> None:
    standing = RunProgress()
    standing.add_earlier(
        [
            Outcome(question="1", condition={}, state="answered", right=True, chance=0.5),
            Outcome(question="2", condition={}, state="failed", right=None, chance=0.5),
        ]
    )
    assert standing.finished[ALL_CASES] == 1
    share = standing.share_right(ALL_CASES)
    assert share is not None
    assert (share.value, share.n, share.unscored) == (1.0, 1, 0)


def test_run_progress_ignores_open_questions_in_share_right() -> None:
    standing = RunProgress()
    sample = Question("What does it do?", id="2")
    standing.add(Case(sample), make_answer("answered", asked=sample))
    assert standing.share_right(ALL_CASES) is None
    assert standing.finished[find_arm(Case(sample))] == 1
