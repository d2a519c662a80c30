"""The ONNX encoder on the real MiniLM: its contract, its quality, and what it says of files that are no model."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.errors import ModelFileInvalid, ModelMissing
from epicrisis.models.encoders import load_encoder
from epicrisis.models.networks import BatchSize, split_batches
from epicrisis.testing.hashing_encoder import check_encoder


@pytest.fixture
def folder(model_home: Path, tmp_path: Path) -> Path:
    """Return a folder with MiniLM and the settings files of sentence-transformers."""
    for name in ("model.onnx", "tokenizer.json"):
        shutil.copy(model_home / "models" / "minilm" / name, tmp_path / name)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 256}))
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Normalize"}]))
    return tmp_path


@pytest.mark.long
@pytest.mark.models
def test_minilm_satisfies_encoder_contract(model_home: Path) -> None:
    encoder = load_encoder("minilm", model_home)
    check_encoder(encoder)
    assert (encoder.dimensions, encoder.max_tokens, encoder.max_query_tokens) == (384, 254, 254)
    assert np.allclose(np.linalg.norm(encoder.encode_queries(["Aspirin"]), axis=1), 1, atol=1e-5)


@pytest.mark.slow
@pytest.mark.models
def test_minilm_related_passage_scores_higher(model_home: Path) -> None:
    encoder = load_encoder("minilm", model_home, threads=1)
    query = encoder.encode_queries(["Does aspirin prevent heart attacks?"])[0]
    texts = ["Acetylsalicylic acid lowers the risk of myocardial infarction.", "Zebras graze in the savannah."]
    near, far = encoder.encode_passages([("", text) for text in texts]) @ query
    assert near > far + 0.3


@pytest.mark.slow
@pytest.mark.models
def test_encoder_text_beyond_window_is_ignored_but_has_token_spans(model_home: Path) -> None:
    encoder = load_encoder("minilm", model_home)
    long = "stroke " * 300
    assert len(encoder.token_spans(long)) == 300
    assert np.array_equal(encoder.encode_queries([long]), encoder.encode_queries([long + "aspirin"]))


@pytest.mark.slow
@given(st.lists(st.integers(0, 3000), max_size=60), st.integers(1, 9), st.integers(1, 5000))
def test_split_batches_covers_each_text_once_within_token_limit(lengths: list[int], size: int, tokens: int) -> None:
    encodings = [SimpleNamespace(ids=[0] * length) for length in lengths]
    batches = list(split_batches(encodings, BatchSize(size, tokens)))  # type: ignore[arg-type]
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch) <= size
        assert len(batch) == 1 or len(batch) * max(lengths[number] for number in batch) <= tokens


@pytest.mark.slow
@pytest.mark.models
def test_load_encoder_folder_gives_same_vectors_as_name(model_home: Path, folder: Path) -> None:
    by_name, by_path = load_encoder("minilm", model_home), load_encoder(str(folder), model_home)
    assert np.array_equal(by_name.encode_queries(["Aspirin"]), by_path.encode_queries(["Aspirin"]))


@pytest.mark.long
@pytest.mark.models
def test_encoder_fingerprint_changes_with_pooling(model_home: Path, folder: Path) -> None:
    before = load_encoder(str(folder), model_home).fingerprint
    (folder / "model.json").write_text(
        json.dumps({"settings": {"pooling": "cls", "normalise": True, "max_tokens": 256}})
    )
    cls = load_encoder(str(folder), model_home)
    assert cls.fingerprint != before
    check_encoder(cls)


@pytest.mark.models
@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"", b"not a model at all", b"\x08\x07\x12"])
def test_load_encoder_invalid_file_is_named_on_one_line(
    model_home: Path, folder: Path, name: str, content: bytes
) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFileInvalid, match=name) as caught:
        load_encoder(str(folder), model_home)
    assert "\n" not in caught.value.message


@pytest.mark.models
def test_load_encoder_folder_without_valid_settings_is_refused(model_home: Path, folder: Path) -> None:
    (folder / "sentence_bert_config.json").unlink()
    with pytest.raises(ModelFileInvalid, match=r"max_tokens.*model\.json"):
        load_encoder(str(folder), model_home)
    (folder / "model.json").write_text(
        json.dumps({"settings": {"pooling": "max", "normalise": True, "max_tokens": 256}})
    )
    with pytest.raises(ModelFileInvalid, match=r"pooling is wrong .*'mean', 'cls' or 'last'"):
        load_encoder(str(folder), model_home)
    (folder / "model.json").write_text("{")
    with pytest.raises(ModelFileInvalid, match="not JSON"):
        load_encoder(str(folder), model_home)


@pytest.mark.long
@pytest.mark.models
def test_encoder_query_and_article_networks_match_onnxruntime(model_home: Path, folder: Path) -> None:
    """MedCPT's layout, with MiniLM in both places, against tokenizers and onnxruntime used directly."""
    import onnxruntime
    from tokenizers import Tokenizer

    for part in ("query", "article"):
        (folder / part).mkdir()
        for name in ("model.onnx", "tokenizer.json"):
            shutil.copy(folder / name, folder / part / name)
    settings = {"pooling": "cls", "normalise": False, "max_tokens": 32, "max_query_tokens": 8, "title": "pair"}
    (folder / "model.json").write_text(json.dumps({"settings": settings}))
    ours = load_encoder(str(folder), model_home)
    check_encoder(ours)
    assert (ours.max_tokens, ours.max_query_tokens) == (29, 6)

    session = onnxruntime.InferenceSession(folder / "model.onnx")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()

    def first(text: str | tuple[str, str], window: int) -> Any:
        tokenizer.enable_truncation(window)
        encoding = tokenizer.encode(*((text,) if isinstance(text, str) else text))
        feeds = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask}
        feeds["token_type_ids"] = encoding.type_ids
        return session.run(None, {name: np.array([row]) for name, row in feeds.items()})[0][0, 0]

    pairs = [("Aspirin", "It prevents strokes."), ("", "Untitled."), ("long " * 40, "long " * 40)]
    for pair in pairs:
        assert np.allclose(ours.encode_passages([pair])[0], first(pair, 32), atol=1e-5)
    assert np.allclose(ours.encode_queries(["stroke " * 9])[0], first("stroke " * 9, 8), atol=1e-5)
    joined = first("Aspirin\nIt prevents strokes.", 32)
    assert not np.allclose(ours.encode_passages(pairs[:1])[0], joined, atol=1e-2)


@pytest.mark.long
@pytest.mark.models
def test_load_encoder_reads_prompts_and_onnx_folder_of_sentence_transformers(model_home: Path, folder: Path) -> None:
    plain = load_encoder(str(folder), model_home)
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    prompts = {"prompts": {"query": "question: ", "passage": "abstract: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    ours = load_encoder(str(folder), model_home)
    assert np.array_equal(ours.encode_queries(["Aspirin"]), plain.encode_queries(["question: Aspirin"]))
    assert np.array_equal(
        ours.encode_passages([("Aspirin.", "Stroke")]), plain.encode_queries(["abstract: Aspirin.\nStroke"])
    )
    assert plain.max_tokens - ours.max_tokens == len(plain.token_spans("abstract: "))
    assert ours.fingerprint != plain.fingerprint


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("modules.json", [{"type": "sentence_transformers.models.Dense"}], "step Dense"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pooling is wrong"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            "pooling is wrong",
        ),
        (
            "1_Pooling/config.json",
            {"pooling_mode_mean_tokens": True, "include_prompt": False},
            "prompts out of the mean",
        ),
        ("model.json", {"settings": {"pooling": "cls", "normalise": True, "max_tokens": 256, "titel": "x"}}, "titel"),
    ],
)
def test_load_encoder_unsupported_setting_is_refused(
    model_home: Path, folder: Path, name: str, content: object, complaint: str
) -> None:
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(ModelFileInvalid, match=complaint):
        load_encoder(str(folder), model_home)


def test_load_encoder_missing_model_names_pull_command(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="epicrisis models pull minilm"):
        load_encoder("minilm", tmp_path)
    with pytest.raises(ModelMissing, match=r"lacks model\.onnx"):
        load_encoder(str(tmp_path), tmp_path)


@pytest.mark.long
@pytest.mark.models
@pytest.mark.data
def test_minilm_pubmedqa_questions_find_their_abstracts(model_home: Path, data_folder: Path) -> None:
    """The first 150 of PubMedQA's questions over their 150 abstracts: 0.97 of all 1,000 find theirs first."""
    records = list(json.loads((data_folder / "pubmedqa" / "ori_pqal.json").read_text("utf-8")).values())[:150]
    encoder = load_encoder("minilm", model_home)
    passages = encoder.encode_passages([("", "\n".join(record["CONTEXTS"])) for record in records])
    queries = encoder.encode_queries([record["QUESTION"] for record in records])
    correct = (queries @ passages.T).argmax(axis=1) == np.arange(len(records))
    assert correct.mean() >= 0.96
