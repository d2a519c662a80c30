"""Rankings built for a study: the key documents at a given place among distractors (BriefContext, Methods).

Places are percentiles. Among k documents (or passages, where those are counted) the key has rank 0 at the 0th and rank
k - 1 at the 100th percentile, in between the nearest rank, halves rounded up: 0, 2, 4, 5, 7 of 8 and 0, 4, 8, 11, 15 of
16. The 50th is rank k // 2, the only place with a rank in the published notebooks. Several keys stand together as one
block; the passages of a document stand together and take one place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from epicrisis.core.errors import InputError
from epicrisis.core.partitioning import PASSAGES_PER_DOCUMENT, group_passages
from epicrisis.core.types import CountUnit, Passage, Ranking
from epicrisis.retrieval.rankings import rank_in_order

PLACES = (0, 25, 50, 75, 100)
"""Percentiles of BriefContext's figures."""


def first_rank(place: int, k: int, keys: int = 1) -> int:
    """Return the rank (from 0) of the first of `keys` adjacent ones among `k`, at percentile `place`."""
    return (place * (k - keys) + 50) // 100


def distinct_places(places: Iterable[int], k: int, keys: int = 1) -> tuple[int, ...]:
    """Return the places with distinct ranks among `k`: one place at k = 1.

    Of places with the same rank the closest is returned, so that the last rank is the 100th percentile.
    """

    def error(place: int) -> int:
        return abs(place * (k - keys) - 100 * first_rank(place, k, keys))

    by_rank: dict[int, int] = {}
    for place in sorted(places, key=error):
        by_rank.setdefault(first_rank(place, k, keys), place)
    return tuple(sorted(by_rank.values()))


def place_keys(
    keys: Sequence[Passage],
    others: Sequence[Passage],
    k: int,
    place: int,
    *,
    gold: Collection[str] = (),
    distractors: str = "retrieved",
    count: CountUnit = "documents",
) -> Ranking:
    """Return `k` documents or passages: the keys together at `place`, around them the best of `others` in their order.

    Passages of a key's document, or of one in `gold` (document ids), are removed from `others`. Raises InputError where
    a text is empty (later ones would move up, errata C7), where the keys take more than `k`, or have more passages than
    `k` documents may have, or where `others` are too few.
    """
    if not 0 <= place <= 100:
        raise InputError(f"a place is a percentile from 0 to 100, not {place}")
    if not keys:
        raise InputError("there is no key passage to place: add the questions' gold documents to the library")
    key_units = group_passages(keys, count)
    if len(key_units) > k or len(keys) > k * PASSAGES_PER_DOCUMENT:
        raise InputError(
            f"{len(keys)} key passages do not fit among {k} {count}: place one document, or take a larger k"
        )
    room = k - len(key_units)
    excluded = {passage.document_id for passage in keys} | set(gold)
    around = group_passages([passage for passage in others if passage.document_id not in excluded], count)[:room]
    if len(around) < room:
        raise InputError(
            f"{len(around)} {count} other than the key ones were found, k = {k} needs {room}: take a smaller k, or a "
            "larger library"
        )
    rank = first_rank(place, k, len(key_units))
    ordered = list(chain(*around[:rank], *key_units, *around[rank:]))
    for passage in ordered:
        if not passage.text.strip():
            raise InputError(
                f"{passage.id} has no text, so later documents would change their place: add its document again"
            )
    where = {"k": k, "count": count, "place": place, "rank": rank}
    parameters = {**where, "keys": [key.id for key in keys], "distractors": distractors}
    return rank_in_order(ordered, "placed", parameters)


def shuffle_pool(pool: Sequence[Passage], seed: int, question: str, count: CountUnit = "documents") -> list[Passage]:
    """Return the pool in a different order for each question id, which depends on seed and ids alone.

    Passages of a document, adjacent in the pool, stay adjacent.
    """

    def order(unit: tuple[Passage, ...]) -> bytes:
        return hashlib.sha256(f"{seed}:{question}:{unit[0].id}".encode()).digest()

    shuffled = sorted(group_passages(pool, count), key=order)
    return list(chain.from_iterable(shuffled))
