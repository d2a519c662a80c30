"""An encoder of tokens and one of weighed words without a download, and the contract checks of their protocols."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from epicrisis.core.errors import ContextOverflow
from epicrisis.core.protocols import SparseEncoder, TokenEncoder, TokenVectors
from epicrisis.testing.hashing_encoder import HashingEncoder, require

WINDOW = 512
"""Words that WordCountEncoder reads."""
_TOKEN = re.compile(r"\w+|[^\w\s]")
_WORD = re.compile(r"\w+")


class HashingTokenEncoder:
    """Encodes each word token by HashingEncoder, with two special tokens around each text."""

    name = "hashing"

    def __init__(self, dimensions: int = 64, max_tokens: int = 128) -> None:
        self._words = HashingEncoder(dimensions)
        self._max_tokens = max_tokens

    def encode_tokens(self, texts: Sequence[str]) -> tuple[TokenVectors, ...]:
        results = []
        for text in texts:
            words = ["bos", *_TOKEN.findall(text), "eos"]
            if len(words) > self._max_tokens:
                raise ContextOverflow(f"{len(words)} tokens are more than {self._max_tokens}: compare shorter texts")
            content = np.ones(len(words), dtype=bool)
            content[[0, -1]] = False
            results.append(TokenVectors(self._words.encode_queries(words), content))
        return tuple(results)


def check_token_encoder(encoder: TokenEncoder) -> None:
    """Check the contract of `TokenEncoder`. Raises AssertionError with the violated clause."""
    texts = ["Aspirin lowers the risk of stroke.", "", "Warfarin.", "Aspirin lowers the risk of stroke."]
    results = encoder.encode_tokens(texts)
    require(len(results) == len(texts), "one result for each text")
    for tokens in results:
        require(tokens.vectors.dtype == np.float32, f"the type is float32, got {tokens.vectors.dtype}")
        require(tokens.content.shape == tokens.vectors.shape[:1], "there is one mark for each vector")
        require(bool(np.isfinite(tokens.vectors).all()), "every number is finite")
    require(not results[1].content.any(), "an empty text has no content")
    require(int(results[0].content.sum()) > int(results[2].content.sum()) > 0, "longer texts have more tokens")
    require(np.allclose(results[0].vectors, results[3].vectors, atol=1e-4), "the same text has the same vectors")
    alone = encoder.encode_tokens(texts[2:3])[0].vectors
    require(np.allclose(results[2].vectors, alone, atol=1e-4), "vectors do not depend on their batch")
    require(len(encoder.encode_tokens([])) == 0, "no texts give nothing")
    try:
        encoder.encode_tokens([texts[0], "warfarin " * 100_000])
    except ContextOverflow as error:
        require("warfarin" not in str(error), "an error holds none of the text")
    else:
        raise AssertionError("a text that does not fit is rejected, not cut")


class WordCountEncoder:
    """Weighs each word, identified by its hash, by its number in the text."""

    name = "word-count"

    def encode_queries(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        results = []
        for text in texts:
            words = _WORD.findall(text.lower())
            if len(words) > WINDOW:
                raise ContextOverflow(f"a text has {len(words)} tokens, word-count reads {WINDOW}: give shorter ones")
            results.append({zlib.crc32(word.encode()): float(count) for word, count in Counter(words).items()})
        return tuple(results)

    def encode_passages(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        return self.encode_queries(texts)


def check_sparse_encoder(encoder: SparseEncoder) -> None:
    """Check the contract of `SparseEncoder`. Raises AssertionError with the violated clause."""
    texts = ["Aspirin reduces the risk of stroke.", "", "warfarin"]
    require(bool(encoder.name), "it has a name")
    for encode in (encoder.encode_queries, encoder.encode_passages):
        results = encode(texts)
        require(len(results) == 3, "one mapping a text")
        for words in results:
            require(min(words.values(), default=1.0) > 0, "weights are greater than 0")
        require(_is_close(results[0], encode(texts[:1])[0]), "a text's weights do not depend on its neighbours")
        require(_is_close(results[2], encode(texts[::-1])[0]), "weights follow their texts")
        require(len(encode([])) == 0, "no texts give nothing")
        try:
            encode(["warfarin " * 100_000])
        except ContextOverflow as error:
            require("warfarin" not in error.message, "an error holds none of the text")
        else:
            require(condition=False, clause="a text longer than the window is an error, not a cut")


def _is_close(one: Mapping[int, float], other: Mapping[int, float]) -> bool:
    return all(abs(one.get(word, 0.0) - other.get(word, 0.0)) < 1e-4 for word in {*one, *other})
