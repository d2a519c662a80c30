"""Times of notes, as hospitals' exports write them, as partial ISO dates. Knows no note and guesses no order of day and
month: `03/04/2150` is left unread unless its format is told.

A time keeps the clock it was written by. An offset from UTC is not applied (a note of 23:30 stays on its day) but given
beside it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from epicrisis.dates import last_day
from epicrisis.errors import InputError

_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_CLOCK = (
    r"(?:(?:T|\s+|,\s*)(?P<h>\d{1,2}):(?P<min>\d\d)(?::(?P<s>\d\d)(?:[.,]\d+)?)?\s*(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?)?"
)
_DAYS = (
    r"(?P<y>\d{4})(?:-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2}))?)?",
    r"(?P<y>\d{4})/(?P<m>\d{1,2})/(?P<d>\d{1,2})",
    # Where dots stand between, the day comes first, wherever dates are written so.
    r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})",
    r"(?P<d>\d{1,2})[ -](?P<name>[A-Za-z]{3,9})\.?[ -](?P<y>\d{4})",
    r"(?P<name>[A-Za-z]{3,9})\.? (?P<d>\d{1,2}), ?(?P<y>\d{4})",
)
_HL7 = r"(?P<y>\d{4})(?P<m>\d\d)(?P<d>\d\d)(?:(?P<h>\d\d)(?P<min>\d\d)(?P<s>\d\d)?(?P<zone>[+-]\d{4})?)?"
_FORMS = tuple(re.compile(form, re.IGNORECASE) for form in (*(day + _CLOCK for day in _DAYS), _HL7))


_DIRECTIVES = tuple("YymbBdjHIpMSfzaA")
"""Of formats that are told; the others of `strptime` are read otherwise on another machine, or are of no export."""


def check_time_format(form: str) -> None:
    """Raises InputError for what `strptime` could not read times by, or what holds no year."""
    told = _directives(form)
    fault = ""
    if unknown := [each for each in told if each not in (*_DIRECTIVES, "%")]:
        fault = f"%{unknown[0]} is none of {' '.join(f'%{each}' for each in _DIRECTIVES)}"
    elif twice := [each for each in told if each != "%" and told.count(each) > 1]:
        fault = f"it names %{twice[0]} more than once; name each part of a time once"
    elif not {"Y", "y"} & set(told):
        fault = "it names no year, so no time could be read by it; add %Y"
    else:
        try:
            datetime.strptime(datetime(2150, 3, 4, 13, 30, 5, tzinfo=UTC).strftime(form), form)
        except (ValueError, re.error):
            fault = "times cannot be read by it; name each part of a time once, such as %d/%m/%Y %H:%M"
    if fault:
        raise InputError(f"--time-format {form!r}: {fault}")


def parse_note_time(given: str, form: str = "") -> tuple[str, str] | None:
    """(`2150-03-04T10:30`, `2150-03-04`, `2150-03` or `2150`; the offset from UTC, empty where none is written), or
    `None` where it cannot be read.

    Exact midnight stands for a day without a time: so MIMIC's dates are written. `form`: as `strptime` takes it, for
    times of no form that is known here; those of a known one are still read.
    """
    given = given.strip()
    return (_by_format(given, form) if form else None) or _by_known_forms(given)


def _by_format(given: str, form: str) -> tuple[str, str] | None:
    """No more of the time than the format names: `strptime` fills the rest up."""
    try:
        read = datetime.strptime(given, form)
    except ValueError:
        return None
    told = set(_directives(form))
    if not told & set("mbBj"):
        return f"{read.year:04}", ""
    if not told & set("dj"):
        return f"{read.year:04}-{read.month:02}", ""
    day = f"{read.year:04}-{read.month:02}-{read.day:02}"
    if not told & set("HI"):
        return day, ""
    clock = _with_clock(day, str(read.hour), f"{read.minute:02}", str(read.second))
    return clock if "M" in told else clock[:13], read.isoformat(timespec="seconds")[19:]


def _directives(form: str) -> list[str]:
    return re.findall(r"%(.?)", form, re.DOTALL)


def _by_known_forms(given: str) -> tuple[str, str] | None:
    found = next((match for pattern in _FORMS if (match := pattern.fullmatch(given))), None)
    if found is None:
        return None
    parts = found.groupdict()
    name = parts.get("name")
    month = parts.get("m") if name is None else str(_month(name))
    day = "-".join(part.zfill(2) for part in (parts["y"], month, parts["d"]) if part)
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
    return day if int(hour) == int(minute) == int(second) == 0 else f"{day}T{int(hour):02}:{minute}"


def _month(name: str) -> int:
    """1 to 12; 0, which no calendar has, for what is no month's name."""
    name = name.lower()
    return next((n for n, full in enumerate(_MONTHS, 1) if name in (full, full[:3]) or (name, n) == ("sept", 9)), 0)
