"""When a record had a result."""

from __future__ import annotations

from datetime import date

from epicrisis.dates import first_day

REPORT_DAYS = 90
"""A result is reported within this many days. A later time is that of a transfer between systems."""


def reported_since(time: str, reported: str) -> str:
    """Return the time of a report on a later day than the result, or an empty string.

    Both are partial ISO dates. A report after more than `REPORT_DAYS` is that of a transfer, and ignored.
    """
    if not time or reported[:10] <= time[:10] or _day_number(reported) - _day_number(time) > REPORT_DAYS:
        return ""
    return reported


def _day_number(text: str) -> int:
    day = first_day(text)
    return date(day // 10_000, day // 100 % 100, day % 100).toordinal()
