"""Boosted trees in numpy, against trees walked by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from epicrisis.reading.forest import MAX_LEAVES, Forest, Leaf, Split


def grow(chance: np.random.Generator, leaves: int) -> Split | Leaf:
    if leaves == 1:
        return Leaf(float(chance.normal()))
    left = int(chance.integers(1, leaves))
    return Split(int(chance.integers(4)), float(chance.normal()), grow(chance, left), grow(chance, leaves - left))


def walk(node: Split | Leaf, row: np.ndarray) -> float:
    while isinstance(node, Split):
        node = node.left if row[node.feature] <= np.float32(node.threshold) else node.right
    return node.value


def test_forest_gives_what_its_trees_give(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    trees = [grow(chance, leaves) for leaves in (1, 2, 7, 31, MAX_LEAVES)]
    rows = chance.normal(size=(200, 4)).astype(np.float32)
    forest = Forest.from_trees("abcd", trees)
    forest.save(tmp_path / "forest.npz")
    loaded = Forest.from_bytes((tmp_path / "forest.npz").read_bytes())
    expected = [sum(walk(tree, row) for tree in trees) for row in rows]
    assert np.allclose(loaded.predict(rows), expected, atol=1e-5)
    assert loaded.features == ("a", "b", "c", "d")


def test_tree_with_too_many_leaves_is_refused() -> None:
    with pytest.raises(ValueError, match="33 leaves"):
        Forest.from_trees("abcd", [grow(np.random.default_rng(2), MAX_LEAVES + 1)])
