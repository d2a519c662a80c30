"""Documents counted in rankings of passages: which are read, what of them, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.partitioning import PASSAGES_PER_DOCUMENT, group_passages, partition_passages, split_in_half
from epicrisis.core.protocols import StoredDocument, Vectors
from epicrisis.core.types import Passage, Ranking, Scope
from epicrisis.retrieval.id_rankings import IdRanking, rank_for_documents
from epicrisis.retrieval.rankings import (
    choose_pool_size,
    group_by_document,
    parse_document_id,
    rank_in_order,
    score_documents,
    select_documents,
    take_first,
)
from epicrisis.retrieval.retriever import Retriever
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.scorers import TermOverlapReranker
from epicrisis.testing.stores import MemoryStore

ids = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9)), unique=True, max_size=40)


def ranking_of(text: str) -> Ranking:
    """`a1 b0` is passage 1 of document a, then passage 0 of b."""
    passages = [
        Passage(id=f"{name[0]}#{name[1:]}", document_id=name[0], ordinal=int(name[1:]), start=0, end=1, text=name)
        for name in text.split()
    ]
    return rank_in_order(passages, "dense", {})


def names(ranking: Ranking) -> str:
    return " ".join(passage.text for passage in ranking.passages)


@pytest.mark.parametrize(
    ("ranked", "k", "read"),
    [
        ("a1 b0 a0 c0", 2, "a0 a1 b0"),
        ("a1 b0 a0 c0", 3, "a0 a1 b0 c0"),
        ("b0 b1 b2 a0 c0", 1, "b0 b1 b2"),
        ("a9 a7 a5 a3 a1 b0 c0 d0", 3, "a3 a5 a7 a9 b0 c0"),
        ("a9 a7 a5 a3 a1 a0", 6, "a0 a1 a3 a5 a7 a9"),
        ("a9 a7 a5 a3 a1 b0 a0 b1", 6, "a3 a5 a7 a9 b0 b1"),
        ("a9 a7 a5 a3 a1 b0 a0", 6, "a1 a3 a5 a7 a9 b0"),
        ("a0 b0", 5, "a0 b0"),
        ("", 5, ""),
    ],
)
def test_documents_are_ranked_by_best_passage(ranked: str, k: int, read: str) -> None:
    found = select_documents(ranking_of(ranked), k)
    assert names(found) == read
    assert [hit.rank for hit in found.hits] == list(range(len(found.hits)))


@pytest.mark.slow
@given(ids, st.integers(1, 9))
def test_document_count_reads_at_least_as_many_passages(listed: list[tuple[str, int]], k: int) -> None:
    ranking = ranking_of(" ".join(f"{name}{number}" for name, number in listed))
    found = select_documents(ranking, k)
    documents = list(dict.fromkeys(passage.document_id for passage in ranking.passages))
    assert list(dict.fromkeys(passage.document_id for passage in found.passages)) == documents[:k]
    assert found.parameters["documents"] == len(documents[:k])
    assert len(found.hits) >= min(k, len(ranking.hits))
    assert len(found.hits) <= k * PASSAGES_PER_DOCUMENT
    of_each = Counter(passage.document_id for passage in found.passages)
    if len(documents) >= k:
        assert max(of_each.values(), default=0) <= PASSAGES_PER_DOCUMENT
    scores = {hit.passage.id: hit.score for hit in ranking.hits}
    assert all(hit.score == scores[hit.passage.id] for hit in found.hits)


def test_search_deepens_until_enough_documents() -> None:
    """One book fills the first 40 places."""
    ranking = ranking_of(" ".join([*(f"a{i}" for i in range(40)), "b0", "c0"]))
    asked: list[int] = []

    def rank(n: int) -> IdRanking:
        asked.append(n)
        return IdRanking(scores=ranking.scored_ids[:n], retriever="dense", origins={})

    assert len(rank_for_documents(rank, 3).ids) == 42
    assert asked == [12, 24, 48]
    asked.clear()
    assert len(rank_for_documents(rank, 2).ids) == 32
    assert asked == [8, 16, 32], "and no further than 16 k"
    documents = [passage.document_id for passage in ranking.passages]
    assert [choose_pool_size(documents, k) for k in (1, 2, 3, 16)] == [4, 32, 48, 64]


def test_document_id_with_hash_is_handled() -> None:
    assert [parse_document_id(id_) for id_ in ("a#0", "x#1#0", "a#", "a")] == ["a", "x#1", "a", "a"]
    assert score_documents([("a#1", 3.0), ("b#0", 2.0), ("a#0", 1.0)]) == [("a", 3.0), ("b", 2.0)]


def test_take_first_returns_requested_number_of_documents() -> None:
    ranking = ranking_of("a0 a1 b0 c0 c1")
    assert [names(take_first(ranking, 2, count)) for count in ("documents", "passages")] == ["a0 a1 b0", "a0 a1"]
    assert [len(group_passages(ranking.passages, count)) for count in ("documents", "passages")] == [3, 5]


def test_group_by_document_joins_passages() -> None:
    ranking = ranking_of("a1 b0 a0 b1 c0")
    assert names(group_by_document(ranking, "documents")) == "a0 a1 b0 b1 c0"
    assert group_by_document(ranking, "passages") == ranking


@pytest.mark.parametrize(
    ("passages", "size", "parts"),
    [
        ("a0 a1 b0 c0 d0 d1 e0", 4, ["a0 a1 b0 c0 d0 d1", "e0"]),
        ("a0 a1 a2 a3 b0", 1, ["a0 a1 a2 a3", "b0"]),
        ("a0 a1 a2 a3 a4 a5 a6 a7 a8", 2, ["a0 a1 a2 a3 a4", "a5 a6", "a7 a8"]),
        ("", 4, []),
    ],
)
def test_parts_hold_requested_number_of_documents(passages: str, size: int, parts: list[str]) -> None:
    made = partition_passages(ranking_of(passages).passages, size, "documents")
    assert [" ".join(passage.text for passage in part) for part in made] == parts


def test_parts_hold_requested_number_of_passages() -> None:
    made = partition_passages(ranking_of("a0 a1 a2 b0 b1").passages, 2, "passages")
    assert [[passage.text for passage in part] for part in made] == [["a0", "a1"], ["a2", "b0"], ["b1"]]


@pytest.mark.parametrize(
    ("part", "one", "other"),
    [("a0 a1 a2 b0", "a0 a1 a2", "b0"), ("a0 a1 a2", "a0", "a1 a2"), ("a0 b0 c0", "a0", "b0 c0")],
)
def test_halves_keep_documents_together(part: str, one: str, other: str) -> None:
    made = split_in_half(ranking_of(part).passages, "documents")
    assert [" ".join(passage.text for passage in half) for half in made] == [one, other]


# -- searched ---------------------------------------------------------------------------------------------------------

PAPERS = {
    "long": ["aspirin stroke"] * 9,
    "two": ["aspirin stroke in adults", "stroke and other things"],
    "one": ["aspirin in stroke, a trial of many adults"],
    "other": ["gout and colchicine"],
}


def store_of(documents: dict[str, list[str]], encoder: HashingEncoder) -> MemoryStore:
    """A document a name, a passage a text."""
    store = MemoryStore()
    for name, texts in documents.items():
        passages = tuple(
            Passage(id=f"{name}#{i}", document_id=name, ordinal=i, start=0, end=len(text), text=text)
            for i, text in enumerate(texts)
        )
        store.add([StoredDocument(name, "sha", passages, encoder.encode_passages([("", text) for text in texts]))])
    return store


def searching(**more: object) -> Retriever:
    encoder = HashingEncoder()
    return Retriever(store_of(PAPERS, encoder), encoder, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("by", ["dense", "bm25", "hybrid"])
def test_k_documents_are_returned_if_one_fills_top_places(by: str) -> None:
    """By passages the best three are all of one document."""
    retriever = searching()
    passages = retriever.rank("aspirin stroke", 3, by, Scope())  # type: ignore[arg-type]
    assert {passage.document_id for passage in passages.passages} == {"long"}
    found = retriever.documents("aspirin stroke", 3, by, Scope())  # type: ignore[arg-type]
    documents = [passage.document_id for passage in found.passages]
    assert next(iter(dict.fromkeys(documents))) == "long"
    assert set(documents) == {"long", "two", "one"}
    assert documents.count("long") == PASSAGES_PER_DOCUMENT
    assert documents.count("two") == 2
    assert found.parameters["documents"] == 3
    assert retriever.search("aspirin stroke", 3, by, Scope(), "passages") == passages  # type: ignore[arg-type]


def test_hidden_documents_are_not_counted() -> None:
    found = searching().documents("aspirin stroke", 2, "hybrid", Scope(hidden=frozenset({"long"})))
    assert {passage.document_id for passage in found.passages} == {"two", "one"}


def test_reranker_orders_passages_before_document_selection() -> None:
    retriever = searching(reranker=("overlap", TermOverlapReranker()), rerank_depth=10)
    found = retriever.documents("aspirin stroke", 3, "bm25", Scope())
    assert {passage.document_id for passage in found.passages} == {"long", "two", "one"}
    assert found.retriever == "bm25+overlap"
    assert found.parameters["rerank_depth"] == 12, "all that share a word: the first ten are of two documents"
    shallow = searching(reranker=("overlap", TermOverlapReranker()), rerank_depth=10)
    assert shallow.documents("aspirin stroke", 2, "bm25", Scope()).parameters["rerank_depth"] == 10


def test_retracted_documents_are_named_if_documents_are_counted() -> None:
    """As far as the k documents that are read reach, and all of them where there are fewer."""
    encoder = HashingEncoder()
    store = store_of({"long": ["aspirin aspirin"] * 5, "other": ["aspirin and a longer text"]}, encoder)
    passage = Passage(
        id="gone#0",
        document_id="gone",
        ordinal=0,
        start=0,
        end=1,
        text="aspirin and another text",
        metadata={"retracted": True},
    )
    store.add([StoredDocument("gone", "sha", (passage,), encoder.encode_passages([("", passage.text)]))])
    retriever = Retriever(store, encoder)
    both = retriever.documents("aspirin", 2, "bm25", Scope(without_retracted=True))
    assert both.parameters["withheld"] == ["gone"]
    assert both.notes == ("1 retracted document is left out: gone (scope.include=retracted reads them, with a mark)",)
    one = retriever.documents("aspirin", 1, "bm25", Scope(without_retracted=True))
    assert (one.notes, "withheld" in one.parameters) == ((), False)
    again = Retriever(store, encoder, reranker=("overlap", TermOverlapReranker()), rerank_depth=4)
    assert again.documents("aspirin", 2, "bm25", Scope(without_retracted=True)).notes == both.notes


def test_preflight_with_documents_compares_document_ids() -> None:
    """By passages the tops share two passages of one document and agree; by documents they share one of three."""
    encoder = _TwoOrders()
    retriever = Retriever(store_of(APART, encoder), encoder)
    by = {"n": 3, "threshold": 0.2, "depth": 8, "signal": "overlap"}
    passages = retriever.preflight("aspirin", Scope(), **by, count="passages")  # type: ignore[arg-type]
    assert set(passages.dense_top) & set(passages.bm25_top) == {"same#0", "same#1"}
    assert passages.rankings_agree
    documents = retriever.preflight("aspirin", Scope(), **by)  # type: ignore[arg-type]
    assert documents.count == "documents"
    assert set(documents.dense_top) & set(documents.bm25_top) == {"same"}
    assert not documents.rankings_agree
    assert "1 of the top 3 are shared" in documents.reason


APART = {
    "same": ["aspirin aspirin aspirin a", "aspirin aspirin aspirin b"],
    "x1": ["no word of it"],
    "x2": ["nor here, as far as can be seen"],
    "y1": ["aspirin " + "much else that was said of many other things " * 3],
    "y2": ["aspirin " + "much else that was said of many other things " * 4],
}


class _TwoOrders(HashingEncoder):
    """Finds `same` first, then the texts without the word, then the rest."""

    def __init__(self) -> None:
        super().__init__(dimensions=1)

    def encode_passages(self, passages: Sequence[tuple[str, str]]) -> Vectors:
        near = [3.0 if "aspirin aspirin" in text else 1.0 if "aspirin" in text else 2.0 for _, text in passages]
        return np.array(near, dtype=np.float32).reshape(-1, 1)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), 1), dtype=np.float32)
