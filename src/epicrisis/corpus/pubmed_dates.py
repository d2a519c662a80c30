"""What a date printed on a journal can mean. Knows no XML."""

from __future__ import annotations

import calendar
import re

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_SEASONS = {"spr": 6, "sum": 9, "fal": 12, "aut": 12, "win": 12}
_WORD = re.compile(r"(\d{4})(?:-(\d\d)(?![\d-]))?|(\d{1,2})(?!\d)|([a-z]{3,})", re.ASCII)


def parse_printed_date(printed: str) -> str | None:
    """The printed date in ISO's form, as exact as it is; of a range its end; `None` where no year is named.

    The end, so that nothing is shown as of a day on which it may not yet have been out: `1998 Dec-1999 Jan` is
    1999-01, `2000 Nov-Feb` 2001-02, `1975-1976` 1976, `2000 Dec 23-30` 2000-12-30, `1983 3d Quart` 1983-09. A season
    is its last month in the northern calendar (spring 06, summer 09, autumn 12), and the winter of a year is that
    year's December: the year is the printed one.
    """
    year = month = day = number = 0
    for full, short, small, word in _WORD.findall(printed.lower()):
        if full:
            year, month, day = *_years(int(full), short), 0
        elif small:
            number = int(small)
            if month:
                day = number
            elif year and 1 <= number <= 12:
                month = number
        elif named := _month(word, number or month):
            if named < month and word[:3] in _MONTHS:
                year += 1
            month, day = named, 0
    if not 1 <= year <= 9999:
        return None
    if not month:
        return f"{year:04}"
    fits = 1 <= day <= calendar.monthrange(year, month)[1]
    return f"{year:04}-{month:02}-{day:02}" if fits else f"{year:04}-{month:02}"


def _years(year: int, short: str) -> tuple[int, int]:
    """(year, month) of `1975-76` or `1999-00`, ranges of years as `2004-05` may be; of `2015-06`, a month."""
    later = (int(short) - year) % 100 if short else 0
    return (year, int(short)) if later > 10 and 1 <= int(short) <= 12 else (year + later, 0)


def _month(word: str, number: int) -> int:
    """1 to 12 of a month's, a season's or (with its number) a quarter's name; 0 of any other word."""
    start = word[:3]
    if start == "qua":
        return 3 * number if 1 <= number <= 4 else 0
    return _MONTHS.get(start) or _SEASONS.get(start, 0)
