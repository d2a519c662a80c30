"""Dates in the forms of clinical notes, and the same form for another day.

A form keeps its order, separators, leading zeros and letter case: `03/04/2019` becomes `04/02/2019`, `MAR 4, 2019`
becomes `APR 2, 2019`. Every shift can be undone:

* a complete date moves by days;
* a month of a year moves by whole months, the nearest number;
* a day without a year moves within a calendar of 366 days; two numbers alone, such as `5/2`, are one if they can be no
  share or score;
* a week or a day of a year, such as `2019-W10`, becomes the complete date of its first day, moved;
* a year alone is no identifier and stays.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, date, timedelta

_MONTHS = tuple(calendar.month_name)[1:]
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_ABBREVIATED = [month[:3].casefold() for month in _MONTHS]
_MONTH = rf"(?P<month>(?:{'|'.join(_MONTHS)})|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)(?![^\W\d_]))"
_DAY = r"(?P<day>[12]\d|3[01]|0?[1-9])(?P<suffix>st|nd|rd|th)?"
_UNITS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_TEENS = (
    *("tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth"),
    *("eighteenth", "nineteenth"),
)
_ORDINALS = (
    *(*_UNITS, *_TEENS, "twentieth"),
    *(f"twenty-{unit}" for unit in _UNITS),
    *("thirtieth", "thirty-first"),
)
"""The days of a month in words, in order."""
_ORDINAL = rf"(?P<day>{'|'.join(sorted(_ORDINALS, key=len, reverse=True)).replace('-', '[- ]')})(?![^\W_])"
_NUMBERS = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBER_WORD = rf"(?:(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_NUMBERS[:9])}))?|{'|'.join(reversed(_NUMBERS))})"
_YEAR_WORDS = (
    rf"(?:nineteen|twenty)[- ](?:hundred(?: and)? |oh[- ])?{_NUMBER_WORD}|two thousand(?:(?: and)?[- ]{_NUMBER_WORD})?"
)
_WRITTEN_YEAR = rf"(?:,?\s(?:of\s|in\s)?(?P<year>(?:19|20|21)\d\d(?!\d)|(?:{_YEAR_WORDS})(?![^\W_])))?"
_YEAR = r"(?P<year>(?:19|20|21)\d\d)"
_ANY_YEAR = r"(?P<year>(?:19|20|21)\d\d|'?\d\d)"
_NUMERIC_MONTH = r"(?P<month>1[0-2]|0?[1-9])"
_CUE = (
    r"(?:\b(?:on|from|since|dated?|until|till|through|of|by|for|seen|labs|vitals|admitted|discharged|visit"
    r"|as of|thru|CT|MRI|CXR|x-?ray|echo|EKG|ECG|EEG|EGD|ultrasound|cath|biopsy|scan|surgery|s/p|note):?"
    r"\s{1,2}|^[ \t]{0,8}|\()"
)
"""What may stand before a day without a year. Elsewhere `3/4` is a strength, a dose or a share."""
_NO_DATE = (
    r"(?!\d|/|[.]\d|\s?(?:mg|mcg|ml|tab|cup|of\b|strength|pain|hour|dose|pack|%|positive|normal|systolic"
    r"|bottle|culture|murmur|bilateral|throughout|reflex|pulse|extremit|[cm]m|unit|day|week|month|year|minute|beat|times))"
)
_DENOMINATORS = frozenset((2, 3, 4, 5, 6, 8, 10, 12))
"""What scores and shares are counted by, such as strength 4/5 and pain 3/10."""
_RATIO_CUE = re.compile(
    r"(?:(?<![^\W_])(?:bipap|cpap|peep|psv?|support|settings?|apgars?|insulin|vision|acuity)(?![^\W_])[^.;\n]{0,20}"
    r"|(?:ratio|scores?|scored|scale|pain|gcs|moca|mmse|phq|h/h|hgb|hct|i/os?|pupils?|perrla?|strength|power|motor"
    r"|reflex(?:es)?|pulses?|murmur|pressure|bp|vision|acuity|rated?)(?:\s(?:of|is|was|at|to|as))?[\s:=]{1,2})\Z",
    re.IGNORECASE,
)
"""What stands before two numbers that are no date, although one is larger than a share may be: `BiPAP 12/5`."""
_RATIO_CHARACTERS = 30
_SEPARATED = (
    # 2019-03-04, 2019/3/4, also before a time of day; 20190304
    rf"(?<![\d./-]){_YEAR}(?P<sep>[-/.]){_NUMERIC_MONTH}(?P=sep)(?P<day>3[01]|[12]\d|0?[1-9])(?!\d)",
    rf"(?<![\w./-]){_YEAR}(?P<month>1[0-2]|0[1-9])(?P<day>3[01]|[12]\d|0[1-9])(?=T\d|[-\s.,;:)_]|$)",
    # 03/04/2019, 3-4-19, 03.04.2019; the first number is the day where it cannot be the month
    r"(?<![\d/.-])(?P<first>3[01]|[12]\d|0?[1-9])(?P<sep>[-/.])(?P<second>3[01]|[12]\d|0?[1-9])(?P=sep)"
    r"(?P<year>(?:19|20|21)\d\d|'?\d\d)(?!\d|/\d|[.-]\d)",
    # 04·03·2019, 04_03_2019, 03\04\2019, 4. 3. 2019, 3 / 4 / 2019, 04 03 2019
    r"(?<![\d/.-])(?P<first>3[01]|[12]\d|0?[1-9])(?P<sep>[\u00b7_\u2010-\u2013\\]|\.\s|\s/\s)"
    r"(?P<second>3[01]|[12]\d|0?[1-9])(?P=sep)(?P<year>(?:19|20|21)\d\d)(?!\d)",
    r"(?<![\d/.-])(?<!\d )(?P<first>3[01]|[12]\d|0[1-9])\s(?P<second>3[01]|[12]\d|0[1-9])\s"
    r"(?P<year>(?:19|20)\d\d)(?![\d-]| \d)",
    # 201903040815
    rf"(?<![\w./-]){_YEAR}(?P<month>1[0-2]|0[1-9])(?P<day>3[01]|[12]\d|0[1-9])(?=[01]\d[0-5]\d(?:[0-5]\d)?(?!\d))",
    # 4.iii.2019, 4-III-19, 4. III. 2019
    rf"(?<![\w./-]){_DAY}(?P<sep>\.\s|[./-])(?P<month>{'|'.join(sorted(_ROMAN, key=len, reverse=True))})(?P=sep)"
    r"(?P<year>(?:19|20|21)\d\d|(?<=[.-])\d\d)(?![\w]|[-./]\d)",
    # 2019-W10-1, W10/2019, week 10 of 2019; 2019-063, day 63 of 2019
    rf"(?<![\w./-]){_YEAR}-?W(?P<week>5[0-3]|[1-4]\d|0?[1-9])(?:-[1-7])?(?!\w)",
    r"(?<![^\W_])(?:calendar[ ])?(?:week|wk\.?|kw|w)[ ]?(?P<week>5[0-3]|[1-4]\d|0?[1-9])"
    rf"(?:,?[ ](?:of[ ]|in[ ])?|/|-){_YEAR}(?!\d)",
    rf"(?<![\w./-]){_YEAR}[-/](?P<days>[0-2]\d\d|3[0-5]\d|36[0-6])(?![\w/-]|\.\d)",
    rf"(?<![^\W_])day[ ](?P<days>[0-2]?\d?\d|3[0-5]\d|36[0-6])[ ](?:of|in)[ ]{_YEAR}(?!\d)",
    # March the fourth, 2019; the fourth day of March, two thousand nineteen
    rf"(?<![^\W_]){_ORDINAL}\s(?:day\s)?of\s{_MONTH}(?![^\W\d_]){_WRITTEN_YEAR}",
    rf"(?<![^\W\d_]){_MONTH}\.?,?\s(?:the\s)?{_ORDINAL}{_WRITTEN_YEAR}",
    # Mar/4/2019, Mar_04_2019, Mar-4-2019; 2019 Mar 4, 2019Mar04, 2019-Mar-04
    rf"(?<![^\W\d_]){_MONTH}(?P<sep>[/_.-]){_DAY}(?P=sep){_YEAR}(?!\d)",
    rf"(?<![\w./-]){_YEAR}[ _./-]{{0,2}}{_MONTH}[ _./-]{{0,2}}(?P<day>3[01]|[12]\d|0?[1-9])(?!\d)",
    # '19-03, 03-'19, 3/'19
    r"(?<![\w'])(?P<year>'\d\d)[-/](?P<month>1[0-2]|0[1-9])(?![\w/-])",
    r"(?<![\w/.-])(?P<month>1[0-2]|0?[1-9])[-/](?P<year>'\d\d)(?!\w)",
    # 04MAR19:08:15
    rf"(?<![^\W_])(?P<day>3[01]|[12]\d|0[1-9]){_MONTH}(?P<year>\d\d)(?=:\d\d)",
    # March 4, 2019; Mar. 4th 2019; 4 March 2019; 4-Mar-19; 04MAR2019
    rf"(?<![^\W\d_]){_MONTH}\.?[\s-]{{1,2}}{_DAY}\s?,?[\s-]{{1,2}}{_YEAR}(?!\d)",
    rf"(?<!\d){_DAY}(?:\s{{1,2}}of\s|[\s-]{{0,2}}){_MONTH}\.?,?[\s-]{{0,2}}{_ANY_YEAR}(?!\d|:\d)",
    # March 4; 4 March; March 2019; Mar-19
    rf"(?<![^\W\d_]){_MONTH}\.?[\s-]{{1,2}}{_DAY}(?![\d/]|[.:]\d)",
    # Mar.4, Mar04, 04Mar
    rf"(?<![^\W\d_]){_MONTH}\.{_DAY}(?![\w/]|[.:]\d)",
    rf"(?<![^\W\d_]){_MONTH}(?P<day>3[01]|[12]\d|0[1-9])(?![\w/]|[.:]\d)",
    rf"(?<![^\W_])(?<!\.)(?P<day>3[01]|[12]\d|0[1-9]){_MONTH}(?![^\W_])",
    rf"(?<![\d.])(?P<day>[12]\d|3[01]|0?[1-9])(?P<suffix>st|nd|rd"
    rf"|th)?(?:\s{{1,2}}of)?[\s-]{{1,2}}{_MONTH}(?![^\W\d_])",
    rf"(?<![^\W\d_]){_MONTH}\.?,?(?:\s{{1,2}}of)?[\s-]{{1,2}}{_ANY_YEAR}(?!\d|:\d)",
    # 03/2019, and 3/4 behind a word that a date follows
    rf"(?<![\d/.-]){_NUMERIC_MONTH}/{_YEAR}(?![\d/])",
    rf"{_CUE}{_NUMERIC_MONTH}/(?P<day>3[01]|[12]\d|0?[1-9]){_NO_DATE}",
    # 5/2 and 3/14 anywhere: no share is larger than one, and few are counted by fourteen
    rf"(?<![\w./+])(?P<bare>){_NUMERIC_MONTH}/(?P<day>3[01]|[12]\d|0?[1-9])(?!\w){_NO_DATE}",
)
DATE_PATTERNS = tuple(re.compile(pattern, re.IGNORECASE | re.MULTILINE | re.ASCII) for pattern in _SEPARATED)
"""The forms of dates, the most complete ones first."""
_LEAP_YEAR = 2000
_PIVOT = 50
"""Two digits below it are a year of this century."""
_DAYS_OF_MONTH = 30.436875
_SUFFIXES = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenDate:
    """A date in a text, at `text[start:end]`. `year` or `day` is None where it is not written."""

    start: int
    end: int
    year: int | None
    month: int
    day: int | None
    parts: tuple[tuple[int, int, str], ...]
    """Start, end and name of each part, in order: `year`, `month`, `day`, `suffix` of the day, or `date` for all."""
    is_bare: bool = False
    """Whether only the numbers say that it is a date: without a year, and behind no word that a date follows."""


def find_dates(text: str) -> list[WrittenDate]:
    """Return the dates of a text, in order. They do not overlap."""
    dates: list[WrittenDate] = []
    covered = bytearray(len(text))
    for pattern in DATE_PATTERNS:
        for match in pattern.finditer(text):
            source_date = _read_match(match)
            if source_date is not None and not any(covered[source_date.start : source_date.end]):
                dates.append(source_date)
                covered[source_date.start : source_date.end] = b"\1" * (source_date.end - source_date.start)
    return sorted(dates, key=lambda source_date: source_date.start)


def _read_match(match: re.Match[str]) -> WrittenDate | None:
    """Return the date of a match, or None if there is no such day, or if it may be a share."""
    groups = match.groupdict()
    is_bare = groups.get("bare") is not None
    if is_bare and _may_be_share(match):
        return None
    if groups.get("week") or groups.get("days"):
        return _read_part_of_year(match)
    if groups.get("day") in _UNITS and match["month"] in ("may", "march") and "the " not in match[0]:
        # `may first need`: a verb.
        return None
    spans = {name: match.span(name) for name in ("year", "month", "day", "suffix") if groups.get(name)}
    if groups.get("first"):
        first, second = ("month", "day") if int(groups["first"]) <= len(_MONTHS) else ("day", "month")
        spans |= {first: match.span("first"), second: match.span("second")}
    words = {name: match.string[start:end] for name, (start, end) in spans.items()}
    month = _read_month(words["month"])
    year = _read_year(words["year"]) if "year" in words else None
    day = _read_day(words["day"]) if "day" in words else None
    if month > len(_MONTHS) or (day is not None and day > calendar.monthrange(year or _LEAP_YEAR, month)[1]):
        return None
    parts = sorted((start, end, name) for name, (start, end) in spans.items())
    return WrittenDate(
        start=parts[0][0], end=parts[-1][1], year=year, month=month, day=day, parts=tuple(parts), is_bare=is_bare
    )


def _read_part_of_year(match: re.Match[str]) -> WrittenDate | None:
    """Return the first day of a week, or the day with a number, or None if the year has no such week or day."""
    groups = match.groupdict()
    year = int(match["year"])
    try:
        if groups.get("week"):
            day = date.fromisocalendar(year, int(match["week"]), 1)
        else:
            day = date(year, 1, 1) + timedelta(days=int(match["days"]) - 1)
    except ValueError:
        return None
    parts = ((match.start(), match.end(), "date"),)
    return WrittenDate(start=match.start(), end=match.end(), year=day.year, month=day.month, day=day.day, parts=parts)


def _may_be_share(match: re.Match[str]) -> bool:
    """Return whether two numbers with a slash may be a share, a score or a setting."""
    first, second = match["month"], match["day"]
    if _RATIO_CUE.search(match.string[max(0, match.start() - _RATIO_CHARACTERS) : match.start()]):
        return True
    if first.startswith("0") or second.startswith("0"):
        return False
    return int(first) <= int(second) and int(second) in _DENOMINATORS


def _read_month(word: str) -> int:
    if word.isdecimal():
        return int(word)
    plain = word.casefold()
    return (_ROMAN.index(plain) if plain in _ROMAN else _ABBREVIATED.index(plain[:3])) + 1


def _read_day(word: str) -> int:
    return int(word) if word.isdecimal() else _ORDINALS.index(word.casefold().replace(" ", "-")) + 1


def _read_year(word: str) -> int:
    if word[-1].isalpha():
        return _read_year_in_words(word.casefold().replace("-", " ").split())
    number = int(word.removeprefix("'"))
    if number >= 100:
        return number
    return number + (2000 if number < _PIVOT else 1900)


def _read_year_in_words(words: Sequence[str]) -> int:
    """Return the number of `nineteen eighty four`, `twenty nineteen` or `two thousand and four`."""
    century = 2000 if words[0] in ("two", "twenty") else 1900
    values = {word: number for number, word in enumerate(_NUMBERS, 1)}
    values |= {word: 10 * number for number, word in enumerate(_TENS, 2)}
    return century + sum(values.get(word, 0) for word in words[2 if words[0] == "two" else 1 :])


def shift_date(text: str, source_date: WrittenDate, days: int) -> str:
    """Return the date of this text moved by these days, in its own form."""
    year, month, day = _move(source_date, days)
    numbers = {"year": year, "month": month, "day": day}
    pieces: list[str] = []
    place = source_date.start
    for start, end, name in source_date.parts:
        pieces.append(text[place:start])
        if name == "date":
            pieces.append(f"{year:04d}-{month:02d}-{day:02d}")
        elif name == "suffix":
            suffix = _SUFFIXES.get(day, "th")
            pieces.append(suffix.upper() if text[start:end].isupper() else suffix)
        else:
            pieces.append(_write_part(text[start:end], name, numbers[name]))
        place = end
    return "".join(pieces)


def _move(source_date: WrittenDate, days: int) -> tuple[int, int, int]:
    """Return year, month and day after the shift; 0 for what is not written."""
    if source_date.day is None:
        assert source_date.year is not None
        months = source_date.year * 12 + source_date.month - 1 + round(days / _DAYS_OF_MONTH)
        return months // 12, months % 12 + 1, 0
    year = source_date.year
    if year is None:
        first = date(_LEAP_YEAR, 1, 1)
        ordinal = (date(_LEAP_YEAR, source_date.month, source_date.day) - first).days
        moved = first + timedelta(days=(ordinal + days) % 366)
        return 0, moved.month, moved.day
    moved = date(min(year, MAXYEAR - 1), source_date.month, source_date.day) + timedelta(days=days)
    return moved.year, moved.month, moved.day


def _write_part(original: str, name: str, number: int) -> str:
    """Return a number in the form of the original part."""
    if name == "year":
        is_short = len(original.removeprefix("'")) == 2
        return f"{original[:-2]}{number % 100:02d}" if is_short else f"{number:04d}"
    if original.isdecimal():
        return f"{number:02d}" if len(original) == 2 else str(number)
    if name == "day":
        word = _ORDINALS[number - 1]
    elif original.casefold() in _ROMAN:
        word = _ROMAN[number - 1]
    elif original.casefold() in map(str.casefold, _MONTHS):
        word = _MONTHS[number - 1]
    else:
        word = _MONTHS[number - 1][:3]
    if original.isupper():
        return word.upper()
    return word.lower() if original.islower() else word[0].upper() + word[1:]
