"""SPLADE against sentence-transformers, on a tiny masked language model with random weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from epicrisis.core.errors import ContextOverflow, ModelMissing
from epicrisis.models.encoders import CachedSparseEncoder, load_sparse
from tests.support import tiny_models
from tests.support.encoders import WordCountEncoder, check_sparse_encoder

TEXTS = ["Aspirin reduces the risk of stroke.", "", "warfarin " * 40, "Does insulin lower mortality in children?"]


@pytest.fixture(scope="module")
def splade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import BertForMaskedLM

    folder: Path = tmp_path_factory.mktemp("splade")
    tiny_models.make_tokenizer(folder)
    torch.manual_seed(7)
    model = BertForMaskedLM(tiny_models.bert_config(max_position_embeddings=64)).eval()
    model.save_pretrained(folder)
    return folder


@pytest.mark.torch
def test_load_sparse_weights_match_sentence_transformers(splade: Path) -> None:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    library = SparseEncoder(modules=[MLMTransformer(str(splade)), SpladePooling(pooling_strategy="max")], device="cpu")
    ours = load_sparse(str(splade), splade)
    theirs = library.encode_document(TEXTS, convert_to_sparse_tensor=False, convert_to_tensor=True).numpy()
    for words, row in zip(ours.encode_passages(TEXTS), theirs, strict=True):
        assert set(words) == set(np.nonzero(row)[0].tolist())
        assert np.allclose([row[word] for word in words], list(words.values()), atol=1e-5)
        assert words
    check_sparse_encoder(ours)
    assert ours.encode_queries(TEXTS) == ours.encode_passages(TEXTS)


@pytest.mark.torch
def test_sparse_encoder_long_text_raises_context_overflow(splade: Path) -> None:
    ours = load_sparse(str(splade), splade)
    assert ours.encode_passages(["warfarin " * 62])
    with pytest.raises(ContextOverflow, match=r"a text has 65 tokens, .* reads 64: cut the library"):
        ours.encode_passages(["aspirin", "warfarin " * 63])


class Counting(WordCountEncoder):
    """Writes down which passages it encodes."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode_passages(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        self.encoded += texts
        return super().encode_passages(texts)


def test_cached_sparse_encoder_encodes_cached_passage_once() -> None:
    inner = Counting()
    ours = CachedSparseEncoder(inner, size=3)
    check_sparse_encoder(CachedSparseEncoder(Counting()))
    for texts in (["a", "b b", "", "a"], ["b b", "a"], ["c"], ["a"]):
        assert ours.encode_passages(texts) == WordCountEncoder().encode_passages(texts)
    assert inner.encoded == ["a", "b b", "", "c"]
    ours.encode_passages([""])
    assert inner.encoded[4:] == [""], "the one that was not asked for longest made room"
    ours.encode_passages(list("defgh"))
    ours.encode_queries(["h"])
    ours.encode_passages(["h", "a"])
    assert inner.encoded[5:] == [*"defgh", "a"]


def test_load_sparse_missing_model_names_pull_command(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="epicrisis models pull splade"):
        load_sparse("splade", tmp_path)
