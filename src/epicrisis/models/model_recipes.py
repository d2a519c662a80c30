"""Recipes: how a model's tokenizer and network turn texts into vectors or scores.

They come from the catalogue's settings or a folder's `model.json`, else from the model's own files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epicrisis.core.errors import ModelFileInvalid
from epicrisis.models.model_files import ModelFiles, read_json


class _Recipe(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    example: ClassVar[str]
    """A `model.json` for error messages."""
    ignored: ClassVar[frozenset[str]] = frozenset()
    """Settings of another kind of model that this recipe does not use."""

    @classmethod
    def read(cls, files: ModelFiles) -> Self:
        """Return the model's recipe. Raise ModelFileInvalid with a remedy if it is missing or not supported."""
        # A folder of two networks has one `model.json` for both.
        record = read_json(files.folder / "model.json")
        settings_table = record.get("settings") if isinstance(record, dict) else None
        settings = dict(files.settings or settings_table or cls.read_folder(files.folder))
        for name in cls.ignored:
            settings.pop(name, None)
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(map(str, first["loc"]))
            if first["type"] == "missing":
                message = f"{files.folder} does not state its {key}: add a model.json to it, such as {cls.example}"
            else:
                reason = first["msg"][:1].lower() + first["msg"][1:]
                message = f"{files.folder}: the setting {key} is wrong ({reason}): correct its model.json"
            raise ModelFileInvalid(message) from None

    @staticmethod
    def read_folder(folder: Path) -> dict[str, Any]:
        """Return the settings in the model's own files."""
        return _read_window(folder)


class EncoderRecipe(_Recipe):
    """How texts become vectors. Windows count tokens, special ones included."""

    example = '{"settings": {"pooling": "mean", "normalise": true, "max_tokens": 256}}'
    pooling: Literal["mean", "cls", "last"]
    """The vector of a text: the mean of its token vectors, the first, or the last."""
    normalise: bool
    max_tokens: int = Field(ge=4)
    max_query_tokens: int | None = Field(None, ge=4)
    """The window of a question, if it differs."""
    title: str = "\n"
    """The separator of title and text, or `pair` if the network reads both as a pair of texts, as BERT does."""
    query_prefix: str = ""
    passage_prefix: str = ""
    lowercase: bool = False
    end_token: str | None = None
    """A token that closes every text, if the tokenizer's own rules leave it out."""
    dimensions: int | None = None

    @staticmethod
    def read_folder(folder: Path) -> dict[str, Any]:
        """Return the settings of sentence-transformers. Raise ModelFileInvalid for an unsupported step."""
        steps = {str(step["type"]).rpartition(".")[2] for step in read_json(folder / "modules.json") or ()}
        pooling = _read_object(folder / "1_Pooling" / "config.json")
        config = _read_object(folder / "config_sentence_transformers.json")
        if unsupported := steps - {"Transformer", "Pooling", "Normalize"}:
            raise ModelFileInvalid(f"{folder} needs the step {', '.join(sorted(unsupported))}, which is not supported")
        if pooling.get("include_prompt") is False:
            raise ModelFileInvalid(f"{folder} leaves its prompts out of the mean, which is not supported")
        prompts = config.get("prompts") or {}
        default = prompts.get(config.get("default_prompt_name"), "")
        passage = next((prompts[name] for name in ("document", "passage", "corpus") if name in prompts), default)
        settings = _read_window(folder) | {"query_prefix": prompts.get("query", default), "passage_prefix": passage}
        # Newer files have the word `pooling_mode`, older ones a flag for each mode.
        flags = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_lasttoken": "last"}
        modes = [mode for flag, mode in flags.items() if pooling.get(flag)]
        for flag, is_set in pooling.items():
            if flag.startswith("pooling_mode_") and is_set and flag not in flags:
                modes.append(flag)
        mode = "+".join(modes)
        if "pooling_mode" in pooling:
            word = pooling["pooling_mode"]
            mode = "+".join(word) if not isinstance(word, str) else {"lasttoken": "last"}.get(word, word)
        if mode:
            # Cosine similarity is the inner product of vectors of length 1.
            is_normalised = "Normalize" in steps or config.get("similarity_fn_name") == "cosine"
            settings |= {"pooling": mode, "normalise": is_normalised}
        return settings


class RerankerRecipe(_Recipe):
    """How a question and a passage become a score. Only late interaction uses the fields after `max_tokens`."""

    example = '{"settings": {"scoring": "cross-encoder", "max_tokens": 512}}'
    scoring: Literal["cross-encoder", "late-interaction"]
    max_tokens: int = Field(ge=4)
    max_query_tokens: int | None = Field(None, ge=4)
    query_marker: str = ""
    passage_marker: str = ""
    augment: bool = False
    """Whether questions are padded to their window with mask tokens, which count as words but get no attention."""
    skip_punctuation: bool = False
    """Whether the vectors of a passage's punctuation are left out."""
    projection: str | None = None

    @staticmethod
    def read_folder(folder: Path) -> dict[str, Any]:
        """Return the settings of a ColBERT checkpoint, or of a transformers model by its architecture."""
        colbert = read_json(folder / "artifact.metadata")
        if isinstance(colbert, dict):
            if colbert.get("attend_to_mask_tokens"):
                raise ModelFileInvalid(f"{folder} attends to its mask tokens, which is not supported")
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
        settings = _read_max_tokens(folder)
        architectures = _read_object(folder / "config.json").get("architectures") or ()
        if any(str(name).endswith("ForSequenceClassification") for name in architectures):
            settings["scoring"] = "cross-encoder"
        return settings


STUDY_ATTRIBUTES = (
    "ultrafeedback-truthfulness",
    "ultrafeedback-honesty",
    "ultrafeedback-helpfulness",
    "prometheus-score",
)
"""The attributes that the context-retrieval study shows to the writer."""
_ARMORM_ROWS = tuple(
    """
    helpsteer-helpfulness helpsteer-correctness helpsteer-coherence helpsteer-complexity helpsteer-verbosity
    ultrafeedback-overall_score ultrafeedback-instruction_following ultrafeedback-truthfulness ultrafeedback-honesty
    ultrafeedback-helpfulness beavertails-is_safe prometheus-score argilla-overall_quality argilla-judge_lm
    code-complexity code-style code-explanation code-instruction-following code-readability
    """.split()  # noqa: SIM905
)
_LLAMA_3_TURNS = (
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{question}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{answer}<|eot_id|>"
)


class RewardRecipe(_Recipe):
    """How a question and its answer become rewards: the last token's vector times a head with a row per attribute."""

    example = '{"settings": {"rows": ["helpfulness", "honesty"], "attributes": ["honesty"], "max_tokens": 4096}}'
    attributes: tuple[str, ...] = Field(min_length=1)
    rows: tuple[str, ...] = Field(min_length=1)
    head: str = "regression_layer.weight"
    turns: str = _LLAMA_3_TURNS
    """The template of the conversation, with `{question}` and `{answer}`."""
    max_tokens: int = Field(4096, ge=4)

    @staticmethod
    def read_folder(folder: Path) -> dict[str, Any]:
        """Return ArmoRM's settings if its configuration is in the folder."""
        architectures = _read_object(folder / "config.json").get("architectures") or ()
        if "LlamaForRewardModelWithGating" not in architectures:
            return {}
        return {"rows": _ARMORM_ROWS, "attributes": STUDY_ATTRIBUTES}


class NliRecipe(_Recipe):
    """The order of a network's three numbers, and its window."""

    example = '{"settings": {"labels": ["contradiction", "neutral", "entailment"], "max_tokens": 512}}'
    labels: tuple[str, ...] = Field(min_length=3, max_length=3)
    """`entailment`, `neutral` and `contradiction` in the order of the network's numbers."""
    max_tokens: int = Field(ge=4)

    @staticmethod
    def read_folder(folder: Path) -> dict[str, Any]:
        """Return the window, and the labels of transformers, recognised by their first six letters."""
        labels = _read_object(folder / "config.json").get("id2label") or {}
        positions = {str(label).casefold()[:6]: int(position) for position, label in labels.items()}
        settings = _read_max_tokens(folder)
        kinds = {"entail": "entailment", "neutra": "neutral", "contra": "contradiction"}
        if kinds.keys() == positions.keys():
            settings["labels"] = [kinds[prefix] for prefix in sorted(positions, key=positions.__getitem__)]
        return settings


class TokenVectorsRecipe(_Recipe):
    """The layer whose token vectors are used, and the window, special tokens included."""

    example = '{"settings": {"layer": 9, "max_tokens": 512}}'
    ignored = frozenset(EncoderRecipe.model_fields.keys() - {"max_tokens", "lowercase"})

    layer: int | None = Field(None, ge=1)
    """The number of the layer, from 1 above the embeddings; None for the last."""
    max_tokens: int = Field(ge=4)
    lowercase: bool = False


class SparseRecipe(_Recipe):
    """The window of a sparse encoder, special tokens included. Other settings are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    example = '{"settings": {"max_tokens": 512}}'
    max_tokens: int = Field(ge=4)


def _read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one if the file is missing."""
    return read_json(path) or {}


def _read_window(folder: Path) -> dict[str, Any]:
    """Return window, case and closing token from the files of sentence-transformers and transformers."""
    sentence_config = _read_object(folder / "sentence_bert_config.json")
    network_config = _read_object(folder / "config.json")
    tokenizer_config = _read_object(folder / "tokenizer_config.json")
    limits = (network_config.get("max_position_embeddings"), tokenizer_config.get("model_max_length"))
    windows = [limit for limit in limits if isinstance(limit, int) and limit < 1 << 20]
    settings: dict[str, Any] = {"lowercase": bool(sentence_config.get("do_lower_case"))}
    if window := sentence_config.get("max_seq_length") or min(windows, default=None):
        settings["max_tokens"] = window
    if tokenizer_config.get("add_eos_token"):
        end = tokenizer_config.get("eos_token")
        settings["end_token"] = end["content"] if isinstance(end, dict) else end
    return settings


def _read_max_tokens(folder: Path) -> dict[str, Any]:
    return {name: value for name, value in _read_window(folder).items() if name == "max_tokens"}
