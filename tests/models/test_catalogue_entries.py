"""The catalogue's entries of the papers' models agree with what their authors publish: cards, papers, settings files.

Each test reads the entry itself, as the loaders do, and writes the published configuration down a second time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import pytest

from epicrisis.models.catalogue import load_catalogue
from epicrisis.models.model_files import ModelFiles
from epicrisis.models.model_recipes import (
    EncoderRecipe,
    NliRecipe,
    RerankerRecipe,
    RewardRecipe,
    TokenVectorsRecipe,
    _Recipe,
)

R = TypeVar("R", bound=_Recipe)


def read_entry(recipe: type[R], name: str, folder: Path = Path("nowhere")) -> R:
    """Return the recipe of a catalogue entry, with the model's files in a folder."""
    entry = load_catalogue()[name]
    return recipe.read(ModelFiles(name, entry.kind, folder, {}, entry.settings, {}))


def list_repositories(name: str) -> list[tuple[str, str]]:
    return [(folder.repo, folder.into) for folder in load_catalogue()[name].unpinned]


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def test_medcpt_encoders_read_64_and_512_tokens_and_take_the_first_vector() -> None:
    """Cards of ncbi/MedCPT-Query-Encoder (max_length=64) and -Article-Encoder (pairs of title and abstract,
    max_length=512): `last_hidden_state[:, 0, :]`, compared by the inner product."""
    assert read_entry(EncoderRecipe, "medcpt") == EncoderRecipe(
        pooling="cls", normalise=False, max_tokens=512, max_query_tokens=64, title="pair", dimensions=768
    )
    assert list_repositories("medcpt") == [
        ("ncbi/MedCPT-Query-Encoder", "query/"),
        ("ncbi/MedCPT-Article-Encoder", "article/"),
    ]


def test_medcpt_cross_encoder_reads_pairs_of_512_tokens() -> None:
    """Card of ncbi/MedCPT-Cross-Encoder: pairs of query and article, max_length=512, one logit."""
    assert read_entry(RerankerRecipe, "medcpt-reranker") == RerankerRecipe(scoring="cross-encoder", max_tokens=512)
    assert list_repositories("medcpt-reranker") == [("ncbi/MedCPT-Cross-Encoder", "")]


@pytest.mark.parametrize(("size", "dimensions"), [("0.6B", 1024), ("8B", 4096)])
def test_qwen3_embedding_equals_its_settings_files(size: str, dimensions: int, tmp_path: Path) -> None:
    """Its modules.json, 1_Pooling/config.json and config_sentence_transformers.json; the card's code has 8,192 tokens.
    The tokenizer closes each text with <|endoftext|>."""
    steps = ("models.Transformer", "models.Pooling", "models.Normalize")
    write_json(tmp_path / "modules.json", [{"type": f"sentence_transformers.{step}"} for step in steps])
    write_json(tmp_path / "1_Pooling" / "config.json", {"pooling_mode_lasttoken": True, "include_prompt": True})
    task = "Given a web search query, retrieve relevant passages that answer the query"
    prompts = {"query": f"Instruct: {task}\nQuery:", "document": ""}
    write_json(
        tmp_path / "config_sentence_transformers.json",
        {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )
    published = EncoderRecipe.model_validate(
        {
            **EncoderRecipe.read_folder(tmp_path),
            "max_tokens": 8192,
            "dimensions": dimensions,
            "end_token": "<|endoftext|>",
        }
    )
    assert read_entry(EncoderRecipe, f"qwen3-embedding-{size.lower()}") == published
    assert (published.pooling, published.normalise, published.passage_prefix) == ("last", True, "")
    assert list_repositories(f"qwen3-embedding-{size.lower()}") == [(f"Qwen/Qwen3-Embedding-{size}", "")]


def test_reason_moderncolbert_reads_as_its_card_says() -> None:
    """Card of lightonai/Reason-ModernColBERT: 128 tokens of a query, 8,192 of a document, the markers `[Q] ` and
    `[D] `, trained with an empty list of words to skip, a linear layer of 128 outputs."""
    assert read_entry(RerankerRecipe, "reason-moderncolbert") == RerankerRecipe(
        scoring="late-interaction",
        max_tokens=8192,
        max_query_tokens=128,
        query_marker="[Q] ",
        passage_marker="[D] ",
        augment=True,
        skip_punctuation=False,
        projection="linear.weight",
    )
    assert list_repositories("reason-moderncolbert") == [("lightonai/Reason-ModernColBERT", "")]


def test_armorm_shows_the_four_attributes_of_the_study_by_name(tmp_path: Path) -> None:
    """Card of RLHFlow/ArmoRM-Llama3-8B-v0.1: nineteen attributes in this order. The study shows four (5.1)."""
    write_json(tmp_path / "config.json", {"architectures": ["LlamaForRewardModelWithGating"]})
    recipe = read_entry(RewardRecipe, "armorm", tmp_path)
    assert [(name, recipe.rows.index(name)) for name in recipe.attributes] == [
        ("ultrafeedback-truthfulness", 7),
        ("ultrafeedback-honesty", 8),
        ("ultrafeedback-helpfulness", 9),
        ("prometheus-score", 11),
    ]
    assert len(recipe.rows) == 19
    assert (recipe.rows[0], recipe.rows[5], recipe.rows[10], recipe.rows[18]) == (
        "helpsteer-helpfulness",
        "ultrafeedback-overall_score",
        "beavertails-is_safe",
        "code-readability",
    )
    assert recipe.head == "regression_layer.weight"
    assert list_repositories("armorm") == [("RLHFlow/ArmoRM-Llama3-8B-v0.1", "")]


def test_clinical_biobert_has_layer_9_in_lower_case() -> None:
    """emilyalsentzer/Bio_ClinicalBERT has no tokenizer settings, so transformers reads lower case; bert-score takes
    layer 9 of a network of BERT-base's size, with 512 positions."""
    assert read_entry(TokenVectorsRecipe, "bio-clinicalbert") == TokenVectorsRecipe(
        layer=9, max_tokens=512, lowercase=True
    )
    assert list_repositories("bio-clinicalbert") == [("emilyalsentzer/Bio_ClinicalBERT", "")]


def test_medical_nli_model_has_the_labels_of_its_config(tmp_path: Path) -> None:
    """config.json of pritamdeka/PubMedBERT-MNLI-MedNLI (Deka et al. 2023)."""
    labels = {"0": "contradiction", "1": "entailment", "2": "neutral"}
    write_json(tmp_path / "config.json", {"id2label": labels, "max_position_embeddings": 512})
    published = NliRecipe.model_validate(NliRecipe.read_folder(tmp_path))
    assert read_entry(NliRecipe, "pubmedbert-mnli-mednli") == published
    assert list_repositories("pubmedbert-mnli-mednli") == [("pritamdeka/PubMedBERT-MNLI-MedNLI", "")]
