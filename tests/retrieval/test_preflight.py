"""The preflight check: what the signals can be, what follows from them, and what a reader is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.types import CountUnit, Ranking, SignalKind
from epicrisis.retrieval.preflight import (
    BY_RANKS,
    FITTED,
    PAPER,
    AgreementRule,
    ScoredIds,
    Signal,
    choose_rule,
    compare_rankings,
    measure_signal,
)

NAMES = [f"d{i}#0" for i in range(12)]
ids = st.lists(st.sampled_from(NAMES), unique=True, min_size=0, max_size=12)
rankings = st.permutations(NAMES)


def scored(names: Sequence[str]) -> ScoredIds:
    return [(name, 1 / rank) for rank, name in enumerate(names, 1)]


@pytest.mark.slow
@given(rankings, rankings)
def test_overlap_at_three_has_four_values(dense: list[str], bm25: list[str]) -> None:
    """Errata B2: 0, 1, 2 or 3 shared of 3 and 3."""
    shared = len(set(dense[:3]) & set(bm25[:3]))
    assert compare_rankings(scored(dense), scored(bm25)).value == [0.0, 0.2, 0.5, 1.0][shared]


@pytest.mark.parametrize(("found", "overlap"), [("a", 1 / 3), ("ab", 2 / 3), ("xy", 0.0), ("ax", 1 / 4)])
def test_overlap_with_short_sparse_list_has_two_more_values(found: str, overlap: float) -> None:
    assert compare_rankings(scored("abc"), scored(found)).value == pytest.approx(overlap)


@pytest.mark.slow
@given(rankings, rankings)
def test_paper_and_code_thresholds_agree_at_three(dense: list[str], bm25: list[str]) -> None:
    verdicts = [
        compare_rankings(scored(dense), scored(bm25), rule=AgreementRule(n=3, threshold=t)).rankings_agree
        for t in (0.2, 0.3)
    ]
    assert verdicts == [len(set(dense[:3]) & set(bm25[:3])) >= 2] * 2


def test_paper_and_code_thresholds_differ_at_five() -> None:
    """Two of five shared: 2 / 8 = 0.25."""
    dense, bm25 = scored("abcde"), scored("abxyz")
    assert compare_rankings(dense, bm25, rule=AgreementRule(n=5, threshold=0.2)).rankings_agree
    assert not compare_rankings(dense, bm25, rule=AgreementRule(n=5, threshold=0.3)).rankings_agree


@pytest.mark.parametrize(("threshold", "agree"), [(0.19, True), (0.2, False), (0.21, False)])
def test_overlap_equal_to_threshold_is_disagreement(threshold: float, agree: bool) -> None:
    verdict = compare_rankings(scored("abc"), scored("ade"), rule=AgreementRule(threshold=threshold))
    assert verdict.value == 0.2
    assert verdict.rankings_agree is agree


def test_agreement_skips_map_reduce() -> None:
    """Errata B1: the text's direction, not the sign of equation 1."""
    same = compare_rankings(scored("abc"), scored("bca"))
    assert same.rankings_agree
    assert "3 of the top 3" in same.reason
    assert "above 0.2" in same.reason
    assert "one prompt" in same.reason
    other = compare_rankings(scored("abc"), scored("xyz"))
    assert not other.rankings_agree
    assert "0 of the top 3" in other.reason
    assert "not above 0.2" in other.reason


def test_empty_lists_do_not_agree() -> None:
    verdict = compare_rankings([], [])
    assert (verdict.rankings_agree, verdict.value) == (False, 0.0)
    assert not compare_rankings([], [], rule=AgreementRule(threshold=0.0)).rankings_agree


def test_verdict_uses_top_ranks_and_reports_lists() -> None:
    verdict = compare_rankings(scored("abcz"), scored("azyb"), depth=7, rule=AgreementRule(n=2, threshold=0.3))
    assert (verdict.dense_top, verdict.bm25_top, verdict.reranked_top) == (("a", "b"), ("a", "z"), ())
    assert (verdict.signal, verdict.n, verdict.threshold, verdict.depth) == ("overlap", 2, 0.3, 7)
    assert verdict.value == pytest.approx(1 / 3)


@pytest.mark.slow
@given(ids, ids, st.integers(1, 6), st.floats(0, 0.99))
def test_verdict_follows_overlap_and_is_symmetric(dense: list[str], bm25: list[str], n: int, threshold: float) -> None:
    one, other = (
        compare_rankings(scored(dense), scored(bm25), rule=AgreementRule(n=n, threshold=threshold)),
        compare_rankings(scored(bm25), scored(dense), rule=AgreementRule(n=n, threshold=threshold)),
    )
    assert 0 <= one.value <= 1
    assert one.value == other.value
    assert one.rankings_agree == (one.value > threshold)


# -- the other signals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signal", "n", "reason"),
    [
        ("overlap", 3, "2 of the top 3 are shared (overlap 0.50, {told} {t}): the rankings {agree}, so {end}"),
        (
            "reranker-overlap",
            2,
            "2 of the top 2 are the reranker's too (overlap 1.00, {told} {t}): the rankings {agree}, so {end}",
        ),
        (
            "rank-biased-overlap",
            1,
            "the rankings are alike down to place 1 by 0.00, {told} {t}: they {agree}, so {end}",
        ),
        (
            "dense-gap",
            3,
            "the first dense score exceeds the mean of the others down to place 3 by 0.5833, {told} {t}: {lead}, "
            "so {end}",
        ),
        (
            "bm25-gap",
            2,
            "the first BM25 score exceeds the mean of the others down to place 2 by 0.5, {told} {t}: {lead}, so {end}",
        ),
    ],
)
def test_signal_uses_own_value_and_is_named(signal: SignalKind, n: int, reason: str) -> None:
    dense, bm25, reranked = scored("abcd"), scored("dab"), scored("badc")
    value = measure_signal(Signal(signal, n), dense, bm25, reranked)
    assert value is not None
    for threshold in (value - 0.25, value, value + 0.25):
        verdict = compare_rankings(dense, bm25, reranked, rule=AgreementRule(signal=signal, n=n, threshold=threshold))
        agree = threshold < value
        assert (verdict.rankings_agree, verdict.value, verdict.signal) == (agree, value, signal)
        assert verdict.reason == reason.format(
            told="above" if agree else "not above",
            t=f"{threshold:g}",
            agree="agree" if agree else "disagree",
            lead="the first hit stands out" if agree else "no hit stands out",
            end="one prompt will do" if agree else "each part is read on its own",
        )


def test_verdict_contains_compared_lists() -> None:
    verdict = compare_rankings(scored("abcd"), [], scored("bdca"), rule=AgreementRule(signal="reranker-overlap", n=2))
    assert (verdict.dense_top, verdict.bm25_top, verdict.reranked_top) == (("a", "b"), (), ("b", "d"))
    assert verdict.value == pytest.approx(1 / 3)


def test_reranker_signal_without_reranker_raises() -> None:
    with pytest.raises(ValueError, match="reranker-overlap needs a reranker"):
        compare_rankings(scored("abc"), scored("abc"), rule=AgreementRule(signal="reranker-overlap"))


# -- which rule judges ------------------------------------------------------------------------------------------------

MINILM = "minilm-b07bcaa753aacb54"


def dense_by(encoder: object, **parameters: object) -> Ranking:
    return Ranking((), "dense", {"encoder": encoder, **parameters})


@pytest.mark.parametrize(
    ("dense", "count", "patient", "rule"),
    [
        (dense_by(MINILM), "documents", False, FITTED[MINILM]),
        (dense_by("medcpt-0"), "documents", False, BY_RANKS),
        (dense_by([MINILM, "medcpt-0"], fused=2), "documents", False, BY_RANKS),
        (dense_by(MINILM, fused=3), "documents", False, BY_RANKS),
        (dense_by(MINILM), "passages", False, PAPER),
        (dense_by(MINILM), "documents", True, PAPER),
    ],
)
def test_fitted_threshold_applies_only_to_its_scores(
    dense: Ranking, count: CountUnit, patient: bool, rule: AgreementRule
) -> None:
    """A gap is in the encoder's own unit; a fusion's scores (of libraries, of a question in segments) are others."""
    assert choose_rule("fitted", dense.parameters, count, patient) == rule
    assert choose_rule("paper", dense.parameters, count, patient) == PAPER


def test_named_rule_sets_unset_values() -> None:
    assert (PAPER.signal, PAPER.n, PAPER.threshold) == ("overlap", 3, 0.2)
    given = choose_rule("fitted", dense_by(MINILM).parameters, "documents", False, n=5)
    assert given == AgreementRule("overlap", 5, 0.2)
    assert choose_rule("paper", dense_by(MINILM).parameters, "documents", False, threshold=0.0) == AgreementRule(
        "overlap", 3, 0.0
    )


def test_verdict_reason_names_rule() -> None:
    assert compare_rankings(scored("abc"), scored("abc"), rule=AgreementRule(origin=PAPER.origin)).reason.endswith(
        "(the paper's rule)"
    )
    assert (
        compare_rankings(scored("abc"), scored("abc"), rule=AgreementRule(origin=PAPER.origin)).rule
        == "the paper's rule"
    )


def test_passages_are_compared_if_all_documents_are_shared() -> None:
    dense = [(f"book#{place}", 1.0 - place / 10) for place in range(8)]
    found = compare_rankings(dense, dense[::-1])
    assert (found.count, found.rankings_agree, found.value) == ("passages", False, 0.0)
    assert found.reason.endswith("(of passages, since so few documents are ranked)")
    assert compare_rankings(dense, dense).rankings_agree
    # With exactly n documents, too, any overlap would include all of them.
    three = [(f"{name}#{place}", 1.0 - place / 10) for place in range(2) for name in "abc"]
    few = compare_rankings(three, three[::-1], rule=AgreementRule(n=3))
    assert (few.count, few.rankings_agree, few.value) == ("passages", False, 0.0)
    four = [*three, ("d#0", 0.1)]
    assert compare_rankings(four, four[::-1], rule=AgreementRule(n=3)).count == "documents"
    notes = [("a#0", 0.9), ("b#0", 0.8), ("c#0", 0.7)]
    assert compare_rankings(notes, notes[::-1]).count == "documents"
