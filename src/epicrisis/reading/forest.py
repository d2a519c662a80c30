"""Boosted regression trees, evaluated in numpy.

    forest = Forest.from_bytes(content)
    scores = forest.predict(rows)   # (n,)

The trees are trained elsewhere (`make reader`). A file of numpy arrays holds them, without pickled objects.

A tree of up to 32 leaves is walked without branches (QuickScorer, Lucchese et al. 2015): each inner node whose
condition fails rules out the leaves on its left, and the first leaf that is left is the row's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float32]
MAX_LEAVES = 32
_ALL = np.uint32(0xFFFFFFFF)
_BLOCK = 64
"""Rows at once, so that what is computed of them stays in the processor's cache."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The end of a tree."""

    value: float


@dataclass(frozen=True, slots=True)
class Split:
    """An inner node: rows whose feature is at or below the threshold go left."""

    feature: int
    threshold: float
    left: Split | Leaf
    right: Split | Leaf


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees as arrays. Missing nodes of smaller trees never fail."""

    features: tuple[str, ...]
    """The names of the columns of `predict`'s rows."""
    feature: npt.NDArray[np.int16]
    """The column of each inner node `(trees, nodes)`."""
    threshold: FloatArray
    """Rows at or below it stay left `(trees, nodes)`."""
    mask: npt.NDArray[np.uint32]
    """A bit for each leaf that remains if the condition fails `(trees, nodes)`."""
    value: FloatArray
    """The leaves from left to right `(trees, MAX_LEAVES)`."""

    def predict(self, rows: FloatArray) -> FloatArray:
        """Return the sum of all trees for each row, an array of shape `(n,)`."""
        scores = np.empty(len(rows), dtype=np.float32)
        trees, nodes = self.feature.shape
        column, threshold = self.feature.ravel(), self.threshold.reshape(-1, 1)
        ruled_out = ~self.mask.reshape(-1, 1)
        places = np.arange(trees)[:, np.newaxis]
        for start in range(0, len(rows), _BLOCK):
            # One row of memory for each node, so that every step runs along the rows of the block.
            block = np.ascontiguousarray(rows[start : start + _BLOCK].T)
            fails = block[column] > threshold
            leaves = np.bitwise_or.reduce((fails * ruled_out).reshape(trees, nodes, -1), axis=1)
            # The lowest bit that is left is a power of two, so its exponent is exact.
            first = np.frexp((~leaves & (leaves + np.uint32(1))).astype(np.float32))[1] - 1
            scores[start : start + _BLOCK] = self.value[places, first].sum(axis=0, dtype=np.float64)
        return scores

    def save(self, path: str | PathLike[str]) -> None:
        """Write the trees as compressed arrays."""
        np.savez_compressed(
            path,
            features=np.array(self.features),
            feature=self.feature,
            threshold=self.threshold,
            mask=self.mask,
            value=self.value,
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> Forest:
        """Return the trees of a file's content. Raises ValueError for another content."""
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            names = tuple(map(str, arrays["features"]))
            return cls(names, arrays["feature"], arrays["threshold"], arrays["mask"], arrays["value"])

    @classmethod
    def from_trees(cls, features: Sequence[str], trees: Sequence[Split | Leaf]) -> Forest:
        """Return the forest of these trees. Raises ValueError for a tree with more than MAX_LEAVES leaves."""
        shape = len(trees), MAX_LEAVES - 1
        feature, threshold = np.zeros(shape, np.int16), np.full(shape, np.inf, np.float32)
        mask, value = np.full(shape, _ALL), np.zeros((len(trees), MAX_LEAVES), np.float32)
        for row, tree in enumerate(trees):
            splits: list[tuple[Split, int]] = []
            leaves: list[float] = []
            _walk(tree, splits, leaves)
            if len(leaves) > MAX_LEAVES:
                raise ValueError(f"a tree has {len(leaves)} leaves: at most {MAX_LEAVES}")
            value[row, : len(leaves)] = leaves
            for column, (split, left_leaves) in enumerate(splits):
                feature[row, column], threshold[row, column] = split.feature, split.threshold
                mask[row, column] = ~np.uint32(left_leaves)
        return cls(tuple(features), feature, threshold, mask, value)


def _walk(node: Split | Leaf, splits: list[tuple[Split, int]], leaves: list[float]) -> None:
    """Append the inner nodes, with a bit for each leaf on their left, and the leaves from left to right."""
    if isinstance(node, Leaf):
        leaves.append(node.value)
        return
    first = len(leaves)
    _walk(node.left, splits, leaves)
    splits.append((node, (1 << len(leaves)) - (1 << first)))
    _walk(node.right, splits, leaves)
