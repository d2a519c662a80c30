"""Marks in place of the dates and years of a question.

    >>> mark_dates("Creatinine in 2014 or 2016?")
    ('creatinine in ⟨0⟩ or ⟨1⟩?', (('2014', ('2014',)), ('2016', ('2016',))))

A number of four digits is a year after a word such as `in`, or next to another date; otherwise it is a number.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from epicrisis.core.dates import find_dates

_YEAR = re.compile(
    r"(?:(?<![\w/.'-])|(?<=\d\d\d\d-))(?P<year>(?:1[89]|2[0-2])\d\d)\b(?![/.,]\d|[%/]|-(?!(?:1[89]|2[0-2])?\d\d\b)|-\d\d-|"
    r" ?(?:ml|cc|mg|mcg|µg|ug|g|kg|u|iu|units?|meq|mmol|mm|cm|l|steps|calories|kcal|cal)\b)"
)
_YEAR_RANGE = re.compile(
    r"(?<![\w/.'-])(?P<year>(?:1[89]|2[0-2])\d\d)(?: ?[-–—] ?(?P<end>(?:1[89]|2[0-2])?\d\d)| (?:to|through|thru) "
    r"(?:1[89]|2[0-2])\d\d)\b(?![-/.]\d)"
)
_BEFORE_YEAR = re.compile(
    r"\b(?:in|during|throughout|since|until|till|up to|before|prior to|after|following|by|as of|from|year|between|"
    r"through|thru|early|late|mid|spring|summer|autumn|winter|fall|(?:beginning|start|end|middle|course|spring|summer|"
    r"autumn|winter|fall|half|quarter|rest|year|stays?|admissions?|hospitali[sz]ations?|reports?|notes?|summary|"
    r"studies|study) of)[ -]$"
)
_BEFORE_NEXT_YEAR = re.compile(r"(?:\b(?:and|or|to|than|versus|vs\.?|with|nor|not)|,|-|–|—|/|&) ?$")
_MAX_PREPOSITION = 40
_BORN = re.compile(r"(?:\bborn|\bdob|\bbirth\w*)\W*(?:\w+\W+){0,2}$")

MarkedDates: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""The text of each date with its possible readings. The index of a date is the number in its mark."""


def _find_dates_and_years(question: str) -> list[tuple[int, int, tuple[str, ...]]]:
    """Return each date of the question with its start, its end and its readings."""
    spans = [(date.start, date.end, date.readings) for date in find_dates(question)]
    # `2010-12` is December, or three years.
    for number, (start, end, readings) in enumerate(spans):
        month = re.fullmatch(r"(\d\d)(\d\d)-(\d\d)", question[start:end])
        if month and int(month[3]) > int(month[2]):
            spans[number] = (start, end, (*readings, f"{month[1]}{month[3]}"))
    text = question.lower()
    for year in _YEAR.finditer(text):
        start, end = year.span("year")
        if any(date_start < end and start < date_end for date_start, date_end, _ in spans):
            continue
        before = text[max(0, start - _MAX_PREPOSITION) : start]
        year_range = _YEAR_RANGE.match(text, start)
        if not (_BEFORE_YEAR.search(before) or year_range or (spans and _BEFORE_NEXT_YEAR.search(before))):
            continue
        spans.append((start, end, (year["year"],)))
        short_end = year_range["end"] if year_range else None
        if year_range and short_end and len(short_end) == 2 and int(short_end) > int(year["year"][2:]):
            spans.append((*year_range.span("end"), (year["year"][:2] + short_end,)))
    return sorted(spans)


def mark_dates(question: str) -> tuple[str, MarkedDates]:
    """Return the question in small letters with `⟨n⟩` in place of its n-th date, and the dates without birthdays."""
    text, end_of_last = "", 0
    dates: list[tuple[str, tuple[str, ...]]] = []
    for start, end, readings in _find_dates_and_years(question):
        text += question[end_of_last:start].lower()
        if _BORN.search(text[-2 * _MAX_PREPOSITION :]):
            text += question[start:end].lower()
        else:
            text += f"⟨{len(dates)}⟩"
            dates.append((question[start:end], readings))
        end_of_last = end
    return text + question[end_of_last:].lower(), tuple(dates)
