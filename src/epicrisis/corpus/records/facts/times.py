"""Times of facts, with their offsets from UTC, and when a record had a result."""

from __future__ import annotations

from datetime import date, timedelta

from epicrisis.core.dates import first_day
from epicrisis.corpus.base.note_times import parse_note_time

REPORT_DAYS = 90
"""A result is reported within this many days. A later time is that of a transfer between systems."""
_CLOCK = len("2150-03-04T10:30")


def read_fact_time(time: str) -> str:
    """Return a time as a partial ISO date with its offset: `2150-03-04T10:30+01:00`; empty if it cannot be read."""
    parsed = parse_note_time(time)
    if parsed is None:
        return ""
    local, offset = parsed
    return f"{local}{offset[:3]}:{offset[-2:]}" if offset and len(local) == _CLOCK else local


def split_offset(time: str) -> tuple[str, str]:
    """Return the local time and the offset of a time of `read_fact_time`; no offset if it has none."""
    return time[:_CLOCK], time[_CLOCK:]


def reported_since(time: str, reported: str) -> str:
    """Return the time of a report on a later day than the result, or an empty string.

    Both are partial ISO dates. A report after more than `REPORT_DAYS` is that of a transfer, and ignored.
    """
    if not time or reported[:10] <= time[:10] or _day_number(reported) - _day_number(time) > REPORT_DAYS:
        return ""
    return reported


def describe_end(start: str, end: str) -> str:
    """Return when something that has a start ended, as a remark: `Until 2150-03-05 04:00.`; empty without such an end.

    Both are times of `read_fact_time`. The day is left out if it is that of the start.
    """
    if not start or end <= start:
        return ""
    local = split_offset(end)[0]
    return f"Until {local[11:] if local[:10] == start[:10] else local.replace('T', ' ')}."


def add_supply(start: str, days: str, refills: str = "") -> str:
    """Return the day on which a supply from `start` is used up, with its refills; empty if it cannot be told."""
    count = int(days) if days.isascii() and days.isdecimal() and len(days) < 5 else 0
    again = int(refills) if refills.isascii() and refills.isdecimal() and len(refills) < 3 else 0
    if len(start) < len("2150-03-04") or not count:
        return ""
    return (date.fromisoformat(start[:10]) + timedelta(days=count * (1 + again))).isoformat()


def _day_number(text: str) -> int:
    day = first_day(text)
    return date(day // 10_000, day // 100 % 100, day % 100).toordinal()
