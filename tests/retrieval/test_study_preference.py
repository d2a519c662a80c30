"""Preferred study types: how far they move forward, and what a filter leaves out."""

from __future__ import annotations

import pytest

from epicrisis.core.types import Hit, Passage, Ranking, Sentence, SentenceHit, SentenceRanking
from epicrisis.retrieval.study_preference import prefer_sentences, prefer_studies

TRIAL, REVIEW = "Randomized Controlled Trial", "Review"


def passage(document: str, publication_type: str, ordinal: int = 0) -> Passage:
    metadata = {"publication_types": [publication_type]}
    return Passage(
        id=f"{document}#{ordinal}",
        document_id=document,
        ordinal=ordinal,
        start=0,
        end=5,
        text="Text.",
        metadata=metadata,
    )


def ranking(*passages: Passage) -> Ranking:
    hits = tuple(Hit(item, -float(rank), rank) for rank, item in enumerate(passages))
    return Ranking(hits, "hybrid", {"k": len(passages), "documents": len(passages)})


def others(n: int) -> list[Passage]:
    return [passage(f"o{number}", REVIEW) for number in range(n)]


@pytest.mark.parametrize(("place", "new_place"), [(1, 1), (7, 1), (8, 2), (30, 22), (100, 86)])
def test_preferred_document_moves_forward_by_the_documented_factor(place: int, new_place: int) -> None:
    passages = [*others(place - 1), passage("t", TRIAL), *others(120)[place:]]
    best = prefer_studies(ranking(*passages), ["randomised-trial"], "first", 120, "documents")
    assert best.document_ids.index("t") + 1 == new_place
    assert [hit.rank for hit in best.hits] == list(range(len(best.hits)))


def test_other_hits_keep_their_order_and_k_cuts() -> None:
    passages = [*others(3), passage("t", TRIAL), passage("u", TRIAL)]
    best = prefer_studies(ranking(*passages), ["randomised-trial", "cohort"], "first", 4)
    assert best.document_ids == ("t", "u", "o0", "o1")
    assert best.parameters["prefer"] == ["randomised-trial", "cohort"]
    assert best.parameters["documents"] == 4


def test_filter_keeps_only_preferred_types_and_says_so() -> None:
    best = prefer_studies(ranking(*others(2), passage("t", TRIAL)), ["randomised-trial"], "only", 3, "documents")
    assert best.document_ids == ("t",)
    assert best.notes == ("1 of the 3 best documents is of the preferred study types; the others are left out",)


def test_filter_without_a_match_returns_nothing() -> None:
    assert prefer_studies(ranking(*others(2)), ["cohort"], "only", 3).hits == ()


def test_passages_of_one_document_stay_together_in_their_order() -> None:
    passages = [*others(1), passage("t", TRIAL, 3), passage("t", TRIAL, 1)]
    best = prefer_studies(ranking(*passages), ["randomised-trial"], "first", 2, "documents")
    assert best.ids == ("t#3", "t#1", "o0#0")


def test_sentences_of_preferred_types_move_forward() -> None:
    sentences = [Sentence(item, 0, 5) for item in (*others(2), passage("t", TRIAL))]
    hits = tuple(SentenceHit(sentence, -float(rank), rank) for rank, sentence in enumerate(sentences))
    first = prefer_sentences(SentenceRanking(hits), ["randomised-trial"], "first", 2)
    assert [sentence.passage.document_id for sentence in first.sentences] == ["t", "o0"]
    only = prefer_sentences(SentenceRanking(hits), ["randomised-trial"], "only", 2)
    assert [sentence.passage.document_id for sentence in only.sentences] == ["t"]
