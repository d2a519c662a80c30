"""SPLADE: a text as weights of vocabulary words, related words included (Formal et al. 2021, equation 1, max pooling).

Texts longer than the window are an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from epicrisis.models.model_download import find_model
from epicrisis.models.model_files import ModelFiles
from epicrisis.models.model_recipes import SparseRecipe
from epicrisis.models.networks import load_network
from epicrisis.models.tokenization import encode_untruncated, iterate_batches, load_tokenizer
from epicrisis.protocols import SparseEncoder

BATCH = 2
"""Texts per run. Each token gives a number for every vocabulary word: 60 MB for a text of 512 tokens."""

CACHE_PASSAGES = 4096
"""Passages whose weights stay in memory, about 20 KB each: a dozen records of 128,000 tokens in chunks of 512."""


def load_sparse(name: str, home: Path, threads: int | None = None) -> SparseEncoder:
    """Load the model of that catalogue name, or in that folder. The folder's own files state its window.

    A folder holds ONNX, or a masked language model of transformers, which needs the extra `torch`.
    Raise ModelMissing or ModelFileInvalid with a remedy.
    """
    files = find_model(name, "sparse", home)
    return CachedSparseEncoder(SpladeEncoder(files, SparseRecipe.read(files), threads))


class CachedSparseEncoder:
    """A sparse encoder that remembers the last passages, since questions about one record share its passages."""

    def __init__(self, encoder: SparseEncoder, size: int = CACHE_PASSAGES) -> None:
        self.name = encoder.name
        self._encoder, self._size = encoder, size
        self._cache: dict[str, Mapping[int, float]] = {}

    def encode_queries(self, texts: Sequence[str]) -> Sequence[Mapping[int, float]]:
        return self._encoder.encode_queries(texts)

    def encode_passages(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        # The cache is replaced, never changed: simultaneous calls from several threads lose at most some entries.
        cache = self._cache
        missing = [text for text in dict.fromkeys(texts) if text not in cache]
        weights = cache | dict(zip(missing, self._encoder.encode_passages(missing), strict=True))
        for text in dict.fromkeys(texts):
            weights[text] = weights.pop(text)
        self._cache = dict(list(weights.items())[-self._size :])
        return tuple(map(weights.__getitem__, texts))


class SpladeEncoder:
    """Weighs each word by its largest value over all tokens: log(1 + max(0, logit)).

    Special tokens count, as in the authors' code.
    """

    def __init__(self, files: ModelFiles, recipe: SparseRecipe, threads: int | None = None) -> None:
        self.name, self._window = files.name, recipe.max_tokens
        self._tokenizer = load_tokenizer(files.files["tokenizer.json"])
        self._network = load_network(files, threads, "words")

    def encode_queries(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        return self._encode(texts)

    def encode_passages(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        return self._encode(texts)

    def _encode(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        remedy = "cut the library into shorter chunks"
        encodings = encode_untruncated(self._tokenizer, texts, self._window, reader=self.name, remedy=remedy)
        results: dict[int, Mapping[int, float]] = {}
        for indices, (ids, mask, types) in iterate_batches(encodings, BATCH):
            logits = np.where(mask[:, :, None] == 1, self._network.run(ids, mask, types), 0.0)
            weights = np.log1p(np.maximum(logits.max(axis=1), 0.0))
            for row, index in enumerate(indices):
                (words,) = np.nonzero(weights[row])
                results[index] = dict(zip(words.tolist(), weights[row, words].tolist(), strict=True))
        return tuple(map(results.__getitem__, range(len(texts))))
