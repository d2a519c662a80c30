"""Rank the sentences of documents by how well they answer a question, with boosted trees trained on marked evidence.

    ranker = load_ranker()
    scores = ranker.score(question, [Found(read_article(article, analyze))], analyze)

A score compares sentences of one question. It is no probability.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from epicrisis.reading.features import (
    OWN_FEATURES,
    QUESTION_FEATURES,
    Found,
    Matrix,
    WordAnalyzer,
    compare_with_question,
)
from epicrisis.reading.forest import Forest

FEATURES = (*OWN_FEATURES, *QUESTION_FEATURES)
OPPOSITE_LOSS = 2.0
"""What a sentence on the opposite of a word of the question loses. Such sentences are too rare for trees to learn from:
one of 1,545 marked sentences of the articles that measure."""


@dataclass(frozen=True, slots=True)
class EvidenceRanker:
    """Scores sentences beside a question."""

    forest: Forest
    fingerprint: str
    """Identifies the trees."""

    def score(self, question: str, documents: Sequence[Found], analyze: WordAnalyzer) -> Matrix:
        """Return one score for each sentence of the documents, in order `(n,)`. Higher answers better."""
        return self.score_rows(describe(question, documents, analyze))

    def score_rows(self, rows: Matrix) -> Matrix:
        """Return the scores of rows of `describe`."""
        return self.forest.predict(rows) - OPPOSITE_LOSS * rows[:, FEATURES.index("opposites")]


def describe(question: str, documents: Sequence[Found], analyze: WordAnalyzer) -> Matrix:
    """Return the features of all sentences of the documents, in order `(n, len(FEATURES))`."""
    own = np.vstack([found.article.own for found in documents])
    return np.hstack([own, compare_with_question(question, documents, analyze)])


@cache
def load_ranker() -> EvidenceRanker:
    """Return the shipped ranker."""
    content = (files(__package__) / "weights" / "evidence_ranker.npz").read_bytes()
    return EvidenceRanker(Forest.from_bytes(content), hashlib.sha256(content).hexdigest()[:16])
