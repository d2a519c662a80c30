"""Measure the recall of an index of vectors against exact search.

Recall@16 is the share of the 16 nearest passages (by inner product) that the index finds. The queries are passages of
the library, excluded from their own neighbours. Recall is also measured for a search among the newest tenth of the
passages.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from epicrisis.core.protocols import Vectors

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

K = 16
QUERIES = 200
DEFAULT_RECALL = 0.95
_TENTH = 0.1
SampleSearch = Callable[[Vectors, int | None], Sequence[tuple[str, float]]]
"""Searches by a vector among the passages since a day, or among all. Returns ids and inner products of `K + 1`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport(ABC):
    """The measurement of an index of vectors. Subclasses add its parameters."""

    passages: int
    """Passages in the index at the time of the measurement."""
    recall: float
    filtered_recall: float | None
    """Recall of a search among the newest tenth of the passages. None if too few have a date."""
    queries: int
    asked: float
    """The required recall."""
    measured: str
    """Time of the measurement, ISO 8601, UTC."""

    @property
    def worst_recall(self) -> float:
        """The lower of the two recalls."""
        return self.recall if self.filtered_recall is None else min(self.recall, self.filtered_recall)

    @property
    def good(self) -> bool:
        """True if the index has the required recall."""
        return self.worst_recall >= self.asked

    @property
    @abstractmethod
    def parameters(self) -> str:
        """The parameters of the index, for the reader."""

    @property
    @abstractmethod
    def effect_below_recall(self) -> str:
        """What searches do if the index does not have the required recall."""


_Report = TypeVar("_Report", bound=IndexReport)
_TYPES: Mapping[object, Callable[[object], bool]] = {
    "int": lambda value: type(value) is int and value > 0,
    "float": lambda value: type(value) in (int, float),
    "float | None": lambda value: value is None or type(value) in (int, float),
    "str": lambda value: isinstance(value, str),
}


def parse_report(kind: type[_Report], text: str | bytes) -> _Report | None:
    """Return the report saved as JSON, or None if it is not a valid one of this kind."""
    try:
        report = kind(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    is_valid = all(_TYPES[field.type](getattr(report, field.name)) for field in fields(report))
    return report if is_valid else None


class MeasurableVectors(Protocol):
    """The vectors of a library that has an index of them."""

    def draw(self, count: int) -> tuple[list[str], Vectors]:
        """Return ids and vectors `(count, d)` of random passages, the same each time. There are at least as many."""

    def newest(self, share: float) -> int | None:
        """Return the first day of about the newest `share` of the dated passages, or None if under half are dated."""

    def blocks(self) -> Iterator[tuple[list[str], npt.NDArray[np.int32], Vectors]]:
        """Yield all passages in blocks: ids, last days (0 for none) and vectors `(n, d)`."""


@dataclass(frozen=True, slots=True)
class RecallSample:
    """Query passages and the exact inner products `(queries, K)` of their nearest neighbours, -inf for missing ones."""

    ids: list[str]
    vectors: Vectors
    scores: Vectors
    """Of the nearest among all passages."""
    since: int | None
    """The first day of the newest tenth of the passages. None if a search among them would not use the index."""
    newer_share: float
    """The share of the passages since that day."""
    newer_scores: Vectors
    """Of the nearest among the newest tenth."""

    def measure(self, search: SampleSearch) -> tuple[float, float | None]:
        """Return the recall among all passages, and among the newest tenth, or None if that cannot be measured."""
        newer = None if self.since is None else self._measure(search, self.since, self.newer_scores)
        return self._measure(search, None, self.scores), newer

    def _measure(self, search: SampleSearch, since: int | None, exact: Vectors) -> float:
        import numpy as np

        correct = total = 0
        for id_, vector, scores in zip(self.ids, self.vectors, exact, strict=True):
            hits = search(vector, since)
            neighbours = scores[np.isfinite(scores)]
            # Scores decide, not ids, because any of several equal passages is correct. The slack is float32's.
            threshold = neighbours.min(initial=np.inf) - 1e-5 * float(vector @ vector)
            hit_scores = [score for hit, score in hits if hit != id_][:K]
            correct += sum(score >= threshold for score in hit_scores)
            total += len(neighbours)
        return int(correct) / max(total, 1)


def draw_sample(library: MeasurableVectors, passages: int, uses_index: Callable[[int], bool]) -> RecallSample:
    """Return a sample of these passages. Every vector is read once.

    `uses_index` tells whether a search among so many passages uses the index. For 24 million passages of 768 dimensions
    this takes minutes and up to 2 GB of memory.
    """
    import numpy as np

    ids, vectors = library.draw(min(QUERIES, passages))
    since = library.newest(_TENTH)
    # Both arrays hold the K highest inner products of each query with other rows, the second with rows since that day.
    best = best_newer = np.full((len(ids), K), -np.inf, dtype=np.float32)
    query_of = dict(zip(ids, range(len(ids)), strict=True))
    newer_rows = 0
    for names, days, rows in library.blocks():
        scores = vectors @ rows.T
        for column, name in enumerate(names):
            if name in query_of:
                scores[query_of[name], column] = -np.inf
        best = _select_highest(best, scores)
        if since is not None:
            newer = np.flatnonzero(days >= since)
            newer_rows += len(newer)
            best_newer = _select_highest(best_newer, scores[:, newer])
    return RecallSample(
        ids=ids,
        vectors=vectors,
        scores=best,
        since=since if since is not None and uses_index(newer_rows) else None,
        newer_share=newer_rows / max(passages, 1),
        newer_scores=best_newer,
    )


def read_time() -> str:
    """Return the time of a measurement."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _select_highest(best: Vectors, scores: Vectors) -> Vectors:
    """Return the K highest scores of each row of both arrays, in no particular order."""
    import numpy as np

    return np.partition(np.concatenate([best, scores], axis=1), -K, axis=1)[:, -K:]
