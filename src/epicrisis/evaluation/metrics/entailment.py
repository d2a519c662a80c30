"""Does an answer follow from the right one, and does it not contradict it? By a model of natural language inference.

The study's two measures (section 3.3): the right answer is the premise, the answer the hypothesis; factual precision is
the probability of entailment, factual consistency that of no contradiction. Knows no model, and cuts no text.
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
    """Of entailment and neutral together."""


def score_entailment(model: NliModel, pairs: Sequence[tuple[str, str]]) -> tuple[Entailment | Unscored, ...]:
    """Of each pair (right answer, answer), in their order. A pair over the model's window, or with an empty text, is
    unscored."""
    asked = [place for place, pair in enumerate(pairs) if all(text.strip() for text in pair)]

    def judged(some: Sequence[tuple[str, str]]) -> list[Entailment]:
        rows = model.probabilities(some).astype(float).tolist()
        return [Entailment(entailed, min(1.0, entailed + neutral)) for entailed, neutral, _ in rows]

    found = dict(zip(asked, score_fitting(judged, [pairs[place] for place in asked]), strict=True))
    return tuple(found.get(place, Unscored(EMPTY)) for place in range(len(pairs)))
