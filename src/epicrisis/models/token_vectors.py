"""Token vectors: one vector per token of a text, for BERTScore. Texts longer than the window are an error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from epicrisis.models.catalogue import load_catalogue
from epicrisis.models.model_download import find_model
from epicrisis.models.model_files import ModelFiles
from epicrisis.models.model_recipes import TokenVectorsRecipe
from epicrisis.models.networks import load_network
from epicrisis.models.tokenization import encode_untruncated, iterate_batches, load_tokenizer, load_wordpiece_tokenizer
from epicrisis.protocols import TokenEncoder, TokenVectors


def load_token_encoder(name: str, home: Path, threads: int | None = None) -> TokenEncoder:
    """Load the model of that catalogue name, or in that folder (ONNX, or transformers with the extra `torch`).

    An encoder gives the vectors of its last layer; of two networks, the one for passages is used. A folder's
    `model.json` says `{"settings": {"layer": 9, "max_tokens": 512}}`, or its own files state the window; its vocabulary
    may be `tokenizer.json` or BERT's `vocab.txt`. Raise ModelMissing or ModelFileInvalid with a remedy.
    """
    catalogue = load_catalogue()
    is_encoder = name in catalogue and catalogue[name].kind == "encoder"
    files = find_model(name, "encoder" if is_encoder else "token-encoder", home)
    return TokenVectorEncoder(files, TokenVectorsRecipe.read(files), threads)


class TokenVectorEncoder:
    """The token vectors of one layer of a network."""

    def __init__(self, files: ModelFiles, recipe: TokenVectorsRecipe, threads: int | None = None) -> None:
        self.name = files.name if recipe.layer is None else f"{files.name}_L{recipe.layer}"
        self._window = recipe.max_tokens
        part = files.part("article/")
        if "vocab.txt" in part.files:
            self._tokenizer = load_wordpiece_tokenizer(part.files["vocab.txt"], lowercase=recipe.lowercase)
        else:
            self._tokenizer = load_tokenizer(part.files["tokenizer.json"], lowercase=recipe.lowercase)
        self._network = load_network(part, threads, layers=recipe.layer)

    def encode_tokens(self, texts: Sequence[str]) -> tuple[TokenVectors, ...]:
        encodings = encode_untruncated(
            self._tokenizer,
            texts,
            self._window,
            reader="the encoder",
            remedy="compare shorter texts, or sentence by sentence",
        )
        vectors: dict[int, TokenVectors] = {}
        for indices, arrays in iterate_batches(encodings, self._network.batch):
            hidden = self._network.run(*arrays)
            for row, index in enumerate(indices):
                special = np.array(encodings[index].special_tokens_mask, dtype=bool)
                vectors[index] = TokenVectors(hidden[row, : len(special)], ~special)
        return tuple(map(vectors.__getitem__, range(len(texts))))
