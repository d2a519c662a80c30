"""BM25 over a few candidates, as in BriefContext's notebooks (errata C6): Okapi BM25 of the package rank_bm25.

Statistics come from the candidates alone, and texts are split at blanks with case and punctuation kept. Words of more
than half of the candidates would have a negative IDF. They get a quarter of the mean IDF instead, so the words of the
topic count for little. Searches use the statistics of the whole library.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

K1, B, EPSILON = 1.5, 0.75, 0.25
"""The defaults of rank_bm25. EPSILON is the share of the mean IDF that a negative IDF is replaced by."""


def score_candidates(query: str, texts: Sequence[str]) -> list[float]:
    """Return the BM25 score of each text for the query. A text without a word of the query has 0.

    A word that the query repeats counts each time.
    """
    documents = [text.split(" ") for text in texts]
    if not documents:
        return []
    counts = list(map(Counter, documents))
    idf = _measure_idf(counts)
    mean_length = fmean(map(len, documents))
    words = [word for word in query.split(" ") if word in idf]
    scores: list[float] = []
    for count, document in zip(counts, documents, strict=True):
        norm = K1 * (1 - B + B * len(document) / mean_length)
        score = 0.0
        for word in words:
            score += idf[word] * count[word] * (K1 + 1) / (count[word] + norm)
        scores.append(score)
    return scores


def _measure_idf(counts: Sequence[Counter[str]]) -> dict[str, float]:
    """Return the IDF of each word. A negative one is replaced by EPSILON times the mean of all."""
    holding: Counter[str] = Counter()
    for count in counts:
        holding.update(count.keys())
    n = len(counts)
    idf = {word: math.log(n - k + 0.5) - math.log(k + 0.5) for word, k in holding.items()}
    floor = EPSILON * fmean(idf.values())
    return {word: floor if value < 0 else value for word, value in idf.items()}
