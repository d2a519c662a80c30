"""A ranking in a new order: by whom, from how deep, ties by id, and nothing lost on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.errors import EndpointTimeout
from epicrisis.core.types import Hit, Passage, Ranking
from epicrisis.retrieval.rankings import format_for_reranker, rerank
from epicrisis.testing.scorers import TermOverlapReranker, check_reranker


def passage(id_: str, text: str, title: str = "") -> Passage:
    return Passage(id=f"{id_}#0", document_id=id_, ordinal=0, start=0, end=len(text), text=text, title=title)


def ranking(*passages: Passage) -> Ranking:
    hits = tuple(Hit(found, 1.0 - rank / 10, rank) for rank, found in enumerate(passages))
    return Ranking(hits, "hybrid", {"k": len(hits), "rrf_k": 60}, ("the question was cut",))


class Fixed:
    """Scores as told, one note."""

    def __init__(self, scores: Sequence[float]) -> None:
        self.scores = scores
        self.seen: tuple[str, list[str]] = ("", [])

    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        self.seen = (query, list(passages))
        return np.array(self.scores, dtype=np.float32)

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        return ("1 of 3 passages is cut",)


def test_rerank_uses_reranker_order_and_names_it() -> None:
    before = ranking(passage("a", "Zebras."), passage("b", "Aspirin.", "Stroke"), passage("c", "Warm.", "Rain?"))
    reranker = Fixed([-3.0, 2.5, 0.0])
    after = rerank(before, "Does it help?", reranker, "medcpt-reranker", k=2)
    assert after.ids == ("b#0", "c#0")
    assert [(hit.score, hit.rank) for hit in after.hits] == [(2.5, 0), (0.0, 1)]
    assert after.retriever == "hybrid+medcpt-reranker"
    assert after.parameters == {"k": 2, "rrf_k": 60, "reranker": "medcpt-reranker", "rerank_depth": 3}
    assert after.notes == ("the question was cut", "1 of 3 passages is cut")
    assert reranker.seen == ("Does it help?", ["Zebras.", "Stroke. Aspirin.", "Rain? Warm."])


@given(st.permutations(["a", "b", "c", "d"]))
def test_rerank_ties_are_broken_by_passage_id(order: list[str]) -> None:
    after = rerank(ranking(*(passage(id_, "x") for id_ in order)), "y", TermOverlapReranker(), "overlap", k=9)
    assert after.ids == ("a#0", "b#0", "c#0", "d#0")


def test_rerank_of_empty_ranking_is_empty() -> None:
    after = rerank(ranking(), "y", TermOverlapReranker(), "overlap", k=3)
    assert (after.hits, after.parameters["rerank_depth"]) == ((), 0)


def test_rerank_failure_is_raised() -> None:
    class Fails(Fixed):
        def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
            raise EndpointTimeout("no answer")

    with pytest.raises(EndpointTimeout):
        rerank(ranking(passage("a", "x")), "y", Fails([]), "remote", k=1)


def test_rerank_text_has_title_as_sentence() -> None:
    assert format_for_reranker(passage("a", "Text.", "Title")) == "Title. Text."
    assert format_for_reranker(passage("a", "Text.", "Title.")) == "Title. Text."
    assert format_for_reranker(passage("a", "Text.")) == "Text."


def test_fake_reranker_meets_contract() -> None:
    check_reranker(TermOverlapReranker())
