"""Test samples: deterministic, in the order of the set, and uniform."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.errors import InputError
from epicrisis.core.types import Question
from epicrisis.evaluation.datasets.dataset import Dataset, classes_by_gold, sample_at_random, sample_per_class

OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}


def dataset_of(golds: str) -> Dataset:
    questions = tuple(
        Question(text=f"Is it {n}?", options=OPTIONS, form="choice", id=str(n), gold=gold)
        for n, gold in enumerate(golds)
    )
    return Dataset("made", questions, classes_by_gold(questions))


MADE = dataset_of("AAABBC" * 20)


def test_sample_with_seed_is_pinned() -> None:
    """A file of results names its seed: these very questions must come out of it for ever."""
    assert list_ids(sample_at_random(MADE, 5, seed=1)) == ["30", "71", "72", "90", "100"]
    assert list_ids(sample_per_class(MADE, 2, seed=1)) == ["30", "71", "72", "100", "113", "118"]


def list_ids(dataset: Dataset) -> list[str]:
    return [question.id for question in dataset.questions]


@pytest.mark.slow
@given(st.integers(1, 120), st.integers(0, 2**32))
def test_sample_at_random_keeps_set_order_and_nests(n: int, seed: int) -> None:
    sample = list_ids(sample_at_random(MADE, n, seed))
    assert len(set(sample)) == n
    assert sample == sorted(sample, key=int)
    assert sample == list_ids(sample_at_random(replace(MADE, questions=MADE.questions[::-1]), n, seed))[::-1]
    if n > 1:
        assert set(list_ids(sample_at_random(MADE, n - 1, seed))) < set(sample)


@pytest.mark.slow
@given(st.integers(1, 20), st.integers(0, 2**32))
def test_sample_per_class_draws_equal_counts_in_set_order(n: int, seed: int) -> None:
    sample = sample_per_class(MADE, n, seed)
    assert Counter(MADE.classes[q.id] for q in sample.questions) == {"yes": n, "no": n, "maybe": n}
    assert list_ids(sample) == sorted(list_ids(sample), key=int)
    assert sample.sha256 != MADE.sha256


def test_sample_at_random_draws_each_question_equally_often() -> None:
    times = Counter(key for seed in range(600) for key in list_ids(sample_at_random(MADE, 12, seed)))
    # 600 draws at 0.1: a standard deviation of 7.3.
    assert len(times) == 120
    assert 30 < min(times.values()) < max(times.values()) < 90


def test_classes_by_gold_returns_verdict_or_letter() -> None:
    letters = replace(MADE.questions[0], options={"A": "Aspirin", "B": "no"}, id="x")
    without = replace(MADE.questions[0], gold=None, id="y")
    open_question = Question(text="Why?", id="z", gold="Because.")
    assert classes_by_gold([MADE.questions[5], letters, without, open_question]) == {"5": "maybe", "x": "A"}


def test_sample_with_impossible_size_raises_input_error() -> None:
    for n in (0, 121):
        with pytest.raises(InputError, match="made has 120 questions: draw between 1 and that many \\(-n\\), not"):
            sample_at_random(MADE, n, seed=0)
    with pytest.raises(
        InputError, match="made has 20 maybe, 40 no, 60 yes: draw between 1 and 20 a class \\(-n\\), not 21"
    ):
        sample_per_class(MADE, 21, seed=0)
    unlabelled = replace(MADE, classes={})
    with pytest.raises(InputError, match="120 questions of made have no class"):
        sample_per_class(unlabelled, 1, seed=0)
