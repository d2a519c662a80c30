"""Encoders on torch: folders of sentence-transformers against that library, decoders that close their texts, and what
is said of folders that cannot be run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epicrisis.core.errors import ModelFileInvalid, ModelMissing
from epicrisis.models.encoders import load_encoder
from epicrisis.testing.hashing_encoder import check_encoder
from tests.support import tiny_models

TEXTS = ["Aspirin reduces the risk of stroke.", "", "warfarin " * 60, "Does insulin lower mortality in children?"]


def write_settings(folder: Path, **settings: Any) -> None:
    (folder / "model.json").write_text(json.dumps({"settings": settings}))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:

    folder: Path = tmp_path_factory.mktemp("bert")
    tiny_models.make_bert(folder, 1)
    return folder


@pytest.mark.torch
@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken"])
@pytest.mark.parametrize("normalise", [True, False])
def test_torch_encoder_folder_matches_sentence_transformers(
    bert: Path, tmp_path: Path, pooling: str, normalise: bool
) -> None:
    import sentence_transformers as library
    from sentence_transformers.sentence_transformer import modules

    words = modules.Transformer(str(bert), max_seq_length=32)
    steps = [words, modules.Pooling(32, pooling_mode=pooling), *([modules.Normalize()] if normalise else [])]
    prompts = {"query": "treatment: ", "document": "trial: "}
    kind = "cosine" if normalise else "dot"
    theirs = library.SentenceTransformer(modules=steps, prompts=prompts, similarity_fn_name=kind, device="cpu")
    theirs.save(str(tmp_path))
    theirs = library.SentenceTransformer(str(tmp_path), device="cpu")
    ours = load_encoder(str(tmp_path), tmp_path)
    assert np.allclose(ours.encode_queries(TEXTS), theirs.encode_query(TEXTS), atol=1e-5)
    passages = [("", text) for text in TEXTS]
    assert np.allclose(ours.encode_passages(passages), theirs.encode_document(TEXTS), atol=1e-5)
    assert not np.allclose(ours.encode_passages(passages), ours.encode_queries(TEXTS), atol=1e-3)
    check_encoder(ours)
    prefix = len(ours.token_spans(prompts["query"]))
    assert (ours.max_query_tokens, ours.dimensions) == (30 - prefix, 32)


@pytest.mark.torch
def test_torch_encoder_unknown_module_is_refused(bert: Path, tmp_path: Path) -> None:
    tiny_models.make_bert(tmp_path, 1)
    steps = [{"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Dense")]
    (tmp_path / "modules.json").write_text(json.dumps(steps))
    with pytest.raises(ModelFileInvalid, match="Dense"):
        load_encoder(str(tmp_path), tmp_path)


@pytest.mark.torch
def test_torch_encoder_decoder_uses_last_token_of_closed_text(tmp_path: Path) -> None:
    import torch

    model, tokenizer = tiny_models.make_decoder(tmp_path, 1)
    instruct = "Instruct: the treatment\nQuery: "
    settings = {"pooling": "last", "normalise": True, "max_tokens": 40, "query_prefix": instruct, "end_token": "</s>"}
    write_settings(tmp_path, **settings)
    ours = load_encoder(str(tmp_path), tmp_path)

    def card(texts: list[str]) -> Any:
        """Return vectors as the cards of SFR and Qwen compute them: closed, padded left, last token, length 1."""
        tokenizer.padding_side = "left"
        closed = [[*ids[:39], tokenizer.eos_token_id] for ids in tokenizer(texts)["input_ids"]]
        batch = tokenizer.pad({"input_ids": closed}, padding=True, return_tensors="pt")
        with torch.no_grad():
            last = model(**batch).last_hidden_state[:, -1]
        return torch.nn.functional.normalize(last, p=2, dim=1).numpy()

    assert np.allclose(ours.encode_queries(TEXTS), card([instruct + text for text in TEXTS]), atol=1e-5)
    assert np.allclose(ours.encode_passages([("", text) for text in TEXTS]), card(TEXTS), atol=1e-5)
    assert ours.max_tokens == 39
    check_encoder(ours)


@pytest.mark.torch
def test_torch_encoder_separator_title_joins_title_and_text(bert: Path) -> None:
    """SPECTER: title[SEP]abstract as one text, as its authors and MedRAG give it."""
    write_settings(bert, pooling="cls", normalise=False, max_tokens=512, title="[SEP]")
    joined = load_encoder(str(bert), bert)
    write_settings(bert, pooling="cls", normalise=False, max_tokens=512)
    plain = load_encoder(str(bert), bert)
    title, text = "Heart disease", "Aspirin and warfarin."
    vectors = joined.encode_passages([(title, text), ("", text)])
    assert np.allclose(vectors, plain.encode_queries([f"{title}[SEP]{text}", text]), atol=1e-6)
    assert not np.allclose(vectors[0], plain.encode_passages([(title, text)])[0], atol=1e-3)


@pytest.mark.torch
def test_torch_encoder_missing_weights_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tiny_models.make_bert(tmp_path, 1)
    weights = load_file(tmp_path / "model.safetensors")
    save_file(
        {name: value for name, value in weights.items() if "layer.1." not in name},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    write_settings(tmp_path, pooling="cls", normalise=False, max_tokens=512)
    with pytest.raises(ModelFileInvalid, match=r"lacks 16 of its weights"):
        load_encoder(str(tmp_path), tmp_path)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_torch_encoder_invalid_file_is_named(tmp_path: Path, name: str) -> None:
    tiny_models.make_bert(tmp_path, 1)
    write_settings(tmp_path, pooling="cls", normalise=False, max_tokens=512)
    (tmp_path / name).write_bytes(b"{not a model")
    with pytest.raises(ModelFileInvalid, match="pull it again") as caught:
        load_encoder(str(tmp_path), tmp_path)
    assert "\n" not in caught.value.message


@pytest.mark.torch
def test_torch_encoder_sharded_and_pickled_weights_are_read(bert: Path, tmp_path: Path) -> None:
    import torch

    write_settings(bert, pooling="cls", normalise=False, max_tokens=512)
    expected = load_encoder(str(bert), bert).encode_queries(TEXTS)
    parts, older = tmp_path / "parts", tmp_path / "older"
    model = tiny_models.make_bert(parts, 1)
    (parts / "model.safetensors").unlink()
    model.save_pretrained(parts, max_shard_size="40KB")
    tiny_models.make_bert(older, 1)
    (older / "model.safetensors").unlink()
    torch.save(model.state_dict(), older / "pytorch_model.bin")
    assert len(list(parts.glob("model-*.safetensors"))) > 1
    for folder in (parts, older):
        write_settings(folder, pooling="cls", normalise=False, max_tokens=512)
        assert np.allclose(load_encoder(str(folder), folder).encode_queries(TEXTS), expected, atol=1e-6)
    tiny_models.make_bert(older, 2)
    by_name = load_encoder(str(older / "pytorch_model.bin"), older)
    assert np.allclose(by_name.encode_queries(TEXTS), expected, atol=1e-6)
    assert not np.allclose(load_encoder(str(older), older).encode_queries(TEXTS), expected, atol=1e-3)
    next(parts.glob("model-*.safetensors")).unlink()
    with pytest.raises(ModelMissing, match=r"lacks model-.*safetensors"):
        load_encoder(str(parts), parts)


@pytest.mark.slow
@pytest.mark.models
def test_torch_encoder_without_torch_names_extra(model_home: Path, tmp_path: Path) -> None:
    """In a process that cannot import torch, whether it is installed here or not."""
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).write_bytes(b"{}")
    (tmp_path / "tokenizer.json").write_bytes((model_home / "models" / "minilm" / "tokenizer.json").read_bytes())
    write_settings(tmp_path, pooling="cls", normalise=False, max_tokens=512)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from epicrisis.core.errors import ModelMissing\n"
        "from epicrisis.models.encoders import load_encoder\n"
        "try:\n    load_encoder(sys.argv[1], Path(sys.argv[1]))\n"
        "except ModelMissing as error:\n    sys.exit(0 if 'pip install \"epicrisis[torch]\"' in error.message else 3)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0
