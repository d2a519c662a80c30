"""Parse times of notes, as hospitals' exports write them, into partial ISO dates.

The order of day and month is never guessed. An offset from UTC is returned but not applied: a note stays on its day.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from epicrisis.core.dates import last_day, time_range
from epicrisis.core.errors import InputError
from epicrisis.core.types import Document

_MONTHS = {"sept": 9}
for _number, _name in enumerate(
    "january february march april may june july august september october november december".split(),  # noqa: SIM905
    1,
):
    _MONTHS |= {_name: _number, _name[:3]: _number}
_CLOCK = (
    r"(?:(?:T|\s+|,\s*)(?P<h>\d{1,2}):(?P<min>\d\d)(?::(?P<s>\d\d)(?:[.,]\d+)?)?\s*(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?)?"
)
_DAYS = (
    r"(?P<y>\d{4})(?:-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2}))?)?",
    r"(?P<y>\d{4})/(?P<m>\d{1,2})/(?P<d>\d{1,2})",
    # With dots, the day comes first everywhere.
    r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})",
    r"(?P<d>\d{1,2})[ -](?P<name>[A-Za-z]{3,9})\.?[ -](?P<y>\d{4})",
    r"(?P<name>[A-Za-z]{3,9})\.? (?P<d>\d{1,2}), ?(?P<y>\d{4})",
)
_HL7 = r"(?P<y>\d{4})(?P<m>\d\d)(?P<d>\d\d)(?:(?P<h>\d\d)(?P<min>\d\d)(?P<s>\d\d)?(?P<zone>[+-]\d{4})?)?"
_FORMS = tuple(re.compile(form, re.IGNORECASE) for form in (*(day + _CLOCK for day in _DAYS), _HL7))

_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_DIRECTIVES = tuple("YymbBdjHIpMSfzaA")
"""The accepted directives of `strptime`; the others depend on the machine, or occur in no export."""


def check_time_format(form: str) -> None:
    """Raise InputError for a format without a year, or one unknown to `strptime`."""
    directives, fault = _DIRECTIVE.findall(form), ""
    unknown = [directive for directive in directives if directive not in (*_DIRECTIVES, "%")]
    repeated = [directive for directive, count in Counter(directives).items() if count > 1 and directive != "%"]
    if unknown:
        fault = f"%{unknown[0]} is none of {' '.join(f'%{directive}' for directive in _DIRECTIVES)}"
    elif repeated:
        fault = f"it names %{repeated[0]} more than once; name each part of a time once"
    elif "Y" not in directives and "y" not in directives:
        fault = "it names no year, so no time could be read by it; add %Y"
    else:
        try:
            datetime.strptime(datetime(2150, 3, 4, 13, 30, 5, tzinfo=UTC).strftime(form), form)
        except (ValueError, re.error):
            fault = "times cannot be read by it; name each part of a time once, such as %d/%m/%Y %H:%M"
    if fault:
        raise InputError(f"--time-format {form!r}: {fault}")


_FIRST_YEAR, _LAST_YEAR = 1800, 2999
"""No patient lives in other years, not even in records whose dates were shifted."""
_NULL_DAY = "1900-01-01"
"""What databases write for a date that nobody knows."""
_CLOCKS = timedelta(days=1)
"""Maximum difference between the days of two time zones."""


def is_no_date(date: str, born: str = "") -> bool:
    """Return whether a partial ISO date is one that systems write for none, or is before the birth of its patient.

    Systems write the year 1 or 9999, and databases 1900-01-01. An unreadable birth date excludes nothing.
    """
    if not _FIRST_YEAR <= int(date[:4]) <= _LAST_YEAR or date[:10] == _NULL_DAY:
        return True
    try:
        return bool(born) and time_range(date)[1] + _CLOCKS < time_range(born)[0]
    except ValueError:
        return False


def leave_out_no_date(document: Document) -> Document:
    """Return a document that is not cleaned as a note without a date that is none; its metadata has it as written.

    Literature may be older than any patient, so only the years 1 and 9999 are none there.
    """
    date = document.date
    with suppress(ValueError):
        if date and last_day(date) and is_no_date(date) and (document.patient or date[:4] in ("0001", "9999")):
            return replace(document, date=None, metadata={**document.metadata, "time_given": date})
    return document


def parse_note_time(time: str, form: str = "", born: str = "") -> tuple[str, str] | None:
    """Return the time (`2150-03-04T10:30`, `2150-03-04`, `2150-03` or `2150`) and its offset from UTC; None otherwise.

    A date that is none is not read (see `is_no_date`); `born` is the birth date of the patient. Exact midnight means a
    day without a time, as MIMIC writes its dates. `form` is a format of `strptime`, tried first.
    """
    time = time.strip()
    parsed = (_parse_by_format(time, form) if form else None) or _parse_builtin_form(time)
    return parsed if parsed is not None and not is_no_date(parsed[0], born) else None


def _parse_by_format(time: str, form: str) -> tuple[str, str] | None:
    """Return no more of the time than the format names, because `strptime` fills in the rest."""
    try:
        parsed = datetime.strptime(time, form)
    except ValueError:
        return None
    directives = set(_DIRECTIVE.findall(form))
    if directives.isdisjoint("mbBj"):
        return f"{parsed.year:04}", ""
    if directives.isdisjoint("dj"):
        return f"{parsed.year:04}-{parsed.month:02}", ""
    day = f"{parsed.year:04}-{parsed.month:02}-{parsed.day:02}"
    if directives.isdisjoint("HI"):
        return day, ""
    clock = _with_clock(day, str(parsed.hour), f"{parsed.minute:02}", str(parsed.second))
    return clock if "M" in directives else clock[:13], parsed.isoformat(timespec="seconds")[19:]


def _parse_builtin_form(time: str) -> tuple[str, str] | None:
    match = next(filter(None, (form.fullmatch(time) for form in _FORMS)), None)
    if match is None:
        return None
    parts = match.groupdict()
    name = parts.get("name")
    # No calendar has a month 0.
    month = parts.get("m") if name is None else str(_MONTHS.get(name.lower(), 0))
    day = parts["y"]
    for part in (month, parts["d"]):
        if part:
            day += f"-{part:0>2}"
    hour, minute, second = parts["h"], parts["min"], parts["s"] or "00"
    try:
        last_day(day)
    except ValueError:
        return None
    if hour is None:
        return day, ""
    if len(day) < 10 or int(hour) > 23 or int(minute) > 59 or int(second) > 60:
        return None
    zone = parts["zone"] or ""
    return _with_clock(day, hour, minute, second), "+00:00" if zone.upper() in ("Z", "UTC") else zone


def _with_clock(day: str, hour: str, minute: str, second: str) -> str:
    """Return the day with hour and minute, or the day alone at exact midnight."""
    return day if int(hour) == int(minute) == int(second) == 0 else f"{day}T{int(hour):02}:{minute}"
