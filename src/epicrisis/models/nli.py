"""Natural language inference: a network that reads premise and hypothesis as one pair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from epicrisis.errors import ModelFileInvalid
from epicrisis.models.model_download import find_model
from epicrisis.models.model_files import ModelFiles
from epicrisis.models.model_recipes import NliRecipe
from epicrisis.models.networks import load_network
from epicrisis.models.tokenization import encode_untruncated, iterate_batches, load_tokenizer, pad_batch
from epicrisis.protocols import NliModel, Vectors

LABELS = ("entailment", "neutral", "contradiction")


def load_nli(name: str, home: Path, threads: int | None = None) -> NliModel:
    """Load the model of that catalogue name, or in that folder (ONNX, or transformers with the extra `torch`).

    Nothing is contacted. Raise ModelMissing or ModelFileInvalid with a remedy.
    """
    files = find_model(name, "nli", home)
    return NliClassifier(files, NliRecipe.read(files), threads)


class NliClassifier:
    """The three logits of each pair, turned into probabilities."""

    def __init__(self, files: ModelFiles, recipe: NliRecipe, threads: int | None = None) -> None:
        self._window = recipe.max_tokens
        self._columns = list(map(recipe.labels.index, LABELS))
        self._tokenizer = load_tokenizer(files.files["tokenizer.json"])
        self._network = load_network(files, threads, "scores")
        shape = self._network.run(*pad_batch([self._tokenizer.encode("a", "a")])).shape
        if shape != (1, len(LABELS)):
            raise ModelFileInvalid(
                f"{files.folder} gives {shape[1:]} numbers per pair instead of 3: it is no NLI model"
            )

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        remedy = "compare shorter texts, or sentence by sentence"
        encodings = encode_untruncated(self._tokenizer, pairs, self._window, reader="the model", remedy=remedy)
        probabilities = np.empty((len(pairs), len(LABELS)), dtype=np.float32)
        for indices, arrays in iterate_batches(encodings, self._network.batch):
            logits = self._network.run(*arrays)[:, self._columns]
            exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
            probabilities[indices] = exponentials / exponentials.sum(axis=1, keepdims=True)
        return probabilities
