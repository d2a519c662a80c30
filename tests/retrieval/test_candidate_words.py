"""BM25 over candidates equals an independent computation of rank_bm25's Okapi formula (errata C6)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.evaluation.experiments.passage_source import score_candidates

words = st.sampled_from(["the", "The", "aspirin", "stroke", "stroke?", "trial", ""])
texts = st.lists(st.lists(words, min_size=1, max_size=8).map(" ".join), min_size=1, max_size=12)


def okapi(query: str, documents: list[str]) -> list[float]:
    """Return the scores of BM25Okapi(k1=1.5, b=0.75, epsilon=0.25), term by term from the formula."""
    split = [document.split(" ") for document in documents]
    vocabulary = sorted({word for document in split for word in document})
    average_length = sum(len(document) for document in split) / len(split)
    raw = {}
    for word in vocabulary:
        n = sum(word in document for document in split)
        raw[word] = math.log((len(split) - n + 0.5) / (n + 0.5))
    floor = 0.25 * sum(raw.values()) / len(raw)
    scores = []
    for document in split:
        total = 0.0
        for word in query.split(" "):
            if word in raw:
                tf = document.count(word)
                idf = raw[word] if raw[word] >= 0 else floor
                total += idf * (tf * 2.5 / (tf + 1.5 * (0.25 + 0.75 * len(document) / average_length)))
        scores.append(total)
    return scores


@pytest.mark.slow
@given(st.lists(words, max_size=6).map(" ".join), texts)
def test_score_candidates_equals_independent_computation(query: str, documents: list[str]) -> None:
    expected = okapi(query, documents)
    # A logarithm of 1 computed in two ways may differ from 0 in the last digit, with either sign.
    assert score_candidates(query, documents) == pytest.approx(expected, abs=1e-9)


def test_score_candidates_of_known_texts() -> None:
    """Three texts, one with the word: IDF = ln(2.5 / 1.5), all lengths equal, so the score is that IDF."""
    scores = score_candidates("stroke", ["aspirin and stroke", "heart and lung", "a b c"])
    assert scores == pytest.approx([math.log(2.5 / 1.5), 0, 0])


def test_score_candidates_keeps_case_and_question_mark() -> None:
    """Errata C6: `stroke?` of a question is no word of a document, and neither is `Aspirin`."""
    documents = ["aspirin prevents stroke in trials", "a text on other things", "one more text", "and another one"]
    assert score_candidates("Aspirin stroke?", documents) == [0, 0, 0, 0]
    assert score_candidates("aspirin stroke", documents)[0] > 0


def test_score_candidates_topic_words_fall_to_floor() -> None:
    """A word of most candidates has a quarter of the mean IDF, less than a rare word."""
    documents = [f"aspirin {i} rare" if i == 0 else f"aspirin {i}" for i in range(6)]
    topic, rare = score_candidates("aspirin", documents), score_candidates("rare", documents)
    assert 0 < max(topic) < max(rare) / 3
    assert score_candidates("aspirin", []) == []
