"""The best passages by their words, of those that the table holds now.

The word index may be a commit behind the table, or before it: what is no longer the passage that was indexed is no hit.
Knows no texts.
"""

from __future__ import annotations

from collections.abc import Sequence

from epicrisis.library.passage_table import PassageTable
from epicrisis.library.vector_search import VectorSearch
from epicrisis.library.word_index import WordIndex, version_of
from epicrisis.types import Scope

_OVER = 64
_DIGITS = 4


def rank_by_words(
    table: PassageTable,
    words: WordIndex,
    neighbours: VectorSearch,
    query: str,
    k: int,
    scope: Scope,
    within: Sequence[str] | None,
) -> list[tuple[str, float]]:
    """(passage id, BM25 score) of the k best the scope admits, best first, ties by passage id.

    Fewer where a passage of the scope is of this very moment. Leaves the table as new as the words are, or newer.
    """
    limit = k + _OVER
    while True:
        table.refresh()
        # A patient's first passage of this very moment is left out by the caller.
        patients = neighbours.any_patients()
        # Words first: the table is then as new as they are, or newer.
        words.refresh()
        found = words.search(query, limit, scope, within, patients=patients)
        table.refresh()
        hashes = table.hashes([hit.passage_id for hit in found])
        ranked = sorted(
            (-round(hit.score, _DIGITS), hit.passage_id)
            for hit in found
            if hit.version == version_of(hashes.get(hit.passage_id, ""))
        )
        # Settled once no passage that was not fetched could tie with the last one wanted.
        if len(found) < limit or (len(ranked) >= k and -ranked[k - 1][0] > round(found[-1].score, _DIGITS)):
            return [(passage_id, -score) for score, passage_id in ranked[:k]]
        limit *= 4
