"""What notes say of an event: whether they tell of it, and when they say that it was done.

Pure. Knows no question and no order of notes. A word alone says neither that a thing was done nor when (`no surgery was
needed`, `Service: SURGERY`, `surgery is planned`): a time is taken only where words state both, close by each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from epicrisis.dates import DateMention, TimeRange, find_dates, may_overlap, time_range
from epicrisis.retrieval.hospital_stays import NoteTime
from epicrisis.types import Passage


@dataclass(frozen=True, slots=True)
class Telling:
    """What one note has of an event."""

    named: bool = False
    """It is named there as something of now: not denied, planned or long past."""
    done: tuple[TimeRange, ...] = ()
    """When the note says that it was done. A date that can be several is all the time between them."""
    undated: bool = False
    """The note says that it was done, without a date."""


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


def telling(event: str, notes: Iterable[Passage]) -> dict[str, Telling]:
    """By document id, the notes that may tell of the event: that have one of its words (by its first letters), words of
    an operation where it is one, or such as look back on any (`post-op`, `s/p`)."""
    stems = [re.escape(word[:4]) for word in re.findall(r"\w+", event) if len(word) > 2 and word not in ("the", "her")]
    loose = re.compile(rf"\b(?:{'|'.join([*stems, _LOOKING_BACK, _UNSPECIFIC.get(event, '(?!)')])})", re.IGNORECASE)
    words = r"[\s-]+".join(re.escape(word) for word in re.split(r"[\s-]+", event) if word)
    found: dict[str, Telling] = {}
    for note in notes:
        if words and loose.search(note.text):
            old, new = found.get(note.document_id, Telling()), _of(rf"\b{words}(?:e?s)?\b", note.text)
            undated = old.undated or _done_undated(_UNSPECIFIC.get(event, words), note.text)
            found[note.document_id] = Telling(old.named or new.named, (*old.done, *new.done), undated)
    return found


def _done_undated(words: str, text: str) -> bool:
    """Whether a sentence without a date states an operation of these words as done."""
    done = re.compile(
        rf"\b(?:underwent|taken to the (?:or|operating room)|was performed)\b|\bhad (?:an? )?(?={words})", re.I
    )
    named = re.compile(rf"\b(?:{words})", re.I)
    return any(
        done.search(sentence) and named.search(sentence) and not find_dates(sentence) and not _UNDONE.search(sentence)
        for sentence in _SENTENCES.split(text)
    )


def _of(words: str, text: str) -> Telling:
    event = re.compile(words, re.IGNORECASE)
    named, done = False, list[TimeRange]()
    for sentence in _SENTENCES.split(text) if event.search(text) else ():
        for match in event.finditer(sentence):
            before = sentence[: match.start()]
            named = named or not (_UNDONE.search(before) or _PAST.search(before))
        if event.search(sentence) and (dates := find_dates(sentence)):
            done += [_all_of(dates[number]) for number in _dates_done(words, _with_marks(sentence, dates))]
    return Telling(named, tuple(done))


def _all_of(date: DateMention) -> TimeRange:
    return time_range(date.readings[0])[0], time_range(date.readings[-1])[1]


def _with_marks(sentence: str, dates: Sequence[DateMention]) -> str:
    """On one line, with `⟨n⟩` where the n-th date stood."""
    marked, end = "", 0
    for number, date in enumerate(dates):
        marked += f"{sentence[end : date.start]}⟨{number}⟩"
        end = date.end
    return " ".join((marked + sentence[end:]).split())


def _dates_done(words: str, sentence: str) -> Iterator[int]:
    """The marks of the dates at which the sentence states the event as done."""
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


def times_of(event: str, notes: Iterable[NoteTime], telling: Mapping[str, Telling]) -> list[TimeRange]:
    """When the event may have been: the days of operative notes that name it, and what notes say that was done."""
    times = list[TimeRange]()
    for note in notes:
        told, written = telling.get(note.document_id, Telling()), note.written
        named = told.named or (event in ("surgery", "operation") and note.of_an_operation(surely=True))
        if written and named and note.of_an_operation():
            times.append((time_range(f"{written[0].date()}")[0], time_range(f"{written[1].date()}")[1]))
        # What lies ahead of its note was planned.
        times += [time for time in told.done if not written or time[0] <= written[1]]
    return times


def stating(time: TimeRange, notes: Iterable[Passage], years: bool = True) -> frozenset[str]:
    """Return the ids of the documents whose text has a date of that time, in any spelling; `years`: or a year alone."""
    first = time[0].year if time[0].year > 1 else max(1, time[1].year - _MOST_YEARS)
    wanted = {str(year) for year in range(first, min(time[1].year, first + _MOST_YEARS) + 1)}
    # A year alone, or the end of a date with two digits.
    year = re.compile(rf"(?<!\d)(?:{'|'.join(sorted(wanted))})(?!\d)")
    short = re.compile(rf"\d/(?:{'|'.join(sorted({each[2:] for each in wanted}))})(?!\d)")
    documents = set[str]()
    for note in notes:
        if note.document_id in documents or not (year.search(note.text) or short.search(note.text)):
            continue
        dates = find_dates(note.text)
        if any(may_overlap(_all_of(date), time) for date in dates) or (years and _has_year(note.text, year, dates)):
            documents.add(note.document_id)
    return frozenset(documents)


_MOST_YEARS = 150


def _has_year(text: str, year: re.Pattern[str], dates: Sequence[DateMention]) -> bool:
    """Whether one of the years stands in the text outside its dates."""
    return any(
        all(match.end() <= date.start or date.end <= match.start() for date in dates) for match in year.finditer(text)
    )


_ALIKE = timedelta(days=4)
"""Times that are all within so long are of one event."""


def agreed(times: Sequence[TimeRange]) -> TimeRange | None:
    """The one time that all of these can be, the narrowest; times a little apart are all between them. `None` where
    they are of several, or there is none."""
    ordered = sorted(times, key=lambda time: (time[1] - time[0], time))
    one = ordered[0] if ordered else None
    for time in ordered[1:]:
        if one is None or may_overlap(one, time):
            continue
        one = min(one[0], time[0]), max(one[1], time[1])
        if one[1] - one[0] > _ALIKE:
            return None
    return one
