"""How well is a ranking of ids, or of passages, given what is relevant? The definitions are those of trec_eval.

A ranking is ids, best first, none twice. Judgements are grades by id; what is above 0 is relevant, what is not judged
is not. Where nothing is relevant there is no figure: `None`, never 0. Knows no search and no library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from epicrisis.types import EvidenceSpan

Judgements: TypeAlias = Mapping[str, int]
"""Grade by id: 1 for relevant where there are no degrees."""


def recall_at_k(ranked: Sequence[str], judged: Judgements, k: int) -> float | None:
    """The share of the relevant ids that are among the first k."""
    relevant = _relevant(ranked, judged)
    return len(relevant.intersection(ranked[:k])) / len(relevant) if relevant else None


def precision_at_k(ranked: Sequence[str], judged: Judgements, k: int) -> float | None:
    """The share of the first k that are relevant; of k, also where the ranking is shorter."""
    relevant = _relevant(ranked, judged)
    return len(relevant.intersection(ranked[:k])) / k if relevant else None


def reciprocal_rank(ranked: Sequence[str], judged: Judgements) -> float | None:
    """1 / the place, from 1, of the first relevant id; 0 where none is ranked."""
    relevant = _relevant(ranked, judged)
    if not relevant:
        return None
    return next((1 / place for place, name in enumerate(ranked, 1) if name in relevant), 0.0)


def average_precision(ranked: Sequence[str], judged: Judgements) -> float | None:
    """The mean, over all relevant ids, of the precision down to each; 0 for those that are not ranked."""
    relevant = _relevant(ranked, judged)
    places = [place for place, name in enumerate(ranked, 1) if name in relevant]
    return sum(found / place for found, place in enumerate(places, 1)) / len(relevant) if relevant else None


def ndcg_at_k(ranked: Sequence[str], judged: Judgements, k: int) -> float | None:
    """Normalised discounted cumulative gain (Järvelin and Kekäläinen 2002): gain is the grade, discounted by the binary
    logarithm of the place + 1, over that of the best ranking there could be."""
    relevant = _relevant(ranked, judged)
    best = sorted((judged[name] for name in relevant), reverse=True)[:k]
    gained = _discounted([judged[name] if name in relevant else 0 for name in ranked[:k]])
    return gained / _discounted(best) if relevant else None


def evidence_recall(passages: Sequence[tuple[str, int, int]], evidence: Sequence[EvidenceSpan], k: int) -> float | None:
    """The share of the facts of which one of the first k passages (document id, start, end) holds a place whole.

    Of several places of one fact one is enough. A place that a chunk's border cuts is held by no chunk: such evidence
    reaches nobody in one piece.
    """
    facts = {place.fact or place for place in evidence}
    held = {place.fact or place for place in evidence if any(_holds(passage, place) for passage in passages[:k])}
    return len(held) / len(facts) if facts else None


def _holds(passage: tuple[str, int, int], place: EvidenceSpan) -> bool:
    document_id, start, end = passage
    return document_id == place.document_id and start <= place.start and place.end <= end


def _relevant(ranked: Sequence[str], judged: Judgements) -> frozenset[str]:
    if len(set(ranked)) < len(ranked):
        raise ValueError("an id stands twice in the ranking, and would count twice")
    return frozenset(name for name, grade in judged.items() if grade > 0)


def _discounted(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(place + 1) for place, grade in enumerate(grades, 1))
