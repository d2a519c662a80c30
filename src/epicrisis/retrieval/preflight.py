"""The preflight check: is the top of the ranking to be trusted, so that one prompt will do? A pure function.

BriefContext, Methods, equation 1, by its text and not by its sign (errata B1): agreement means that the key passage
probably stands in a spotlight place already, so map-reduce is not needed. Its signal is the overlap; the others of
`signals` are judged alike, by a threshold. Knows no search.
"""

from __future__ import annotations

from epicrisis.retrieval.signals import Scored, Signal, measured
from epicrisis.types import Preflight, SignalKind


def rankings_agree(
    dense: Scored,
    bm25: Scored,
    reranked: Scored | None = None,
    *,
    signal: SignalKind = "overlap",
    n: int = 3,
    threshold: float = 0.2,
    depth: int = 16,
) -> Preflight:
    """Judges the first `n` of `dense`, `bm25` and `reranked` being `dense[:depth]` ranked anew.

    They agree when the signal is strictly greater than `threshold`. At n = 3 the overlap can only be 0, 0.2, 0.5 or 1,
    so every threshold from 0.2 to below 0.5 asks for two shared passages (errata B2); but where BM25 finds fewer than
    three of the hits (the others share no word with the question) it can be 1/4, 1/3 or 2/3 as well, and one shared
    passage may do. Raises ValueError where the signal needs a reranker and there is none.
    """
    what = Signal(signal, n)
    value = measured(what, dense, bm25, reranked)
    if value is None:
        raise ValueError(f"the signal {signal} needs a reranker")
    agree = value > threshold
    dense_top, bm25_top, reranked_top = (
        tuple(id_ for id_, _ in ranking[:n]) for ranking in (dense, bm25, reranked or ())
    )
    shared = set(dense_top) & set(reranked_top if signal == "reranker-overlap" else bm25_top)
    return Preflight(
        rankings_agree=agree,
        value=value,
        n=n,
        threshold=threshold,
        depth=depth,
        dense_top=dense_top,
        bm25_top=bm25_top,
        reason=_reason(what, value, threshold, len(shared)),
        signal=signal,
        reranked_top=reranked_top,
    )


def _reason(signal: Signal, value: float, threshold: float, shared: int) -> str:
    agree = value > threshold
    told = f"{'above' if agree else 'not above'} {threshold:g}"
    agreeing = f"the rankings {'agree' if agree else 'disagree'}"
    match signal.kind:
        case "overlap":
            found = f"{shared} of the top {signal.n} are shared (overlap {value:.2f}, {told}): {agreeing}"
        case "reranker-overlap":
            by = "are the reranker's too"
            found = f"{shared} of the top {signal.n} {by} (overlap {value:.2f}, {told}): {agreeing}"
        case "rank-biased-overlap":
            found = f"the rankings are alike down to place {signal.n} by {value:.2f}, {told}: they "
            found += "agree" if agree else "disagree"
        case "dense-gap" | "bm25-gap":
            by = "dense" if signal.kind == "dense-gap" else "BM25"
            found = f"the first {by} score leads the mean of those down to place {signal.n} by {value:.4g}, {told}: "
            found += "the first hit stands out" if agree else "no hit stands out"
    return f"{found}, so {'one prompt will do' if agree else 'each part is read on its own'}"
