"""Quantities in an English sentence: numbers with units, ranges, bounds, blood pressures, doses a day, dates and times.

Milligrams are not converted to millimoles. Numbers inside a name (`B12`, `L4-5`, `COVID-19`) are not quantities. A
number with an unknown unit counts without a unit.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from epicrisis.dates import find_dates
from epicrisis.evaluation.metrics.units import UNIT_PATTERN, UNITS, convert_unit

SYSTOLIC, DIASTOLIC = "mmHg systolic", "mmHg diastolic"
DATE, CLOCK, ORDINAL = "date", "time of day", "ordinal"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity with its text and offset. A single value is a range without width.

    `80-90s` is 80 to 99, `100s` is 100 to 109, `> 5` is all above 5.
    """

    text: str
    start: int
    low: float
    """In `unit`, the base unit of its dimension (mg, mL, mmol, cm, h, month, °C, ...)."""
    high: float
    unit: str = ""
    """Empty if no unit was recognised."""
    factor: float = 1.0
    """The factor from the unit in the text to the base unit; 1 for a temperature."""
    rounding: float = 0.0
    """Half of the last digit, in the base unit, for a value of two or more digits; otherwise 0."""
    about: bool = False
    """Whether the text calls it approximate."""
    label: str = ""
    """The word before it that names the quantity (`sbp`, `creatinine`), in lower case; may be empty."""
    readings: tuple[str, ...] = ()
    """The possible partial ISO dates of a date."""

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def end(self) -> int:
        return self.start + len(self.text)


_SMALL = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORDS = {word: float(value) for value, word in enumerate(_SMALL)}
_WORDS |= {ten: 10.0 * place for place, ten in enumerate(_TENS, 2)}
_WORDS |= {f"{ten}-{one}": _WORDS[ten] + _WORDS[one] for ten in _TENS for one in _SMALL[1:10]}
_WORDS |= {"half": 0.5, "½": 0.5, "¼": 0.25, "¾": 0.75}
_NUMBER = (
    r"(?:(?P<whole>\d{1,3}) )?(?P<top>[1-9])/(?P<bottom>[2-8])"
    r"(?= (?:an? )?(?:tab|pill|cap|dose|cup|pack|inch|hour|mile))"
    r"|(?P<digits>\d{1,3}(?:,\d{3}){1,4}(?![\d,])(?:\.\d+)?|\d{1,15}(?:\.\d+)?|\.\d+)"
    rf"|(?P<word>\b(?:{'|'.join(sorted(_WORDS, key=len, reverse=True))})(?!\w))"
)
_VALUE = re.compile(
    rf"(?<!\d[.,])(?<![\w.])(?<![A-Za-z]-)(?<![A-Za-z]\d-)(?:x ?(?=\d))?(?:{_NUMBER})(?P<decade>'?s(?![a-z]))?"
    rf"(?:(?: an?(?= ))?[ -]?(?P<unit>{UNIT_PATTERN})|(?P<nth>st|nd|rd|th))?(?![A-Za-z\d]|\.\d)",
    re.IGNORECASE,
)
_TIGHT, _LOOSE = re.compile(r"[-–—]"), re.compile(r"\s?(?:[-–—]|\bto\b|\bthrough\b|\band\b)\s?")
_OVER, _OUT_OF = re.compile(r"\s?/\s?|\s{1,9}over\s{1,9}"), re.compile(r"\s?/\s?|\s{1,9}(?:out\s{1,9})?of\s{1,9}")
_BOUNDS = (
    (">=", re.compile(r"(?:>=|≥|\bat least|\b(?:no|not) (?:less|fewer) than|\bminimum of)\s*$", re.IGNORECASE)),
    ("<=", re.compile(r"(?:<=|≤|\bat most|\b(?:no|not) more than|\bup to|\bmaximum of)\s*$", re.IGNORECASE)),
    (">", re.compile(r"(?:>|\b(?:greater|more|higher) than|\babove|\bexceed(?:ed|ing|s)?)\s*$", re.IGNORECASE)),
    ("<", re.compile(r"(?:<|\b(?:less|fewer|lower) than|\bbelow)\s*$", re.IGNORECASE)),
    (
        "~",
        re.compile(r"(?:~|\babout|\bapproximately|\bapprox\.?|\baround|\broughly|\bnearly|\bcirca)\s*$", re.IGNORECASE),
    ),
)
_OR_MORE = re.compile(
    r"\s(?:or|and)\s(?:(?P<more>more|greater|higher|above|over)|less|fewer|lower|below)\b", re.IGNORECASE
)
_MINUS = re.compile(r"(?:(?:^|\()\s{0,16}|[^\s\d][ =(]{1,16})[-−]$|\bminus\s$|\bof negative\s$", re.IGNORECASE)
_BETWEEN = re.compile(r"\b(?:rang|var(?:y|i)|fluctuat|anywhere)\w*\s+from\s$", re.IGNORECASE)
_CLOCK = re.compile(r"(?<![\d:/])(\d{1,2})(?::(\d\d)(?::\d\d)?\s?([ap])?\.?(?:m\b)?|\s?([ap])\.?m\b)\.?", re.IGNORECASE)
_DAILY = r"(?:daily|(?:a|per|each) day)"
_A_DAY = re.compile(
    r"\b(?:q\.?\s?(?P<hours>\d{1,2})\s?h(?:ours?|rs?|\b)|every (?P<each>\d{1,2}|\w+) h(?:ou)?rs?|"
    rf"(?P<times>\d{{1,2}}|\w+) times {_DAILY}|(?P<two>bid|b\.i\.d\.|twice {_DAILY})|(?P<three>tid|t\.i\.d\.)|"
    rf"(?P<four>qid|q\.i\.d\.)|(?P<one>qd|once {_DAILY}|every day|daily(?! (?:liv|life|lives|activit|basis|weight))))"
    r"(?!\w)",
    re.IGNORECASE,
)


def find_quantities(text: str, *, ones: bool = False) -> tuple[Quantity, ...]:
    """Return the quantities of a text in order. They do not overlap.

    With `ones`, the word "one" is a number; mostly it is not.
    """
    quantities = [*_find_dates(text), *_find_times(text), *_find_rates(text)]
    values: list[Quantity] = []
    for value in _find_values(text, ones):
        if not any(_overlaps(value, quantity) for quantity in quantities):
            values.append(value)
    for separator, join in (
        (_TIGHT, _join_range),
        (_OVER, _join_pressure),
        (_OUT_OF, _join_ratio),
        (_LOOSE, _join_range),
    ):
        values = list(_join_neighbours(text, values, separator, join))
    for value in values:
        quantities.append(_convert_to_base(_apply_bounds(_apply_side(value, text), text)))
    return tuple(sorted(quantities, key=lambda quantity: quantity.start))


def _overlaps(a: Quantity, b: Quantity) -> bool:
    return a.start < b.end and b.start < a.end


def _find_dates(text: str) -> Iterator[Quantity]:
    for date in find_dates(text):
        yield Quantity(text[date.start : date.end], date.start, 0, 0, DATE, readings=date.readings)


def _find_times(text: str) -> Iterator[Quantity]:
    dates = find_dates(text)
    for match in _CLOCK.finditer(text):
        hour, minute, half = int(match[1]), int(match[2] or 0), (match[3] or match[4] or "").lower()
        in_date = any(match.start() < date.end and date.start < match.end() for date in dates)
        if hour < 24 and minute < 60 and not in_date:
            minutes = 60 * (hour % 12 + 12 * (half == "p") if half and hour <= 12 else hour) + minute
            yield Quantity(match[0], match.start(), minutes, minutes, CLOCK)


def _find_rates(text: str) -> Iterator[Quantity]:
    """Yield the numbers of times a day: `BID`, `three times daily`, `q6h`."""
    for match in _A_DAY.finditer(text):
        kind = match.lastgroup or ""
        word = match[kind].lower()
        number = (
            {"one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0}.get(kind) or _WORDS.get(word) or _parse_digits(word)
        )
        if number:
            rate = (24 / number if kind in ("hours", "each") else number) / 24
            label = _find_label(text, match.start())
            yield Quantity(match[0], match.start(), rate, rate, "/h", 1 / 24, label=label)


def _parse_digits(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0


def _find_values(text: str, ones: bool) -> Iterator[Quantity]:
    """Yield single numbers with their units."""
    for match in _VALUE.finditer(text):
        unit = match["unit"] or ""
        word = (match["word"] or "").lower()
        if not unit and (word == "half" or (word == "one" and not ones)):
            continue
        low = _parse_number(match)
        sign = -1 if match["digits"] and _MINUS.search(text[max(0, match.start() - 16) : match.start()]) else 1
        base, factor = (ORDINAL, 1.0) if match["nth"] else convert_unit(unit)
        high = low + (9 if match["decade"] and low % 10 == 0 else 0)
        digits, _, decimals = (match["digits"] or "").replace(",", "").partition(".")
        rounding = 0.5 * 10.0 ** -len(decimals) if len((digits + decimals).lstrip("0")) > 1 else 0.0
        label = _find_label(text, match.start())
        yield Quantity(match[0], match.start(), sign * low, sign * high, base, factor, rounding, label=label)


def _parse_number(match: re.Match[str]) -> float:
    if match["digits"]:
        return float(match["digits"].replace(",", ""))
    if match["word"]:
        return _WORDS[match["word"].lower()]
    return int(match["whole"] or 0) + int(match["top"]) / int(match["bottom"])


_FILLER = re.compile(
    r"a|an|the|and|or|of|at|in|on|to|by|for|from|into|per|with|than|that|then|there|which|as|is|are|was|were|be|been|"
    r"has|have|had|it|its|his|her|their|about|approximately|around|between|above|below|over|under|up|down|out|each|"
    r"less|more|most|least|no|not|minus|x|levels?|values?|measured|found|noted|rang(?:e|ed|ing)|daily|now|only|also"
)


def _find_label(text: str, start: int) -> str:
    """Return the nearest word before, in the same clause, that is not a filler, a number or a unit."""
    clause = re.split(r"[;\n(]|[.?!]\s", text[max(0, start - 60) : start])[-1]
    for word in reversed(re.findall(r"[A-Za-z][A-Za-z0-9'-]*[A-Za-z0-9]", clause)):
        lower = str(word).lower()
        # Units are in lower case: `hr` is an hour, `HR` the heart rate.
        if not _FILLER.fullmatch(lower) and lower not in _WORDS and word not in UNITS:
            return lower
    return ""


_Join: TypeAlias = Callable[[str, Quantity, Quantity], tuple[Quantity, ...]]


def _join_neighbours(
    text: str, values: Sequence[Quantity], separator: re.Pattern[str], join: _Join
) -> Iterator[Quantity]:
    """Yield the values, with two neighbours around a separator joined if they belong together."""
    rest = deque(values)
    while rest:
        first = rest.popleft()
        joined: tuple[Quantity, ...] = ()
        if rest and separator.fullmatch(text, first.end, rest[0].start):
            joined = join(text, first, rest[0])
        if joined:
            rest.popleft()
        yield from joined or (first,)


def _join_range(text: str, a: Quantity, b: Quantity) -> tuple[Quantity, ...]:
    """Join `80-90s`, `5 mg to 10 mg`, `between 80 and 90`.

    `from 16 to 25 mEq/L` is a change: two values, labelled `from` and `to`.
    """
    same_unit = a.unit == "" or (a.unit, a.factor) == (b.unit, b.factor)
    before = text[max(0, a.start - 24) : a.start]
    if same_unit and _is_change(before, text[a.end : b.start], b):
        return replace(a, unit=b.unit, factor=b.factor, label="from"), replace(b, label="to")
    anded = re.search(r"\band\b", text[a.end : b.start]) and not re.search(r"\bbetween\s+$", before)
    if not same_unit or anded or a.low >= b.low or ORDINAL in (a.unit, b.unit):
        return ()
    return (replace(b, text=text[a.start : b.end], start=a.start, low=a.low, rounding=0.0, label=a.label),)


def _is_change(before: str, between: str, b: Quantity) -> bool:
    """Return whether `from ... to` describes a change. With units of time (`from 3 to 5 days`) it is a range."""
    from_to = re.search(r"\bfrom\s$", before, re.IGNORECASE) and "to" in between
    return bool(from_to) and not _BETWEEN.search(before) and b.unit not in ("h", "month", ORDINAL)


def _join_pressure(text: str, a: Quantity, b: Quantity) -> tuple[Quantity, ...]:
    """Return the systolic and the diastolic side of `120/80`, `80-100s/55-70s`, `120 over 80`."""
    fits = 50 <= a.low <= 300 and 20 <= b.low <= 200 and a.low > b.low
    if not fits or a.unit or b.unit not in ("", "mmHg") or a.low % 1 or b.low % 1:
        return ()
    return replace(a, unit=SYSTOLIC), replace(b, unit=DIASTOLIC, label=a.label)


def _join_ratio(text: str, a: Quantity, b: Quantity) -> tuple[Quantity, ...]:
    """Join `7/10`, `5 out of 5`."""
    if a.unit or b.unit or b.width:
        return ()
    return (replace(a, text=text[a.start : b.end], unit=f"of {b.low:g}"),)


def _apply_side(value: Quantity, text: str) -> Quantity:
    """Return the value as systolic or diastolic if the words before say so."""
    side = re.search(
        r"\b(?:(sbps?|systolics?)|dbps?|diastolics?)\b[^\d;.]*$", text[max(0, value.start - 60) : value.start].lower()
    )
    if not side or value.unit not in ("", "mmHg"):
        return value
    return replace(value, unit=SYSTOLIC if side[1] else DIASTOLIC)


def _apply_bounds(value: Quantity, text: str) -> Quantity:
    """Return the value as a range if the words around it say `at least`, `or more`..."""
    before, after = text[max(0, value.start - 24) : value.start], _OR_MORE.match(text, value.end)
    bound = next((name for name, words in _BOUNDS if words.search(before)), "")
    if after:
        bound = ">=" if after["more"] else "<="
    match bound:
        case ">=" | ">":
            return replace(value, low=math.nextafter(value.low, math.inf) if bound == ">" else value.low, high=math.inf)
        case "<=" | "<":
            return replace(
                value, low=-math.inf, high=math.nextafter(value.high, -math.inf) if bound == "<" else value.high
            )
    return replace(value, about=bound == "~")


def _convert_to_base(value: Quantity) -> Quantity:
    """Return the value in the base unit of its dimension."""
    if value.unit == "°F":
        low, high = (value.low - 32) / 1.8, (value.high - 32) / 1.8
        return replace(value, low=low, high=high, unit="°C", rounding=value.rounding / 1.8)
    if value.unit == ORDINAL or value.factor == 1:
        return value
    return replace(
        value,
        low=value.low * value.factor,
        high=value.high * value.factor,
        rounding=value.rounding * value.factor,
    )
