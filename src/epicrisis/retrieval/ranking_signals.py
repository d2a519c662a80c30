"""How far the top of a ranking can be trusted: what a preflight check may look at. Pure arithmetic.

    overlap               of the first n by dense vectors and by BM25: shared over all (BriefContext, equation 1)
    rank-biased-overlap   of the same two rankings down to place n, the first places weighing most
    dense-gap, bm25-gap   the first score less the mean of those after it down to place n
    reranker-overlap      of the first n by dense vectors and by a reranker

Of every signal a higher value means more trust. Which value is enough is no matter of this module: it is fitted
(`evaluation.experiments.calibration`), or the papers' (`preflight.rankings_agree`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from epicrisis.types import SignalKind

Scored: TypeAlias = Sequence[tuple[str, float]]
"""Passage ids with their scores, best first."""

BY_WORDS: frozenset[SignalKind] = frozenset({"overlap", "rank-biased-overlap", "bm25-gap"})
"""Those that look at BM25's ranking."""
PERSISTENCE = 0.9
"""How likely a reader goes on from one place to the next, in rank-biased overlap."""


@dataclass(frozen=True, slots=True)
class Signal:
    """What is looked at, over the first `n` places."""

    kind: SignalKind
    n: int

    def __str__(self) -> str:
        return f"{self.kind}@{self.n}"


def measured(signal: Signal, dense: Scored, bm25: Scored, reranked: Scored | None = None) -> float | None:
    """The signal's value, `bm25` and `reranked` being `dense` in a new order; `None` where there is no reranker."""
    ids = [each for each, _ in dense]
    match signal.kind:
        case "overlap":
            return intersection_over_union(ids[: signal.n], [each for each, _ in bm25[: signal.n]])
        case "rank-biased-overlap":
            return rank_biased_overlap(ids, [each for each, _ in bm25], signal.n)
        case "dense-gap":
            return score_gap([score for _, score in dense], signal.n)
        case "bm25-gap":
            return score_gap([score for _, score in bm25], signal.n)
        case "reranker-overlap":
            if reranked is None:
                return None
            return intersection_over_union(ids[: signal.n], [each for each, _ in reranked[: signal.n]])


def intersection_over_union(a: Sequence[str], b: Sequence[str]) -> float:
    """Shared ids over all ids of two lists, 0 to 1; two empty lists share nothing and give 0."""
    union = set(a) | set(b)
    return len(set(a) & set(b)) / len(union) if union else 0.0


def rank_biased_overlap(a: Sequence[str], b: Sequence[str], n: int, p: float = PERSISTENCE) -> float:
    """How alike two rankings are down to place `n`, the first places weighing most; 0 to 1.

    Webber, Moffat and Zobel, TOIS 28(4), 2010, equation 30 (extrapolated from depth n). A ranking that ends sooner
    shares nothing further.
    """
    seen_a: set[str] = set()
    seen_b: set[str] = set()
    agreement, total = 0.0, 0.0
    for depth in range(1, n + 1):
        seen_a.update(a[depth - 1 : depth])
        seen_b.update(b[depth - 1 : depth])
        agreement = len(seen_a & seen_b) / depth
        total += agreement * p ** (depth - 1)
    return agreement * p**n + (1 - p) * total


def score_gap(scores: Sequence[float], n: int) -> float:
    """The first score less the mean of the others among the first `n`; 0 where there is no other."""
    return scores[0] - fmean(scores[1:n]) if len(scores[:n]) > 1 else 0.0
