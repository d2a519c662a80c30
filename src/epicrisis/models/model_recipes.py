"""How a model's texts are read and its numbers made: what its settings, or the files it came with, say of it.

The settings are those of the catalogue or of a `model.json`; a folder without them says the same in the files of
sentence-transformers, transformers or ColBERT. Knows nothing of how a network is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epicrisis.errors import ModelFileInvalid
from epicrisis.models.model_files import ModelFiles, read_json

_EXAMPLE = '{"settings": {"pooling": "mean", "normalise": true, "max_tokens": 256}}'
_EXAMPLE_RERANKER = '{"settings": {"scoring": "cross-encoder", "max_tokens": 512}}'
_EXAMPLE_REWARD = '{"settings": {"rows": ["helpfulness", "honesty"], "attributes": ["honesty"], "max_tokens": 4096}}'
_EXAMPLE_TOKENS = '{"settings": {"layer": 9, "max_tokens": 512}}'
_EXAMPLE_SPARSE = '{"settings": {"max_tokens": 512}}'
_EXAMPLE_NLI = '{"settings": {"labels": ["contradiction", "neutral", "entailment"], "max_tokens": 512}}'
_STEPS = {"Transformer", "Pooling", "Normalize"}


class _Recipe(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class EncoderRecipe(_Recipe):
    """How texts become vectors. Windows count tokens, special ones included."""

    pooling: Literal["mean", "cls", "last"]
    """Which token vectors are the text's: their mean, the first, or the last."""
    normalise: bool
    max_tokens: int = Field(ge=4)
    max_query_tokens: int | None = Field(None, ge=4)
    """The window of a question, where it is another."""
    title: str = "\n"
    """What stands between title and text, or `pair`: the two are a pair of texts, as BERT reads pairs."""
    query_prefix: str = ""
    passage_prefix: str = ""
    lowercase: bool = False
    end_token: str | None = None
    """A token that closes every text, where the vocabulary's own rules leave it out."""
    dimensions: int | None = None


class RerankerRecipe(_Recipe):
    """How a question and a passage become a score. Windows count tokens, special ones included.

    A cross-encoder reads both as one pair. Late interaction reads each alone; what follows `max_tokens` is for it.
    """

    scoring: Literal["cross-encoder", "late-interaction"]
    max_tokens: int = Field(ge=4)
    max_query_tokens: int | None = Field(None, ge=4)
    query_marker: str = ""
    """A token of the vocabulary put behind the first token of every question."""
    passage_marker: str = ""
    augment: bool = False
    """Questions are filled up to their window with mask tokens, which nobody attends to and which count as words."""
    skip_punctuation: bool = False
    """Vectors of a passage's punctuation are left out."""
    projection: str | None = None
    """The tensor among the weights that maps token vectors, where the network does not do it itself."""


_LLAMA_3 = (
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{question}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{answer}<|eot_id|>"
)


class RewardRecipe(_Recipe):
    """How a question and its answer become rewards: the vector of the last token times a head, a row an attribute."""

    attributes: tuple[str, ...] = Field(min_length=1)
    """The rows that are told, by name."""
    rows: tuple[str, ...] = Field(min_length=1)
    """All rows of the head, in order."""
    head: str = "regression_layer.weight"
    """The tensor among the weights, `(rows, d)`."""
    turns: str = _LLAMA_3
    """The conversation, with `{question}` and `{answer}`."""
    max_tokens: int = Field(4096, ge=4)


class NliRecipe(_Recipe):
    """Which of the network's three numbers stands for what, and its window."""

    labels: tuple[str, ...] = Field(min_length=3, max_length=3)
    """`entailment`, `neutral` and `contradiction` in the order of the network's numbers."""
    max_tokens: int = Field(ge=4)


class TokenVectorsRecipe(_Recipe):
    """Which of a network's token vectors are taken, and its window, special tokens included."""

    layer: int | None = Field(None, ge=1)
    """From 1, the first above the embeddings; `None` is the last."""
    max_tokens: int = Field(ge=4)
    lowercase: bool = False


class SparseRecipe(_Recipe):
    """The window of a network that weighs the words of its vocabulary, special tokens included."""

    max_tokens: int = Field(ge=4)


R = TypeVar("R", bound=_Recipe)


def read_encoder_recipe(files: ModelFiles) -> EncoderRecipe:
    """Raises ModelFileInvalid with the cure where nothing says it, or what says it cannot be done here."""
    settings = files.settings or _own(files.folder) or _sentence_transformers(files.folder)
    return _read(EncoderRecipe, settings, files.folder, _EXAMPLE)


def read_reranker_recipe(files: ModelFiles) -> RerankerRecipe:
    """Raises ModelFileInvalid with the cure where nothing says it."""
    settings = files.settings or _own(files.folder) or _transformers(files.folder)
    return _read(RerankerRecipe, settings, files.folder, _EXAMPLE_RERANKER)


def read_reward_recipe(files: ModelFiles) -> RewardRecipe:
    """ArmoRM's own, where nothing says it. Raises ModelFileInvalid with the cure."""
    settings = files.settings or _own(files.folder) or _armorm(files.folder)
    return _read(RewardRecipe, settings, files.folder, _EXAMPLE_REWARD)


def read_nli_recipe(files: ModelFiles) -> NliRecipe:
    """Raises ModelFileInvalid with the cure where nothing says it."""
    settings = files.settings or _own(files.folder) or _labels(files.folder)
    return _read(NliRecipe, settings, files.folder, _EXAMPLE_NLI)


def read_token_vectors_recipe(files: ModelFiles) -> TokenVectorsRecipe:
    """Of an encoder its window, and its last layer. Raises ModelFileInvalid with the cure where nothing says it."""
    settings = files.settings or _own(files.folder) or _window(files.folder)
    of_encoders = EncoderRecipe.model_fields.keys() - TokenVectorsRecipe.model_fields.keys()
    known = {key: value for key, value in settings.items() if key not in of_encoders}
    return _read(TokenVectorsRecipe, known, files.folder, _EXAMPLE_TOKENS)


def read_sparse_recipe(files: ModelFiles) -> SparseRecipe:
    """Raises ModelFileInvalid with the cure where nothing says it."""
    settings = files.settings or _own(files.folder) or _window(files.folder)
    known = {key: value for key, value in settings.items() if key in SparseRecipe.model_fields}
    return _read(SparseRecipe, known, files.folder, _EXAMPLE_SPARSE)


def _read(shape: type[R], settings: Mapping[str, Any], folder: Path, example: str) -> R:
    try:
        return shape.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            raise ModelFileInvalid(
                f"{folder} does not say its {key}: put a model.json beside it such as {example}"
            ) from None
        said = first["msg"][:1].lower() + first["msg"][1:]
        raise ModelFileInvalid(f"{folder}: the setting {key} is wrong ({said}): mend its model.json") from None


def _own(folder: Path) -> dict[str, Any]:
    """What `model.json` says. The folder of two networks has one for both, above them."""
    said = read_json(folder / "model.json")
    return dict(said.get("settings", {})) if isinstance(said, dict) else {}


def _sentence_transformers(folder: Path) -> dict[str, Any]:
    """What the files of sentence-transformers say; a step that is not done here is refused, never left out."""
    steps = [str(step["type"]).rpartition(".")[2] for step in read_json(folder / "modules.json") or ()]
    pooling = read_json(folder / "1_Pooling" / "config.json") or {}
    own = read_json(folder / "config_sentence_transformers.json") or {}
    if unknown := set(steps) - _STEPS:
        raise ModelFileInvalid(f"{folder} needs the step {', '.join(sorted(unknown))}, which is not known here")
    if pooling.get("include_prompt") is False:
        raise ModelFileInvalid(f"{folder} leaves its prompts out of the mean, which is not known here")
    prompts = own.get("prompts") or {}
    default = prompts.get(own.get("default_prompt_name"), "")
    passage = next((prompts[name] for name in ("document", "passage", "corpus") if name in prompts), default)
    found = _window(folder) | {"query_prefix": prompts.get("query", default), "passage_prefix": passage}
    if kind := _pooling(pooling):
        # Cosine similarity is the inner product of vectors of length 1.
        found |= {"pooling": kind, "normalise": "Normalize" in steps or own.get("similarity_fn_name") == "cosine"}
    return found


def _pooling(said: Mapping[str, Any]) -> str | None:
    """`pooling_mode` of newer files is a word, of older ones a flag a mode."""
    if "pooling_mode" in said:
        word = said["pooling_mode"]
        return {"lasttoken": "last"}.get(word, word) if isinstance(word, str) else "+".join(word)
    flags = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}
    modes = [kind for kind, flag in flags.items() if said.get(f"pooling_mode_{flag}")]
    others = [
        flag for flag, on in said.items() if flag.startswith("pooling_mode_") and on and flag[13:] not in flags.values()
    ]
    return "+".join([*modes, *others]) or None


def _window(folder: Path) -> dict[str, Any]:
    """The window, case and closing token as sentence-transformers and transformers keep them."""
    own = read_json(folder / "sentence_bert_config.json") or {}
    network = read_json(folder / "config.json") or {}
    words = read_json(folder / "tokenizer_config.json") or {}
    limits = (network.get("max_position_embeddings"), words.get("model_max_length"))
    known = [limit for limit in limits if isinstance(limit, int) and limit < 1 << 20]
    found: dict[str, Any] = {"lowercase": bool(own.get("do_lower_case"))}
    if window := own.get("max_seq_length") or min(known, default=None):
        found["max_tokens"] = window
    if words.get("add_eos_token"):
        end = words.get("eos_token")
        found["end_token"] = end["content"] if isinstance(end, dict) else end
    return found


def _transformers(folder: Path) -> dict[str, Any]:
    """A reranker by the name of its architecture."""
    network = read_json(folder / "config.json") or {}
    colbert = read_json(folder / "artifact.metadata")
    if isinstance(colbert, dict):
        if colbert.get("attend_to_mask_tokens"):
            raise ModelFileInvalid(f"{folder} attends to its mask tokens, which is not known here")
        return {
            "scoring": "late-interaction",
            "max_tokens": colbert.get("doc_maxlen"),
            "max_query_tokens": colbert.get("query_maxlen"),
            "query_marker": colbert.get("query_token_id", "[unused0]"),
            "passage_marker": colbert.get("doc_token_id", "[unused1]"),
            "augment": True,
            "skip_punctuation": bool(colbert.get("mask_punctuation")),
            "projection": "linear.weight",
        }
    found = {key: value for key, value in _window(folder).items() if key == "max_tokens"}
    if any(str(name).endswith("ForSequenceClassification") for name in network.get("architectures") or ()):
        found["scoring"] = "cross-encoder"
    return found


def _armorm(folder: Path) -> dict[str, Any]:
    """The rows of ArmoRM's head (Wang et al. 2024, its model card), and the four that the context-retrieval study shows
    to the writer."""
    network = read_json(folder / "config.json") or {}
    if "LlamaForRewardModelWithGating" not in (network.get("architectures") or ()):
        return {}
    return {"rows": _ARMORM, "attributes": STUDY_ATTRIBUTES}


def _labels(folder: Path) -> dict[str, Any]:
    """The labels as transformers keeps them, in whatever words they begin with."""
    network = read_json(folder / "config.json") or {}
    named = {str(label).casefold()[:6]: int(at) for at, label in (network.get("id2label") or {}).items()}
    found = {key: value for key, value in _window(folder).items() if key == "max_tokens"}
    kinds = ("entailment", "neutral", "contradiction")
    if {kind[:6] for kind in kinds} == set(named):
        found["labels"] = sorted(kinds, key=lambda kind: named[kind[:6]])
    return found


STUDY_ATTRIBUTES = (
    "ultrafeedback-truthfulness",
    "ultrafeedback-honesty",
    "ultrafeedback-helpfulness",
    "prometheus-score",
)
_ARMORM = (
    *(f"helpsteer-{name}" for name in ("helpfulness", "correctness", "coherence", "complexity", "verbosity")),
    *(f"ultrafeedback-{name}" for name in ("overall_score", "instruction_following", "truthfulness", "honesty")),
    "ultrafeedback-helpfulness",
    "beavertails-is_safe",
    "prometheus-score",
    *(f"argilla-{name}" for name in ("overall_quality", "judge_lm")),
    *(f"code-{name}" for name in ("complexity", "style", "explanation", "instruction-following", "readability")),
)
