"""Quotations that a note copied from an earlier one show the date on which they were first written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from epicrisis import Library
from epicrisis.core.types import Document, Passage
from epicrisis.pipeline.evidence_selection import resolve_time_restriction
from epicrisis.testing.hashing_encoder import HashingEncoder

COPIED = (
    "Swallow study showed silent aspiration of thin liquids, and a thickened diet was recommended by the therapist."
)
ALTERED = COPIED.replace(", and a", ", so a")
NEW = "Swallow study is to be repeated next week, because the cough is better and the voice is clear again today."


def _note(name: str, date: str, text: str, kind: str = "progress note") -> Document:
    return Document(f"note:{name}", text, date=date, patient="p1", metadata={"note_type": kind})


def test_copied_quotation_has_the_date_of_its_first_note(tmp_path: Path) -> None:
    with Library.create(tmp_path / "ward", encoder=HashingEncoder(64)) as library:
        library.add(_note("1", "2150-03-04", COPIED), _note("2", "2150-03-09", f"{NEW}\n\n{ALTERED}"))
        answer = library.ask("What did the swallow study show?", patient="p1")
    dates = {}
    for citation in answer.citations:
        dates[citation.document_id, citation.quotation] = citation.reference.first_written
    assert dates == {("note:1", COPIED): "", ("note:2", ALTERED): "2150-03-04", ("note:2", NEW): ""}
    (copied,) = (citation for citation in answer.citations if citation.reference.first_written)
    assert copied.reference.describe_place() == "copied from a note of 2150-03-04"


def test_event_in_copied_text_has_the_time_of_its_first_note() -> None:
    statement = "The patient underwent surgery with an uneventful course and was extubated in the operating room."
    notes = [
        _note("0", "2150-03-01", "Hemoglobin 9.1 g/dL.", "laboratory report"),
        _note("1", "2150-03-04", statement, "operative note"),
        _note("2", "2150-06-20", f"Comes for a follow-up visit.\n\n{statement}", "clinic letter"),
    ]
    record = []
    for note in notes:
        length = len(note.text)
        passage = Passage(
            id=f"{note.id}#0",
            document_id=note.id,
            ordinal=0,
            start=0,
            end=length,
            text=note.text,
            date=note.date,
            patient="p1",
        )
        record.append(replace(passage, metadata=note.metadata))
    restriction = resolve_time_restriction("What was the hemoglobin before the surgery?", lambda: record)
    assert restriction.explanations == ("before the surgery: the surgery was 2150-03-04",)
    assert restriction.unresolved == ()
