"""Rankings made for a study: the key documents at a given place among distractors (BriefContext, Methods). Pure.

Places are percentiles. Of k documents (or passages, where these are counted) the key is at rank 0 at the 0th and at
rank k - 1 at the 100th percentile, between them at the nearest rank, halves up: 0, 2, 4, 5, 7 of 8 and 0, 4, 8, 11, 15
of 16. So the 50th is rank k // 2, the only place whose rank the published notebooks show. Several keys stand together,
and the same holds for the room they leave. The passages of a document stand together and take one place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence

from epicrisis.counting import PASSAGES_A_DOCUMENT, units
from epicrisis.errors import InputError
from epicrisis.retrieval.ordering import in_order
from epicrisis.types import CountUnit, Passage, Ranking

PLACES = (0, 25, 50, 75, 100)
"""Of BriefContext's figures, in percentiles."""


def first_rank(place: int, k: int, keys: int = 1) -> int:
    """Rank (from 0) of the first of `keys` that stand together among `k`, `place` from 0 to 100."""
    return (place * (k - keys) + 50) // 100


def distinct_places(places: Iterable[int], k: int, keys: int = 1) -> tuple[int, ...]:
    """The places that have a rank of their own among `k`; of those that share one the one that says it best, so that
    the last rank is the 100th percentile. One alone at k = 1."""
    by_rank: dict[int, int] = {}
    for place in sorted(places, key=lambda place: abs(place * (k - keys) - 100 * first_rank(place, k, keys))):
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
    """`k` documents or passages: the keys together, their first at the rank of `place`, and the best of `others` around
    them in their order. `others` lose whatever is of a key's document or of one in `gold` (document ids).

    Raises InputError where a text is missing (each after it would stand elsewhere, errata C7), where the keys take more
    than `k`, or have more passages than `k` documents may, or where `others` are too few.
    """
    if not 0 <= place <= 100:
        raise InputError(f"a place is a percentile from 0 to 100, not {place}")
    if not keys:
        raise InputError("there is no key passage to place: add the questions' gold documents to the library")
    key_units = units(keys, count)
    if len(key_units) > k or len(keys) > k * PASSAGES_A_DOCUMENT:
        raise InputError(
            f"{len(keys)} key passages do not fit among {k} {count}: place one document, or take a larger k"
        )
    apart = {passage.document_id for passage in keys} | set(gold)
    around = units([passage for passage in others if passage.document_id not in apart], count)[: k - len(key_units)]
    if len(around) < k - len(key_units):
        raise InputError(
            f"{len(around)} {count} beside the key ones were found, k = {k} needs {k - len(key_units)}: take a smaller "
            "k, or a larger library"
        )
    rank = first_rank(place, k, len(key_units))
    ordered = [passage for unit in (*around[:rank], *key_units, *around[rank:]) for passage in unit]
    if without := [passage.id for passage in ordered if not passage.text.strip()]:
        raise InputError(f"{without[0]} has no text, so what follows it would stand elsewhere: add its document again")
    where = {"k": k, "count": count, "place": place, "rank": rank}
    parameters = {**where, "keys": [key.id for key in keys], "distractors": distractors}
    return in_order(ordered, "placed", parameters)


def shuffle_pool(pool: Sequence[Passage], seed: int, question: str, count: CountUnit = "documents") -> list[Passage]:
    """The pool in an order of its own for each question, by seed and ids alone; the passages of a document, which stand
    together in the pool, still do."""

    def order(unit: Sequence[Passage]) -> bytes:
        return hashlib.sha256(f"{seed}:{question}:{unit[0].id}".encode()).digest()

    return [passage for unit in sorted(units(pool, count), key=order) for passage in unit]
