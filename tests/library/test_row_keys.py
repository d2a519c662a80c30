"""The keys of passages, against the plain way with dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.library.write.health import MIN_VECTORS, RowKeys

ROW = st.tuples(st.integers(-3, 3), st.integers(-2, 2), st.integers(0, 3), st.integers(-2, 2))
"""(id, document, ordinal, text)"""


def make_keys(rows: list[tuple[int, int, int, int]], lengths: list[float] | None = None) -> RowKeys:
    keys = RowKeys(len(rows) + 2)
    length = np.asarray(lengths if lengths is not None else np.ones(len(rows)), dtype=np.float32)
    for piece in (slice(0, 3), slice(3, None)):
        ids, documents, ordinals, texts = ([row[column] for row in rows[piece]] for column in range(4))
        keys.add(ids, documents, texts, ordinals, length[piece])
    return keys


@pytest.mark.slow
@given(st.lists(ROW, max_size=12))
def test_row_keys_match_dictionary_implementation(rows: list[tuple[int, int, int, int]]) -> None:
    keys = make_keys(rows)
    assert keys.rows == len(rows)
    row_ids = [row[0] for row in rows]
    assert keys.repeated_ids().tolist() == [n for n, row_id in enumerate(row_ids) if row_id in row_ids[:n]]
    ordinals: dict[int, set[int]] = {}
    first_of_text: dict[int, int] = {}
    pairs = []
    for n, (_, document, ordinal, text) in enumerate(rows):
        ordinals.setdefault(document, set()).add(ordinal)
        first = first_of_text.setdefault(text, n)
        if rows[first][1] != document:
            pairs.append((first, n))
    broken = sorted(document for document, numbers in ordinals.items() if numbers != set(range(len(numbers))))
    assert sorted(rows[row][1] for row in keys.broken().tolist()) == broken
    earlier, later = keys.repeated_texts()
    assert list(zip(earlier.tolist(), later.tolist(), strict=True)) == pairs
    names, first_rows, passages = keys.documents()
    assert names.tolist() == sorted(ordinals)
    assert [rows[row][1] for row in first_rows.tolist()] == sorted(ordinals)
    assert passages.sum() == len(rows)


def test_row_keys_outlying_lengths_are_odd() -> None:
    usual = [1.0 + 0.001 * (n % 7) for n in range(MIN_VECTORS)]
    rows = [(n, n, 0, n) for n in range(MIN_VECTORS + 4)]
    keys = make_keys(rows, [*usual, 1.2, 0.9, 0.0, float("nan")])
    assert keys.odd_lengths().tolist() == [MIN_VECTORS, MIN_VECTORS + 1]
    few = make_keys(rows[: MIN_VECTORS - 1], [*usual[: MIN_VECTORS - 2], 1.2])
    assert few.odd_lengths().tolist() == []


def test_row_keys_widely_varying_lengths_are_not_odd() -> None:
    lengths = np.random.default_rng(1).normal(10, 2, 300).clip(3, 17)
    assert make_keys([(n, n, 0, n) for n in range(300)], lengths.tolist()).odd_lengths().tolist() == []
