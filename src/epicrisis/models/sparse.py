"""SPLADE: a text as weights of its words and of words akin to them (Formal et al. 2021, equation 1, max pooling).

Knows nothing of how passages are found by it. A text that is longer than the window is an error, not a cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from epicrisis.errors import ContextOverflow
from epicrisis.models.model_download import find_model
from epicrisis.models.model_files import ModelFiles
from epicrisis.models.model_recipes import SparseRecipe, read_sparse_recipe
from epicrisis.models.networks import load_network
from epicrisis.models.tokenization import load_tokenizer, pad_batch, split_batches
from epicrisis.protocols import SparseEncoder

BATCH = 2
"""Texts a run: each token gives a number for every word of the vocabulary, 60 MB a text of 512 tokens."""

CACHE_PASSAGES = 4096
"""Passages whose weights stay in memory, about 20 KB each: a dozen records of 128,000 tokens in chunks of 512."""


def load_sparse(name: str, home: Path, threads: int | None = None) -> SparseEncoder:
    """The model of that catalogue name, or in that folder (ONNX, or a masked language model of transformers with the
    extra `torch`); a folder's own files say its window. Raises ModelMissing or ModelFileInvalid with the cure."""
    files = find_model(name, "sparse", home)
    return CachedSparseEncoder(SpladeEncoder(files, read_sparse_recipe(files), threads))


class CachedSparseEncoder:
    """Another encoder that encodes a passage once as long as it is kept: questions about one record share its passages.
    The passages asked for last are kept."""

    def __init__(self, encoder: SparseEncoder, most: int = CACHE_PASSAGES) -> None:
        self._encoder, self._most = encoder, most
        self._kept: dict[str, Mapping[int, float]] = {}

    @property
    def name(self) -> str:
        return self._encoder.name

    def encode_queries(self, texts: Sequence[str]) -> Sequence[Mapping[int, float]]:
        return self._encoder.encode_queries(texts)

    def encode_passages(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        # Built anew and put in its place at once: calls from several threads lose at most what is kept.
        before = self._kept
        new = [text for text in dict.fromkeys(texts) if text not in before]
        made = dict(zip(new, self._encoder.encode_passages(new), strict=True))
        asked = {text: made[text] if text in made else before[text] for text in texts}
        kept = list({**{text: words for text, words in before.items() if text not in asked}, **asked}.items())
        self._kept = dict(kept[-self._most :])
        return tuple(asked[text] for text in texts)


class SpladeEncoder:
    """A word's weight is the largest that any token gives it: log(1 + max(0, logit)). Special tokens count as well, as
    in its authors' code."""

    def __init__(self, files: ModelFiles, recipe: SparseRecipe, threads: int | None = None) -> None:
        self._name, self._window = files.name, recipe.max_tokens
        self._tokenizer = load_tokenizer(files.files["tokenizer.json"])
        self._network = load_network(files, threads, "words")

    @property
    def name(self) -> str:
        return self._name

    def encode_queries(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        return self._encode(texts)

    def encode_passages(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        return self._encode(texts)

    def _encode(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        encodings = self._tokenizer.encode_batch(list(texts))
        longest = max((len(encoding.ids) for encoding in encodings), default=0)
        if longest > self._window:
            raise ContextOverflow(
                f"a text has {longest} tokens, {self._name} reads {self._window}: cut the library into shorter chunks"
            )
        found: dict[int, Mapping[int, float]] = {}
        for batch in split_batches(encodings, BATCH):
            ids, mask, types = pad_batch([encodings[number] for number in batch])
            logits = np.where(mask[:, :, None] == 1, self._network.run(ids, mask, types), 0.0)
            weights = np.log1p(np.maximum(logits.max(axis=1), 0.0))
            for row, number in enumerate(batch):
                (words,) = np.nonzero(weights[row])
                found[number] = dict(zip(words.tolist(), weights[row, words].tolist(), strict=True))
        return tuple(found[number] for number in range(len(texts)))
