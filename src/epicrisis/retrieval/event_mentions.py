"""Mentions of an event in notes: whether a note mentions it, and when the note says that it was done.

A word alone says neither that something was done nor when (`no surgery was needed`, `Service: SURGERY`, `surgery is
planned`). A time counts only if words close together state both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from epicrisis.core.dates import DateMention, TimeRange, find_dates, may_overlap, time_range
from epicrisis.core.types import Passage
from epicrisis.retrieval.hospital_stays import NoteTime

_MAX_YEARS = 150
_SAME_EVENT = timedelta(days=4)
"""Times within this span are of one event."""


@dataclass(frozen=True, slots=True)
class EventMentions:
    """What one note says about an event."""

    is_present: bool = False
    """The note mentions the event as a current one: not denied, planned or long past."""
    dates: tuple[TimeRange, ...] = ()
    """When the event was done, according to the note. A date with several readings covers all of them."""
    is_undated: bool = False
    """The note says, without a date, that the event was done."""


_UNSPECIFIC = {"surgery": r"surg|operat|procedur|\w+(?:ectom|otom|ostom|plast)(?:y|ies)\b"}
_UNSPECIFIC |= {"operation": _UNSPECIFIC["surgery"], "procedure": _UNSPECIFIC["surgery"]}
_LOOKING_BACK = r"s/p\b|status[ -]post|pre-?op|post-?op|pod\b"
_UNDONE = re.compile(
    r"\b(?:no|not|non|never|nor|without|den(?:y|ie[sd])|declin\w*|refus\w*|cancel\w*|postpon\w*|plan\w*|schedul\w*|"
    r"consider\w*|if|may|might|will|would|should|could|possibl[ey]|candidate|pending|await\w*|undergo|recommend\w*|"
    r"offer\w*|discuss\w*|consult\w*|evaluat\w*|service|clear(?:ed|ance)|mother|father|brother|sister|family|son|"
    r"daughter|instead)\b",
    re.IGNORECASE,
)
_PAST = re.compile(r"\b(?:history|hx|h/o|prior|previous\w*|past|s/p|status[ -]post|ago)\b", re.IGNORECASE)
_UNDONE_BEHIND = re.compile(r"\b(?:cancel|postpon|abort|resched|declin|refus)", re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[.;!?])\s+|\n\s*\n|\n(?=\s*(?:[-*•]|\d+[.)]))|\n(?=[^\n:]{1,40}:)")
_WORDS = r"(?:(?!(?:by|per|for|with|after|before)\b)[\w/,'-]{1,60}+ ){0,6}?"
_CLOSE = r"(?: of (?:the |his |her )?[\w-]+)?\W{0,3}(?:(?:on|in)\W{1,3})?⟨(?P<date>\d+)⟩"


def find_event_mentions(event: str, notes: Iterable[Passage]) -> dict[str, EventMentions]:
    """Return the mentions of an event by document id.

    A note is included if it has one of the event's words (by its first letters), words of an operation if the event is
    one, or words that look back on any event (`post-op`, `s/p`).
    """
    stems = [re.escape(word[:4]) for word in re.findall(r"\w+", event) if len(word) > 2 and word not in ("the", "her")]
    candidates = "|".join([*stems, _LOOKING_BACK, _UNSPECIFIC.get(event, "(?!)")])
    loose = re.compile(rf"\b(?:{candidates})", re.IGNORECASE)
    words = r"[\s-]+".join(map(re.escape, filter(None, re.split(r"[\s-]+", event))))
    mentions: dict[str, EventMentions] = {}
    for note in notes:
        if not words or not loose.search(note.text):
            continue
        earlier = mentions.get(note.document_id, EventMentions())
        new = _read_mentions(rf"\b{words}(?:e?s)?\b", note.text)
        mentions[note.document_id] = EventMentions(
            earlier.is_present or new.is_present,
            (*earlier.dates, *new.dates),
            earlier.is_undated or _is_done_undated(_UNSPECIFIC.get(event, words), note.text),
        )
    return mentions


def _is_done_undated(words: str, text: str) -> bool:
    """Return whether a sentence without a date states an operation of these words as done."""
    done = re.compile(
        rf"\b(?:underwent|taken to the (?:or|operating room)|was performed)\b|\bhad (?:an? )?(?={words})", re.I
    )
    event = re.compile(rf"\b(?:{words})", re.I)
    for sentence in _SENTENCES.split(text):
        is_statement = done.search(sentence) and event.search(sentence) and not _UNDONE.search(sentence)
        if is_statement and not find_dates(sentence):
            return True
    return False


def _read_mentions(words: str, text: str) -> EventMentions:
    event = re.compile(words, re.IGNORECASE)
    is_present, times = False, list[TimeRange]()
    if not event.search(text):
        return EventMentions()
    for sentence in _SENTENCES.split(text):
        if not event.search(sentence):
            continue
        for match in event.finditer(sentence):
            before = sentence[: match.start()]
            is_present = is_present or not (_UNDONE.search(before) or _PAST.search(before))
        dates = find_dates(sentence)
        text, end = "", 0
        for number, date in enumerate(dates):
            text += f"{sentence[end : date.start]}⟨{number}⟩"
            end = date.end
        for number in _dates_done(words, " ".join((text + sentence[end:]).split())) if dates else ():
            times.append(_range_of(dates[number]))
    return EventMentions(is_present, tuple(times))


def _range_of(date: DateMention) -> TimeRange:
    """Return the range from the first to the last reading of a date."""
    return time_range(date.readings[0])[0], time_range(date.readings[-1])[1]


def _dates_done(words: str, sentence: str) -> Iterator[int]:
    """Yield the numbers of the dates of an event that was done, from a sentence with `⟨n⟩` as its n-th date."""
    done = r"\b(?:s/p|status[ -]post|underwent|had undergone|had (?=an? |the |his |her |\w+ ⟨))"
    for pattern in (
        rf"{done} ?{_WORDS}{words}{_CLOSE}",
        rf"{words}(?: of (?:the |his |her )?[\w-]+)? (?:was|were) (?:then |successfully )?"
        rf"(?:performed|done|carried out|completed)(?: without (?:any )?complications?)?{_CLOSE}",
        rf"\b(?:on|in) ⟨(?P<date>\d+)⟩,? (?:(?:the|patient|pt|she|he|and|then|who) ){{0,3}}underwent {_WORDS}{words}",
    ):
        for match in re.finditer(pattern, sentence, re.IGNORECASE):
            before = re.sub(r"without (?:any )?complications?", "", sentence[: match.end()], flags=re.IGNORECASE)
            if not _UNDONE.search(before) and not _UNDONE_BEHIND.search(sentence[match.end() :]):
                yield int(match["date"])


def find_event_times(event: str, notes: Iterable[NoteTime], mentions: Mapping[str, EventMentions]) -> list[TimeRange]:
    """Return the possible times of an event: the days of operative notes about it, and the times that notes state."""
    times = list[TimeRange]()
    for note in notes:
        mention, note_time = mentions.get(note.document_id, EventMentions()), note.written
        is_surgery = event in ("surgery", "operation") and note.is_operation(certainly=True)
        if note_time and (mention.is_present or is_surgery) and note.is_operation():
            # From the start of the first day to the end of the last day on which the note may have been written.
            times.append((time_range(f"{note_time[0].date()}")[0], time_range(f"{note_time[1].date()}")[1]))
        for time in mention.dates:
            # An event after its note was planned.
            if not note_time or time[0] <= note_time[1]:
                times.append(time)
    return times


def find_notes_with_date(time: TimeRange, notes: Iterable[Passage], years: bool = True) -> frozenset[str]:
    """Return the ids of the documents whose text has a date within a time, in any spelling.

    With `years`, a year alone counts too.
    """
    first = time[0].year if time[0].year > 1 else max(1, time[1].year - _MAX_YEARS)
    numbers = sorted(map(str, range(first, min(time[1].year, first + _MAX_YEARS) + 1)))
    year = re.compile(rf"(?<!\d)(?:{'|'.join(numbers)})(?!\d)")
    # The end of a date with two digits.
    short_years = sorted({number[2:] for number in numbers})
    short = re.compile(rf"\d/(?:{'|'.join(short_years)})(?!\d)")
    documents = set[str]()
    for note in notes:
        if note.document_id in documents or not (year.search(note.text) or short.search(note.text)):
            continue
        dates = find_dates(note.text)
        has_date = any(may_overlap(_range_of(date), time) for date in dates)
        for match in year.finditer(note.text) if years and not has_date else ():
            # A year within a date is not alone.
            has_date = has_date or all(match.end() <= date.start or date.end <= match.start() for date in dates)
        if has_date:
            documents.add(note.document_id)
    return frozenset(documents)


def agree_on_time(times: Sequence[TimeRange]) -> TimeRange | None:
    """Return the one time that agrees with all of these, the narrowest of them; None if they are of several events.

    Times a few days apart agree on the range between them. Without a time, return None.
    """
    ordered = sorted(times, key=lambda time: (time[1] - time[0], time))
    agreed = ordered[0] if ordered else None
    for time in ordered[1:]:
        if agreed is None or may_overlap(agreed, time):
            continue
        agreed = min(agreed[0], time[0]), max(agreed[1], time[1])
        if agreed[1] - agreed[0] > _SAME_EVENT:
            return None
    return agreed
