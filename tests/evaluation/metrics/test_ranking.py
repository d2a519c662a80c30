"""Test measures of rankings against manual calculation and trec_eval on 300 real rankings of SciFact."""

from __future__ import annotations

import csv
import gzip
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from epicrisis.core.types import EvidenceSpan
from epicrisis.evaluation.grading.measurements import evidence_recall
from tests.support.ranking_metrics import (
    average_precision,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
    reciprocal_rank,
)

RANKED = ("a", "b", "c", "d")
JUDGED = {"b": 1, "d": 2, "x": 1, "a": 0}


def test_ranking_measures_match_manual_calculation() -> None:
    assert recall_at_k(RANKED, JUDGED, 2) == pytest.approx(1 / 3)
    assert precision_at_k(RANKED, JUDGED, 2) == pytest.approx(1 / 2)
    assert precision_at_k(RANKED, JUDGED, 8) == pytest.approx(2 / 8)
    assert reciprocal_rank(RANKED, JUDGED) == pytest.approx(1 / 2)
    assert reciprocal_rank(("a", "c"), JUDGED) == 0
    assert average_precision(RANKED, JUDGED) == pytest.approx((1 / 2 + 2 / 4) / 3)
    best = 2 / 1 + 1 / 1.5849625007211562 + 1 / 2
    assert ndcg_at_k(RANKED, JUDGED, 4) == pytest.approx((1 / 1.5849625007211562 + 2 / 2.321928094887362) / best)


def test_ranking_measures_without_relevant_document_are_none() -> None:
    nothing = {"a": 0}
    assert [recall_at_k(RANKED, nothing, 2), precision_at_k(RANKED, {}, 2), ndcg_at_k(RANKED, nothing, 2)] == [None] * 3
    assert [reciprocal_rank(RANKED, nothing), average_precision(RANKED, nothing)] == [None] * 2
    assert evidence_recall([("n", 0, 9)], [], 1) is None


def test_ranking_measures_with_repeated_id_raise_value_error() -> None:
    with pytest.raises(ValueError, match="twice"):
        recall_at_k(("a", "b", "a"), JUDGED, 3)


def test_evidence_recall_counts_whole_spans() -> None:
    evidence = [EvidenceSpan("note:1", 10, 20), EvidenceSpan("note:1", 25, 35), EvidenceSpan("note:2", 0, 5)]
    passages = [("note:1", 0, 30), ("note:2", 1, 50), ("note:1", 25, 60), ("note:2", 0, 5)]
    assert [evidence_recall(passages, evidence, k) for k in (0, 1, 2, 3, 4)] == pytest.approx(
        [0, 1 / 3, 1 / 3, 2 / 3, 1]
    )


def test_evidence_recall_counts_each_fact_once() -> None:
    evidence = [
        EvidenceSpan("note:1", 10, 20, "weight"),
        EvidenceSpan("note:2", 0, 5, "weight"),
        EvidenceSpan("note:3", 0, 5, "height"),
    ]
    assert evidence_recall([("note:2", 0, 9)], evidence, 1) == 1 / 2
    assert evidence_recall([("note:2", 0, 9), ("note:1", 0, 30)], evidence, 2) == 1 / 2
    assert evidence_recall([("note:1", 0, 30), ("note:3", 0, 9)], evidence, 2) == 1


@pytest.mark.long
@pytest.mark.data
def test_ranking_measures_match_trec_eval_on_real_rankings(data_folder: Path) -> None:
    """Each claim's abstracts by the words they share with it; grades 1 and 2, so that degrees count."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    judged, ranked = load_scifact(data_folder)
    assert len(judged) == 300
    expected = {"recall.5,20", "P.5,20", "recip_rank", "map", "ndcg_cut.5,20"}
    run = {name: {of: float(-place) for place, of in enumerate(ids)} for name, ids in ranked.items()}
    reference = pytrec_eval.RelevanceEvaluator(judged, expected).evaluate(run)
    middling = 0
    for name, ids in ranked.items():
        result = {"recip_rank": reciprocal_rank(ids, judged[name]), "map": average_precision(ids, judged[name])}
        for k in (5, 20):
            result[f"recall_{k}"] = recall_at_k(ids, judged[name], k)
            result[f"P_{k}"] = precision_at_k(ids, judged[name], k)
            result[f"ndcg_cut_{k}"] = ndcg_at_k(ids, judged[name], k)
        assert result == pytest.approx(reference[name], abs=1e-6)
        middling += 0.1 < reference[name]["ndcg_cut_20"] < 0.9
    assert middling > 40


def load_scifact(data: Path) -> tuple[dict[str, dict[str, int]], dict[str, list[str]]]:
    """Return judgements and rankings of 100 abstracts for 300 claims; cited abstracts are relevant."""
    having: dict[str, list[str]] = defaultdict(list)
    with gzip.open(data / "scifact" / "corpus.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for word in dict.fromkeys(f"{row['title']} {row['abstract']}".lower().split()):
                having[word].append(row["doc_id"])
    judged: dict[str, dict[str, int]] = {}
    ranked: dict[str, list[str]] = {}
    with (data / "scifact" / "claims_validation.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            shared = Counter(name for word in row["claim"].lower().split() for name in having[word])
            ranked[row["id"]] = [name for name, _ in shared.most_common(100)]
            grades = judged.setdefault(row["id"], dict.fromkeys(re.findall(r"\d+", row["cited_doc_ids"]), 1))
            if row["evidence_label"] == "SUPPORT":
                grades[row["evidence_doc_id"]] = 2
    return judged, ranked
