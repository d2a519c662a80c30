"""Find the dates and years of a question and put a mark in place of each.

    >>> with_marks("Creatinine in 2014 or 2016?")
    ('creatinine in ⟨0⟩ or ⟨1⟩?', (('2014', ('2014',)), ('2016', ('2016',))))

A year is read behind a word such as `in`, or beside another date; any other number of four digits stays a number.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from epicrisis.dates import find_dates

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
_LONGEST_PREPOSITION = 40
_BORN = re.compile(r"(?:\bborn|\bdob|\bbirth\w*)\W*(?:\w+\W+){0,2}$")

Dates: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Each date as it is written, with what it can be; its place is the number in its mark."""


def _dates(question: str) -> list[tuple[int, int, tuple[str, ...]]]:
    """Return each date of the question with its first and last character and what it can be."""
    spans = [(date.start, date.end, date.readings) for date in find_dates(question)]
    # `2010-12` is December, or three years.
    for number, (start, end, readings) in enumerate(spans):
        month = re.fullmatch(r"(\d\d)(\d\d)-(\d\d)", question[start:end])
        if month and int(month[3]) > int(month[2]):
            spans[number] = (start, end, (*readings, f"{month[1]}{month[3]}"))
    text = question.lower()
    for year in _YEAR.finditer(text):
        start, end = year.span("year")
        if any(begins < end and start < ends for begins, ends, _ in spans):
            continue
        behind = text[max(0, start - _LONGEST_PREPOSITION) : start]
        if (
            _BEFORE_YEAR.search(behind)
            or _YEAR_RANGE.match(text, start)
            or (spans and _BEFORE_NEXT_YEAR.search(behind))
        ):
            spans.append((start, end, (year["year"],)))
            written = _YEAR_RANGE.match(text, start)
            if written and written["end"] and len(written["end"]) == 2 and int(written["end"]) > int(year["year"][2:]):
                spans.append((*written.span("end"), (year["year"][:2] + written["end"],)))
    return sorted(spans)


def with_marks(question: str) -> tuple[str, Dates]:
    """The question in small letters with `⟨n⟩` where its n-th date stood, and the dates. A birthday is none."""
    spans = _dates(question)
    text, done = "", 0
    dates: list[tuple[str, tuple[str, ...]]] = []
    for start, end, readings in spans:
        text += question[done:start].lower()
        if _BORN.search(text[-2 * _LONGEST_PREPOSITION :]):
            text += question[start:end].lower()
        else:
            text += f"⟨{len(dates)}⟩"
            dates.append((question[start:end], readings))
        done = end
    return text + question[done:].lower(), tuple(dates)
