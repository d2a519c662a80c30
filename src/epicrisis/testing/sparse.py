"""A sparse encoder without a download, and the contract check of `SparseEncoder`."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence

from epicrisis.errors import ContextOverflow
from epicrisis.protocols import SparseEncoder
from epicrisis.testing.encoders import require

_WORD = re.compile(r"\w+")
WINDOW = 512


class WordCountEncoder:
    """Weighs each word, identified by its hash, by its number in the text."""

    name = "word-count"

    def encode_queries(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        return tuple(map(_count_words, texts))

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


def _count_words(text: str) -> Mapping[int, float]:
    words = _WORD.findall(text.lower())
    if len(words) > WINDOW:
        raise ContextOverflow(f"a text has {len(words)} tokens, word-count reads {WINDOW}: give shorter ones")
    return {zlib.crc32(word.encode()): float(count) for word, count in Counter(words).items()}


def _is_close(one: Mapping[int, float], other: Mapping[int, float]) -> bool:
    return all(abs(one.get(word, 0.0) - other.get(word, 0.0)) < 1e-4 for word in {*one, *other})
