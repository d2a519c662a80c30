"""A patient's record as the page shows it: hospital stays and notes in the order of time.

    record = describe_record(notes, library="ward", marks=NoteMarks(left_out=frozenset({"note:1"})))

All texts are printable; the templates escape them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from epicrisis.core.answers import Answer, Notice
from epicrisis.core.dates import TimeRange
from epicrisis.core.printable import printable
from epicrisis.core.references import name_document
from epicrisis.core.types import Passage
from epicrisis.records.fact_questions.record import PatientFacts, read_fact_record
from epicrisis.retrieval.hospital_stays import HospitalStay, NoteTime, format_day, group_stays
from epicrisis.server.libraries.reading import NoteEntry, PatientNotes
from epicrisis.server.page.measured_answers import (
    NO_MEASUREMENTS,
    Measurements,
    describe_chart,
    list_measurements,
)
from epicrisis.server.state.stored_answers import StoredAnswer

MAX_KEY_NOTES = 4
_KEY_WORDS = ("discharge summary", "letter", "discharge", "admission", "consult")
"""Words for the notes that sum a stay up, the best first."""
_NEVER = (datetime.max, datetime.max)
OUTSIDE = "Outside a hospital stay"


@dataclass(frozen=True, slots=True)
class NoteMarks:
    """What an answer did with the notes of a record."""

    left_out: frozenset[str] = frozenset()
    """Ids of the notes that the time filter left out."""
    citations: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    """Number and address of each citation, by note."""


@dataclass(frozen=True, slots=True)
class NoteRow:
    """One note on the timeline."""

    id: str
    title: str
    date: str
    kind: str
    is_left_out: bool
    citations: tuple[tuple[int, str], ...]

    @property
    def is_kind_in_title(self) -> bool:
        """Whether the title names the kind."""
        return self.kind.casefold() in self.title.casefold()


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A hospital stay, or notes outside all stays, with the notes in the order of time."""

    heading: str
    days: str
    notes: tuple[NoteRow, ...]
    is_stay: bool
    remark: str = ""
    measurements: Measurements = NO_MEASUREMENTS


def describe_record(
    notes: PatientNotes, library: str, marks: NoteMarks = NoteMarks(), passages: Sequence[Passage] = ()
) -> dict[str, Any]:
    """Return what the page shows of a patient. `library` is the name of the library that holds the record.

    Measurements are the structured facts of `passages`, which are those of the record.
    """
    rows = {note.id: _view_note(note, marks) for note in notes.notes}
    facts = read_fact_record(passages)
    # The newest first.
    entries = _list_entries(notes.notes, rows, facts.ongoing if facts is not None else None)
    if facts is not None:
        entries = tuple(_add_measurements(entry, facts) for entry in entries)
    last_stay = next((entry for entry in entries if entry.is_stay), None)
    return {
        "patient": notes.patient,
        "library": library,
        "entries": entries,
        "chart": describe_chart(passages),
        "last_stay": last_stay,
        "key_notes": () if last_stay is None else _choose_key_notes(last_stay.notes),
        "kinds": Counter(row.kind for row in rows.values() if row.kind).most_common(),
        "left_out": sum(row.is_left_out for row in rows.values()),
    }


def _add_measurements(entry: TimelineEntry, facts: PatientFacts) -> TimelineEntry:
    return replace(entry, measurements=list_measurements(facts, [note.id for note in entry.notes]))


def mark_notes(stored: StoredAnswer) -> NoteMarks:
    """Return the notes cited by the answer, and those left out by the time filter."""
    citations: dict[str, tuple[tuple[int, str], ...]] = {}
    for citation in stored.answer.shown_citations:
        place = (citation.number, f"/answers/{stored.id}/sources/{citation.number}")
        citations[citation.document_id] = (*citations.get(citation.document_id, ()), place)
    return NoteMarks(frozenset(stored.left_out), citations)


def list_time_messages(answer: Answer) -> tuple[str, ...]:
    """Return what the time filter made of the question, in words: the meaning of each expression, and the outcome."""
    messages: list[str] = []
    for event in answer.trace:
        if isinstance(event, Notice) and event.kind == "timeline":
            messages.append(printable(event.message))
    return tuple(dict.fromkeys(messages))


def _choose_key_notes(notes: Sequence[NoteRow]) -> tuple[NoteRow, ...]:
    """Return the notes that sum a stay up, or else its newest ones."""
    key_notes = [note for word in _KEY_WORDS for note in notes if word in f"{note.kind} {note.title}".casefold()]
    return tuple(dict.fromkeys(key_notes or notes))[:MAX_KEY_NOTES]


def _view_note(note: NoteEntry, marks: NoteMarks) -> NoteRow:
    kind = str(note.metadata.get("note_type") or "")
    return NoteRow(
        id=note.id,
        title=name_document(note.title, kind or note.id),
        date=(note.date or "").replace("T", " "),
        kind=kind,
        is_left_out=note.id in marks.left_out,
        citations=marks.citations.get(note.id, ()),
    )


def _list_entries(
    notes: Sequence[NoteEntry], rows: Mapping[str, NoteRow], ongoing: Collection[str] | None
) -> tuple[TimelineEntry, ...]:
    """Return the stays and the notes outside them, the newest first and those without a time last.

    Each note is in one entry.
    """
    times = NoteTime.from_passages(map(_to_passage, notes))
    timed: list[tuple[TimeRange, HospitalStay | NoteTime]] = []
    for stay in group_stays(times, ongoing):
        timed.append((stay.start or _NEVER, stay))
    for time in times:
        if time.encounter is None:
            timed.append((time.written or _NEVER, time))
    dated = [pair for pair in timed if pair[0] != _NEVER]
    undated = [pair for pair in timed if pair[0] == _NEVER]
    entries: list[TimelineEntry] = []
    for group in (sorted(dated, key=lambda pair: pair[0], reverse=True), undated):
        outside: list[NoteTime] = []
        for _, item in group:
            if isinstance(item, NoteTime):
                outside.append(item)
                continue
            entries += _view_outside(outside, rows)
            outside = []
            entries.append(_view_stay(item, rows))
        entries += _view_outside(outside, rows)
    return tuple(entries)


def _view_stay(stay: HospitalStay, rows: Mapping[str, NoteRow]) -> TimelineEntry:
    remark = "" if stay.dated else "No note states the day of admission: the days are those of the notes."
    dated = [note for note in reversed(stay.notes) if note.written is not None]
    undated = [note for note in stay.notes if note.written is None]
    notes = tuple(rows[note.document_id] for note in (*dated, *undated))
    return TimelineEntry(f"Hospital stay {stay.encounter}", str(stay), notes, is_stay=True, remark=remark)


def _view_outside(notes: Sequence[NoteTime], rows: Mapping[str, NoteRow]) -> Iterable[TimelineEntry]:
    """Yield the entry of notes between two stays, the newest first, if there are any."""
    if not notes:
        return
    first, last = format_day(notes[-1].written), format_day(notes[0].written)
    days = first if first == last else f"{first} to {last}"
    yield TimelineEntry(OUTSIDE, days, tuple(rows[note.document_id] for note in notes), is_stay=False)


def _to_passage(note: NoteEntry) -> Passage:
    """Return the time and stay of a note in the form that `NoteTime` reads, without text."""
    return Passage(
        id=f"{note.id}#0",
        document_id=note.id,
        ordinal=0,
        start=0,
        end=0,
        text="",
        date=note.date,
        metadata=note.metadata,
    )
