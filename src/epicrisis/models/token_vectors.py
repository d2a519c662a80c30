"""Token vectors of an encoder, one a token: what BERTScore compares.

Knows nothing of what is compared. A text that is longer than the window is an error, not a cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from epicrisis.errors import ContextOverflow
from epicrisis.models.catalogue import load_catalogue
from epicrisis.models.model_download import find_model
from epicrisis.models.model_files import ModelFiles
from epicrisis.models.model_recipes import TokenVectorsRecipe, read_token_vectors_recipe
from epicrisis.models.networks import load_network
from epicrisis.models.tokenization import load_tokenizer, load_wordpiece_tokenizer, pad_batch, split_batches
from epicrisis.protocols import TokenEncoder, TokenVectors


def load_token_encoder(name: str, home: Path, threads: int | None = None) -> TokenEncoder:
    """The model of that catalogue name, or in that folder (ONNX, or transformers with the extra `torch`); of an encoder
    its last layer, of two networks the one that reads passages.

    A folder's `model.json` says `{"settings": {"layer": 9, "max_tokens": 512}}`, or its own files say its window; a
    vocabulary may be `tokenizer.json` or BERT's `vocab.txt`. Raises ModelMissing or ModelFileInvalid with the cure.
    """
    known = load_catalogue()
    as_encoder = name in known and known[name].kind == "encoder"
    files = find_model(name, "encoder" if as_encoder else "token-encoder", home)
    return TokenVectorEncoder(files, read_token_vectors_recipe(files), threads)


class TokenVectorEncoder:
    """The vectors of one layer of a network."""

    def __init__(self, files: ModelFiles, recipe: TokenVectorsRecipe, threads: int | None = None) -> None:
        self._name = files.name if recipe.layer is None else f"{files.name}_L{recipe.layer}"
        self._window = recipe.max_tokens
        part = files.part("article/")
        if "vocab.txt" in part.files:
            self._tokenizer = load_wordpiece_tokenizer(part.files["vocab.txt"], lowercase=recipe.lowercase)
        else:
            self._tokenizer = load_tokenizer(part.files["tokenizer.json"], lowercase=recipe.lowercase)
        self._network = load_network(part, threads, layers=recipe.layer)

    @property
    def name(self) -> str:
        return self._name

    def encode_tokens(self, texts: Sequence[str]) -> tuple[TokenVectors, ...]:
        encodings = self._tokenizer.encode_batch(list(texts))
        longest = max((len(encoding.ids) for encoding in encodings), default=0)
        if longest > self._window:
            raise ContextOverflow(
                f"a text has {longest} tokens, the encoder reads {self._window}: compare shorter texts, or sentence by "
                "sentence"
            )
        found: dict[int, TokenVectors] = {}
        for batch in split_batches(encodings, self._network.batch):
            hidden = self._network.run(*pad_batch([encodings[number] for number in batch]))
            for row, number in enumerate(batch):
                special = np.array(encodings[number].special_tokens_mask, dtype=bool)
                found[number] = TokenVectors(hidden[row, : len(special)], ~special)
        return tuple(found[number] for number in range(len(texts)))
