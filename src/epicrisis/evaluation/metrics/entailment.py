"""Entailment of an answer by the right answer, by a model of natural language inference.

These are the EHR study's two measures (section 3.3), with the right answer as the premise and the answer as the
hypothesis. Factual precision is the probability of entailment, factual consistency that of no contradiction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from epicrisis.evaluation.metrics.unscored import Unscored, score_fitting
from epicrisis.protocols import NliModel

EMPTY = "one of the two texts is empty"


@dataclass(frozen=True, slots=True)
class Entailment:
    """Probabilities, 0 to 1."""

    entailment: float
    non_contradiction: float
    """The probability of entailment or neutral."""


def score_entailment(model: NliModel, pairs: Sequence[tuple[str, str]]) -> tuple[Entailment | Unscored, ...]:
    """Return the probabilities of each pair (right answer, answer), in order.

    A pair that exceeds the model's window, or has an empty text, is unscored.
    """

    def score(batch: Sequence[tuple[str, str]]) -> list[Entailment]:
        scores: list[Entailment] = []
        for entailed, neutral, _ in model.probabilities(batch).astype(float).tolist():
            scores.append(Entailment(entailed, min(1.0, entailed + neutral)))
        return scores

    filled = [pair for pair in pairs if all(map(str.strip, pair))]
    results = iter(score_fitting(score, filled))
    return tuple(next(results) if all(map(str.strip, pair)) else Unscored(EMPTY) for pair in pairs)
