"""Test the study's two NLI measures with a scripted model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from epicrisis.core.errors import ContextOverflow
from epicrisis.core.protocols import NliModel, Vectors
from epicrisis.evaluation.metrics.neural import Entailment, Unscored, score_entailment
from tests.support.scorers import TermOverlapNli


class Narrow:
    """Refuses all where one pair has more than eight words; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        if any(len(f"{premise} {hypothesis}".split()) > 8 for premise, hypothesis in pairs):
            raise ContextOverflow("a pair has too many tokens: compare shorter texts")
        self.asked += pairs
        return np.tile(np.array([0.2, 0.5, 0.3], dtype=np.float32), (len(pairs), 1))


def test_score_entailment_uses_reference_as_premise() -> None:
    """The answer's two words are in the right one; the other way round two of four would be."""
    model: NliModel = TermOverlapNli()
    affirmed, denied = score_entailment(
        model, [("acute kidney injury resolved", "kidney injury"), ("fever", "not fever")]
    )
    assert affirmed == Entailment(1.0, 1.0)
    assert denied == Entailment(0.0, 0.5)


def test_score_entailment_leaves_only_long_pair_unscored() -> None:
    model, long = Narrow(), "word " * 9
    pairs = [("a", "b"), ("c", "d"), ("e", long), ("f", "g"), (long, "h"), ("i", "j")]
    result = score_entailment(model, pairs)
    assert model.asked == [pair for pair in pairs if long not in pair]
    assert [isinstance(item, Unscored) for item in result] == [False, False, True, False, True, False]
    assert result[2] == Unscored("a pair has too many tokens: compare shorter texts")
    assert isinstance(result[0], Entailment)
    assert (result[0].entailment, result[0].non_contradiction) == pytest.approx((0.2, 0.7))


def test_score_entailment_of_empty_text_is_unscored() -> None:
    model = Narrow()
    result = score_entailment(model, [("yes", "  "), ("", "yes"), ("yes", "yes")])
    assert [isinstance(item, Unscored) for item in result] == [True, True, False]
    assert model.asked == [("yes", "yes")]
    assert score_entailment(model, []) == ()
