"""Partial ISO dates, as publications have them: `2015`, `2015-06` or `2015-06-30`. Knows no document."""

from __future__ import annotations

import calendar
from functools import lru_cache


@lru_cache(maxsize=65536)
def last_day(date: str) -> int:
    """The last day a (partial) ISO date can mean, as the number yyyymmdd: `2015` is 20151231, `2015-06` is 20150630.

    A time of day behind the date is left out. Raises ValueError for anything that is not such a date.
    """
    day_part = date[:10] if date[10:11] in ("T", " ") else date
    parts = day_part.split("-")
    if not 1 <= len(parts) <= 3 or len(parts[0]) != 4 or not all(part.isdecimal() for part in parts):
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
    """The first day a (partial) ISO date can mean, as `last_day` does: `2015` is 20150101."""
    day = last_day(date)
    parts = date[:10].split("-")
    return day // 10_000 * 10_000 + 101 if len(parts) == 1 else day // 100 * 100 + 1 if len(parts) == 2 else day
