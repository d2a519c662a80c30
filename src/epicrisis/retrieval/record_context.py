"""A patient's record as notes: whole, in the order of time, within a budget (EHR study, 3.3 and 4.3).

Pure. Knows no store and no tokenizer: it is handed the passages, and the function that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from epicrisis.dates import time_range
from epicrisis.retrieval.ordering import in_order
from epicrisis.types import CountUnit, Hit, Passage, Ranking

IN_TIME = (
    "The notes of the patient's record stand in the order in which they were written, the oldest first; literature, "
    "where there is any, comes after them."
)
"""What a prompt says of documents in the order of time."""
PASSAGES_A_NOTE = 5
"""Passages that are ranked for each whole note wanted; more where so many stand in fewer notes."""
_OF_A_PASSAGE = ("section", "page")
"""Metadata that hold for a passage alone."""


def whole_notes(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """Each document of these passages as one passage `<document id>#whole`, in the order of their first passages.

    All passages of a document make its text again from the first one's `start` on, so that offsets into the document
    hold: what passages share stands there once, and the white space that no passage has is filled with as much.
    """
    by_document: dict[str, list[Passage]] = {}
    for passage in passages:
        by_document.setdefault(passage.document_id, []).append(passage)
    return tuple(_whole(sorted(parts, key=lambda part: (part.start, part.end))) for parts in by_document.values())


def _whole(parts: Sequence[Passage]) -> Passage:
    """Of the parts of one document, by their starts."""
    first, end, texts = parts[0], parts[0].start, []
    for part in parts:
        gap = part.start - end
        texts.append(" " if gap == 1 else "\n" * gap)
        texts.append(part.text[max(0, -gap) :])
        end = max(end, part.end)
    return replace(
        first,
        id=f"{first.document_id}#whole",
        ordinal=0,
        end=end,
        text="".join(texts),
        metadata={name: value for name, value in first.metadata.items() if name not in _OF_A_PASSAGE},
    )


def chronological(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """As they were written, oldest first: by date and time, equal times by document; those without a time come last.

    A date that leaves the day or the time of day open stands where it may be at the latest.
    """
    return tuple(sorted(passages, key=_place))


def _place(passage: Passage) -> tuple[bool, datetime, str, int]:
    latest = datetime.max if passage.date is None else _latest(passage.date)
    return passage.date is None, latest, passage.document_id, passage.start


def _latest(date: str) -> datetime:
    try:
        return time_range(date)[1]
    except ValueError:
        # What a library took as a date has a day; what stands behind it need not be a time.
        return time_range(date[:10])[1]


def in_time(ranking: Ranking) -> Ranking:
    """The same hits in the order of time (the study's order-preserving retrieval, Yu et al. 2024).

    The notes of a record come first, by time; literature follows in the order of the ranking. Without a note all are
    put by time. Scores then say no more than the order; the ids as they were ranked are among the parameters.
    """
    notes = [passage for passage in ranking.passages if passage.patient is not None]
    literature = [passage for passage in ranking.passages if passage.patient is None] if notes else []
    timed = notes or ranking.passages
    ordered = (*chronological(timed), *literature)
    told = {**ranking.parameters, "order": "time", "ranked": list(ranking.ids)}
    return replace(in_order(ordered, f"{ranking.retriever}+time", told), notes=(*ranking.notes, *untimed(timed)))


def of_record(passages: Sequence[Passage]) -> Ranking:
    """Every note of a record, given as its passages, whole and in the order of time."""
    notes = chronological(whole_notes(passages))
    told = {"order": "time", "unit": "note", "without_time": [note.document_id for note in notes if note.date is None]}
    count = f"the record has {len(notes)} {'note' if len(notes) == 1 else 'notes'}"
    return replace(in_order(notes, "record", told), notes=(count, *untimed(notes)))


def untimed(passages: Sequence[Passage]) -> tuple[str, ...]:
    """For `Ranking.notes`: one line where some have no time."""
    documents = {passage.document_id for passage in passages}
    without = {passage.document_id for passage in passages if passage.date is None}
    return (f"{len(without)} of {len(documents)} notes have no time: they stand last",) if without else ()


def best_notes(rank: Callable[[int], Ranking], whole: Mapping[str, Passage], n: int) -> Ranking:
    """The `n` whole notes with the best passages (the study's HIR), as `as_notes`; fewer where the record has no more.

    `rank`: the best so many passages. They are ranked deeper until they stand in `n` notes.
    """
    k = n * PASSAGES_A_NOTE
    while True:
        passages = rank(k)
        notes = as_notes(passages, whole, n)
        if len(notes.hits) == n or len(passages.hits) < k:
            return notes
        k *= 2


def as_notes(ranking: Ranking, whole: Mapping[str, Passage], n: int, count: CountUnit = "passages") -> Ranking:
    """The first `n` notes of a ranking of passages, each whole and in the place and with the score of its best one.

    `whole`: the record's notes by document id. Literature stands as the passages that were found, each counted as a
    note; a ranking of `n` documents is counted already.
    """
    best: dict[str, Hit] = {}
    for hit in ranking.hits:
        passage = hit.passage if hit.passage.patient is None else whole.get(hit.passage.document_id)
        # A note that is not there any more was deleted since the search.
        if passage is not None and passage.id not in best:
            best[passage.id] = Hit(passage, hit.score, len(best))
    told = {**ranking.parameters, "k": n, "unit": "note", "passages_ranked": len(ranking.hits)}
    hits = tuple(best.values())
    return replace(ranking, hits=hits if count == "documents" else hits[:n], parameters=told)


def within_budget(
    notes: Sequence[Passage], tokens: int, count: Callable[[Passage], int]
) -> tuple[tuple[Passage, ...], tuple[Passage, ...]]:
    """Those that are kept and those left out: whole notes in their order as long as they fit; the first that does not
    fit is left out with all behind it, never cut. `count`: a note's tokens."""
    left = tokens
    for kept, note in enumerate(notes):
        left -= count(note)
        if left < 0:
            return tuple(notes[:kept]), tuple(notes[kept:])
    return tuple(notes), ()
