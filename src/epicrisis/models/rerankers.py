"""Rerankers: a cross-encoder that reads question and passage as one pair, and late interaction of their tokens.

Knows nothing of how passages were found, nor of a reranker behind an endpoint but how to reach it.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from epicrisis.errors import ModelFileInvalid
from epicrisis.models.catalogue import load_catalogue
from epicrisis.models.model_download import find_model
from epicrisis.models.model_files import ModelFiles
from epicrisis.models.model_recipes import RerankerRecipe, read_reranker_recipe
from epicrisis.models.networks import load_network, load_tensor
from epicrisis.models.tokenization import Ids, get_token_id, load_tokenizer, pad_batch, split_batches
from epicrisis.protocols import Reranker, Vectors

if TYPE_CHECKING:
    from tokenizers import Encoding


def load_reranker(
    name: str, home: Path, threads: int | None = None, api_key: Callable[[], str | None] | None = None
) -> Reranker:
    """The reranker of that catalogue name (`medcpt` stands for `medcpt-reranker`), in that folder, or at that URL.

    A folder holds what an encoder's does; its `model.json` says `{"settings": {"scoring": "cross-encoder",
    "max_tokens": 512}}`, or its `config.json` names a transformers model for sequence classification, or it is a
    checkpoint of ColBERT. A URL is as `HttpReranker` takes it, `#model-name` behind it; `api_key` is asked before each
    call. Raises ModelMissing or ModelFileInvalid with the cure; contacts nothing.
    """
    if name.startswith(("http://", "https://")):
        from epicrisis.models.rerank_endpoint import HttpReranker

        url, _, model = name.partition("#")
        return HttpReranker(url, model or None, api_key)
    full = f"{name}-reranker"
    files = find_model(full if full in load_catalogue() else name, "reranker", home)
    recipe = read_reranker_recipe(files)
    kind = CrossEncoder if recipe.scoring == "cross-encoder" else LateInteraction
    return kind(files, recipe, threads)


class CrossEncoder:
    """Scores are the network's one number a pair, as it stands: MedCPT's are logits, about -20 to 20."""

    def __init__(self, files: ModelFiles, recipe: RerankerRecipe, threads: int | None = None) -> None:
        self._window = recipe.max_tokens
        self._tokenizer = load_tokenizer(files.files["tokenizer.json"], recipe.max_tokens)
        self._network = load_network(files, threads, "scores")
        shape = self._run(self._tokenizer.encode_batch([("a", "a")])).shape
        if shape != (1, 1):
            raise ModelFileInvalid(f"{files.folder} gives {shape[1:]} numbers a pair, wanted is one: it is no reranker")

    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        encodings = self._encode(query, passages)
        scores = np.empty(len(passages), dtype=np.float32)
        for batch in split_batches(encodings, self._network.batch):
            scores[batch] = self._run([encodings[number] for number in batch])[:, 0]
        return scores

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        cut = sum(bool(encoding.overflowing) for encoding in self._encode(query, passages))
        if not cut:
            return ()
        return (
            f"{cut} of {len(passages)} passages are, with the question, longer than the {self._window} tokens that the"
            " reranker reads: it did not see the end of the longer text",
        )

    def _encode(self, query: str, passages: Sequence[str]) -> list[Encoding]:
        encodings: list[Encoding] = self._tokenizer.encode_batch([(query, passage) for passage in passages])
        return encodings

    def _run(self, encodings: Sequence[Encoding]) -> Vectors:
        return self._network.run(*pad_batch(encodings))


class LateInteraction:
    """Each word of the question finds its nearest in the passage; their similarities add up (ColBERT's MaxSim).

    Khattab and Zaharia, SIGIR 2020, section 3. Without markers and mask tokens it is the same over any encoder's
    token vectors, special tokens included.
    """

    def __init__(self, files: ModelFiles, recipe: RerankerRecipe, threads: int | None = None) -> None:
        path = files.files["tokenizer.json"]
        self._recipe = recipe
        self._query_window = recipe.max_query_tokens or recipe.max_tokens
        markers = (recipe.query_marker, recipe.passage_marker)
        query, passage = (bool(marker) for marker in markers)
        self._queries = load_tokenizer(path, self._query_window - query)
        self._passages = load_tokenizer(path, recipe.max_tokens - passage)
        self._markers = tuple(get_token_id(self._queries, marker, path) if marker else None for marker in markers)
        self._mask_id = get_token_id(self._queries, "[MASK]", path) if recipe.augment else 0
        ids = (self._queries.token_to_id(mark) for mark in string.punctuation) if recipe.skip_punctuation else ()
        self._skipped = [number for number in ids if number is not None]
        self._network = load_network(files, threads)
        self._projection = load_tensor(files, recipe.projection) if recipe.projection else None

    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        words = self._query_vectors(query)
        encodings = self._passages.encode_batch(list(passages))
        scores = np.empty(len(passages), dtype=np.float32)
        for batch in split_batches(encodings, self._network.batch):
            ids, mask, types = pad_batch([encodings[number] for number in batch])
            ids, mask, types = _marked(ids, mask, types, self._markers[1])
            vectors = self._vectors(ids, mask, types)
            counted = (mask == 1) & ~np.isin(ids, self._skipped)
            for row, number in enumerate(batch):
                scores[number] = max_sim(words, vectors[row, counted[row]])
        return scores

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        found = []
        if self._queries.encode(query).overflowing:
            found.append(f"the question is longer than the {self._query_window} tokens that the reranker reads of it")
        cut = sum(bool(encoding.overflowing) for encoding in self._passages.encode_batch(list(passages)))
        if cut:
            found.append(
                f"{cut} of {len(passages)} passages are longer than the {self._recipe.max_tokens} tokens that the"
                " reranker reads: it did not see their ends"
            )
        return tuple(found)

    def _query_vectors(self, query: str) -> Vectors:
        ids, mask, types = _marked(*pad_batch([self._queries.encode(query)]), self._markers[0])
        if self._recipe.augment:
            room = ((0, 0), (0, self._query_window - ids.shape[1]))
            ids = np.pad(ids, room, constant_values=self._mask_id)
            mask, types = np.pad(mask, room), np.pad(types, room)
        # One row is never padded: all that is masked out is mask tokens, and they count.
        vectors: Vectors = self._vectors(ids, mask, types)[0]
        return vectors

    def _vectors(self, ids: Ids, mask: Ids, types: Ids) -> Vectors:
        """`(n, tokens, d)`, each of length 1."""
        hidden = self._network.run(ids, mask, types)
        if self._projection is not None:
            hidden = hidden @ self._projection.T
        lengths = np.linalg.norm(hidden, axis=2, keepdims=True)
        found: Vectors = hidden / np.maximum(lengths, 1e-12)
        return found


def max_sim(words: Vectors, passage: Vectors) -> float:
    """The sum, over the question's token vectors `(m, d)`, of the largest inner product with one of the passage's
    `(p, d)`; 0 for a passage without any."""
    return float((words @ passage.T).max(axis=1).sum()) if len(passage) else 0.0


def _marked(ids: Ids, mask: Ids, types: Ids, marker: int | None) -> tuple[Ids, Ids, Ids]:
    """With the marker as second token of every row."""
    if marker is None:
        return ids, mask, types
    return np.insert(ids, 1, marker, axis=1), np.insert(mask, 1, 1, axis=1), np.insert(types, 1, 0, axis=1)
