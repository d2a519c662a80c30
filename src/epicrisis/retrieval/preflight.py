"""The preflight check: whether the top of the ranking can be trusted, so that one prompt is enough.

It follows the text of BriefContext's equation 1 (Methods), not its sign (errata B1): if the rankings agree, the key
document is probably in a prominent place already, and map-reduce is not needed. The paper's signal is the overlap; the
others are compared with a threshold in the same way. A higher value always means more trust:

    overlap               of the first n by dense vectors and by BM25: shared over all (BriefContext, equation 1)
    rank-biased-overlap   of the same two rankings down to place n, with most weight on the first places
    dense-gap, bm25-gap   the first score minus the mean of the following ones down to place n
    reranker-overlap      of the first n by dense vectors and by a reranker

Thresholds are fitted (`evaluation.experiments.preflight_calibration`) or come from the papers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from epicrisis.core.types import CountUnit, Metadata, Preflight, RuleName, SignalKind
from epicrisis.retrieval.rankings import score_documents

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
            return intersection_over_union(_top(dense, n), _top(bm25, n))
        case "rank-biased-overlap":
            return rank_biased_overlap(_top(dense, n), _top(bm25, n), n)
        case "dense-gap" | "bm25-gap":
            ranking = dense if signal.kind == "dense-gap" else bm25
            return score_gap([score for _, score in ranking], n)
        case "reranker-overlap":
            return None if reranked is None else intersection_over_union(_top(dense, n), _top(reranked, n))


def _top(ranking: ScoredIds, n: int) -> tuple[str, ...]:
    return tuple(item for item, _ in ranking[:n])


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
    parameters: Metadata,
    count: CountUnit,
    patient: bool,
    *,
    signal: SignalKind | None = None,
    n: int | None = None,
    threshold: float | None = None,
) -> AgreementRule:
    """Return the rule for the dense ranking with these parameters.

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
    encoder = parameters.get("encoder")
    has_other_scores = "fused" in parameters or "reranker" in parameters
    if has_other_scores or not isinstance(encoder, str):
        return BY_RANKS
    return FITTED.get(encoder, BY_RANKS)


def compare_rankings(
    dense: ScoredIds,
    bm25: ScoredIds,
    reranked: ScoredIds | None = None,
    rule: AgreementRule = AgreementRule(),
    *,
    depth: int = 16,
    count: CountUnit = "documents",
) -> Preflight:
    """Return whether the rankings agree by the rule on its first `n` documents or passages.

    `bm25` and `reranked` are the hits of `dense` in another order. A document has the place and the score of its best
    passage. If at most `n` documents are ranked (a book, a short record), any overlap would include all of them, so
    their passages are compared. Raises ValueError if the signal needs a reranker and there is none.

    At n = 3 the overlap can only be 0, 0.2, 0.5 or 1, so every threshold from 0.2 to below 0.5 requires two shared
    documents (errata B2). If BM25 finds fewer than three of the hits, because the others share no word with the
    question, it can also be 1/4, 1/3 or 2/3, and one shared document may be enough.
    """
    n = rule.n
    document_scores = score_documents(dense)
    few_documents = (
        count == "documents"
        and rule.signal in ("overlap", "reranker-overlap")
        and len(dense) > len(document_scores) <= n
        and len(document_scores) < depth
    )
    if few_documents:
        count = "passages"
    if count == "documents":
        dense, bm25 = document_scores, score_documents(bm25)
        reranked = None if reranked is None else score_documents(reranked)
    value = measure_signal(Signal(rule.signal, n), dense, bm25, reranked)
    if value is None:
        raise ValueError(f"the signal {rule.signal} needs a reranker")
    dense_top, bm25_top, reranked_top = _top(dense, n), _top(bm25, n), _top(reranked or (), n)
    shared = set(dense_top) & set(reranked_top if rule.signal == "reranker-overlap" else bm25_top)
    source = ", ".join(filter(None, (rule.origin, FEW_DOCUMENTS if few_documents else "")))
    return Preflight(
        rankings_agree=value > rule.threshold,
        value=value,
        n=n,
        threshold=rule.threshold,
        depth=depth,
        dense_top=dense_top,
        bm25_top=bm25_top,
        reason=_explain(rule, value, len(shared), source),
        signal=rule.signal,
        reranked_top=reranked_top,
        count=count,
        rule=rule.origin,
    )


def _explain(rule: AgreementRule, value: float, shared: int, origin: str) -> str:
    agree = value > rule.threshold
    comparison = f"{'above' if agree else 'not above'} {rule.threshold:g}"
    verdict = f"the rankings {'agree' if agree else 'disagree'}"
    match rule.signal:
        case "overlap" | "reranker-overlap":
            sharing = "are shared" if rule.signal == "overlap" else "are the reranker's too"
            text = f"{shared} of the top {rule.n} {sharing} (overlap {value:.2f}, {comparison}): {verdict}"
        case "rank-biased-overlap":
            text = f"the rankings are alike down to place {rule.n} by {value:.2f}, {comparison}: they "
            text += "agree" if agree else "disagree"
        case "dense-gap" | "bm25-gap":
            retriever = "dense" if rule.signal == "dense-gap" else "BM25"
            text = f"the first {retriever} score exceeds the mean of the others down to place {rule.n} by {value:.4g}, "
            text += f"{comparison}: {'the first hit stands out' if agree else 'no hit stands out'}"
    source = f" ({origin})" if origin else ""
    return f"{text}, so {'one prompt will do' if agree else 'each part is read on its own'}{source}"
