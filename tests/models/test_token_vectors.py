"""Token vectors: those of transformers at every layer, over both kinds of vocabulary; MiniLM's; what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from epicrisis.core.errors import ContextOverflow, ModelFileInvalid, ModelMissing
from epicrisis.evaluation.metrics.neural import BertScore, compute_bert_scores
from epicrisis.models.encoders import load_token_encoder
from tests.support import tiny_models
from tests.support.encoders import HashingTokenEncoder, check_token_encoder

TEXTS = ["Aspirin reduces the risk of stroke .", "warfarin", "Oral therapy, daily ; in children with diabetes mellitus"]


def write_settings(folder: Path, **settings: object) -> None:
    (folder / "model.json").write_text(json.dumps({"settings": settings}), encoding="utf-8")


def test_hashing_token_encoder_satisfies_contract() -> None:
    check_token_encoder(HashingTokenEncoder())


@pytest.mark.torch
@pytest.mark.parametrize("layer", [1, 2, None])
def test_token_encoder_layer_matches_transformers(tmp_path: Path, layer: int | None) -> None:
    import torch
    from transformers import AutoTokenizer

    model = tiny_models.make_bert(tmp_path, 1)
    write_settings(tmp_path, max_tokens=64, **({} if layer is None else {"layer": layer}))
    encoder = load_token_encoder(str(tmp_path), tmp_path)
    assert encoder.name == (tmp_path.name if layer is None else f"{tmp_path.name}_L{layer}")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for text, encoding in zip(TEXTS, encoder.encode_tokens(TEXTS), strict=True):
        with torch.no_grad():
            encoded = tokenizer(text, return_tensors="pt")
            expected = model(**encoded, output_hidden_states=True).hidden_states[layer or 2][0].numpy()
        assert np.allclose(encoding.vectors, expected, atol=1e-5)
        assert encoding.content.tolist() == [False, *[True] * (len(expected) - 2), False]
    check_token_encoder(encoder)


@pytest.mark.torch
@pytest.mark.parametrize("lowercase", [True, False])
def test_token_encoder_bare_vocabulary_matches_transformers(tmp_path: Path, lowercase: bool) -> None:
    """Bio_ClinicalBERT comes with `vocab.txt` alone, and a pickle of weights."""
    import torch
    from transformers import BertTokenizerFast

    model = tiny_models.make_bert(tmp_path, 1)
    for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (tmp_path / name).unlink(missing_ok=True)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    write_settings(tmp_path, layer=1, max_tokens=64, lowercase=lowercase)
    tokenizer = BertTokenizerFast.from_pretrained(tmp_path, do_lower_case=lowercase)
    text = "Aspirin réduces\u00a0the RISK (stroke), 5 x 心"
    with torch.no_grad():
        encoded = tokenizer(text, return_tensors="pt")
        expected = model(**encoded, output_hidden_states=True).hidden_states[1][0].numpy()
    (encoding,) = load_token_encoder(str(tmp_path), tmp_path).encode_tokens([text])
    assert encoding.vectors.shape == expected.shape
    assert np.allclose(encoding.vectors, expected, atol=1e-5)
    (lower,) = load_token_encoder(str(tmp_path), tmp_path).encode_tokens([text.lower()])
    assert np.array_equal(lower.vectors, encoding.vectors) == lowercase


@pytest.mark.torch
def test_load_token_encoder_invalid_model_is_named(tmp_path: Path) -> None:
    model = tiny_models.make_bert(tmp_path, 1)
    write_settings(tmp_path, layer=3, max_tokens=64)
    with pytest.raises(ModelFileInvalid, match=r"lacks \d+ of its weights \(encoder.layer.2"):
        load_token_encoder(str(tmp_path), tmp_path)
    tiny_models.to_onnx(model, tmp_path)
    write_settings(tmp_path, layer=1, max_tokens=64)
    with pytest.raises(ModelFileInvalid, match="gives its last layer only"):
        load_token_encoder(str(tmp_path), tmp_path)
    write_settings(tmp_path, layers=1, max_tokens=64)
    with pytest.raises(ModelFileInvalid, match="setting layers is wrong"):
        load_token_encoder(str(tmp_path), tmp_path)
    write_settings(tmp_path, layer=0, max_tokens=64)
    with pytest.raises(ModelFileInvalid, match=r"setting layer is wrong.*model\.json"):
        load_token_encoder(str(tmp_path), tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("no\nvocabulary\n", encoding="utf-8")
    write_settings(tmp_path, max_tokens=64)
    with pytest.raises(ModelFileInvalid, match=r"vocab\.txt has no token \[CLS\]"):
        load_token_encoder(str(tmp_path), tmp_path)


def test_load_token_encoder_other_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="of kind nli, but one of kind token-encoder is needed"):
        load_token_encoder("pubmedbert-mnli-mednli", tmp_path)
    with pytest.raises(ModelMissing, match="epicrisis models pull bio-clinicalbert"):
        load_token_encoder("bio-clinicalbert", tmp_path)


@pytest.mark.long
@pytest.mark.models
def test_load_token_encoder_minilm_returns_last_layer(model_home: Path) -> None:
    encoder = load_token_encoder("minilm", model_home)
    check_token_encoder(encoder)
    assert encoder.name == "minilm"
    near, far = compute_bert_scores(
        encoder,
        [
            ("The patient has high blood pressure.", "Hypertension was found in this patient."),
            ("The patient has high blood pressure.", "The trial was stopped early for futility."),
        ],
    )
    assert isinstance(near, BertScore)
    assert isinstance(far, BertScore)
    assert near.f1 > far.f1 + 0.1
    with pytest.raises(ContextOverflow, match="the encoder reads 256"):
        encoder.encode_tokens(["fever " * 255])
