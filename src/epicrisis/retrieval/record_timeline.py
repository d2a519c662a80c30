"""The notes and hospital stays of a record by time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.dates import TimeRange, time_range
from epicrisis.retrieval.event_mentions import EventMentions
from epicrisis.retrieval.hospital_stays import EARLY, SUMMARY, HospitalStay, NoteTime, group_stays, widen

MentionFinder: TypeAlias = Callable[[str], Mapping[str, EventMentions]]
"""Return the mentions of an event by document id: see `event_mentions.find_event_mentions`."""
DatedNoteFinder: TypeAlias = Callable[[TimeRange, bool], frozenset[str]]
"""Return the ids of notes with a date: see `event_mentions.find_notes_with_date`."""


@dataclass(frozen=True, slots=True)
class RecordTimeline:
    """The notes and stays of a record by time."""

    notes: tuple[NoteTime, ...]
    stays: tuple[HospitalStay, ...]
    find_mentions: MentionFinder | None
    find_dated: DatedNoteFinder | None
    certain: frozenset[str]
    """Ids of the notes that certainly match the question so far."""

    @staticmethod
    def build(
        notes: Iterable[NoteTime], find_mentions: MentionFinder | None, find_dated: DatedNoteFinder | None
    ) -> RecordTimeline:
        """Return the timeline of these notes."""
        ordered = tuple(sorted(set(notes), key=lambda note: note.document_id))
        return RecordTimeline(ordered, group_stays(ordered), find_mentions, find_dated, note_ids(ordered))

    def restrict(self, pool: tuple[NoteTime, ...]) -> RecordTimeline:
        """Return the timeline with only these notes."""
        return RecordTimeline(pool, self.stays_of(pool), self.find_mentions, self.find_dated, self.certain)

    def stays_of(self, pool: Iterable[NoteTime]) -> tuple[HospitalStay, ...]:
        """Return the stays with a note in the pool."""
        encounters = {note.encounter for note in pool}
        return tuple(stay for stay in self.stays if stay.encounter in encounters)

    def complete_stays_of(self, pool: Iterable[NoteTime]) -> tuple[HospitalStay, ...]:
        """Return the stays with all their notes in the pool."""
        ids = note_ids(pool)
        return tuple(stay for stay in self.stays if note_ids(stay.notes) <= ids)

    def described_time(self, note: NoteTime) -> TimeRange | None:
        """Return the time that a note may describe; None for a note without a time.

        It begins before the time of writing by the delay of the note's kind, or with the day of admission for a
        discharge summary, and ends a day after the time of writing.
        """
        time = note_time(note)
        if time is None:
            return None
        first, last = widen(time, note.max_delay, EARLY)
        stay = self._stay_of(note)
        if stay and stay.dated and stay.start:
            # A late note is of its own stay.
            first = min(max(first, widen(stay.start, EARLY)[0]), time[0])
        if note.is_of(SUMMARY) and stay and stay.start and stay.end:
            duration = widen((stay.start[0], stay.end[1]), EARLY)
            first, last = min(first, duration[0]), max(last, duration[1])
        return first, last

    def _stay_of(self, note: NoteTime) -> HospitalStay | None:
        for stay in self.stays:
            if stay.encounter == note.encounter:
                return stay
        return None

    def notes_with_date(self, time: TimeRange, years: bool = True) -> frozenset[str]:
        """Return the ids of notes whose text has a date within this time."""
        return self.find_dated(time, years) if self.find_dated else frozenset()


def note_time(note: NoteTime) -> TimeRange | None:
    """Return the time of a note. A discharge summary without a date has the day of discharge."""
    if note.written or not (note.discharged and note.is_of(SUMMARY)):
        return note.written
    return time_range(note.discharged)


def select_notes(pool: Iterable[NoteTime], documents: frozenset[str]) -> tuple[NoteTime, ...]:
    """Return the notes of the pool with these ids."""
    return tuple(note for note in pool if note.document_id in documents)


def note_ids(notes: Iterable[NoteTime]) -> frozenset[str]:
    """Return the document ids of notes."""
    return frozenset(note.document_id for note in notes)
