"""BERTScore (Zhang et al. 2020, section 3): how near, token by token, is an answer to the right one?

Every token of one text finds its nearest in the other, by the cosine of their vectors; precision is the mean over the
answer's tokens, recall over the right answer's. As in the package bert-score, special tokens may be found and are not
counted. Not weighted by idf and not rescaled by a baseline, as the name says in that package's words (a rescaled one
would say so). Knows no network and no numbers (errata E6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from epicrisis.evaluation.metrics.unscored import Unscored, score_fitting
from epicrisis.protocols import TokenEncoder, TokenVectors

_AT_ONCE = 64
"""Pairs whose vectors are in memory at a time."""


@dataclass(frozen=True, slots=True)
class BertScore:
    """Means of cosines, -1 to 1; nearly always 0.5 and more, and comparable only under one encoder."""

    precision: float
    recall: float
    f1: float


def bertscore_name(encoder: TokenEncoder) -> str:
    """`bertscore-f1[bio-clinicalbert_L9_no-idf]`."""
    return f"bertscore-f1[{encoder.name}_no-idf]"


def compute_bert_scores(encoder: TokenEncoder, pairs: Sequence[tuple[str, str]]) -> tuple[BertScore | Unscored, ...]:
    """Of each pair (right answer, answer), in their order. A pair with a text over the encoder's window, or of no
    token, is unscored."""
    found: list[BertScore | Unscored] = []
    for start in range(0, len(pairs), _AT_ONCE):
        some = pairs[start : start + _AT_ONCE]
        texts = list(dict.fromkeys(text for pair in some for text in pair))
        encoded = dict(zip(texts, score_fitting(encoder.encode_tokens, texts), strict=True))
        found += [_score(encoded[gold], encoded[answer]) for gold, answer in some]
    return tuple(found)


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
