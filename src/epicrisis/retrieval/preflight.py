"""The preflight check: do two rankings of the same hits agree at the top? A pure function.

BriefContext, Methods, equation 1, by its text and not by its sign (errata B1): agreement means that the key passage
probably stands in a spotlight place already, so map-reduce is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from epicrisis.types import Preflight


def intersection_over_union(a: Sequence[str], b: Sequence[str]) -> float:
    """Shared ids over all ids of two lists, 0 to 1; two empty lists share nothing and give 0."""
    union = set(a) | set(b)
    return len(set(a) & set(b)) / len(union) if union else 0.0


def rankings_agree(
    dense: Sequence[str], bm25: Sequence[str], *, n: int = 3, threshold: float = 0.2, depth: int = 16
) -> Preflight:
    """Compares the first `n` of `dense` and `bm25`, the latter being `dense[:depth]` ranked anew.

    They agree when the overlap is strictly greater than `threshold`. At n = 3 the overlap can only be 0, 0.2, 0.5 or
    1, so every threshold from 0.2 to below 0.5 asks for two shared passages (errata B2).
    """
    dense_top, bm25_top = tuple(dense[:n]), tuple(bm25[:n])
    overlap = intersection_over_union(dense_top, bm25_top)
    agree = overlap > threshold
    shared = len(set(dense_top) & set(bm25_top))
    reason = (
        f"{shared} of the top {n} are shared (overlap {overlap:.2f}, "
        f"{'above' if agree else 'not above'} {threshold:g}): the rankings "
        + ("agree, so one prompt will do" if agree else "disagree, so each part is read on its own")
    )
    return Preflight(
        rankings_agree=agree,
        overlap=overlap,
        n=n,
        threshold=threshold,
        depth=depth,
        dense_top=dense_top,
        bm25_top=bm25_top,
        reason=reason,
    )
