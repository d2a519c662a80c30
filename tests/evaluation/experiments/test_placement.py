"""Test the placement of key documents in a ranking."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from epicrisis.core.errors import InputError
from epicrisis.core.types import Passage
from epicrisis.evaluation.experiments.placement import PLACES, distinct_places, first_rank, place_keys, shuffle_pool


def make_passage(document: str, text: str = "words", ordinal: int = 0) -> Passage:
    return Passage(id=f"{document}#{ordinal}", document_id=document, ordinal=ordinal, start=0, end=len(text), text=text)


OTHERS = [make_passage(f"d{i}") for i in range(60)]
KEY = make_passage("key")


@pytest.mark.parametrize(
    ("k", "ranks"),
    [
        (1, [0, 0, 0, 0, 0]),
        (2, [0, 0, 1, 1, 1]),
        (4, [0, 1, 2, 2, 3]),
        (8, [0, 2, 4, 5, 7]),
        (16, [0, 4, 8, 11, 15]),
        (32, [0, 8, 16, 23, 31]),
    ],
)
def test_first_rank_of_five_places_matches_notebooks(k: int, ranks: list[int]) -> None:
    assert [first_rank(place, k) for place in PLACES] == ranks
    assert first_rank(50, k) == k // 2, "as in the published notebooks"


@given(st.integers(1, 64), st.integers(1, 8), st.integers(0, 100))
@example(51, 1, 57)
def test_first_rank_increases_with_place_and_spans_ranks(k: int, keys: int, place: int) -> None:
    keys = min(k, keys)
    assert first_rank(0, k, keys) == 0
    assert first_rank(100, k, keys) == k - keys
    assert first_rank(place, k, keys) <= first_rank(min(100, place + 1), k, keys)
    # In whole numbers: 57 % of 50 ranks is 28.5, and half a rank from 29 only where no float rounds it.
    assert abs(100 * first_rank(place, k, keys) - place * (k - keys)) <= 50


def test_distinct_places_merges_places_of_equal_rank() -> None:
    assert distinct_places(PLACES, 1) == (0,)
    assert distinct_places(PLACES, 2) == (0, 100)
    assert distinct_places(PLACES, 3) == (0, 50, 100)
    assert distinct_places(PLACES, 4) == (0, 25, 75, 100)
    assert distinct_places(PLACES, 8) == PLACES
    assert distinct_places(PLACES, 8, keys=7) == (0, 100)


@pytest.mark.slow
@given(st.integers(2, 64), st.integers(1, 8))
def test_distinct_places_reserve_0_and_100_for_ends(k: int, keys: int) -> None:
    """Else what stands at the end would be counted to the middle."""
    result = distinct_places(PLACES, k, keys=min(keys, k))
    ranks = [first_rank(place, k, min(keys, k)) for place in result]
    assert ranks == sorted(set(ranks))
    assert {place for place, rank in zip(result, ranks, strict=True) if rank in (0, k - min(keys, k))} <= {0, 100}
    assert set(ranks) == {first_rank(place, k, min(keys, k)) for place in PLACES}


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(0, 100), st.integers(1, 5), st.integers(0, 50))
def test_place_keys_inserts_key_and_keeps_order_of_others(k: int, place: int, keys: int, found_at: int) -> None:
    keys = min(keys, k)
    block = [make_passage("key", ordinal=i) for i in range(keys)]
    result = [*OTHERS[:found_at], *block, *OTHERS[found_at:]]
    ranking = place_keys(block, result, k, place, count="passages")
    start = first_rank(place, k, keys)
    assert list(ranking.passages[start : start + keys]) == block
    rest = [*ranking.passages[:start], *ranking.passages[start + keys :]]
    assert rest == OTHERS[: k - keys]
    assert [hit.rank for hit in ranking.hits] == list(range(k))
    assert [hit.score for hit in ranking.hits] == sorted((hit.score for hit in ranking.hits), reverse=True)
    assert ranking.parameters["rank"] == start


@pytest.mark.slow
@given(st.integers(1, 20), st.integers(0, 100), st.integers(1, 3), st.data())
def test_place_keys_by_documents_returns_k_documents(k: int, place: int, halves: int, data: st.DataObject) -> None:
    key = [make_passage("key", ordinal=i) for i in range(halves)]
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=20, max_size=20))
    result = [make_passage(f"d{i}", ordinal=j) for i, size in enumerate(sizes) for j in range(size)]
    ranking = place_keys(key, result, k, place)
    documents = [name for name, _ in groupby(ranking.passages, key=lambda each: each.document_id)]
    assert len(documents) == k
    assert documents.index("key") == first_rank(place, k) == ranking.parameters["rank"]
    assert [name for name in documents if name != "key"] == [f"d{i}" for i in range(k - 1)]
    assert [item for item in ranking.passages if item.document_id != "key"] == result[: sum(sizes[: k - 1])]


def test_shuffle_pool_keeps_passages_of_document_together() -> None:
    pool = [make_passage(f"d{i}", ordinal=j) for i in range(9) for j in range(2)]
    ordered = shuffle_pool(pool, 0, "q1")
    assert ordered != pool
    assert [item.ordinal for item in ordered] == [0, 1] * 9
    assert [item.document_id for item in ordered[::2]] == [item.document_id for item in ordered[1::2]]


def test_place_keys_removes_other_gold_documents_and_key_passages() -> None:
    result = [make_passage("gold2"), make_passage("key", ordinal=1), *OTHERS]
    ranking = place_keys([KEY], result, 8, 50, gold=("gold2", "key"))
    assert {item.document_id for item in ranking.passages} == {"key", *(f"d{i}" for i in range(7))}


def test_place_keys_keeps_several_gold_documents_together() -> None:
    both = [KEY, make_passage("gold2")]
    assert place_keys(both, OTHERS, 8, 100).ids[-2:] == ("key#0", "gold2#0")
    assert place_keys(both, OTHERS, 8, 50).ids[3:5] == ("key#0", "gold2#0")


@pytest.mark.parametrize(
    ("keys", "others", "k", "place", "message"),
    [
        ([], OTHERS, 8, 0, "no key passage"),
        ([KEY], OTHERS[:6], 8, 0, "6 documents other than the key ones were found, k = 8 needs 7"),
        (
            [make_passage("key"), make_passage("k2"), make_passage("k3")],
            OTHERS,
            2,
            0,
            "3 key passages do not fit among 2 documents",
        ),
        (
            [make_passage("key", ordinal=i) for i in range(9)],
            OTHERS,
            2,
            0,
            "9 key passages do not fit among 2 documents",
        ),
        ([KEY], OTHERS, 8, 101, "percentile from 0 to 100"),
        ([KEY], [*OTHERS[:3], make_passage("empty", " \n"), *OTHERS[3:]], 8, 0, "empty#0 has no text"),
        ([make_passage("key", "")], OTHERS, 8, 0, "key#0 has no text"),
    ],
)
def test_place_keys_with_missing_text_raises_input_error(
    keys: list[Passage], others: list[Passage], k: int, place: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        place_keys(keys, others, k, place)


def test_place_keys_ignores_missing_text_beyond_k() -> None:
    assert len(place_keys([KEY], [*OTHERS[:7], make_passage("empty", "")], 8, 0).hits) == 8


def test_shuffle_pool_depends_on_seed_and_question_only() -> None:
    first = shuffle_pool(OTHERS, 0, "q1")
    assert first == shuffle_pool(list(reversed(OTHERS)), 0, "q1")
    assert sorted(item.id for item in first) == sorted(item.id for item in OTHERS)
    assert len({tuple(item.id for item in shuffle_pool(OTHERS, *of)) for of in ((0, "q1"), (1, "q1"), (0, "q2"))}) == 3
