"""Signals for a preflight check: how far the top of a ranking can be trusted.

    overlap               of the first n by dense vectors and by BM25: shared over all (BriefContext, equation 1)
    rank-biased-overlap   of the same two rankings down to place n, with most weight on the first places
    dense-gap, bm25-gap   the first score minus the mean of the following ones down to place n
    reranker-overlap      of the first n by dense vectors and by a reranker

A higher value always means more trust. Thresholds are fitted (`evaluation.experiments.preflight_calibration`) or come
from the papers (`preflight`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from epicrisis.types import SignalKind

ScoredIds: TypeAlias = Sequence[tuple[str, float]]
"""Passage ids with their scores, best first."""

BM25_SIGNALS: frozenset[SignalKind] = frozenset({"overlap", "rank-biased-overlap", "bm25-gap"})
PERSISTENCE = 0.9
"""Probability that a reader continues from one place to the next, in rank-biased overlap."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal over the first `n` places."""

    kind: SignalKind
    n: int

    def __str__(self) -> str:
        return f"{self.kind}@{self.n}"


def measure_signal(
    signal: Signal, dense: ScoredIds, bm25: ScoredIds, reranked: ScoredIds | None = None
) -> float | None:
    """Return the value of a signal, or None if it needs a reranker and there is none.

    `bm25` and `reranked` are the hits of `dense` in another order.
    """
    n = signal.n
    match signal.kind:
        case "overlap":
            return intersection_over_union(_ids(dense[:n]), _ids(bm25[:n]))
        case "rank-biased-overlap":
            return rank_biased_overlap(_ids(dense), _ids(bm25), n)
        case "dense-gap":
            return score_gap(_scores(dense), n)
        case "bm25-gap":
            return score_gap(_scores(bm25), n)
        case "reranker-overlap":
            return None if reranked is None else intersection_over_union(_ids(dense[:n]), _ids(reranked[:n]))


def _ids(scored: ScoredIds) -> list[str]:
    return [passage_id for passage_id, _ in scored]


def _scores(scored: ScoredIds) -> list[float]:
    return [score for _, score in scored]


def intersection_over_union(a: Sequence[str], b: Sequence[str]) -> float:
    """Return the number of shared ids over the number of all ids, 0 to 1; 0 for two empty lists."""
    union = set(a) | set(b)
    return len(set(a) & set(b)) / len(union) if union else 0.0


def rank_biased_overlap(a: Sequence[str], b: Sequence[str], n: int, p: float = PERSISTENCE) -> float:
    """Return the similarity of two rankings down to place `n`, with most weight on the first places; 0 to 1.

    This is equation 30 of Webber, Moffat and Zobel, TOIS 28(4), 2010, extrapolated from depth n. A shorter ranking
    shares nothing beyond its end.
    """
    prefix_a: set[str] = set()
    prefix_b: set[str] = set()
    agreement, total = 0.0, 0.0
    for depth in range(1, n + 1):
        prefix_a.update(a[depth - 1 : depth])
        prefix_b.update(b[depth - 1 : depth])
        agreement = len(prefix_a & prefix_b) / depth
        total += agreement * p ** (depth - 1)
    return agreement * p**n + (1 - p) * total


def score_gap(scores: Sequence[float], n: int) -> float:
    """Return the first score minus the mean of the others among the first `n`; 0 if there are no others."""
    return scores[0] - fmean(scores[1:n]) if len(scores[:n]) > 1 else 0.0
