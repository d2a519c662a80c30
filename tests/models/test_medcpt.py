"""MedCPT as published, token for token and number for number: tiny networks of its architecture, read by our code and
by transformers as the model's card shows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epicrisis.core.protocols import Encoder
from epicrisis.models.catalogue import load_catalogue
from epicrisis.models.encoders import load_encoder
from epicrisis.models.networks import load_tokenizer, pad_batch
from epicrisis.testing.hashing_encoder import check_encoder
from tests.support import tiny_models

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.torch

MEDCPT: dict[str, Any] = {
    name: value for name, value in load_catalogue()["medcpt"].settings.items() if name != "dimensions"
}
"""The settings of the catalogue's entry, without the size of the published network."""
QUERIES = ["diabetes treatment", "Does aspirin prevent strokes?", "", "warfarin " * 100, "naïve β-cells (type 2)."]
LONG = "aspirin reduces the risk of stroke in patients with atrial fibrillation. " * 60
ARTICLES = [
    ["Oral therapy of diabetes mellitus", "Insulin lowers mortality."],
    ["", "Aspirin is an acid."],
    ["A trial of warfarin", LONG],
    [LONG, "Aspirin."],
    [LONG, LONG],
    ["Heart disease", ""],
    ["Aspirin", "after " * 509],
    ["Aspirin", "after " * 508],
]


class Card:
    """What the card's own lines give."""

    def __init__(self, folder: Path, queries: Any, articles: Any) -> None:
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder / "article")
        self._queries, self._articles = queries, articles

    def tokens(self, texts: list[Any], max_length: int) -> Any:
        return self.tokenizer(texts, truncation=True, padding=True, return_tensors="pt", max_length=max_length)

    def queries(self, texts: list[str]) -> np.ndarray[Any, Any]:
        return self._first(self._queries, self.tokens(texts, 64))

    def articles(self, texts: list[list[str]]) -> np.ndarray[Any, Any]:
        return self._first(self._articles, self.tokens(texts, 512))

    def _first(self, model: Any, encoded: Any) -> np.ndarray[Any, Any]:
        with torch.no_grad():
            array: np.ndarray[Any, Any] = model(**encoded).last_hidden_state[:, 0, :].numpy()
        return array


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with both networks as transformers saves them and a model.json."""
    medcpt_folder: Path = tmp_path_factory.mktemp("medcpt")
    (medcpt_folder / "model.json").write_text(json.dumps({"settings": MEDCPT}))
    return medcpt_folder


@pytest.fixture(scope="module")
def card(folder: Path) -> Card:
    return Card(folder, tiny_models.make_bert(folder / "query", 1), tiny_models.make_bert(folder / "article", 2))


@pytest.fixture(scope="module")
def onnx_folder(folder: Path, card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    medcpt_folder: Path = tmp_path_factory.mktemp("onnx") / "medcpt"
    shutil.copytree(folder, medcpt_folder)
    tiny_models.to_onnx(card._queries, medcpt_folder / "query")
    tiny_models.to_onnx(card._articles, medcpt_folder / "article")
    return medcpt_folder


@pytest.fixture(scope="module", params=["torch", "onnx"])
def encoder(request: pytest.FixtureRequest, folder: Path, card: Card) -> Encoder:
    place: Path = folder if request.param == "torch" else request.getfixturevalue("onnx_folder")
    return load_encoder(str(place), place)


def test_medcpt_query_vectors_match_model_card(encoder: Encoder, card: Card) -> None:
    expected = card.queries(QUERIES)
    assert np.allclose(encoder.encode_queries(QUERIES), expected, atol=1e-5)
    assert np.abs(expected[0] - expected[1]).max() > 0.1


def test_medcpt_article_vectors_match_model_card(encoder: Encoder, card: Card) -> None:
    expected = card.articles(ARTICLES)
    vectors = encoder.encode_passages([(title, text) for title, text in ARTICLES])
    assert np.allclose(vectors, expected, atol=1e-5)
    assert np.abs(expected[0] - expected[1]).max() > 0.1


def test_medcpt_networks_differ_and_vectors_are_not_normalised(encoder: Encoder) -> None:
    query, passage = encoder.encode_queries(["aspirin"])[0], encoder.encode_passages([("", "aspirin")])[0]
    assert np.abs(query - passage).max() > 0.1
    assert abs(float(np.linalg.norm(query)) - 1) > 0.1


def test_medcpt_satisfies_contract_and_windows(encoder: Encoder) -> None:
    check_encoder(encoder)
    assert (encoder.dimensions, encoder.max_tokens, encoder.max_query_tokens) == (32, 509, 62)


def test_medcpt_query_is_read_to_62nd_token(encoder: Encoder) -> None:
    words = ["aspirin"] * 61
    full, over = (encoder.encode_queries([" ".join([*words, *more])]) for more in (["stroke"], ["stroke", "risk"]))
    assert np.array_equal(full, over)
    assert not np.allclose(full, encoder.encode_queries([" ".join([*words, "risk"])]), atol=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(
        st.tuples(st.integers(0, 600), st.integers(0, 600), st.sampled_from(["aspirin", "strokes", "x", "(5)"])),
        min_size=1,
        max_size=4,
    )
)
def test_medcpt_pair_truncation_matches_transformers(folder: Path, card: Card, pairs: list[Any]) -> None:
    texts = [[f"{word} " * title, f"risk {word} " * (text // 2)] for title, text, word in pairs]
    expected = card.tokens(texts, 512)
    tokenizer = load_tokenizer(folder / "article" / "tokenizer.json", 512)
    arrays = pad_batch(tokenizer.encode_batch([(title, text) for title, text in texts]))
    for name, array in zip(("input_ids", "attention_mask", "token_type_ids"), arrays, strict=True):
        assert np.array_equal(array, expected[name].numpy()), name


def test_medcpt_query_truncation_matches_transformers(folder: Path, card: Card) -> None:
    arrays = pad_batch(load_tokenizer(folder / "query" / "tokenizer.json", 64).encode_batch(QUERIES))
    assert np.array_equal(arrays[0], card.tokens(QUERIES, 64)["input_ids"].numpy())
    assert arrays[0].shape == (5, 64)


def test_medcpt_fingerprint_covers_networks_and_settings(folder: Path, card: Card, tmp_path: Path) -> None:
    fingerprints = {load_encoder(str(folder), folder).fingerprint}
    changes: list[dict[str, Any]] = [{"max_query_tokens": 32}, {"title": "\n"}, {"query_prefix": "Q: "}, {}]
    for number, change in enumerate(changes):
        place = tmp_path / str(number) / folder.name
        shutil.copytree(folder, place)
        (place / "model.json").write_text(json.dumps({"settings": MEDCPT | change}))
        if not change:
            tiny_models.make_bert(place / "query", 3)
        fingerprints.add(load_encoder(str(place), place).fingerprint)
    assert len(fingerprints) == 5
