"""Which of millions of passages repeat others, lack neighbours or differ from most, told from 32 bytes each.

Passages are rows, 0 for the first that was taken. Ids and texts come as 64-bit hashes: that two of 36 million agree by
chance happens once in 30,000 libraries. Sorting takes up to 58 bytes each for a while. Knows no store and no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

MIN_VECTORS = 100
"""Vectors from which on it is told that one is of another length than most."""
MAX_DEVIATIONS = 5.0
"""So many robust standard deviations are far: 1.4826 times the median deviation each, at least 1 % of the median."""


class RowKeys:
    """The keys of at most `most` passages."""

    def __init__(self, most: int) -> None:
        self.rows = 0
        self._ids = np.empty(most, dtype=np.int64)
        self._documents = np.empty(most, dtype=np.int64)
        self._texts = np.empty(most, dtype=np.int64)
        self._ordinals = np.empty(most, dtype=np.int32)
        self._lengths = np.empty(most, dtype=np.float32)

    def take(
        self,
        ids: Sequence[int],
        documents: Sequence[int],
        texts: Sequence[int],
        ordinals: Sequence[int],
        lengths: npt.NDArray[np.float32],
    ) -> None:
        """The next rows; `lengths` of their vectors. Raises ValueError for more than were said."""
        place = slice(self.rows, self.rows + len(ids))
        for kept, new in (
            (self._ids, ids),
            (self._documents, documents),
            (self._texts, texts),
            (self._ordinals, ordinals),
            (self._lengths, lengths),
        ):
            kept[place] = new
        self.rows = place.stop

    @property
    def ids(self) -> Numbers:
        return self._ids[: self.rows]

    def repeated_ids(self) -> Numbers:
        """Rows that have the id of an earlier one."""
        order = np.argsort(self.ids, kind="stable")
        return np.sort(order[_as_before(self.ids[order])])

    def broken(self) -> Numbers:
        """One row of every document whose ordinals, each taken once, do not run from 0 without a gap."""
        documents, ordinals = self._documents[: self.rows], self._ordinals[: self.rows]
        order = np.lexsort((ordinals, documents))
        order = order[~(_as_before(documents[order]) & _as_before(ordinals[order]))]
        wrong: Numbers = order[ordinals[order] != _places(documents[order])]
        return wrong[~_as_before(documents[wrong])]

    def repeated_texts(self) -> tuple[Numbers, Numbers]:
        """(earlier, later) for every row whose text is that of an earlier row of another document, in order."""
        texts, documents = self._texts[: self.rows], self._documents[: self.rows]
        order = np.argsort(texts, kind="stable")
        first = order[np.arange(self.rows) - _places(texts[order])]
        again = documents[order] != documents[first]
        by_row = np.argsort(order[again])
        return first[again][by_row], order[again][by_row]

    def odd_lengths(self) -> Numbers:
        """Rows whose vector is far longer or shorter than most; none where few are usable. Unusable ones are none."""
        lengths = self._lengths[: self.rows]
        usable = np.isfinite(lengths) & (lengths > 0)
        if np.count_nonzero(usable) < MIN_VECTORS:
            return np.empty(0, dtype=np.int64)
        middle = float(np.median(lengths[usable]))
        spread = max(1.4826 * float(np.median(np.abs(lengths[usable] - middle))), 0.01 * middle)
        return np.flatnonzero(usable & (np.abs(lengths - middle) > MAX_DEVIATIONS * spread))

    def documents(self) -> tuple[Numbers, Numbers, Numbers]:
        """Every document once, by rising key: keys, first rows, passages."""
        keys, first, passages = np.unique(self._documents[: self.rows], return_index=True, return_counts=True)
        return keys, first, passages


def _as_before(values: npt.NDArray[np.integer]) -> Flags:
    """True where a value is equal to the one before it."""
    same = np.zeros(len(values), dtype=np.bool_)
    same[1:] = values[1:] == values[:-1]
    return same


def _places(values: npt.NDArray[np.integer]) -> Numbers:
    """How many equal values stand right before each."""
    places = np.arange(len(values))
    return places - np.maximum.accumulate(np.where(_as_before(values), 0, places))
