"""A reranker without a download, and the contract check of `Reranker`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from epicrisis.core.protocols import Reranker
from epicrisis.testing.hashing_encoder import require

_WORD = re.compile(r"\w+")


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


class TermOverlapReranker:
    """Scores a passage by the share of distinct query words in it, 0 to 1."""

    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        query_words = _words(query)
        shared = [len(query_words.intersection(item)) for item in map(_words, passages)]
        return (np.array(shared) / max(len(query_words), 1)).astype(np.float32)

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        return ()


def check_reranker(reranker: Reranker) -> None:
    """Check the contract of `Reranker`. Raises AssertionError with the violated clause."""
    query = "Does aspirin prevent stroke?"
    passages = ["The weather in Lisbon is mild.", "Aspirin does prevent stroke in adults.", "Zebras graze."]
    scores = reranker.score(query, passages)
    require(scores.shape == (3,), f"the shape is (3,), got {scores.shape}")
    require(scores.dtype == np.float32, f"the type is float32, got {scores.dtype}")
    require(bool(np.isfinite(scores).all()), "every score is finite")
    require(int(scores.argmax()) == 1, "the passage that answers the query scores highest")
    require(np.allclose(scores[::-1], reranker.score(query, passages[::-1]), atol=1e-4), "scores follow their passages")
    require(
        np.allclose(scores[:1], reranker.score(query, passages[:1]), atol=1e-4), "a score depends on its own passage"
    )
    require(reranker.score(query, []).shape == (0,), "no passages give (0,)")
    require(bool(np.isfinite(reranker.score("", [""])).all()), "empty texts give finite scores")
    require(reranker.notes(query, passages) == (), "short texts need no note")
    long = "warfarin " * 100_000
    require("warfarin" not in "\n".join(reranker.notes(query, [long])), "a note holds none of the text")
