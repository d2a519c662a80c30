"""Rerankers: a cross-encoder and ColBERT against transformers and brute force, late interaction over the real MiniLM,
and an endpoint on loopback that is healthy, strange or hostile."""

from __future__ import annotations

import json
import shutil
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epicrisis.core.errors import (
    EndpointBusy,
    EndpointRejected,
    EndpointTimeout,
    EndpointUnreachable,
    EpicrisisError,
    ModelFileInvalid,
    ModelMissing,
    NetworkRefused,
    ReplyInvalid,
)
from epicrisis.models.pair_models import HttpReranker, load_reranker, max_sim
from epicrisis.system.local_only import set_local_only
from epicrisis.testing.scorers import check_reranker
from tests.support import tiny_models
from tests.support.loopback import Endpoint, Scripted

QUERY = "Does aspirin prevent strokes?"
LONG = "warfarin reduces the risk of stroke in patients with atrial fibrillation. " * 60
PASSAGES = ["Aspirin. It reduces mortality.", LONG, "", "Insulin is the treatment (type 1), oral therapy after 5."]


def brute_force(words: np.ndarray[Any, Any], passage: np.ndarray[Any, Any]) -> float:
    total = 0.0
    for word in words:
        total += max(float(np.dot(word, other)) for other in passage)
    return total


# -- a cross-encoder ------------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_cross_encoder_scores_match_medcpt_card(tmp_path: Path, backend: str) -> None:
    import torch
    from transformers import AutoTokenizer

    model = tiny_models.make_cross_encoder(tmp_path, 1)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    with torch.no_grad():
        encoded = tokenizer(
            [[QUERY, passage] for passage in PASSAGES],
            truncation=True,
            padding=True,
            return_tensors="pt",
            max_length=512,
        )
        expected = model(**encoded).logits.squeeze(dim=1).numpy()
    if backend == "onnx":
        tiny_models.to_onnx(model, tmp_path)
    ours = load_reranker(str(tmp_path), tmp_path)
    assert np.allclose(ours.score(QUERY, PASSAGES), expected, atol=1e-5)
    assert float(np.ptp(expected)) > 0.05
    assert len(ours.notes(QUERY, PASSAGES)) == 1
    assert ours.notes(QUERY, PASSAGES)[0].startswith("1 of 4 passages is, with the question, longer than the 512")
    assert ours.score(QUERY, []).shape == (0,)
    assert np.allclose(ours.score(QUERY, PASSAGES[::-1])[::-1], expected, atol=1e-5)


@pytest.mark.torch
def test_load_reranker_network_without_score_is_refused(tmp_path: Path) -> None:
    tiny_models.make_cross_encoder(tmp_path / "two", 1, labels=2)
    with pytest.raises(ModelFileInvalid, match="numbers per pair instead of one"):
        load_reranker(str(tmp_path / "two"), tmp_path)
    tiny_models.make_bert(tmp_path / "encoder", 1)
    with pytest.raises(ModelFileInvalid, match=r"does not state its scoring.*model\.json"):
        load_reranker(str(tmp_path / "encoder"), tmp_path)
    (tmp_path / "encoder" / "model.json").write_text(
        json.dumps({"settings": {"scoring": "cross-encoder", "max_tokens": 64}})
    )
    with pytest.raises(ModelFileInvalid, match=r"lacks 2 of its weights \(classifier"):
        load_reranker(str(tmp_path / "encoder"), tmp_path)


# -- late interaction -----------------------------------------------------------------------------------------------


def colbert_by_hand(bert: Any, linear: Any, tokenizer: Any, text: str, window: int, marker: str) -> Any:
    """Return (vectors, ids) of one text by the published steps, without padding."""
    import torch

    ids = tokenizer(text, truncation=True, max_length=window - 1)["input_ids"]
    ids = [ids[0], tokenizer.convert_tokens_to_ids(marker), *ids[1:]]
    mask = [1] * len(ids)
    if marker == "[unused0]":
        mask += [0] * (window - len(ids))
        ids += [tokenizer.mask_token_id] * (window - len(ids))
    with torch.no_grad():
        hidden = bert(torch.tensor([ids]), attention_mask=torch.tensor([mask])).last_hidden_state[0] @ linear.T
    return torch.nn.functional.normalize(hidden, p=2, dim=1).numpy(), ids


@pytest.mark.torch
@pytest.mark.parametrize("form", ["model.safetensors", "pytorch_model.bin"])
def test_colbert_scores_match_published_steps(tmp_path: Path, form: str) -> None:
    import torch
    from safetensors.torch import load_file

    bert, linear = tiny_models.make_colbert(tmp_path, 1)
    if form == "pytorch_model.bin":
        torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / form)
        (tmp_path / "model.safetensors").unlink()
    tokenizer = tiny_models.make_tokenizer(tmp_path)
    words, ids = colbert_by_hand(bert, linear, tokenizer, QUERY, 12, "[unused0]")
    assert len(words) == 12
    assert ids[-1] == tokenizer.mask_token_id
    expected = []
    for passage in PASSAGES:
        vectors, ids = colbert_by_hand(bert, linear, tokenizer, passage, 24, "[unused1]")
        punctuation = set(
            tokenizer.convert_tokens_to_ids([mark for mark in string.punctuation if mark in tiny_models.WORDS])
        )
        expected.append(brute_force(words, vectors[[number not in punctuation for number in ids]]))
    ours = load_reranker(str(tmp_path), tmp_path)
    assert np.allclose(ours.score(QUERY, PASSAGES), expected, atol=1e-4)
    assert float(np.ptp(expected)) > 0.05
    notes = ours.notes(QUERY + " warfarin" * 20, PASSAGES)
    assert [note.removesuffix(": it did not see the rest") for note in notes] == [
        "the question is longer than the 12 tokens that the reranker reads of it",
        "1 of 4 passages is longer than the 24 tokens that the reranker reads",
    ]


@pytest.mark.torch
def test_load_reranker_colbert_missing_part_is_named(tmp_path: Path) -> None:
    tiny_models.make_colbert(tmp_path, 1, query_token_id="[Q]")
    with pytest.raises(ModelFileInvalid, match=r"has no token \[Q\]"):
        load_reranker(str(tmp_path), tmp_path)
    tiny_models.make_colbert(tmp_path, 1, attend_to_mask_tokens=True)
    with pytest.raises(ModelFileInvalid, match="attends to its mask tokens"):
        load_reranker(str(tmp_path), tmp_path)
    tiny_models.make_bert(tmp_path / "plain", 1)
    settings = {"scoring": "late-interaction", "max_tokens": 64, "projection": "linear.weight"}
    (tmp_path / "plain" / "model.json").write_text(json.dumps({"settings": settings}))
    with pytest.raises(ModelFileInvalid, match=r"has no tensor linear\.weight"):
        load_reranker(str(tmp_path / "plain"), tmp_path)


def test_max_sim_matches_brute_force() -> None:
    words = np.array([[1, 0], [0, 1]], dtype=np.float32)
    passage = np.array([[0.6, 0.8], [1, 0], [-1, 0]], dtype=np.float32)
    assert max_sim(words, passage) == pytest.approx(1.8)
    assert max_sim(words, passage[:0]) == 0
    random = np.random.default_rng(0)
    words, passage = (random.normal(size=(n, 8)).astype(np.float32) for n in (5, 11))
    assert max_sim(words, passage) == pytest.approx(brute_force(words, passage), abs=1e-4)


@pytest.fixture
def minilm_as_reranker(model_home: Path, tmp_path: Path) -> Path:
    """Return a folder with MiniLM as a late-interaction reranker."""
    shutil.copytree(model_home / "models" / "minilm", tmp_path / "late")
    settings = {"scoring": "late-interaction", "max_tokens": 128}
    (tmp_path / "late" / "model.json").write_text(json.dumps({"settings": settings}))
    return tmp_path / "late"


@pytest.mark.long
@pytest.mark.models
def test_late_interaction_minilm_scores_match_brute_force(minilm_as_reranker: Path) -> None:
    import onnxruntime
    from tokenizers import Tokenizer

    ours = load_reranker(str(minilm_as_reranker), minilm_as_reranker)
    check_reranker(ours)
    session = onnxruntime.InferenceSession(minilm_as_reranker / "model.onnx")
    tokenizer = Tokenizer.from_file(str(minilm_as_reranker / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(128)

    def vectors(text: str) -> np.ndarray[Any, Any]:
        ids = np.array([tokenizer.encode(text).ids])
        feeds = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
        hidden = session.run(None, feeds)[0][0]
        normalised: np.ndarray[Any, Any] = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
        return normalised

    expected = [brute_force(vectors(QUERY), vectors(passage)) for passage in PASSAGES]
    # The int8 weights give slightly other numbers in another batch.
    assert np.allclose(ours.score(QUERY, PASSAGES), expected, atol=0.05)
    assert ours.notes(QUERY, PASSAGES)[0].startswith("1 of 4 passages is longer than the 128 tokens")


@pytest.mark.models
def test_load_reranker_invalid_setting_is_named(minilm_as_reranker: Path) -> None:
    for settings, complaint in [
        ({"scoring": "votes", "max_tokens": 9}, "scoring"),
        ({"scoring": "late-interaction"}, "max"),
    ]:
        (minilm_as_reranker / "model.json").write_text(json.dumps({"settings": settings}))
        with pytest.raises(ModelFileInvalid, match=complaint):
            load_reranker(str(minilm_as_reranker), minilm_as_reranker)


def test_load_reranker_missing_model_names_pull_command(tmp_path: Path) -> None:
    for name in ("medcpt", "medcpt-reranker"):
        with pytest.raises(ModelMissing, match="epicrisis models pull medcpt-reranker"):
            load_reranker(name, tmp_path)
    with pytest.raises(ModelMissing, match="kind encoder, but one of kind reranker is needed"):
        load_reranker("minilm", tmp_path)


# -- an endpoint ----------------------------------------------------------------------------------------------------


def make_results(*scores: float) -> dict[str, Any]:
    """Return a reply with the best score first, as endpoints answer."""
    listed = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
    return {"id": "x", "results": sorted(listed, key=lambda entry: -entry["relevance_score"]), "usage": {}}


def test_http_reranker_scores_follow_passage_order(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.script["/v1/rerank"] = [Scripted(make_results(0.1, 0.9, -2.0))]
    reranker = load_reranker(f"{endpoint.url}#some/model", tmp_path, api_key=lambda: "a-key")
    scores = reranker.score(QUERY, ["a", "b", "c"])
    assert scores.dtype == np.float32
    assert scores.tolist() == pytest.approx([0.1, 0.9, -2.0])
    path, body, headers = endpoint.asked[0]
    assert (path, headers["authorization"]) == ("/v1/rerank", "Bearer a-key")
    assert body == {"model": "some/model", "query": QUERY, "documents": ["a", "b", "c"], "top_n": 3}
    assert reranker.score(QUERY, []).shape == (0,)
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/rerank", "/v1/rerank/"])
def test_http_reranker_accepts_url_path_variants(endpoint: Endpoint, path: str) -> None:
    endpoint.script["/v1/rerank"] = [Scripted(make_results(1.0))]
    assert HttpReranker(endpoint.url + path).score(QUERY, ["a"]).tolist() == [1.0]
    assert "authorization" not in endpoint.asked[0][2]
    assert "model" not in endpoint.asked[0][1]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Scripted("<html>", kind="text/html"), ReplyInvalid),
        (Scripted("{"), ReplyInvalid),
        (Scripted({"data": []}), ReplyInvalid),
        (Scripted(make_results(1.0)), ReplyInvalid),
        (Scripted(make_results(1.0, 2.0, 3.0)), ReplyInvalid),
        (Scripted({"results": [{"index": 0, "relevance_score": 1}] * 2}), ReplyInvalid),
        (
            Scripted('{"results": [{"index": 0, "relevance_score": NaN}, {"index": 1, "relevance_score": 1}]}'),
            ReplyInvalid,
        ),
        (Scripted({"detail": "a patient"}, 400), EndpointRejected),
        (Scripted({"detail": "a patient"}, 401), EndpointRejected),
        (Scripted({"detail": "a patient"}, 404), EndpointRejected),
        (Scripted({"detail": "a patient"}, 429), EndpointBusy),
        (Scripted({"detail": "a patient"}, 503), EndpointBusy),
        (Scripted("", 302), EndpointRejected),
    ],
)
def test_http_reranker_invalid_reply_raises_one_line_without_texts(
    endpoint: Endpoint, reply: Scripted, error: type[EpicrisisError]
) -> None:
    endpoint.script["/v1/rerank"] = [reply]
    with pytest.raises(error) as caught:
        HttpReranker(endpoint.url).score("a patient", ["a patient", "b"])
    assert len(endpoint.asked) == 1
    assert endpoint.url in caught.value.message
    assert "\n" not in caught.value.message
    assert "patient" not in caught.value.message
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_http_reranker_hanging_or_missing_endpoint_raises_error(endpoint: Endpoint) -> None:
    endpoint.script["/v1/rerank"] = [Scripted("", hangs=True)]
    with pytest.raises(EndpointTimeout, match=r"0\.2 s"):
        HttpReranker(endpoint.url, timeout_seconds=0.2).score(QUERY, ["a"])
    with pytest.raises(EndpointUnreachable, match="nothing answers"):
        HttpReranker("http://127.0.0.1:9").score(QUERY, ["a"])


def test_http_reranker_local_only_refuses_remote_host(endpoint: Endpoint) -> None:
    endpoint.script["/v1/rerank"] = [Scripted(make_results(1.0))]
    set_local_only(True)
    try:
        with pytest.raises(NetworkRefused, match=r"rerank\.example"):
            HttpReranker("https://rerank.example").score(QUERY, ["a"])
        assert HttpReranker(endpoint.url).score(QUERY, ["a"]).tolist() == [1.0]
    finally:
        set_local_only(False)
