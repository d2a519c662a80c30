"""Sentence encoders on onnxruntime and tokenizers.

A passage is read as one text, `title` newline `text`, or the text alone where there is no title: these encoders were
trained on single texts. Knows nothing of where passages come from or how they are searched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from epicrisis.errors import ModelFileInvalid
from epicrisis.models.pull import ModelFiles, find, sha256_of
from epicrisis.seams import Encoder, Vectors

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_NOT_A_MODEL = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented", "RuntimeException")

BATCH = 8
"""Texts a run. Larger ones are slower on a CPU: their activations no longer fit its caches."""


@dataclass(frozen=True, slots=True)
class Pooling:
    """How token vectors become one: `kind` is `mean` or `cls`; `max_tokens` is the window, special tokens included."""

    kind: str
    normalise: bool
    max_tokens: int


def load_encoder(name_or_path: str, home: Path, threads: int | None = None) -> Encoder:
    """The encoder of that catalogue name, or in that folder. `threads=None` takes all cores.

    A folder holds `model.onnx`, `tokenizer.json` and either a `model.json` with
    `{"settings": {"pooling": "mean", "normalise": true, "max_tokens": 256}}` or the files of sentence-transformers.
    Raises ModelMissing or ModelFileInvalid with the cure.
    """
    return OnnxEncoder(find(name_or_path, "encoder", home), threads)


class OnnxEncoder:
    """An Encoder from model files. The weights are in memory from the constructor on."""

    def __init__(self, files: ModelFiles, threads: int | None = None) -> None:
        self._pooling = _pooling(files)
        self._whole = _tokenizer(files.files["tokenizer.json"])
        self._cut = _tokenizer(files.files["tokenizer.json"])
        self._cut.enable_truncation(self._pooling.max_tokens)
        self._specials = self._whole.num_special_tokens_to_add(is_pair=False)
        self._session = _session(files.files["model.onnx"], threads)
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        self._fingerprint = _fingerprint(files, self._pooling)
        self._dimensions = int(self._run(self._cut.encode_batch(["a"])).shape[1])

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def dimensions(self) -> int:
        return self._dimensions

    @property
    def max_tokens(self) -> int:
        return self._pooling.max_tokens - self._specials

    @property
    def max_query_tokens(self) -> int:
        return self.max_tokens

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """A character that is several tokens gives its span several times."""
        encoding = self._whole.encode(text, add_special_tokens=False)
        return [(start, end) for start, end in encoding.offsets if end > start]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        vectors = np.empty((len(texts), self._dimensions), dtype=np.float32)
        encodings = self._cut.encode_batch(list(texts))
        by_length = sorted(range(len(texts)), key=lambda number: len(encodings[number].ids))
        for first in range(0, len(by_length), BATCH):
            batch = by_length[first : first + BATCH]
            vectors[batch] = self._run([encodings[number] for number in batch])
        return vectors

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        return self.encode_queries([f"{title}\n{text}" if title else text for title, text in texts])

    def _run(self, encodings: list[Encoding]) -> Vectors:
        """`(n, d)` of one batch, padded to its longest."""
        shape = (len(encodings), max(len(encoding.ids) for encoding in encodings))
        ids, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding.ids)] = encoding.ids
            mask[row, : len(encoding.ids)] = 1
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(shape, dtype=np.int64)}
        hidden = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        if self._pooling.kind == "cls":
            pooled = hidden[:, 0]
        else:
            weights = mask[:, :, np.newaxis].astype(np.float32)
            pooled = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        if self._pooling.normalise:
            pooled = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
        return np.ascontiguousarray(pooled, dtype=np.float32)


def _tokenizer(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(path.read_text("utf-8"))
    except Exception as error:  # the library raises plain Exception
        raise ModelFileInvalid(f"{path} is not a tokenizer.json: pull or export the model again") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _session(path: Path, threads: int | None) -> Any:
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except tuple(getattr(native, name) for name in _NOT_A_MODEL) as error:
        raise ModelFileInvalid(f"{path} is not an ONNX model that can be run: pull or export it again") from error
    unknown = {entry.name for entry in session.get_inputs()} - {"input_ids", "attention_mask", "token_type_ids"}
    if unknown:
        raise ModelFileInvalid(f"{path} is not a text encoder: it asks for {', '.join(sorted(unknown))}")
    return session


def _pooling(files: ModelFiles) -> Pooling:
    settings = files.settings or _folder_settings(files.folder)
    try:
        pooling = Pooling(settings["pooling"], settings["normalise"], settings["max_tokens"])
    except KeyError as error:
        raise ModelFileInvalid(
            f'{files.folder} does not say its {error.args[0]}: put a model.json beside it such as {{"settings":'
            ' {"pooling": "mean", "normalise": true, "max_tokens": 256}}'
        ) from error
    if pooling.kind not in ("mean", "cls"):
        raise ModelFileInvalid(f"{files.folder}: pooling is mean or cls, not {pooling.kind!r}")
    return pooling


def _folder_settings(folder: Path) -> dict[str, Any]:
    """What `model.json` says, else what the files of sentence-transformers say, else nothing."""
    own = _json(folder / "model.json")
    if own:
        return dict(own.get("settings", {}))
    pooling = _json(folder / "1_Pooling" / "config.json")
    window = _json(folder / "sentence_bert_config.json")
    steps = _json(folder / "modules.json") or []
    found: dict[str, Any] = {}
    if pooling and (pooling.get("pooling_mode_mean_tokens") or pooling.get("pooling_mode_cls_token")):
        found["pooling"] = "mean" if pooling.get("pooling_mode_mean_tokens") else "cls"
        found["normalise"] = any(step["type"].endswith("Normalize") for step in steps)
    if window and window.get("max_seq_length"):
        found["max_tokens"] = window["max_seq_length"]
    return found


def _json(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ModelFileInvalid(f"{path} is not JSON: {error}") from error


def _fingerprint(files: ModelFiles, pooling: Pooling) -> str:
    """Name and hash of all that decides the vectors; hashes come from the catalogue where the files are pulled."""
    hashes = [files.sha256.get(name) or sha256_of(path) for name, path in sorted(files.files.items())]
    what = json.dumps([hashes, pooling.kind, pooling.normalise, pooling.max_tokens, "title newline text"])
    return f"{files.name}-{hashlib.sha256(what.encode()).hexdigest()[:16]}"
