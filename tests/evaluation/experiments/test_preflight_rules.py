"""Test the issue's definitions, rules and confusion matrix, with the papers' counts and brute-force curves."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.statistics import Mean
from epicrisis.evaluation.experiments.preflight import (
    counts_table,
    curve_table,
    guards_table,
    places_table,
    published_confusion,
    rules_table,
)
from epicrisis.evaluation.experiments.preflight_rules import (
    ALWAYS,
    AS_CODED,
    BEYOND_3,
    CODED_NUMBERS,
    NEVER,
    PAPERS_RULE,
    PUBLISHED,
    Confusion,
    Definition,
    Label,
    Rule,
    confusion,
    definitions,
    evaluate_rule,
    roc_area,
    specificity_at,
    threshold_curve,
)
from epicrisis.evaluation.experiments.recorded_rankings import QuestionRankings
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.retrieval.preflight import Signal, compare_rankings

labels = st.sampled_from(["issue", "no-issue", "not-retrieved", "no-key"])
scored = st.lists(st.tuples(labels, st.integers(0, 6).map(float)), min_size=1, max_size=40)


def make_rankings(
    read: str, gold: str, held: str | None = None, *, bm25: str | None = None, key: str = "q", dataset: str = "set"
) -> QuestionRankings:
    """Return the rankings of a question; each letter is a document with one passage."""
    dense = tuple((f"{name}#0", 1.0 / rank) for rank, name in enumerate(read, 1))
    words = tuple((f"{name}#0", 2.0 / rank) for rank, name in enumerate(read if bm25 is None else bm25, 1))
    return QuestionRankings(
        key=key,
        dataset=dataset,
        dense=dense,
        bm25=words,
        reranked=None,
        read=tuple(f"{name}#0" for name in read),
        gold=tuple(gold),
        held=tuple(gold if held is None else held),
    )


# -- what the issue is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "held", "expected"),
    [
        ("a", "a", ["no-issue", "no-issue", "no-issue", "no-issue", "no-issue", "no-issue"]),
        ("c", "c", ["no-issue", "no-issue", "no-issue", "no-issue", "no-issue", "no-issue"]),
        ("d", "d", ["issue", "issue", "issue", "no-issue", "issue", "issue"]),
        ("h", "h", ["issue", "issue", "no-issue", "no-issue", "issue", "issue"]),
        ("z", "z", ["issue", "not-retrieved", "not-retrieved", "issue", "issue", "not-retrieved"]),
        ("i", "i", ["issue", "not-retrieved", "not-retrieved", "issue", "issue", "not-retrieved"]),
        ("a", "", ["no-key"] * 6),
        ("ae", "ae", ["no-issue", "no-issue", "no-issue", "no-issue", "issue", "issue"]),
        ("az", "az", ["no-issue", "no-issue", "no-issue", "no-issue", "issue", "no-issue"]),
        ("az", "a", ["no-issue"] * 6),
        ("ah", "ah", ["no-issue", "no-issue", "no-issue", "no-issue", "issue", "issue"]),
    ],
)
def test_definition_labels_match_manual_labels(gold: str, held: str, expected: list[str]) -> None:
    """Eight are read, a to h; i is ranked ninth; z is in the library and not found."""
    item = make_rankings("abcdefghi", gold, held)
    assert [definition.label(item) for definition in definitions(k=8)] == expected


def test_definition_uses_best_passage_of_document() -> None:
    item = make_rankings("abcd", "d")
    assert PUBLISHED.label(item) == "issue"
    again = QuestionRankings(
        key="q",
        dataset="set",
        dense=item.dense,
        bm25=item.bm25,
        reranked=None,
        read=("a#0", "d#3", "b#0", "d#1"),
        gold=("d",),
        held=("d",),
    )
    assert PUBLISHED.label(again) == "no-issue"


def test_definition_accepts_hash_in_document_id() -> None:
    item = QuestionRankings(
        key="q", dataset="set", dense=(), bm25=(), reranked=None, read=("x#1#0",), gold=("x#1",), held=("x#1",)
    )
    assert PUBLISHED.label(item) == "no-issue"


def test_definitions_have_unique_names() -> None:
    assert len({definition.name for definition in definitions()}) == 6
    assert definitions()[0] == PUBLISHED
    assert definitions()[1] == BEYOND_3


def test_label_by_documents_counts_each_document_once() -> None:
    read = ("a#0", "a#1", "b#0", "c#0", "c#1", "d#0")
    scores = tuple((name, 1.0 / rank) for rank, name in enumerate(read, 1))
    passages = QuestionRankings(
        key="q", dataset="set", dense=scores, bm25=scores, reranked=None, read=read, gold=("c",), held=("c",)
    )
    documents = replace(passages, count="documents")
    assert [PUBLISHED.label(item) for item in (passages, documents)] == ["issue", "no-issue"]
    assert replace(PUBLISHED, top=2).label(documents) == "issue"
    assert [places_table([item], 4).rows[0][2:6] for item in (passages, documents)] == [(0, 0, 1, 0), (0, 1, 0, 0)]


def test_agreement_by_documents_counts_each_document_once() -> None:
    dense = tuple((name, 1.0) for name in ("a#0", "a#1", "b#0", "c#0", "d#0", "e#0"))
    words = tuple((name, 1.0) for name in ("a#1", "a#0", "e#0", "d#0", "c#0", "b#0"))
    passages = QuestionRankings(
        key="q", dataset="set", dense=dense, bm25=words, reranked=None, read=("a#0",), gold=("a",), held=("a",)
    )
    documents = replace(passages, count="documents")
    assert PAPERS_RULE.agree(passages)
    assert not PAPERS_RULE.agree(documents)
    assert compare_rankings(dense, words, count="passages").rankings_agree
    assert not compare_rankings(dense, words).rankings_agree
    for item in (passages, documents):
        (row,) = counts_table([item]).rows
        assert row == ("set", 1, 1, 1, 1, 0, 0)


# -- what a rule says -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.permutations(list("abcdefgh")))
def test_papers_rule_equals_pipeline_check(order: list[str]) -> None:
    item = make_rankings("abcdefgh", "a", bm25="".join(order))
    assert PAPERS_RULE.agree(item) == compare_rankings(item.dense, item.bm25).rankings_agree


@pytest.mark.slow
@given(st.permutations(list("abcdefgh")), st.integers(0, 8))
def test_papers_and_coded_threshold_agree_on_whole_lists(order: list[str], found: int) -> None:
    """Errata B2; of a list of two, one shared is 1/4, between the two thresholds."""
    item = make_rankings("abcdefgh", "a", bm25="".join(order[:found]))
    shared = len({*order[:found][:3]} & {*"abc"})
    apart = found == 2 and shared == 1
    assert (PAPERS_RULE.agree(item) != CODED_NUMBERS.agree(item)) == apart
    assert AS_CODED.depth == PROTOCOLS["as-coded"].preflight.depth
    assert AS_CODED.threshold == PROTOCOLS["as-coded"].preflight.threshold
    assert AS_CODED.signal.n == PROTOCOLS["as-coded"].preflight.n


def test_coded_rule_reads_bm25_of_candidates_only() -> None:
    """Errata C6; rankings of older files do not have it."""
    agreeing = tuple((f"{name}#0", 1.0) for name in "abcdefgh")
    item = make_rankings("abcdefgh", "a", bm25="hgfedcba")
    assert (AS_CODED.agree(item), CODED_NUMBERS.agree(item)) == (None, False)
    item = replace(item, candidate_bm25=agreeing)
    assert (AS_CODED.agree(item), CODED_NUMBERS.agree(item)) == (True, False)
    assert str(AS_CODED) == "overlap@3 > 0.3, depth 64, BM25 of the candidates"
    assert AS_CODED.word_statistics == PROTOCOLS["as-coded"].word_statistics


def test_always_and_never_rules_return_constants() -> None:
    item = make_rankings("abc", "a")
    assert (ALWAYS.agree(item), NEVER.agree(item)) == (False, True)
    assert (str(ALWAYS), str(NEVER)) == ("always map-reduce", "never map-reduce")
    assert str(PAPERS_RULE) == "overlap@3 > 0.2, depth 16"


def test_rule_with_smaller_depth_ignores_lower_ranks() -> None:
    """Of the first four, BM25 would put d first; of the first three it cannot."""
    item = make_rankings("abcd", "a", bm25="dabc")
    assert Rule(Signal("overlap", 1), 0.5, depth=4).agree(item) is False
    assert Rule(Signal("overlap", 1), 0.5, depth=3).agree(item) is True


def test_rule_of_reranker_without_reranker_returns_none() -> None:
    rule = Rule(Signal("reranker-overlap", 3), 0.2)
    assert rule.agree(make_rankings("abc", "a")) is None
    assert evaluate_rule([make_rankings("abc", "a")], rule, PUBLISHED).n == 0


# -- the matrix -------------------------------------------------------------------------------------------------------


def test_published_rates_require_rows_as_truth() -> None:
    """Errata B3."""
    printed = {row[0]: row[1] for row in load_published()["preflight-rates"].table.rows}
    of = published_confusion()
    assert (of.tp, of.fn, of.fp, of.tn, of.n) == (426, 34, 423, 235, 1118)
    rates = {"precision": of.precision, "recall": of.recall, "F1": of.f1()}
    assert {name: round(100 * rate.value, 2) for name, rate in rates.items()} == {
        name: printed[name] for name in ("precision", "recall", "F1")
    }
    as_labelled = Confusion(tp=426, fn=423, fp=34, tn=235)
    assert round(100 * as_labelled.precision.value, 1) == 92.6
    assert round(100 * as_labelled.recall.value, 1) == 50.2
    assert {"B3", "B4"} <= set(load_published()["preflight"].errata)


def test_published_saving_is_specificity_not_share_skipped() -> None:
    """Errata B4."""
    of = published_confusion()
    assert (
        round(100 * of.specificity.value, 1)
        == 35.7
        == load_published()["preflight-rates"].figure("percent", "true negatives filtered")
    )
    assert round(100 * of.skipped.value, 1) == 24.1
    assert of.tn + of.fn == 269


def test_papers_rule_compared_with_always_and_never_matches_errata() -> None:
    """Errata B3: base rate 41.1 %, F1 65.1 against 58.3, accuracy 59.1 against 58.9."""
    of = published_confusion()
    always = Confusion(tp=of.issues, fn=0, fp=of.n - of.issues, tn=0)
    never = Confusion(tp=0, fn=of.issues, fp=0, tn=of.n - of.issues)
    assert round(100 * of.issues / of.n, 1) == 41.1
    assert [round(100 * item.f1().value, 1) for item in (of, always)] == [65.1, 58.3]
    assert [round(100 * (item.tp + item.tn) / item.n, 1) for item in (of, never)] == [59.1, 58.9]
    assert (always.skipped.value, never.skipped.value) == (0, 1)


def test_confusion_counts_unlabelled_questions_only_as_skipped() -> None:
    judged: list[tuple[Label, bool]] = [
        ("issue", False),
        ("issue", True),
        ("no-issue", True),
        ("no-issue", False),
        ("no-issue", True),
        ("not-retrieved", True),
        ("no-key", True),
        ("no-key", False),
    ]
    of = confusion(judged)
    assert (of.tp, of.fn, of.fp, of.tn, of.apart, of.apart_skipped) == (1, 1, 1, 2, 3, 2)
    assert of.recall == Mean(0.5, of.recall.interval, 2)
    assert of.specificity.value == pytest.approx(2 / 3)
    assert of.skipped.value == 5 / 8
    assert of.skipped.n == 8


def test_f1_interval_contains_value_and_shrinks_with_questions() -> None:
    small, large = Confusion(20, 5, 15, 20).f1(), Confusion(2000, 500, 1500, 2000).f1()
    for item in (small, large):
        assert item.interval.low < item.value < item.interval.high
    assert large.interval.high - large.interval.low < (small.interval.high - small.interval.low) / 5
    nothing = Confusion(0, 0, 0, 4).f1()
    assert math.isnan(nothing.value)
    assert nothing.n == 0


# -- curves -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(scored)
def test_threshold_curve_matches_brute_force(pairs: list[tuple[Label, float]]) -> None:
    points = threshold_curve([label for label, _ in pairs], [value for _, value in pairs])
    assert [point.threshold for point in points] == [-math.inf, *sorted({value for _, value in pairs})]
    for point in points:
        assert point.confusion == confusion((label, value > point.threshold) for label, value in pairs)


@pytest.mark.slow
@given(scored, st.floats(0, 1))
def test_specificity_at_recall_is_best_available(pairs: list[tuple[Label, float]], recall: float) -> None:
    points = threshold_curve([label for label, _ in pairs], [value for _, value in pairs])
    kinds = {label for label, _ in pairs}
    if not {"issue", "no-issue"} <= kinds:
        return
    chosen = specificity_at(points, recall)
    assert chosen.confusion.recall.value >= recall - 1e-9
    enough = [p.confusion.specificity.value for p in points if p.confusion.recall.value >= recall]
    assert chosen.confusion.specificity.value >= max(enough, default=0)


def test_specificity_at_without_issue_raises_value_error() -> None:
    with pytest.raises(ValueError, match="no question has the issue"):
        specificity_at(threshold_curve(["no-issue"], [1.0]), 0.5)


@pytest.mark.slow
@given(scored)
def test_roc_area_matches_mann_whitney(pairs: list[tuple[Label, float]]) -> None:
    fine, lost = ([value for label, value in pairs if label == kind] for kind in ("no-issue", "issue"))
    result = roc_area([label for label, _ in pairs], [value for _, value in pairs])
    if min(len(fine), len(lost)) < 2:
        assert math.isnan(result.value)
        return
    assert result.value == pytest.approx(mannwhitneyu(fine, lost).statistic / (len(fine) * len(lost)))
    assert result.interval.low <= result.value <= result.interval.high


def test_roc_area_interval_matches_manual_calculation() -> None:
    """Fine 1, 3; lost 0, 2: three of four pairs won. Both structural variances are 1/8: standard error sqrt(1/8)."""
    result = roc_area(["no-issue", "no-issue", "issue", "issue"], [1.0, 3.0, 0.0, 2.0])
    assert result.value == 0.75
    assert result.interval.low == pytest.approx(0.75 - 1.959964 * math.sqrt(1 / 8))
    assert result.interval.high == 1.0


def test_roc_area_has_nominal_false_alarms_and_coverage() -> None:
    """At most 16 of 200 seeds; and one that tells something has its area in the interval as often as that says."""
    alarms, covered = 0, 0
    for seed in range(200):
        dice = random.Random(seed)
        kinds: list[Label] = ["issue" if dice.random() < 0.4 else "no-issue" for _ in range(80)]
        noise = [dice.gauss(0, 1) for _ in kinds]
        alone = roc_area(kinds, noise).interval
        alarms += not alone.low <= 0.5 <= alone.high
        interval = roc_area(
            kinds, [value + (kind == "no-issue") for kind, value in zip(kinds, noise, strict=True)]
        ).interval
        # One standard deviation apart: the difference of two normals is above 0 with probability Phi(1 / sqrt 2).
        covered += interval.low <= NormalDist().cdf(1 / math.sqrt(2)) <= interval.high
    assert 1 <= alarms <= 16
    assert covered >= 180


# -- tables -----------------------------------------------------------------------------------------------------------

MANY = (
    make_rankings("abcdefgh", "a", key="1"),
    make_rankings("abcdefgh", "f", bm25="hgfedcba", key="2"),
    make_rankings("abcdefgh", "b", bm25="hgfedcba", key="3"),
    make_rankings("abcdefgh", "g", key="4", dataset="other"),
    make_rankings("abcdefgh", "z", key="5", dataset="other"),
    make_rankings("abcdefgh", "y", "", key="6", dataset="other"),
)


def test_rules_table_matches_manual_counts() -> None:
    table = rules_table(MANY, k=8)
    assert len(table.rows) == 1 + 6 * 3
    assert table.rows[0][:6] == ("as published", "overlap > 0.2, n not stated", 426, 34, 423, 235)
    papers = dict(zip(table.columns, table.rows[1], strict=True))
    # Agree: 1 (fine), 4 (issue), 5 (not retrieved: an issue here), 6 (apart). Disagree: 2 (issue), 3 (fine).
    assert [papers[name] for name in ("TP", "FN", "FP", "TN", "apart")] == [1, 2, 1, 1, 1]
    skipped = papers["skipped"]
    assert isinstance(skipped, Mean)
    assert (skipped.value, skipped.n) == (4 / 6, 6)
    of_those_retrieved = dict(zip(table.columns, table.rows[4], strict=True))
    assert [of_those_retrieved[name] for name in ("TP", "FN", "FP", "TN", "apart")] == [1, 1, 1, 1, 2]


def test_places_table_matches_manual_counts() -> None:
    table = places_table(MANY, k=8)
    assert table.columns == ("set", "questions", "place 1", "2 to 3", "4 to 8", "not among 8", "not in the library")
    assert table.rows == (("set", 3, 1, 1, 1, 0, 0), ("other", 3, 0, 0, 1, 1, 1))


def test_curve_table_serializes_to_strict_json() -> None:
    table = curve_table(MANY, Signal("overlap", 3), Definition("x", k=8))
    assert table.column("threshold") == (None, 0.0, 1.0)
    assert table.column("TP") == (0, 1, 3)
    assert table.column("TN") == (2, 1, 0)
    assert json.loads(json.dumps(table.column("threshold"), allow_nan=False)) == [None, 0.0, 1.0]
    assert table.column("precision")[0] is None
    for item in (*table.column("precision")[1:], *table.column("F1")[1:]):
        assert isinstance(item, Mean)
        assert item.interval.low <= item.value <= item.interval.high


def test_guards_table_matches_manual_counts() -> None:
    """Of those without a guard one key is not retrieved (it agrees), one is not there (it agrees)."""
    hidden = [make_rankings("abcdefgh", "a", "", bm25=bm25, key=bm25) for bm25 in ("abcdefgh", "hgfedcba")]
    table = guards_table({"none": MANY, "source-hidden": hidden}, (PAPERS_RULE, ALWAYS), k=8)
    assert [row[:5] for row in table.rows] == [
        ("none", str(PAPERS_RULE), 6, 1, 1),
        ("none", str(ALWAYS), 6, 1, 1),
        ("source-hidden", str(PAPERS_RULE), 2, 0, 2),
        ("source-hidden", str(ALWAYS), 2, 0, 2),
    ]
    shares = [[cell.value for cell in row[5:] if isinstance(cell, Mean)] for row in table.rows]
    assert shares[0] == [4 / 6, 1, 1]
    assert shares[1] == [0, 0, 0]
    assert math.isnan(shares[2][1])
    assert (shares[2][0], shares[2][2]) == (0.5, 0.5)
