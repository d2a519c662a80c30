"""A patient's record as notes: complete, in chronological order, within a token budget (EHR study, 3.3 and 4.3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from epicrisis.core.dates import time_range
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.references import join_places
from epicrisis.core.types import CountUnit, Hit, Passage, Ranking
from epicrisis.retrieval.rankings import rank_in_order

PASSAGES_PER_NOTE = 5
"""Passages to rank for each complete note; more are ranked if they are of fewer notes."""


def restore_notes(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """Return each document of these passages as one passage `<document id>#whole`, in the order of first passages.

    All passages of a document together give its text from the first one's `start`, so that offsets into the document
    remain valid. Overlaps appear once, and missing white space is filled with the same number of characters.
    """
    by_document: dict[str, list[Passage]] = defaultdict(list)
    for passage in passages:
        by_document[passage.document_id].append(passage)
    notes: list[Passage] = []
    for document_id, group in by_document.items():
        parts = sorted(group, key=lambda part: (part.start, part.end))
        text, end = "", parts[0].start
        for part in parts:
            gap = part.start - end
            text += (" " if gap == 1 else "\n" * gap) + part.text[max(0, -gap) :]
            end = max(end, part.end)
        notes.append(
            replace(parts[0], id=f"{document_id}#whole", ordinal=0, end=end, text=text, metadata=join_places(parts))
        )
    return tuple(notes)


def sort_by_time(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """Return the passages oldest first, equal times by document, and those without a time last.

    A date without a day or a time of day counts as its latest possible time.
    """

    def order(passage: Passage) -> tuple[bool, datetime, str, int]:
        latest, date = datetime.max, passage.date
        if date is not None:
            try:
                latest = time_range(date)[1]
            except ValueError:
                # A library's date has a day, but the rest of the text need not be a time.
                latest = time_range(date[:10])[1]
        return date is None, latest, passage.document_id, passage.start

    return tuple(sorted(passages, key=order))


def order_by_time(ranking: Ranking) -> Ranking:
    """Return the same hits in chronological order (the study's order-preserving retrieval, Yu et al. 2024).

    Literature follows the notes of a record in the order of the ranking. Without a note, all passages are ordered.
    """
    notes: list[Passage] = []
    literature: list[Passage] = []
    for passage in ranking.passages:
        if passage.patient is None:
            literature.append(passage)
        else:
            notes.append(passage)
    if not notes:
        notes, literature = literature, []
    parameters = {**ranking.parameters, "order": "time", "ranked": list(ranking.ids)}
    ordered = rank_in_order((*sort_by_time(notes), *literature), f"{ranking.retriever}+time", parameters)
    return replace(ordered, notes=(*ranking.notes, *_describe_undated(notes)), tops=ranking.tops)


def rank_record(passages: Sequence[Passage]) -> Ranking:
    """Return every note of a record, from its passages, complete and in chronological order."""
    notes = sort_by_time(restore_notes(passages))
    undated = [note.document_id for note in notes if note.date is None]
    ranking = rank_in_order(notes, "record", {"order": "time", "unit": "note", "without_time": undated})
    count = f"the record has {len(notes)} {'note' if len(notes) == 1 else 'notes'}"
    return replace(ranking, notes=(count, *_describe_undated(notes)))


def _describe_undated(passages: Sequence[Passage]) -> tuple[str, ...]:
    """Return one line for `Ranking.notes` if some documents have no time."""
    documents: set[str] = set()
    undated: set[str] = set()
    for passage in passages:
        documents.add(passage.document_id)
        if passage.date is None:
            undated.add(passage.document_id)
    if not undated:
        return ()
    size = f"{len(undated)} of {count_noun(len(documents), 'note')}"
    return (f"{size} {agree(len(undated), 'has no time: it stands', 'have no time: they stand')} last",)


def rank_notes(rank: Callable[[int], Ranking], notes: Mapping[str, Passage], n: int) -> Ranking:
    """Return the `n` complete notes with the best passages (the study's HIR), or fewer if the record has fewer."""
    k = n * PASSAGES_PER_NOTE
    while True:
        passages = rank(k)
        ranking = replace_by_notes(passages, notes, n)
        if len(ranking.hits) == n or len(passages.hits) < k:
            return ranking
        k *= 2


def replace_by_notes(ranking: Ranking, notes: Mapping[str, Passage], n: int, count: CountUnit = "passages") -> Ranking:
    """Return the first `n` notes of a ranking of passages, each in the place and with the score of its best passage.

    `notes` are the record's complete notes by document id. Passages of literature remain as they are, and each counts
    as a note. A ranking of `n` documents (`count`) is not cut again.
    """
    best: dict[str, Hit] = {}
    for hit in ranking.hits:
        passage = hit.passage if hit.passage.patient is None else notes.get(hit.passage.document_id)
        # A missing note was deleted after the search.
        if passage is not None and passage.id not in best:
            best[passage.id] = Hit(passage, hit.score, len(best))
    parameters = {**ranking.parameters, "k": n, "unit": "note", "passages_ranked": len(ranking.hits)}
    hits = tuple(best.values())
    return replace(ranking, hits=hits if count == "documents" else hits[:n], parameters=parameters)


def fit_budget(
    notes: Sequence[Passage], tokens: int, count: Callable[[Passage], int]
) -> tuple[tuple[Passage, ...], tuple[Passage, ...]]:
    """Return the notes within a token budget, and the others, from the first one beyond it."""
    remaining = tokens
    for place, note in enumerate(notes):
        remaining -= count(note)
        if remaining < 0:
            return tuple(notes[:place]), tuple(notes[place:])
    return tuple(notes), ()
