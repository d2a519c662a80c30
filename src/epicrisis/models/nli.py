"""Natural language inference: a network that reads premise and hypothesis as one pair. Knows nothing of who asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from epicrisis.errors import ContextOverflow, ModelFileInvalid
from epicrisis.models.model_download import find_model
from epicrisis.models.model_files import ModelFiles
from epicrisis.models.model_recipes import NliRecipe, read_nli_recipe
from epicrisis.models.networks import load_network
from epicrisis.models.tokenization import load_tokenizer, pad_batch, split_batches
from epicrisis.protocols import NliModel, Vectors

LABELS = ("entailment", "neutral", "contradiction")


def load_nli(name: str, home: Path, threads: int | None = None) -> NliModel:
    """The model of that catalogue name, or in that folder (ONNX, or transformers with the extra `torch`). Contacts
    nothing. Raises ModelMissing or ModelFileInvalid with the cure."""
    files = find_model(name, "nli", home)
    return NliClassifier(files, read_nli_recipe(files), threads)


class NliClassifier:
    """Three logits a pair, made probabilities."""

    def __init__(self, files: ModelFiles, recipe: NliRecipe, threads: int | None = None) -> None:
        self._window = recipe.max_tokens
        self._order = [recipe.labels.index(label) for label in LABELS]
        self._tokenizer = load_tokenizer(files.files["tokenizer.json"])
        self._network = load_network(files, threads, "scores")
        shape = self._network.run(*pad_batch([self._tokenizer.encode("a", "a")])).shape
        if shape != (1, len(LABELS)):
            raise ModelFileInvalid(f"{files.folder} gives {shape[1:]} numbers a pair, wanted are 3: it is no NLI model")

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        encodings = self._tokenizer.encode_batch(list(pairs))
        longest = max((len(encoding.ids) for encoding in encodings), default=0)
        if longest > self._window:
            raise ContextOverflow(
                f"a pair has {longest} tokens, the model reads {self._window}: compare shorter texts, or sentence by "
                "sentence"
            )
        found = np.empty((len(pairs), len(LABELS)), dtype=np.float32)
        for batch in split_batches(encodings, self._network.batch):
            logits = self._network.run(*pad_batch([encodings[number] for number in batch]))[:, self._order]
            shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
            found[batch] = shifted / shifted.sum(axis=1, keepdims=True)
        return found
