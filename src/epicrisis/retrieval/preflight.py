"""The preflight check: is the top of the ranking to be trusted, so that one prompt will do? Pure functions.

BriefContext, Methods, equation 1, by its text and not by its sign (errata B1): agreement means that the key document
probably stands in a spotlight place already, so map-reduce is not needed. Its signal is the overlap; the others of
`signals` are judged alike, by a threshold. Documents are compared, as in the paper, or passages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from epicrisis.retrieval.document_ranking import by_document
from epicrisis.retrieval.ranking_signals import Scored, Signal, measured
from epicrisis.types import CountUnit, Preflight, Ranking, RuleName, SignalKind


@dataclass(frozen=True, slots=True)
class AgreementRule:
    """The rankings agree where the signal is strictly greater than the threshold."""

    signal: SignalKind = "overlap"
    n: int = 3
    threshold: float = 0.2
    origin: str = ""
    """Where it comes from, for a reader; empty where it was given."""


FEW = "of passages, since so few documents are ranked"
PAPER = AgreementRule(origin="the paper's rule")
BY_RANKS = AgreementRule("rank-biased-overlap", 10, 0.6806, "fitted to ranks, since none is fitted to these scores")
"""For documents whose scores no rule is fitted to."""
FITTED: Mapping[str, AgreementRule] = {
    "minilm-b07bcaa753aacb54": AgreementRule("dense-gap", 16, 0.1819, "fitted to this encoder"),
}
"""Rules by the fingerprint of the encoder that they are fitted to (`benchmarks/RESULTS.md`, Preflight)."""


def named_rules() -> dict[str, tuple[SignalKind, int, float]]:
    """Return what the named rules are by now, for the recipe of a run: a rule that is fitted anew is another run."""
    rules = {"paper": PAPER, "by ranks": BY_RANKS, **FITTED}
    return {name: (rule.signal, rule.n, rule.threshold) for name, rule in rules.items()}


def rule_for(
    name: RuleName,
    dense: Ranking,
    count: CountUnit,
    patient: bool,
    *,
    signal: SignalKind | None = None,
    n: int | None = None,
    threshold: float | None = None,
) -> AgreementRule:
    """Return the rule that judges this dense ranking.

    Where signal, n or threshold is given, it is that rule, and what is left out is as in the paper's. The fitted rules
    hold for documents of literature alone: by the encoder's own scores where one was fitted to them, and these are the
    ranking's, else by ranks. A patient's record, and passages, are judged by the paper's.
    """
    if signal is not None or n is not None or threshold is not None:
        return AgreementRule(
            signal or PAPER.signal, PAPER.n if n is None else n, PAPER.threshold if threshold is None else threshold
        )
    if name == "paper" or count == "passages" or patient:
        return PAPER
    encoder = dense.parameters.get("encoder")
    fused = {"fused", "reranker"} & set(dense.parameters)
    return FITTED.get(encoder, BY_RANKS) if isinstance(encoder, str) and not fused else BY_RANKS


def rankings_agree(
    dense: Scored,
    bm25: Scored,
    reranked: Scored | None = None,
    *,
    signal: SignalKind = PAPER.signal,
    n: int = PAPER.n,
    threshold: float = PAPER.threshold,
    depth: int = 16,
    count: CountUnit = "documents",
    origin: str = "",
) -> Preflight:
    """Judge the first `n` documents or passages of `dense`, `bm25` and `reranked` being `dense` ranked anew.

    All three are passages, those of the first `depth` documents or the first `depth`. Where documents are counted, each
    stands in the place of its best passage, with its score. An overlap of no more than `n` documents would be all of
    them whatever is asked (a book, a short record), so their passages are compared.

    They agree when the signal is strictly greater than the threshold. At n = 3 the overlap can only be 0, 0.2, 0.5 or
    1, so every threshold from 0.2 to below 0.5 asks for two shared documents (errata B2); but where BM25 finds fewer
    than three of the hits (the others share no word with the question) it can be 1/4, 1/3 or 2/3 as well, and one
    shared document may do. `origin` says where the rule comes from. Raises ValueError where the signal needs a reranker
    and there is none.
    """
    what = Signal(signal, n)
    few = count == "documents" and signal.endswith("overlap") and signal != "rank-biased-overlap"
    few = few and len(dense) > len(by_document(dense)) <= n and len(by_document(dense)) < depth
    count = "passages" if few else count
    if count == "documents":
        dense, bm25 = by_document(dense), by_document(bm25)
        reranked = None if reranked is None else by_document(reranked)
    value = measured(what, dense, bm25, reranked)
    if value is None:
        raise ValueError(f"the signal {signal} needs a reranker")
    dense_top, bm25_top, reranked_top = (
        tuple(id_ for id_, _ in ranking[:n]) for ranking in (dense, bm25, reranked or ())
    )
    shared = set(dense_top) & set(reranked_top if signal == "reranker-overlap" else bm25_top)
    return Preflight(
        rankings_agree=value > threshold,
        value=value,
        n=n,
        threshold=threshold,
        depth=depth,
        dense_top=dense_top,
        bm25_top=bm25_top,
        reason=_reason(what, value, threshold, len(shared), ", ".join(filter(None, (origin, FEW if few else "")))),
        signal=signal,
        reranked_top=reranked_top,
        count=count,
        rule=origin,
    )


def _reason(signal: Signal, value: float, threshold: float, shared: int, origin: str) -> str:
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
    source = f" ({origin})" if origin else ""
    return f"{found}, so {'one prompt will do' if agree else 'each part is read on its own'}{source}"
