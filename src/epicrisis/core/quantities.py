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
from itertools import product
from typing import Literal, TypeAlias

from epicrisis.core.dates import find_dates, may_overlap, time_range

SYSTOLIC, DIASTOLIC = "mmHg systolic", "mmHg diastolic"
DATE, CLOCK, ORDINAL = "date", "time of day", "ordinal"

NumberMatch: TypeAlias = Literal["same", "vague", "none"]

WIDER = 2.0
"""A range agrees with a right range inside it if it is at most this many times as wide."""
WIDTH_OF_VALUE = 0.25
"""A range agrees with a right value inside it if at most this share of the value wide: `80s` is right for 82."""
APPROXIMATION = 0.1
"""The distance from an approximate value, as a share of it, that still agrees."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    def end(self) -> int:
        return self.start + len(self.text)


UNITS: dict[str, tuple[str, float]] = {}
"""The base unit and the factor of each name, in lower case. Months have no factor to days, as they differ in length."""
for _base, _factor, _names in (
    ("mg", 1e-6, "ng"),
    ("mg", 1e-3, "mcg µg μg ug microgram micrograms"),
    ("mg", 1.0, "mg mgs milligram milligrams"),
    ("mg", 1e3, "g gm gms gram grams"),
    ("mg", 1e6, "kg kgs kilo kilos kilogram kilograms"),
    ("mg", 453_592.37, "lb lbs pound pounds"),
    ("mg", 28_349.523125, "oz ounce ounces"),
    ("mL", 1e-3, "µl μl ul microliter microliters"),
    ("mL", 1.0, "ml mls cc ccs milliliter milliliters"),
    ("mL", 100.0, "dl deciliter"),
    ("mL", 1e3, "l liter liters litre litres"),
    ("mmol", 1e-6, "nmol"),
    ("mmol", 1e-3, "µmol μmol umol"),
    ("mmol", 1.0, "mmol"),
    ("mmol", 1e3, "mol"),
    ("mEq", 1.0, "meq meqs"),
    ("unit", 1.0, "unit units iu"),
    ("cm", 0.1, "mm millimeter millimeters"),
    ("cm", 1.0, "cm centimeter centimeters"),
    ("cm", 100.0, "m meter meters"),
    ("cm", 2.54, "inch inches"),
    ("cm", 30.48, "ft foot feet"),
    ("cm", 160_934.4, "mile miles"),
    ("h", 1 / 3600, "sec secs second seconds"),
    ("h", 1 / 60, "min mins minute minutes"),
    ("h", 1.0, "h hr hrs hour hours"),
    ("h", 24.0, "day days d"),
    ("h", 168.0, "week weeks wk wks"),
    ("month", 1.0, "month months mo mos"),
    ("month", 12.0, "year years yr yrs yo y/o"),
    ("%", 1.0, "% percent"),
    ("mmHg", 1.0, "mmhg"),
    ("/h", 60.0, "bpm"),
    ("", 1.0, "beats breaths times x"),
    ("kcal", 1.0, "kcal cal calories"),
    ("pack", 1.0, "pack packs ppd"),
    ("drop", 1.0, "drop drops gtt"),
    ("tablet", 1.0, "tablet tablets tab tabs pill pills capsule capsules cap caps"),
    ("puff", 1.0, "puff puffs"),
    ("dose", 1.0, "dose doses"),
    ("gauge", 1.0, "gauge"),
):
    UNITS |= dict.fromkeys(_names.split(), (_base, _factor))

_ONE = rf"(?:{'|'.join(map(re.escape, sorted(UNITS, key=len, reverse=True)))})(?![A-Za-z])"
UNIT_PATTERN = (
    r"(?:mm ?hg(?![a-z])|(?:°|º|degrees?|deg\.?)\s?(?:f(?:ahrenheit)?|c(?:elsius)?)(?![a-z])|(?-i:[FC])(?![\w'-])|"
    rf"{_ONE}(?:\s?(?:/|\bper\b)\s?{_ONE}){{0,2}}|/\s?(?:min|minute|hr|h|hour|day|d)(?![A-Za-z]))"
)
"""A pattern of a unit after a number, for any case of letters."""

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = dict(zip(_SMALL.split(), map(float, range(20)), strict=True)) | {"half": 0.5, "½": 0.5, "¼": 0.25, "¾": 0.75}
for _place, _ten in enumerate(_TENS.split(), 2):
    _WORDS[_ten] = 10.0 * _place
    for _one in _SMALL.split()[1:10]:
        _WORDS[f"{_ten}-{_one}"] = _WORDS[_ten] + _WORDS[_one]
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
    dates = find_dates(text)
    quantities: list[Quantity] = []
    for date in dates:
        quantities.append(
            Quantity(
                text=text[date.start : date.end], start=date.start, low=0, high=0, unit=DATE, readings=date.readings
            )
        )
    for match in _CLOCK.finditer(text):
        hour, minute, half = int(match[1]), int(match[2] or 0), (match[3] or match[4] or "").lower()
        in_date = any(match.start() < date.end and date.start < match.end() for date in dates)
        if hour < 24 and minute < 60 and not in_date:
            minutes = 60 * (hour % 12 + 12 * (half == "p") if half and hour <= 12 else hour) + minute
            quantities.append(Quantity(text=match[0], start=match.start(), low=minutes, high=minutes, unit=CLOCK))
    quantities += _find_rates(text)
    values: list[Quantity] = []
    for value in _find_values(text, ones):
        if not any(value.start < other.end and other.start < value.end for other in quantities):
            values.append(value)
    for separator, join in (
        (_TIGHT, _join_range),
        (_OVER, _join_pressure),
        (_OUT_OF, _join_ratio),
        (_LOOSE, _join_range),
    ):
        values = _join_neighbours(text, values, separator, join)
    for value in values:
        quantities.append(_convert(value, text))
    return tuple(sorted(quantities, key=lambda quantity: quantity.start))


def _find_rates(text: str) -> Iterator[Quantity]:
    """Yield the numbers of times a day: `BID`, `three times daily`, `q6h`."""
    for match in _A_DAY.finditer(text):
        kind = match.lastgroup or ""
        word = match[kind].lower()
        number = {"one": 1.0, "two": 2.0, "three": 3.0, "four": 4.0}.get(kind) or _WORDS.get(word)
        if not number and word.isdecimal():
            number = float(word)
        if number:
            rate = (24 / number if kind in ("hours", "each") else number) / 24
            label = _find_label(text, match.start())
            yield Quantity(
                text=match[0], start=match.start(), low=rate, high=rate, unit="/h", factor=1 / 24, label=label
            )


def _find_values(text: str, ones: bool) -> Iterator[Quantity]:
    """Yield single numbers with their units."""
    for match in _VALUE.finditer(text):
        unit = match["unit"] or ""
        word = (match["word"] or "").lower()
        if not unit and (word == "half" or (word == "one" and not ones)):
            continue
        digits, _, decimals = (match["digits"] or "").replace(",", "").partition(".")
        if match["digits"]:
            low = float(match["digits"].replace(",", ""))
        elif word:
            low = _WORDS[word]
        else:
            low = int(match["whole"] or 0) + int(match["top"]) / int(match["bottom"])
        sign = -1 if match["digits"] and _MINUS.search(text[max(0, match.start() - 16) : match.start()]) else 1
        base, factor = (ORDINAL, 1.0) if match["nth"] else convert_unit(unit)
        high = low + (9 if match["decade"] and low % 10 == 0 else 0)
        rounding = 0.5 * 10.0 ** -len(decimals) if len((digits + decimals).lstrip("0")) > 1 else 0.0
        label = _find_label(text, match.start())
        yield Quantity(
            text=match[0],
            start=match.start(),
            low=sign * low,
            high=sign * high,
            unit=base,
            factor=factor,
            rounding=rounding,
            label=label,
        )


def convert_unit(unit: str) -> tuple[str, float]:
    """Return the base unit of a unit and the factor to it: `mg/mL` and 1e-5 for `mcg/dL`, "" and 1 for no unit.

    Temperatures keep their scale (`°F`, `°C`), as no factor converts them.
    """
    name = re.sub(r"\s+", "", re.sub(r"\bper\b", "/", unit.lower()))
    if name in UNITS:
        return UNITS[name]
    if match := re.fullmatch(r"(?:°|º|degrees?|deg\.?)?([fc])\w*", name):
        return f"°{match[1].upper()}", 1.0
    parts = [UNITS[part] if part else ("", 1.0) for part in name.split("/")]
    bases, factors = zip(*parts, strict=True)
    return "/".join(bases), factors[0] / math.prod(factors[1:])


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


def _join_neighbours(text: str, values: Sequence[Quantity], separator: re.Pattern[str], join: _Join) -> list[Quantity]:
    """Return the values, with two neighbours around a separator joined if they belong together."""
    results: list[Quantity] = []
    rest = deque(values)
    while rest:
        first = rest.popleft()
        joined: tuple[Quantity, ...] = ()
        if rest and separator.fullmatch(text, first.end, rest[0].start):
            joined = join(text, first, rest[0])
        if joined:
            rest.popleft()
        results += joined or (first,)
    return results


def _join_range(text: str, a: Quantity, b: Quantity) -> tuple[Quantity, ...]:
    """Join `80-90s`, `5 mg to 10 mg`, `between 80 and 90`.

    `from 16 to 25 mEq/L` is a change: two values, labelled `from` and `to`.
    """
    same_unit = a.unit == "" or (a.unit, a.factor) == (b.unit, b.factor)
    before, between = text[max(0, a.start - 24) : a.start], text[a.end : b.start]
    from_to = re.search(r"\bfrom\s$", before, re.IGNORECASE) and "to" in between
    # With units of time (`from 3 to 5 days`) it is a range.
    if same_unit and from_to and not _BETWEEN.search(before) and b.unit not in ("h", "month", ORDINAL):
        return replace(a, unit=b.unit, factor=b.factor, label="from"), replace(b, label="to")
    anded = re.search(r"\band\b", between) and not re.search(r"\bbetween\s+$", before)
    if not same_unit or anded or a.low >= b.low or ORDINAL in (a.unit, b.unit):
        return ()
    return (replace(b, text=text[a.start : b.end], start=a.start, low=a.low, rounding=0.0, label=a.label),)


def _join_pressure(text: str, a: Quantity, b: Quantity) -> tuple[Quantity, ...]:
    """Return the systolic and the diastolic side of `120/80`, `80-100s/55-70s`, `120 over 80`."""
    fits = 50 <= a.low <= 300 and 20 <= b.low <= 200 and a.low > b.low
    if not fits or a.unit or b.unit not in ("", "mmHg") or a.low % 1 or b.low % 1:
        return ()
    return replace(a, unit=SYSTOLIC), replace(b, unit=DIASTOLIC, label=a.label)


def _join_ratio(text: str, a: Quantity, b: Quantity) -> tuple[Quantity, ...]:
    """Join `7/10`, `5 out of 5`."""
    if a.unit or b.unit or b.low != b.high:
        return ()
    return (replace(a, text=text[a.start : b.end], unit=f"of {b.low:g}"),)


def _convert(value: Quantity, text: str) -> Quantity:
    """Return the value in the base unit of its dimension, changed as the words around it say.

    They may call it systolic or diastolic, or a bound (`at least`, `or more`).
    """
    side = re.search(
        r"\b(?:(sbps?|systolics?)|dbps?|diastolics?)\b[^\d;.]*$", text[max(0, value.start - 60) : value.start].lower()
    )
    if side and value.unit in ("", "mmHg"):
        value = replace(value, unit=SYSTOLIC if side[1] else DIASTOLIC)
    before, after = text[max(0, value.start - 24) : value.start], _OR_MORE.match(text, value.end)
    bound = next((name for name, words in _BOUNDS if words.search(before)), "")
    if after:
        bound = ">=" if after["more"] else "<="
    low, high = value.low, value.high
    if bound in (">=", ">"):
        low, high = math.nextafter(low, math.inf) if bound == ">" else low, math.inf
    elif bound in ("<=", "<"):
        low, high = -math.inf, math.nextafter(high, -math.inf) if bound == "<" else high
    about = value.about or bound == "~"
    if value.unit == "°F":
        low, high, rounding = (low - 32) / 1.8, (high - 32) / 1.8, value.rounding / 1.8
        return replace(value, low=low, high=high, unit="°C", rounding=rounding, about=about)
    factor = 1.0 if value.unit == ORDINAL else value.factor
    return replace(value, low=low * factor, high=high * factor, rounding=value.rounding * factor, about=about)


def match_quantities(gold: Quantity, answer: Quantity) -> NumberMatch:
    """Return whether a quantity of the answer agrees with one of the right answer.

    `same`: equal to the digits of both (98.6 F and 37 C, 1.18 and 1.2, but not 1.4 and 1), inside the right range, or
    around it and not much wider (`WIDER`, `WIDTH_OF_VALUE`). `vague`: wider than that, or overlapping.
    """
    if DATE in (gold.unit, answer.unit):
        return _match_dates(gold, answer) if gold.unit == answer.unit else "none"
    low, high, since, until = gold.low, gold.high, answer.low, answer.high
    if gold.unit != answer.unit:
        if "" not in (gold.unit, answer.unit):
            return "none"
        # A number without a unit takes the other's unit as written there.
        bare, unit = (answer, gold.unit) if gold.unit else (gold, answer.unit)
        if unit in (SYSTOLIC, "mmHg") and bare.label not in ("", "pressure", "bp", "sbp"):
            return "none"
        if unit.startswith(("of ", "time", "ordinal", "mmHg dia")):
            return "none"
        low, high, since, until = low / gold.factor, high / gold.factor, since / answer.factor, until / answer.factor
    tolerance = _tolerance(gold, answer)
    if low - tolerance <= since and until <= high + tolerance:
        return "same"
    if since <= low and high <= until:
        middle = abs(low + high) / 2
        return "same" if until - since <= max(WIDER * (high - low), WIDTH_OF_VALUE * middle) else "vague"
    return "vague" if since <= high and low <= until else "none"


def shows_quantity(evidence: Quantity, claim: Quantity) -> bool:
    """Return whether a text with the first quantity shows the second: equal, or a range around a single value.

    `65 years` shows `above 60 years`; `more than 5 %` does not show `more than 7 %`, nor `5 to 10 mg` `7 to 10 mg`.
    """
    if match_quantities(evidence, claim) == match_quantities(claim, evidence) == "none":
        return False
    if DATE in (evidence.unit, claim.unit):
        return True
    scales = (1.0, 1.0) if evidence.unit == claim.unit else (evidence.factor, claim.factor)
    low, high = evidence.low / scales[0], evidence.high / scales[0]
    since, until = claim.low / scales[1], claim.high / scales[1]
    tolerance = _tolerance(evidence, claim)
    if low == high:
        return since - tolerance <= low <= until + tolerance
    # Infinite bounds are equal, and their difference is no number.
    same_low = low == since or abs(low - since) <= tolerance
    return same_low and (high == until or abs(high - until) <= tolerance)


def _tolerance(gold: Quantity, answer: Quantity) -> float:
    """Return the distance at which two values, perhaps written to different digits, are still the same."""
    if gold.about or answer.about:
        return APPROXIMATION * max(abs(quantity.low) for quantity in (gold, answer) if quantity.about)
    rounding = max(gold.rounding, answer.rounding) * (1 - 1e-9) if gold.rounding != answer.rounding else 0.0
    return max(rounding, 1e-9 * max(abs(gold.low), abs(answer.low), 1e-9))


def _match_dates(gold: Quantity, answer: Quantity) -> NumberMatch:
    """Return `same` if a reading of the answer's date lies inside the right date, `vague` if it is wider."""
    match: NumberMatch = "none"
    for right, reading in product(map(time_range, gold.readings), map(time_range, answer.readings)):
        if may_overlap(right, reading):
            if right[0] <= reading[0] and reading[1] <= right[1]:
                return "same"
            match = "vague"
    return match
