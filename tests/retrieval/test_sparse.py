"""A record's passages ranked by a sparse encoder."""

from __future__ import annotations

import pytest

from epicrisis.core.errors import ContextOverflow
from epicrisis.core.types import Passage
from epicrisis.retrieval.rankings import rank_by_sparse_vectors
from tests.support.encoders import WordCountEncoder, check_sparse_encoder


def passage(ordinal: int, text: str) -> Passage:
    return Passage(id=f"n#{ordinal}", document_id="n", ordinal=ordinal, start=0, end=len(text), text=text)


def test_fake_sparse_encoder_meets_contract() -> None:
    check_sparse_encoder(WordCountEncoder())


def test_sparse_search_ranks_by_inner_product_then_id() -> None:
    texts = ("warfarin", "aspirin and warfarin", "aspirin aspirin", "nothing else", "warfarin")
    passages = [passage(number, text) for number, text in enumerate(texts)]
    found = rank_by_sparse_vectors("aspirin, aspirin or warfarin?", passages[::-1], WordCountEncoder(), 4)
    assert [(hit.passage.id, hit.score, hit.rank) for hit in found.hits] == [
        ("n#2", 4.0, 0),
        ("n#1", 3.0, 1),
        ("n#0", 1.0, 2),
        ("n#4", 1.0, 3),
    ]
    assert (found.retriever, found.parameters) == ("splade", {"k": 4, "encoder": "word-count"})
    assert len(rank_by_sparse_vectors("aspirin", passages, WordCountEncoder(), 1).hits) == 1
    assert rank_by_sparse_vectors("insulin", passages, WordCountEncoder(), 4).hits == ()


def test_sparse_encoder_with_passage_over_window_raises() -> None:
    with pytest.raises(ContextOverflow):
        rank_by_sparse_vectors("aspirin", [passage(0, "aspirin " * 513)], WordCountEncoder(), 1)
