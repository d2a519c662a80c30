"""Outcome, intervention and comparator of questions."""

from __future__ import annotations

import pytest

from epicrisis.reading.comparisons import Comparison, read_comparison

EXPECTED = Comparison("pain", "ketamine", "placebo")


@pytest.mark.parametrize(
    "question",
    [
        "What is the effect of ketamine compared with placebo on pain?",
        "How does ketamine change pain compared with placebo?",
        "ketamine versus placebo: pain",
        "Is pain different with ketamine or with placebo?",
        "Does ketamine, compared with placebo, reduce pain?",
        "Is pain higher, lower, or the same when comparing ketamine to placebo?",
    ],
)
def test_forms_of_one_question_have_one_comparison(question: str) -> None:
    assert read_comparison(question) == EXPECTED


def test_other_questions_have_their_words_as_outcome() -> None:
    assert read_comparison("Who described epicrisis?") == Comparison("Who described epicrisis")
    assert read_comparison("x" * 700).intervention == ""
