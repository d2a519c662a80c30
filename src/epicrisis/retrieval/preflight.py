"""The preflight check: whether the top of the ranking can be trusted, so that one prompt is enough.

It follows the text of BriefContext's equation 1 (Methods), not its sign (errata B1): if the rankings agree, the key
document is probably in a prominent place already, and map-reduce is not needed. The paper's signal is the overlap; the
other signals of `ranking_signals` are compared with a threshold in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from epicrisis.retrieval.document_ranking import score_documents
from epicrisis.retrieval.ranking_signals import ScoredIds, Signal, measure_signal
from epicrisis.types import CountUnit, Preflight, Ranking, RuleName, SignalKind


@dataclass(frozen=True, slots=True)
class AgreementRule:
    """A rule: the rankings agree if the signal is strictly greater than the threshold."""

    signal: SignalKind = "overlap"
    n: int = 3
    threshold: float = 0.2
    origin: str = ""
    """Source of the rule, for a reader; empty for a rule from the settings."""


FEW_DOCUMENTS = "of passages, since so few documents are ranked"
PAPER = AgreementRule(origin="the paper's rule")
BY_RANKS = AgreementRule("rank-biased-overlap", 10, 0.6806, "fitted to ranks, since none is fitted to these scores")
"""For documents with scores that no rule is fitted to."""
FITTED: Mapping[str, AgreementRule] = {
    "minilm-b07bcaa753aacb54": AgreementRule("dense-gap", 16, 0.1819, "fitted to this encoder"),
}
"""Rules by the fingerprint of the encoder that they are fitted to (`benchmarks/RESULTS.md`, Preflight)."""


def describe_rules() -> dict[str, tuple[SignalKind, int, float]]:
    """Return signal, n and threshold of each named rule, for the recipe of a run. A new fit makes a different run."""
    rules = {"paper": PAPER, "by ranks": BY_RANKS, **FITTED}
    return {name: (rule.signal, rule.n, rule.threshold) for name, rule in rules.items()}


def choose_rule(
    name: RuleName,
    dense: Ranking,
    count: CountUnit,
    patient: bool,
    *,
    signal: SignalKind | None = None,
    n: int | None = None,
    threshold: float | None = None,
) -> AgreementRule:
    """Return the rule for this dense ranking.

    A given signal, n or threshold makes a rule with the paper's values for the others. The fitted rules apply to
    documents of literature only: the one fitted to the encoder if the ranking has this encoder's scores, else the one
    fitted to ranks. The paper's rule applies to patients' records and to passages.
    """
    if signal is not None or n is not None or threshold is not None:
        return AgreementRule(
            signal or PAPER.signal, PAPER.n if n is None else n, PAPER.threshold if threshold is None else threshold
        )
    if name == "paper" or count == "passages" or patient:
        return PAPER
    encoder = dense.parameters.get("encoder")
    has_other_scores = "fused" in dense.parameters or "reranker" in dense.parameters
    if has_other_scores or not isinstance(encoder, str):
        return BY_RANKS
    return FITTED.get(encoder, BY_RANKS)


def compare_rankings(
    dense: ScoredIds,
    bm25: ScoredIds,
    reranked: ScoredIds | None = None,
    *,
    signal: SignalKind = PAPER.signal,
    n: int = PAPER.n,
    threshold: float = PAPER.threshold,
    depth: int = 16,
    count: CountUnit = "documents",
    origin: str = "",
) -> Preflight:
    """Return whether the rankings agree on the first `n` documents or passages.

    `bm25` and `reranked` are the hits of `dense` in another order. All three contain passages: those of the first
    `depth` documents, or the first `depth` passages. A document has the place and the score of its best passage. If at
    most `n` documents are ranked (a book, a short record), any overlap would include all of them, so their passages are
    compared.

    At n = 3 the overlap can only be 0, 0.2, 0.5 or 1, so every threshold from 0.2 to below 0.5 requires two shared
    documents (errata B2). If BM25 finds fewer than three of the hits, because the others share no word with the
    question, it can also be 1/4, 1/3 or 2/3, and one shared document may be enough.

    `origin` is the source of the rule. Raises ValueError if the signal needs a reranker and there is none.
    """
    kind = Signal(signal, n)
    document_scores = score_documents(dense)
    few_documents = (
        count == "documents"
        and signal in ("overlap", "reranker-overlap")
        and len(dense) > len(document_scores) <= n
        and len(document_scores) < depth
    )
    if few_documents:
        count = "passages"
    if count == "documents":
        dense, bm25 = document_scores, score_documents(bm25)
        reranked = None if reranked is None else score_documents(reranked)
    value = measure_signal(kind, dense, bm25, reranked)
    if value is None:
        raise ValueError(f"the signal {signal} needs a reranker")
    dense_top, bm25_top, reranked_top = _top(dense, n), _top(bm25, n), _top(reranked or (), n)
    shared = set(dense_top) & set(reranked_top if signal == "reranker-overlap" else bm25_top)
    source = ", ".join(filter(None, (origin, FEW_DOCUMENTS if few_documents else "")))
    return Preflight(
        rankings_agree=value > threshold,
        value=value,
        n=n,
        threshold=threshold,
        depth=depth,
        dense_top=dense_top,
        bm25_top=bm25_top,
        reason=_explain(kind, value, threshold, len(shared), source),
        signal=signal,
        reranked_top=reranked_top,
        count=count,
        rule=origin,
    )


def _top(ranking: ScoredIds, n: int) -> tuple[str, ...]:
    return tuple(item for item, _ in ranking[:n])


def _explain(signal: Signal, value: float, threshold: float, shared: int, origin: str) -> str:
    agree = value > threshold
    comparison = f"{'above' if agree else 'not above'} {threshold:g}"
    verdict = f"the rankings {'agree' if agree else 'disagree'}"
    match signal.kind:
        case "overlap":
            text = f"{shared} of the top {signal.n} are shared (overlap {value:.2f}, {comparison}): {verdict}"
        case "reranker-overlap":
            text = (
                f"{shared} of the top {signal.n} are the reranker's too (overlap {value:.2f}, {comparison}): {verdict}"
            )
        case "rank-biased-overlap":
            text = f"the rankings are alike down to place {signal.n} by {value:.2f}, {comparison}: they "
            text += "agree" if agree else "disagree"
        case "dense-gap" | "bm25-gap":
            retriever = "dense" if signal.kind == "dense-gap" else "BM25"
            text = f"the first {retriever} score leads the mean of those down to place {signal.n} by {value:.4g}, "
            text += f"{comparison}: {'the first hit stands out' if agree else 'no hit stands out'}"
    source = f" ({origin})" if origin else ""
    return f"{text}, so {'one prompt will do' if agree else 'each part is read on its own'}{source}"
