"""Partial ISO dates (`2015`, `2015-06`, `2015-06-30`, `2015-06-30T10:30`), and dates in text."""

from __future__ import annotations

import calendar
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

TimeRange: TypeAlias = tuple[datetime, datetime]
"""The first and the last minute a date can mean."""

_PUBLICATION = re.compile(r"(?<!\d)(\d{4})(?:[-/](\d{1,2})(?:[-/](\d{1,2}))?)?(?!\d)", re.ASCII)
_TIME = re.compile(r"(\d\d)(?::(\d\d)(?::\d\d(?:\.\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class DateMention:
    """A date in a text, at `text[start:end]`."""

    start: int
    end: int
    readings: tuple[str, ...]
    """The partial ISO dates it can mean, sorted. `03/04/2150` has two, as the order of day and month is unknown, and
    `3/14/19` has one in each of the 20th to the 22nd century."""


@lru_cache(maxsize=65536)
def last_day(date: str) -> int:
    """Return the last day a partial ISO date can mean, as the number yyyymmdd: `2015-06` is 20150630.

    A time of day is ignored. Raises ValueError for anything else.
    """
    day_part = date[:10] if date[10:11] in ("T", " ") else date
    parts = day_part.split("-")
    if not 1 <= len(parts) <= 3 or len(parts[0]) != 4 or not all(map(str.isdecimal, parts)):
        raise ValueError(f"not a date of the form YYYY, YYYY-MM or YYYY-MM-DD: {date!r}")
    year = int(parts[0])
    month = int(parts[1]) if len(parts) > 1 else 12
    if not 1 <= month <= 12 or year < 1:
        raise ValueError(f"no such month in the calendar: {date!r}")
    longest = calendar.monthrange(year, month)[1]
    day = int(parts[2]) if len(parts) > 2 else longest
    if not 1 <= day <= longest:
        raise ValueError(f"no such day in the calendar: {date!r}")
    return year * 10_000 + month * 100 + day


def first_day(date: str) -> int:
    """Return the first day a partial ISO date can mean, in the form of `last_day`: `2015` is 20150101."""
    day = last_day(date)
    parts = date[:10].split("-")
    if len(parts) == 1:
        return day // 10_000 * 10_000 + 101
    return day // 100 * 100 + 1 if len(parts) == 2 else day


@lru_cache(maxsize=65536)
def time_range(date: str) -> TimeRange:
    """Return the first and the last minute of a partial ISO date: `2015-06` is 2015-06-01 00:00 to 2015-06-30 23:59.

    A time of day (`T10`, `T10:30`, `T10:30:15`) narrows the range to an hour or a minute. It is local time; a time zone
    is ignored. Raises ValueError for anything else.
    """
    last, first = last_day(date), first_day(date)
    start = datetime(first // 10_000, first // 100 % 100, first % 100)
    end = datetime(last // 10_000, last // 100 % 100, last % 100, 23, 59)
    if date[10:11] not in ("T", " "):
        return start, end
    time = _TIME.fullmatch(date[11:])
    if not time or int(time[1]) > 23 or int(time[2] or 0) > 59:
        raise ValueError(f"not a time of day of the form HH, HH:MM or HH:MM:SS: {date!r}")
    since = start + timedelta(hours=int(time[1]), minutes=int(time[2] or 0))
    return since, since + timedelta(minutes=0 if time[2] else 59)


def is_before(a: TimeRange, b: TimeRange) -> bool:
    """Return whether all of `a` lies before all of `b`."""
    return a[1] < b[0]


def may_overlap(a: TimeRange, b: TimeRange) -> bool:
    """Return whether both ranges share a minute: `2015` and `2015-06-30` do, `2015-05` and `2015-06` do not."""
    return a[0] <= b[1] and b[0] <= a[1]


def find_publication_date(text: str) -> str | None:
    """Return the first year of a text with its month and day: `2015`, `2015-06`, `2015-06-30`, or None.

    The marks between them are `-` or `/`; `March 4, 2012`, `4 Mar 2012` and `2012 Mar 4` are read too. A month or day
    that the calendar does not have is left out.
    """
    match = _PUBLICATION.search(text)
    if match is None:
        return None
    date = None
    for number in filter(None, match.groups()):
        longer = number if date is None else f"{date}-{int(number):02}"
        try:
            last_day(longer)
        except ValueError:
            break
        date = longer
    return _find_spelled_month(text, date) if date is not None and len(date) == 4 else date


_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_NAME = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_CLOCK = r"(?:[T ](?P<hour>\d{1,2}):(?P<minute>\d\d)(?::\d\d(?:\.\d+)?)?(?!\s?[ap]\.?m\b))?"
_SPELLINGS = [
    re.compile(pattern, re.ASCII | re.IGNORECASE)
    for pattern in (
        rf"(?<![\d-])(?P<year>\d{{4}})-(?P<month>\d{{1,2}})-(?P<day>\d{{1,2}})(?![\d-]){_CLOCK}",
        rf"(?<![\d/])(?P<year>\d{{4}})/(?P<month>\d{{1,2}})/(?P<day>\d{{1,2}})(?![\d/]){_CLOCK}",
        r"(?<![\d-])(?P<year>1[89]\d\d|2[0-2]\d\d)-(?P<month>0\d|1[0-2])(?![\d-])",
        rf"(?<![\d/.-])(?P<one>\d{{1,2}})(?P<mark>[/.-])(?P<two>\d{{1,2}})(?P=mark)(?P<year>\d{{4}})(?![\d/-]){_CLOCK}",
        r"(?<![\d/])(?P<one>\d{1,2})(?P<mark>/)(?P<two>\d{1,2})/(?P<year>\d\d)(?![\d/])",
        rf"\b{_NAME}\s++{_DAY}(?:\s*+,)?\s++(?P<year>\d{{4}})\b",
        rf"(?<![\d.]){_DAY}[\s-](?:of\s++)?{_NAME},?[\s-](?P<year>\d{{4}})\b",
        rf"\b{_NAME},?\s++(?:of\s++)?(?P<year>\d{{4}})\b",
    )
]


_YEAR_FIRST = re.compile(rf"\b(?P<year>\d{{4}})[\s-]++{_NAME}(?:\s++{_DAY})?\b(?!-)", re.IGNORECASE | re.ASCII)


def _find_spelled_month(text: str, year: str) -> str:
    """Return the year with the month and day that a text names in words, or the year alone."""
    if match := _YEAR_FIRST.search(text):
        readings = [next(_read_date(match.groupdict()), year)]
    else:
        readings = [mention.readings[0] for mention in find_dates(text) if len(mention.readings) == 1]
    return next((reading[:10] for reading in readings if reading.startswith(year)), year)


def find_dates(text: str) -> tuple[DateMention, ...]:
    """Return the dates in a text in order, without overlaps. Each has a year, and a month or a day.

    Known forms are `2150-03-04 10:30`, `2150/3/4`, `2150-03`, `3/4/2150`, `3/4/50`, `4.3.2150`, `March 4th, 2150`,
    `4 Mar 2150` and `March 2150`. Impossible dates (`2150-13-01`) are skipped. A year alone counts as a number.
    """
    mentions: list[DateMention] = []
    covered = bytearray(len(text))
    for spelling in _SPELLINGS:
        for match in spelling.finditer(text):
            start, end = match.span()
            readings = tuple(sorted(set(_read_date(match.groupdict()))))
            if readings and not any(covered[start:end]):
                mentions.append(DateMention(start, end, readings))
                covered[start:end] = b"\1" * (end - start)
    return tuple(sorted(mentions, key=lambda mention: mention.start))


def _read_date(parts: Mapping[str, str | None]) -> Iterator[str]:
    """Yield every possible partial ISO date with these parts."""
    text, month = parts["year"] or "", parts.get("month")
    years = [text] if len(text) == 4 else [f"{century}{text}" for century in (19, 20, 21)]
    if month is None:
        one, two = parts["one"] or "", parts["two"] or ""
        days = [(one, two), (two, one)] if parts["mark"] != "." else [(two, one)]
    else:
        number = month if month.isdecimal() else str(_MONTHS[month[:3].lower()])
        days = [(number, parts.get("day") or "")]
    hour, minute = int(parts.get("hour") or 24), int(parts.get("minute") or 0)
    clock = f"T{hour:02}:{minute:02}" if hour < 24 and minute < 60 else ""
    for year, (number, day) in itertools.product(years, days):
        date = f"{year}-{int(number):02}{f'-{int(day):02}' if day else ''}{clock}"
        try:
            time_range(date)
        except ValueError:
            continue
        yield date
