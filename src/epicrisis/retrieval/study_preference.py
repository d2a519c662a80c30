"""Prefer study types in a ranking, when it is searched. Nothing stored in a library changes.

A hit at place r (from 1) has the relevance 1 / (60 + r), as in reciprocal rank fusion, whatever the scores of its
ranking are. The relevance of a preferred study is multiplied by `FACTOR`. It overtakes others up to six places ahead
at the top of the ranking and fourteen at place 100, and the hits of equal relevance keep their order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from epicrisis.core.printable import agree, count_noun
from epicrisis.core.references import find_passage_study
from epicrisis.core.study_types import StudyType
from epicrisis.core.types import CountUnit, Passage, PreferenceMode, Ranking, SentenceRanking

Key = TypeVar("Key", str, int)

FACTOR = 1.1
"""Relevance of a preferred study, as a multiple of what its place gives."""
POOL_TIMES = 4
"""Searches for this many times k hits, from which the preferred ones move forward."""
_RRF_K = 60


def prefer_studies(
    ranking: Ranking, types: Sequence[StudyType], mode: PreferenceMode, k: int, count: CountUnit = "passages"
) -> Ranking:
    """Return the best `k` documents or passages with the preferred study types moved forward, or only them.

    The parameters and a note state how many there were.
    """
    unit = "document_id" if count == "documents" else "id"
    keys = [getattr(hit.passage, unit) for hit in ranking.hits]
    preferred = _find_preferred(ranking.passages, types)
    distinct = list(dict.fromkeys(keys))
    is_preferred = {key: preferred[hit.passage.document_id] for key, hit in zip(keys, ranking.hits, strict=True)}
    places = {key: place for place, key in enumerate(_order(distinct, is_preferred, mode)[:k])}
    chosen = [hit for key, hit in zip(keys, ranking.hits, strict=True) if key in places]
    chosen.sort(key=lambda hit: places[getattr(hit.passage, unit)])
    hits = tuple(replace(hit, rank=rank) for rank, hit in enumerate(chosen))
    parameters = {**ranking.parameters, "k": k, "prefer": list(types), "prefer_mode": mode}
    if "documents" in parameters:
        parameters["documents"] = len({hit.passage.document_id for hit in hits})
    matching = sum(is_preferred.values())
    noun = "document" if count == "documents" else "passage"
    best = count_noun(len(distinct), f"best {noun}")
    note = f"{matching} of the {best} {agree(matching, 'is', 'are')} of the preferred study types"
    if mode == "only" and matching < len(distinct):
        note += "; the others are left out"
    return replace(ranking, hits=hits, parameters=parameters, notes=(*ranking.notes, note))


def prefer_sentences(
    ranking: SentenceRanking, types: Sequence[StudyType], mode: PreferenceMode, k: int
) -> SentenceRanking:
    """Return the best `k` sentences with those of preferred study types moved forward, or only them."""
    preferred = _find_preferred([hit.sentence.passage for hit in ranking.hits], types)
    numbers = list(range(len(ranking.hits)))
    is_preferred = {number: preferred[ranking.hits[number].sentence.passage.document_id] for number in numbers}
    order = _order(numbers, is_preferred, mode)[:k]
    hits = tuple(replace(ranking.hits[number], rank=rank) for rank, number in enumerate(order))
    return replace(ranking, hits=hits, parameters={**ranking.parameters, "prefer": list(types), "prefer_mode": mode})


def _find_preferred(passages: Sequence[Passage], types: Collection[StudyType]) -> dict[str, bool]:
    """Return for each document whether any of these passages shows a preferred type."""
    preferred: dict[str, bool] = {}
    for passage in passages:
        study = find_passage_study(passage)
        is_preferred = study is not None and study.type in types
        preferred[passage.document_id] = preferred.get(passage.document_id, False) or is_preferred
    return preferred


def _order(keys: Sequence[Key], is_preferred: Mapping[Key, bool], mode: PreferenceMode) -> list[Key]:
    """Return the keys by their relevance, best first."""
    if mode == "only":
        return [key for key in keys if is_preferred[key]]
    relevance: dict[Key, float] = {}
    for place, key in enumerate(keys, 1):
        relevance[key] = (FACTOR if is_preferred[key] else 1.0) / (_RRF_K + place)
    return sorted(keys, key=lambda key: -relevance[key])
