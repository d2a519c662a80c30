"""Scores of an answer by neural networks: BERTScore, and entailment by the right answer.

BERTScore (Zhang et al. 2020, section 3) matches each token of one text with the nearest token of the other, by the
cosine of their vectors. Precision is the mean over the answer's tokens, recall the mean over the right answer's. As in
the package bert-score, special tokens can be matched and are not counted. There is no weighting by idf and no rescaling
by a baseline. The score ignores the values of numbers (errata E6).

Entailment gives the EHR study's two measures (section 3.3), with the right answer as the premise and the answer as the
hypothesis. Factual precision is the probability of entailment, factual consistency that of no contradiction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from epicrisis.core.errors import ContextOverflow
from epicrisis.core.protocols import NliModel, TokenEncoder, TokenVectors

Case = TypeVar("Case")
Score = TypeVar("Score")

_BATCH = 64
"""Pairs whose vectors are in memory together."""
EMPTY = "one of the two texts is empty"


@dataclass(frozen=True, slots=True)
class Unscored:
    """The reason why a case has no score, in one line without text of the case."""

    reason: str


def score_fitting(score: Callable[[Sequence[Case]], Sequence[Score]], cases: Sequence[Case]) -> list[Score | Unscored]:
    """Return the score of each case, or Unscored for a case that exceeds the model's window.

    A model refuses all cases if one exceeds its window. Then each half is scored separately, down to single cases.
    """
    try:
        return list(score(cases))
    except ContextOverflow as error:
        if len(cases) == 1:
            return [Unscored(str(error))]
        middle = len(cases) // 2
        return score_fitting(score, cases[:middle]) + score_fitting(score, cases[middle:])


@dataclass(frozen=True, slots=True)
class BertScore:
    """Means of cosines, -1 to 1; nearly always above 0.5, and comparable only for one encoder."""

    precision: float
    recall: float
    f1: float


def bertscore_name(encoder: TokenEncoder) -> str:
    """Return the metric's name in the form of bert-score: `bertscore-f1[bio-clinicalbert_L9_no-idf]`."""
    return f"bertscore-f1[{encoder.name}_no-idf]"


def compute_bert_scores(encoder: TokenEncoder, pairs: Sequence[tuple[str, str]]) -> tuple[BertScore | Unscored, ...]:
    """Return the score of each pair (right answer, answer), in order.

    A pair with a text that exceeds the encoder's window, or without a token, is unscored.
    """
    scores: list[BertScore | Unscored] = []
    for start in range(0, len(pairs), _BATCH):
        batch = pairs[start : start + _BATCH]
        texts = list(dict.fromkeys(chain.from_iterable(batch)))
        encoded = dict(zip(texts, score_fitting(encoder.encode_tokens, texts), strict=True))
        scores += [_score(encoded[gold], encoded[answer]) for gold, answer in batch]
    return tuple(scores)


def _score(gold: TokenVectors | Unscored, answer: TokenVectors | Unscored) -> BertScore | Unscored:
    if isinstance(gold, Unscored):
        return gold
    if isinstance(answer, Unscored):
        return answer
    if not (gold.content.any() and answer.content.any()):
        return Unscored("one of the two texts has no token")
    cosines = _unit(answer) @ _unit(gold).T
    precision = float(cosines.max(axis=1)[answer.content].mean())
    recall = float(cosines.max(axis=0)[gold.content].mean())
    both = precision + recall
    return BertScore(precision, recall, 2 * precision * recall / both if both else 0.0)


def _unit(tokens: TokenVectors) -> npt.NDArray[np.float64]:
    vectors = tokens.vectors.astype(np.float64)
    unit: npt.NDArray[np.float64] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


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
