"""Compact keys of up to millions of passages, to find duplicates, gaps and outliers with 32 bytes per passage.

Passages are rows, numbered from 0 in order of arrival. Ids and texts are 64-bit hashes: in a library of 36 million
passages two of them collide with a probability of 1 in 30,000. Sorting temporarily takes up to 58 bytes per passage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]
BooleanArray: TypeAlias = npt.NDArray[np.bool_]

MIN_VECTORS = 100
"""With fewer usable vectors no length is reported as unusual."""
MAX_DEVIATIONS = 5.0
"""Maximum distance from the median length, in robust standard deviations (1.4826 times the median absolute deviation,
and at least 1 % of the median)."""


class RowKeys:
    """The keys of up to `capacity` passages."""

    def __init__(self, capacity: int) -> None:
        self.rows = 0
        self._ids = np.empty(capacity, dtype=np.int64)
        self._documents = np.empty(capacity, dtype=np.int64)
        self._texts = np.empty(capacity, dtype=np.int64)
        self._ordinals = np.empty(capacity, dtype=np.int32)
        self._lengths = np.empty(capacity, dtype=np.float32)

    def add(
        self,
        ids: Sequence[int],
        documents: Sequence[int],
        texts: Sequence[int],
        ordinals: Sequence[int],
        lengths: npt.NDArray[np.float32],
    ) -> None:
        """Append rows; `lengths` are those of their vectors. Raise ValueError beyond the capacity."""
        rows = slice(self.rows, self.rows + len(ids))
        self._ids[rows] = ids
        self._documents[rows] = documents
        self._texts[rows] = texts
        self._ordinals[rows] = ordinals
        self._lengths[rows] = lengths
        self.rows = rows.stop

    @property
    def ids(self) -> Numbers:
        """The hashes of the ids, by row."""
        return self._ids[: self.rows]

    def repeated_ids(self) -> Numbers:
        """Return the rows with the id of an earlier row."""
        order = np.argsort(self.ids, kind="stable")
        return np.sort(order[_equals_previous(self.ids[order])])

    def broken(self) -> Numbers:
        """Return one row of each document with missing ordinals. Repeated ordinals are ignored."""
        documents, ordinals = self._documents[: self.rows], self._ordinals[: self.rows]
        order = np.lexsort((ordinals, documents))
        order = order[~(_equals_previous(documents[order]) & _equals_previous(ordinals[order]))]
        wrong: Numbers = order[ordinals[order] != _positions_in_runs(documents[order])]
        return wrong[~_equals_previous(documents[wrong])]

    def repeated_texts(self) -> tuple[Numbers, Numbers]:
        """Return (earlier rows, later rows) of equal texts in different documents, ordered by the later row."""
        texts, documents = self._texts[: self.rows], self._documents[: self.rows]
        order = np.argsort(texts, kind="stable")
        first = order[np.arange(self.rows) - _positions_in_runs(texts[order])]
        is_repeated = documents[order] != documents[first]
        by_row = np.argsort(order[is_repeated])
        return first[is_repeated][by_row], order[is_repeated][by_row]

    def odd_lengths(self) -> Numbers:
        """Return the rows with an unusually long or short vector, without unusable vectors."""
        lengths = self._lengths[: self.rows]
        usable = np.isfinite(lengths) & (lengths > 0)
        if np.count_nonzero(usable) < MIN_VECTORS:
            return np.empty(0, dtype=np.int64)
        median = float(np.median(lengths[usable]))
        deviation = max(1.4826 * float(np.median(np.abs(lengths[usable] - median))), 0.01 * median)
        return np.flatnonzero(usable & (np.abs(lengths - median) > MAX_DEVIATIONS * deviation))

    def documents(self) -> tuple[Numbers, Numbers, Numbers]:
        """Return keys, first rows and passage counts of all documents, ordered by key."""
        keys, first, passages = np.unique(self._documents[: self.rows], return_index=True, return_counts=True)
        return keys, first, passages


def _equals_previous(values: npt.NDArray[np.integer]) -> BooleanArray:
    """Return a mask of the values equal to their predecessor."""
    mask = np.zeros(len(values), dtype=np.bool_)
    mask[1:] = values[1:] == values[:-1]
    return mask


def _positions_in_runs(values: npt.NDArray[np.integer]) -> Numbers:
    """Return, for each value, the number of equal values directly before it."""
    positions = np.arange(len(values))
    return positions - np.maximum.accumulate(np.where(_equals_previous(values), 0, positions))
