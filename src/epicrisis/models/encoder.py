"""Encoders: texts to token ids, through one network or two, to one vector a text.

Knows nothing of where passages come from or how they are searched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from epicrisis.errors import ModelFileInvalid
from epicrisis.models.model_download import find_model
from epicrisis.models.model_files import NETWORK_FOLDERS, ModelFiles, compute_sha256
from epicrisis.models.model_recipes import EncoderRecipe, read_encoder_recipe
from epicrisis.models.networks import Network, load_network
from epicrisis.models.tokenization import Ids, join_title, load_tokenizer, pad_batch, split_batches
from epicrisis.protocols import Encoder, Vectors

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_OF_OLD = {"pooling", "normalise", "max_tokens", "title"}
"""Settings that were always part of the fingerprint; others enter where they differ from their defaults."""


def load_encoder(name_or_path: str, home: Path, threads: int | None = None) -> Encoder:
    """The encoder of that catalogue name, or in that folder. `threads=None` takes all cores.

    A folder holds `tokenizer.json`, weights (`model.onnx`, or `model.safetensors` and `config.json`, which need torch)
    and either a `model.json` with `{"settings": {"pooling": "mean", "normalise": true, "max_tokens": 256}}` or the
    files of sentence-transformers. One of two networks holds them in `query/` and in `article/`, `model.json` above.
    Of several weights ONNX is taken, unless the path names another file of the folder.
    Raises ModelMissing or ModelFileInvalid with the cure.
    """
    return TextEncoder(find_model(name_or_path, "encoder", home), threads)


class TextEncoder:
    """An Encoder from model files. The weights are in memory from the constructor on."""

    def __init__(self, files: ModelFiles, threads: int | None = None) -> None:
        recipe = self._recipe = read_encoder_recipe(files)
        query, article = (files.part(prefix) for prefix in NETWORK_FOLDERS)
        window = recipe.max_query_tokens or recipe.max_tokens
        self._whole = _tokenizer(article, None, recipe)
        passages, queries = _tokenizer(article, recipe.max_tokens, recipe), _tokenizer(query, window, recipe)
        network = load_network(article, threads)
        self._passages = _Side(passages, network, recipe)
        self._queries = _Side(queries, network if query is article else load_network(query, threads), recipe)
        self._max_tokens = _room(passages, recipe.max_tokens, recipe.passage_prefix, pair=recipe.title == "pair")
        self._max_query_tokens = _room(queries, window, recipe.query_prefix, pair=False)
        if min(self._max_tokens, self._max_query_tokens) < 1:
            raise ModelFileInvalid(f"{files.folder}: no room for a text is left in its window: raise max_tokens")
        self._fingerprint = _fingerprint(files, recipe)
        if self._queries.dimensions != self._passages.dimensions:
            raise ModelFileInvalid(f"{files.folder} holds two networks of different dimensions: they are no pair")

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def dimensions(self) -> int:
        return self._passages.dimensions

    @property
    def max_tokens(self) -> int:
        return self._max_tokens

    @property
    def max_query_tokens(self) -> int:
        return self._max_query_tokens

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """A character that is several tokens gives its span several times."""
        encoding = self._whole.encode(text, add_special_tokens=False)
        return [(start, end) for start, end in encoding.offsets if end > start]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return self._queries.encode([self._recipe.query_prefix + text for text in texts])

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        prefix, between = self._recipe.passage_prefix, self._recipe.title
        if between == "pair":
            # An empty title stays a text of the pair, as in the code MedCPT was published with.
            return self._passages.encode([(prefix + title, text) for title, text in texts])
        return self._passages.encode([prefix + join_title(title, text, between) for title, text in texts])


class _Side:
    """What reads questions, or what reads passages."""

    def __init__(self, tokenizer: Tokenizer, network: Network, recipe: EncoderRecipe) -> None:
        self._tokenizer = tokenizer
        self._network = network
        self._recipe = recipe
        self.dimensions = int(self._run(tokenizer.encode_batch(["a"])).shape[1])

    def encode(self, texts: Sequence[str | tuple[str, str]]) -> Vectors:
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        encodings = self._tokenizer.encode_batch(list(texts))
        for batch in split_batches(encodings, self._network.batch):
            vectors[batch] = self._run([encodings[number] for number in batch])
        return vectors

    def _run(self, encodings: Sequence[Encoding]) -> Vectors:
        ids, mask, types = pad_batch(encodings)
        return _pool(self._network.run(ids, mask, types), mask, self._recipe)


def _tokenizer(files: ModelFiles, window: int | None, recipe: EncoderRecipe) -> Tokenizer:
    return load_tokenizer(files.files["tokenizer.json"], window, lowercase=recipe.lowercase, end_token=recipe.end_token)


def _pool(hidden: Vectors, mask: Ids, recipe: EncoderRecipe) -> Vectors:
    """`(n, tokens, d)` to `(n, d)`."""
    if recipe.pooling == "cls":
        pooled = hidden[:, 0]
    elif recipe.pooling == "last":
        pooled = hidden[np.arange(len(hidden)), np.maximum(mask.sum(axis=1) - 1, 0)]
    else:
        weights = mask[:, :, np.newaxis].astype(np.float32)
        pooled = (hidden * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    if recipe.normalise:
        pooled = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
    return np.ascontiguousarray(pooled, dtype=np.float32)


def _room(tokenizer: Tokenizer, window: int, prefix: str, *, pair: bool) -> int:
    """Content tokens that fit, special tokens and prefix taken off."""
    specials: int = tokenizer.num_special_tokens_to_add(is_pair=pair)
    return window - specials - len(tokenizer.encode(prefix, add_special_tokens=False).ids)


def _fingerprint(files: ModelFiles, recipe: EncoderRecipe) -> str:
    """Name and hash of all that decides the vectors; hashes come from the catalogue or the record of the pull."""
    hashes = [files.sha256.get(name) or compute_sha256(path) for name, path in sorted(files.files.items())]
    between = "title newline text" if recipe.title == "\n" else f"title {recipe.title!r} text"
    others = recipe.model_dump(exclude=_OF_OLD | {"dimensions"}, exclude_defaults=True)
    what = [hashes, recipe.pooling, recipe.normalise, recipe.max_tokens, between, *([others] if others else [])]
    return f"{files.name}-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]}"
