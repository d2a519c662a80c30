"""A record as notes: whole, in the order of time, within a budget."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.types import Document, Passage, Ranking
from epicrisis.corpus.base.chunking import chunk_document
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.retrieval.record_context import (
    fit_budget,
    order_by_time,
    rank_notes,
    rank_record,
    replace_by_notes,
    restore_notes,
    sort_by_time,
)
from epicrisis.testing.hashing_encoder import HashingEncoder

SPANS = HashingEncoder().token_spans


def passage(
    name: str, ordinal: int = 0, date: str | None = "2150-01-01", patient: str | None = "p", text: str = "text"
) -> Passage:
    return Passage(
        id=f"{name}#{ordinal}",
        document_id=name,
        ordinal=ordinal,
        start=0,
        end=len(text),
        text=text,
        date=date,
        patient=patient,
    )


def ranking_of(*passages: Passage) -> Ranking:
    return rank_in_order(passages, "hybrid", {"k": len(passages)})


def documents(passages: Sequence[Passage]) -> list[str]:
    return [each.document_id for each in passages]


TEXTS = st.lists(st.sampled_from(["Fever.", "No", "pain", "BP 120/80.", "\n", "\n\n  ", " ", "  ", "é"]), max_size=60)


@pytest.mark.slow
@given(words=TEXTS, max_tokens=st.integers(1, 12), overlap=st.integers(0, 11))
def test_whole_note_is_document_text_with_valid_offsets(words: list[str], max_tokens: int, overlap: int) -> None:
    text = " ".join(words)
    document = Document("note:1", text, patient="p")
    cut = chunk_document(document, SPANS, max_tokens, min(overlap, max_tokens - 1))
    whole = restore_notes(list(reversed(cut)))
    assert len(whole) == bool(text.strip())
    for note in whole:
        assert note.id == "note:1#whole"
        assert len(note.text) == note.end - note.start
        assert note.text.split() == text.split()
        for found in re.finditer(r"\S+", note.text):
            assert text[note.start + found.start() : note.start + found.end()] == found.group()


def test_overlap_appears_once_and_gaps_keep_length() -> None:
    text = "One two.  Three four.\n\n\nFive."
    spans = [(0, 8), (4, 21), (10, 21), (24, 29)]
    parts = [
        Passage(
            id=f"n#{i}",
            document_id="n",
            ordinal=i,
            start=start,
            end=end,
            text=text[start:end],
            metadata={"section": str(i), "note_type": "radiology"},
        )
        for i, (start, end) in enumerate(spans)
    ]
    (note,) = restore_notes(parts)
    assert note.text == text
    assert (note.start, note.end, note.ordinal) == (0, len(text), 0)
    starts = [[start, str(i)] for i, (start, _) in enumerate(spans)]
    assert note.metadata == {"note_type": "radiology", "section": "0", "section_starts": starts[1:]}


def test_notes_match_documents_and_keep_text() -> None:
    notes = restore_notes([passage("b", text="B."), passage("a", text="A."), passage("b", text="B.")])
    assert [(note.document_id, note.text) for note in notes] == [("b", "B."), ("a", "A.")]


@pytest.mark.parametrize(
    ("dates", "order"),
    [
        (("2150-02", "2150-01-31", "2149"), "cba"),
        (("2150-03-04T10:30", "2150-03-04T09:00", "2150-03-04"), "bac"),
        (("2150-03-04", "2150-03-04", "2150-03-04"), "abc"),
        ((None, "2150", None), "bac"),
        (("2150-03-04Tnoon", "2150-03-04T23:00", "2150-03-05"), "bac"),
    ],
)
def test_notes_are_ordered_by_time(dates: tuple[str | None, ...], order: str) -> None:
    """An open time of day is the end of its day; without a time a note stands last; equal times go by document."""
    passages = [passage(name, date=date) for name, date in zip("abc", dates, strict=True)]
    for given_in in (passages, passages[::-1]):
        assert "".join(documents(sort_by_time(given_in))) == order


def test_literature_follows_notes_in_ranking_order() -> None:
    found = ranking_of(
        passage("paper2", date="1990", patient=None),
        passage("late", date="2150-02"),
        passage("paper1", date="1980", patient=None),
        passage("undated", date=None),
        passage("early", date="2150-01"),
    )
    timed = order_by_time(found)
    assert documents(timed.passages) == ["early", "late", "undated", "paper2", "paper1"]
    assert [hit.rank for hit in timed.hits] == [0, 1, 2, 3, 4]
    assert timed.retriever == "hybrid+time"
    assert timed.parameters == {"k": 5, "order": "time", "ranked": list(found.ids)}
    assert timed.notes == ("1 of 3 notes has no time: it stands last",)


def test_literature_alone_is_ordered_by_date() -> None:
    found = ranking_of(passage("new", date="2020", patient=None), passage("old", date="1990", patient=None))
    assert documents(order_by_time(found).passages) == ["old", "new"]


def test_record_reports_note_count_and_undated_notes() -> None:
    read = rank_record([passage("b", 0), passage("a", 0, None), passage("c", 0, "2149")])
    assert documents(read.passages) == ["c", "b", "a"]
    assert read.retriever == "record"
    assert read.parameters["without_time"] == ["a"]
    assert read.notes == ("the record has 3 notes", "1 of 3 notes has no time: it stands last")
    assert rank_record([]).notes == ("the record has 0 notes",)


def test_best_notes_are_distinct_and_searched_deeper() -> None:
    ranked = [passage("a", n) for n in range(11)] + [passage("b", 1), passage("c", 0)]
    whole = {note.document_id: note for note in restore_notes([passage("a"), passage("b"), passage("c")])}
    asked: list[int] = []

    def rank(k: int) -> Ranking:
        asked.append(k)
        return ranking_of(*ranked[:k])

    assert documents(rank_notes(rank, whole, 1).passages) == ["a"]
    assert documents(rank_notes(rank, whole, 2).passages) == ["a", "b"]
    assert asked == [5, 10, 20], "ten passages are all of one note"
    assert documents(rank_notes(rank, whole, 9).passages) == ["a", "b", "c"], "the record has no more"


def test_notes_replace_best_passages_and_literature_is_unchanged() -> None:
    found = ranking_of(passage("a", 3), passage("paper", 7, patient=None), passage("a", 0), passage("b", 1))
    whole = {note.document_id: note for note in restore_notes([passage("a"), passage("b")])}
    read = replace_by_notes(found, whole, 3)
    assert [hit.passage.id for hit in read.hits] == ["a#whole", "paper#7", "b#whole"]
    assert [hit.score for hit in read.hits] == [found.hits[0].score, found.hits[1].score, found.hits[3].score]
    assert [hit.rank for hit in read.hits] == [0, 1, 2]
    assert (read.parameters["unit"], read.parameters["passages_ranked"]) == ("note", 4)
    assert [hit.passage.id for hit in replace_by_notes(found, whole, 1).hits] == ["a#whole"]


@pytest.mark.parametrize(
    ("tokens", "kept"), [(100, "abc"), (6, "abc"), (5, "ab"), (4, "a"), (2, "a"), (1, ""), (0, "")]
)
def test_first_note_over_budget_ends_selection(tokens: int, kept: str) -> None:
    notes = [passage("a", text="xx"), passage("b", text="xxx"), passage("c", text="x")]
    read, left = fit_budget(notes, tokens, lambda note: len(note.text))
    assert "".join(documents(read)) == kept
    assert "".join(documents((*read, *left))) == "abc"
