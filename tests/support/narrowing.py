"""Generated records and questions whose evidence is known by construction, to try what narrowing leaves out.

A fact has a true day, and one note tells of it: dictated later, dated by another clock, without its stay, or without a
date. A question names the fact's time in one of many ways. Nothing here looks at how questions are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from epicrisis.retrieval.hospital_stays import NoteTime

ORDINALS = ("first", "second", "third", "fourth", "fifth")


def listed(text: str) -> tuple[str, ...]:
    """Return the parts of a text between its bars."""
    return tuple(part.strip() for part in text.split("|"))


STAYS = ("admission", "hospitalization", "stay", "hospital stay", "hospitalisation", "inpatient stay")
ASKED = listed(
    "the creatinine | the weight | the ejection fraction | the dose of metoprolol | the hemoglobin | "
    "the diagnosis | the reason for the fever | the blood pressure | the result of the culture | "
    "the antibiotic | the rash"
)
DAILY = ("Nursing note", "Progress note", "Laboratory report")
REPORTS = ("Radiology report", "Pathology report", "Echocardiogram", "CT CHEST")
STORIES = ("Admission note", "Consult note", "Outpatient letter", "Discharge summary", "Note", "")
LATE = {**dict.fromkeys(DAILY, 2), **dict.fromkeys(REPORTS, 13), **dict.fromkeys(STORIES, 29)}


@dataclass(frozen=True)
class Stay:
    name: str
    start: date
    end: date


@dataclass(frozen=True)
class Fact:
    """What happened on a day, within a stay or outside of all, and the note that tells of it."""

    day: date
    stay: Stay | None
    note: NoteTime


@dataclass(frozen=True)
class Record:
    stays: tuple[Stay, ...]
    facts: tuple[Fact, ...]

    @property
    def notes(self) -> tuple[NoteTime, ...]:
        return tuple(fact.note for fact in self.facts)


def record_of(draw: Random) -> Record:
    """One to five stays, and facts within and between them."""
    day = date(draw.randint(2008, 2012), draw.randint(1, 12), draw.randint(1, 28))
    stays = list[Stay]()
    for number in range(draw.randint(1, 5)):
        stay = Stay(f"S{number}", day, day + timedelta(days=draw.randint(0, 25)))
        stays.append(stay)
        day = stay.end + timedelta(days=draw.choice((2, 5, 20, 45, 100, 300, 700)))
    facts = list[Fact]()
    for stay in stays:
        # By these the record knows of the stay.
        facts.append(_fact(draw, stay.start, stay, "Admission note", len(facts), plain=True))
        facts.append(_fact(draw, stay.end, stay, "Discharge summary", len(facts), plain=True))
        for _ in range(draw.randint(2, 6)):
            when = stay.start + timedelta(days=draw.randint(0, (stay.end - stay.start).days))
            facts.append(
                _fact(draw, when, stay, draw.choice((*DAILY, *REPORTS, "Consult note", "Note", "")), len(facts))
            )
    outside = list[date]()
    while len(outside) < draw.randint(1, 6):
        when = stays[0].start + timedelta(days=draw.randint(-400, 2500))
        if not any(stay.start - timedelta(days=2) <= when <= stay.end + timedelta(days=2) for stay in stays):
            outside.append(when)
    for when in outside:
        facts.append(
            _fact(draw, when, None, draw.choice((*REPORTS, "Outpatient letter", "Laboratory report")), len(facts))
        )
    return Record(tuple(stays), tuple(facts))


def _fact(draw: Random, day: date, stay: Stay | None, kind: str, number: int, plain: bool = False) -> Fact:
    delay = 0 if draw.random() < 0.5 else draw.randint(-1, LATE[kind])
    written: str | None = (day + timedelta(days=delay)).isoformat()
    if draw.random() < 0.3:
        written = f"{written}T{draw.randint(0, 23):02}:{draw.randint(0, 59):02}"
    elif draw.random() < 0.1:
        written = (written or "")[:7]
    if draw.random() < 0.05:
        written = None
    encounter = stay.name if stay and (plain or draw.random() < 0.8) else None
    days = (stay.start.isoformat(), stay.end.isoformat()) if stay and encounter else (None, None)
    return Fact(day, stay, NoteTime(f"n{number:02}", written, kind, encounter, *days))


# -- how a day is spelled -------------------------------------------------------------------------------------------


def spelled(day: date, draw: Random) -> str:
    return draw.choice(
        (f"{day}", f"{day:%B} {day.day}, {day.year}", f"{day.day} {day:%b} {day.year}", f"{day:%B} {day.year}")
    )


def roughly(day: date, draw: Random) -> str:
    return draw.choice((spelled(day, draw), str(day.year), str(day.year)))


def nth(record: Record, stay: Stay, draw: Random) -> str:
    place, n = record.stays.index(stay), len(record.stays)
    words = [ORDINALS[place], f"{place + 1}{('st', 'nd', 'rd', 'th', 'th')[place]}"]
    words += ["last", "final", "most recent", "latest"] if place == n - 1 else []
    words += ["penultimate", "second to last"] if place == n - 2 else []
    words += ["initial", "earliest"] if place == 0 else []
    return (
        f"{draw.choice(('the', 'her', 'his', 'the patient' + chr(39) + 's'))} {draw.choice(words)} {draw.choice(STAYS)}"
    )


# -- questions ------------------------------------------------------------------------------------------------------

Made = tuple[str, frozenset[str]]
"""Words of time, and the ids of the notes that hold the evidence."""


def _ids(*facts: Fact) -> frozenset[str]:
    return frozenset(fact.note.document_id for fact in facts)


def of_a_day(record: Record, draw: Random) -> Made:
    fact = draw.choice(record.facts)
    words = spelled(fact.day, draw)
    return f"{'on' if any(c in words for c in ',-') or words[0].isdigit() else 'in'} {words}", _ids(fact)


def of_a_year(record: Record, draw: Random) -> Made:
    fact = draw.choice(record.facts)
    when = draw.choice(("in", "during", "in the course of", "throughout", "in the year"))
    return f"{when} {fact.day.year}", _ids(fact)


def of_a_stay(record: Record, draw: Random) -> Made:
    fact = draw.choice([fact for fact in record.facts if fact.stay])
    assert fact.stay
    how = draw.choice(("in", "during", "of", "at", "for", "throughout", "over", "on the day of", "in the course of"))
    if how == "on the day of":
        how = "in" if fact.day != fact.stay.start else how
    return f"{how} {nth(record, fact.stay, draw)}", _ids(fact)


def of_a_dated_stay(record: Record, draw: Random) -> Made:
    fact = draw.choice([fact for fact in record.facts if fact.stay])
    assert fact.stay
    start = fact.stay.start
    words = draw.choice(
        (
            f"the stay starting on {start}",
            f"the {draw.choice(STAYS)} of {start:%B} {start.year}",
            f"the admission on {start:%B} {start.day}, {start.year}",
        )
    )
    return f"during {words}", _ids(fact)


def of_a_discharge(record: Record, draw: Random) -> Made:
    stay = draw.choice(record.stays)
    fact = draw.choice([fact for fact in record.facts if fact.stay == stay and fact.day == stay.end])
    how = draw.choice(
        ("at discharge from", "on the day of discharge from", "upon discharge from", "at the time of discharge from")
    )
    return f"{how} {nth(record, stay, draw)}", _ids(fact)


def of_an_arrival(record: Record, draw: Random) -> Made:
    stay = draw.choice(record.stays)
    fact = draw.choice([fact for fact in record.facts if fact.stay == stay and fact.day == stay.start])
    how = draw.choice(
        (
            "on admission for",
            "at the time of admission of",
            "on the day of",
            "on the first day of",
            "at the beginning of",
        )
    )
    return f"{how} {nth(record, stay, draw)}", _ids(fact)


def of_an_open_range(record: Record, draw: Random) -> Made:
    fact = draw.choice(record.facts)
    away = timedelta(days=draw.choice((0, 0, 1, 10, 200, 900)))
    if draw.random() < 0.5:
        how = draw.choice(
            ("before", "until", "up to", "prior to", "by", "as of", "the week before", "any time before", "through")
        )
        words = f"{how} {roughly(fact.day + away, draw)}"
        words += draw.choice(("", "", " or earlier", " and before")) if how in ("until", "by") else ""
    else:
        how = draw.choice(
            ("since", "after", "following", "from", "in", "two days after", "a year after", "some weeks after")
        )
        words = f"{how} {roughly(fact.day - away, draw)}"
        words += draw.choice((" on", " onwards")) if how == "from" else " or later" if how == "in" else ""
    return words, _ids(fact)


def of_a_range_of_stays(record: Record, draw: Random) -> Made:
    stay = draw.choice(record.stays)
    how = draw.choice(
        ("before", "after", "since", "until", "prior to", "following", "the week before", "two days after", "up to")
    )
    early = how in ("before", "until", "prior to", "the week before", "up to")
    there = [fact for fact in record.facts if (fact.day <= stay.start if early else fact.day >= stay.start)]
    return f"{how} {nth(record, stay, draw)}", _ids(draw.choice(there))


def of_a_range_of_discharges(record: Record, draw: Random) -> Made:
    stay = draw.choice(record.stays)
    how = draw.choice(("after", "since", "three weeks after", "following"))
    there = [fact for fact in record.facts if fact.day >= stay.end]
    return f"{how} discharge from {nth(record, stay, draw)}", _ids(draw.choice(there))


def between(record: Record, draw: Random) -> Made:
    facts = sorted(draw.sample(record.facts, 3), key=lambda fact: fact.day)
    low, high = facts[0].day, facts[2].day
    if draw.random() < 0.5:
        words = draw.choice(("between {} and {}", "from {} to {}", "from {} through {}", "from {} until {}"))
        return words.format(roughly(low, draw), roughly(high, draw)), _ids(*facts)
    if low.year == high.year:
        return f"in {low.year}", _ids(*facts)
    words = draw.choice(("{}-{}", "in {}-{}", "{} to {}", "in {}–{}", "between {} and {}", "during {}-{}"))
    short = draw.random() < 0.3 and ("-" in words or "–" in words)
    return words.format(low.year, str(high.year)[2:] if short else high.year), _ids(*facts)


def between_stays(record: Record, draw: Random) -> Made:
    if len(record.stays) < 2:
        return of_a_stay(record, draw)
    low, high = sorted(draw.sample(record.stays, 2), key=lambda stay: stay.start)
    there = [fact for fact in record.facts if low.start <= fact.day <= high.end]
    words = draw.choice(("between {} and {}", "from {} to {}", "from {} until {}"))
    return words.format(nth(record, low, draw), nth(record, high, draw)), _ids(*draw.sample(there, 2))


JOINTS = listed(
    "{} than {} | {} or {} | {} and {} | {} versus {} | {} vs. {} | {} compared with {} | {}, or {} | "
    "{} but not {} | {} as well as {} | {} rather than {} | {} relative to {} | {}, unlike {} | "
    "both {} and {} | either {} or {} | {} and then {} | {} and again {} | {}, and what was it {} | "
    "{}; and {} | {} / {} | {} plus {} | {} & {} | {}, then {} | {} as opposed to {} | not {} but {} | "
    "{} and also {} | {} and, finally, {} | {} nor {}"
)


def joined(record: Record, draw: Random) -> Made:
    """Two times, and evidence of both."""
    makers = (of_a_day, of_a_year, of_a_stay, of_a_dated_stay, of_a_discharge, of_an_arrival)
    one, first = draw.choice(makers)(record, draw)
    other, second = draw.choice(makers)(record, draw)
    if draw.random() < 0.3:
        other = other.removeprefix("in ").removeprefix("on ").removeprefix("during ")
    return draw.choice(JOINTS).format(one, other), first | second


ELSEWHERE = listed(
    "at the clinic | the year after | when she came back | at her most recent check-up | "
    "the previous winter | last Christmas | in '17 | two summers ago | now | currently | today | "
    "at the next visit | in the following stay | at other times | in earlier admissions | "
    "by the end of the decade | at baseline | the week after | a month before | in May | on Monday | "
    "in spring | in the other hospital stays | in 2 other admissions | at follow-up | "
    "in the first place | 3/4 | on 5/6 | the third time | while at home | in the nineties | "
    "the day after | some years later | on the 4th | at present | ever since | in her past | "
    "the other time | then | in the outpatient clinic | after returning home | once she was readmitted | "
    "at the last visit | as before"
)


def half_understood(record: Record, draw: Random) -> Made:
    """A time, and words for another one: the evidence may be anywhere."""
    one, _ = draw.choice((of_a_day, of_a_year, of_a_stay, of_a_discharge, of_an_open_range))(record, draw)
    words = draw.choice(ELSEWHERE)
    return draw.choice(JOINTS[:12]).format(*((one, words) if draw.random() < 0.6 else (words, one))), _ids(
        draw.choice(record.facts)
    )


EXCEPTIONS = listed(
    "except in {} | outside of {} | other than in {} | apart from {} | excluding {} | not in {} | "
    "but not during {} | besides {} | at any time except {} | aside from {}"
)


def without(record: Record, draw: Random) -> Made:
    """All times but one."""
    one, known = draw.choice((of_a_year, of_a_stay, of_a_day))(record, draw)
    bare = one.split(" ", 1)[1]
    how = draw.choice(EXCEPTIONS)
    there = [fact for fact in record.facts if fact.note.document_id not in known]
    return how.format(bare), _ids(draw.choice(there))


ALWAYS = listed(
    "until {} or later | before {} or after | before and after {} | until {} and beyond | "
    "before or after {} | since {} or earlier | around {} | not until {} | no earlier than {} | "
    "within five years of {} | up to {} and thereafter | in relation to {} or any other year | "
    "either side of {}"
)


def everything(record: Record, draw: Random) -> Made:
    year = draw.choice(record.facts).day.year
    words = draw.choice(ALWAYS)
    facts = (
        [fact for fact in record.facts if fact.day.year >= year]
        if words in ("not until {}", "no earlier than {}")
        else None
    )
    return words.format(year), _ids(draw.choice(facts or record.facts))


def narrowed_twice(record: Record, draw: Random) -> Made:
    """A day within a stay, or a year and a stay that need not belong together."""
    fact = draw.choice([fact for fact in record.facts if fact.stay])
    assert fact.stay
    stay = nth(record, fact.stay, draw)
    words = draw.choice(
        (
            f"on {fact.day} during {stay}",
            f"in {stay}, on {fact.day}",
            f"on hospital day {(fact.day - fact.stay.start).days + 1} of {stay}",
        )
    )
    return words, _ids(fact)


def counted_within(record: Record, draw: Random) -> Made:
    """The first stay of a year, which need not be the patient's first."""
    stay = draw.choice(record.stays)
    same = [each for each in record.stays if each.start.year == stay.start.year]
    fact = draw.choice([fact for fact in record.facts if fact.stay == same[0]])
    return f"in the first admission {draw.choice(('in', 'of', 'during'))} {stay.start.year}", _ids(fact)


UNDERSTOOD = (
    of_a_day,
    of_a_year,
    of_a_stay,
    of_a_dated_stay,
    of_a_discharge,
    of_an_arrival,
    of_an_open_range,
    of_a_range_of_stays,
    of_a_range_of_discharges,
    between,
    between_stays,
    narrowed_twice,
)
"""Of which most are to be narrowed."""
OTHERS = (joined, joined, half_understood, half_understood, without, everything, counted_within)
MAKERS: tuple[Callable[[Record, Random], Made], ...] = (*UNDERSTOOD, *OTHERS)

FORMS = listed(
    "What was {asked} {time}? | {Time}, what was {asked}? | Was {asked} documented {time}? | "
    "Tell me {asked} {time}. | Please summarize {asked} {time} | How high was {asked} {time}? | "
    "{asked} {time}? | What does the record say about {asked} {time}? | When was {asked} noted {time}? | "
    "Which notes mention {asked} {time}? | Was {asked} higher {time}? | Did {asked} change {time}? | "
    "{Time} - {asked}? | Why was {asked} of interest {time}?"
)


def question_of(record: Record, draw: Random, maker: Callable[[Record, Random], Made]) -> Made:
    """A question, and the ids of the notes that hold its evidence."""
    time, evidence = maker(record, draw)
    form = draw.choice(FORMS)
    return form.format(asked=draw.choice(ASKED), time=time, Time=time[0].upper() + time[1:]), evidence
