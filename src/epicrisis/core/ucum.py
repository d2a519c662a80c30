"""Units of clinical values as UCUM codes, and conversion between them.

to_ucum("mg/dl")                  # "mg/dL"
convert(98.6, "[degF]", "Cel")    # 37.0
convert(5.0, "mmol/L", "mg/dL")   # None: depends on the substance

Conversion is done by ucumvert and pint, which are loaded at the first conversion (a second).
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

_PER_MINUTE = (
    "/min bpm beats/min beats/minute breaths/min breaths/minute insp/min br/min resp/min {beats}/min {breaths}/min"
)
_SPELLINGS: dict[str, str] = {}
"""The code of a complete unit, in lower case without blanks."""
for _code, _names in (
    ("mm[Hg]", "mmhg torr"),
    ("cm[H2O]", "cmh2o cmh20"),
    ("/min", f"{_PER_MINUTE} beatsperminute breathsperminute count/min counts/minute"),
    ("%", "% percent pct"),
    ("Cel", "cel °c degc deg.c celsius degreesc degreescelsius oc ºc"),
    ("[degF]", "[degf] °f degf deg.f f fahrenheit degreesf degreesfahrenheit of ºf ?f"),
    ("[lb_av]", "lb lbs pound pounds"),
    ("[oz_av]", "oz ounce ounces"),
    ("[in_i]", "in inch inches"),
    ("kg/m2", "kg/m² kg/m^2 kg/sqm"),
    ("m2", "m² m^2"),
    (
        "10*3/uL",
        "k/ul k/µl k/mcl thou/ul thous/ul thousand/ul x10e3/ul x10^3/ul 10^3/ul 10e3/ul x10(3)/mcl k/cumm k/mm3 th/ul",
    ),
    ("10*6/uL", "m/ul m/µl m/mcl mil/ul million/ul x10e6/ul x10^6/ul 10^6/ul 10e6/ul x10(6)/mcl m/cumm mill/mcl"),
    ("10*9/L", "10^9/l x10^9/l x10e9/l 10e9/l x10(9)/l giga/l"),
    ("10*12/L", "10^12/l x10^12/l x10e12/l 10e12/l x10(12)/l tera/l"),
    ("/[HPF]", "/hpf #/hpf perhpf"),
    ("/[LPF]", "/lpf #/lpf perlpf"),
    ("/uL", "/ul #/ul cells/ul cells/mcl /mm3 #/cumm /cumm"),
    ("mL/min/{1.73_m2}", "ml/min/1.73m2 ml/min/1.73m² ml/min/1.73sqm ml/min/1.73m^2 ml/min/1.73"),
    ("mg/(24.h)", "mg/24hr mg/24hrs mg/24h mg/24hours mg/day/24h"),
    ("[pH]", "ph phunits"),
    ("{INR}", "inr"),
    ("{ratio}", "ratio"),
    ("{score}", "score"),
    ("mm/h", "mm/hr mm/hour"),
    ("mL/h", "ml/hr ml/hour"),
    ("L/min", "l/min lpm liters/min"),
):
    _SPELLINGS |= dict.fromkeys(_names.split(), _code)
_PARTS: dict[str, str] = {}
"""The code of a part between slashes, in lower case. Of equal spellings, medical use decides: `u` is no mass."""
for _code, _names in (
    ("g", "g gm gms gram grams"),
    ("kg", "kg kgs"),
    ("mg", "mg mgs milligram milligrams"),
    ("ug", "ug mcg µg μg microgram micrograms"),
    ("ng", "ng"),
    ("pg", "pg"),
    ("L", "l liter liters litre litres"),
    ("dL", "dl"),
    ("mL", "ml mls cc milliliter milliliters"),
    ("uL", "ul µl μl mcl"),
    ("fL", "fl"),
    ("mol", "mol"),
    ("mmol", "mmol mmole mmoles"),
    ("umol", "umol µmol μmol mcmol"),
    ("nmol", "nmol"),
    ("pmol", "pmol"),
    ("meq", "meq meqs"),
    ("mosm", "mosm mosmol mosmo"),
    ("U", "u unit units"),
    ("kU", "ku"),
    ("mU", "mu munit"),
    ("uU", "uu µu"),
    ("[iU]", "iu [iu] intlunit"),
    ("m[iU]", "miu m[iu]"),
    ("u[iU]", "uiu µiu mciu u[iu]"),
    ("k[iU]", "kiu k[iu]"),
    ("cm", "cm"),
    ("mm", "mm"),
    ("m", "m"),
    ("s", "s sec secs second seconds"),
    ("min", "min mins minute minutes"),
    ("h", "h hr hrs hour hours"),
    ("d", "d day days"),
    ("wk", "wk week weeks"),
    ("mo", "mo month months"),
    ("a", "a yr yrs year years"),
    ("ms", "ms msec"),
    ("kPa", "kpa"),
    ("kcal", "kcal"),
    ("m2", "m2"),
):
    _PARTS |= dict.fromkeys(_names.split(), _code)
_CODES = frozenset((*_SPELLINGS.values(), *_PARTS.values()))
for _code in _CODES:
    _SPELLINGS.setdefault(_code.lower(), _code)
_ANNOTATION = re.compile(r"\{[^{}]*\}")
_COUNTED = frozenset(("{beats}", "{breaths}", "{cells}", "{count}", "{counts}", "{#}"))
"""Annotations that do not change what is measured."""
_AMOUNT = re.compile(r"(?<![A-Za-z\[])[a-z]?(mol|eq|osm)(?![A-Za-z])")
"""Kinds of amounts of substance, which UCUM converts into each other as if each particle had one charge."""
_MAX_CODE = 40
_LARGE_NUMBER = re.compile(r"\d{4}")
"""A number that no unit has. As an exponent it would take long to compute."""
_INTERNATIONAL = re.compile(r"\[iU\]|\[IU\]")


@lru_cache(maxsize=4096)
def to_ucum(text: str) -> str:
    """Return the UCUM code of a unit as hospitals write it, or an empty string if it is not known."""
    spelling = "".join(text.split())
    if spelling in _CODES:
        return spelling
    if spelling == "G/L":
        # Gram in capitals, or a thousand million cells, as in France.
        return ""
    spelling = spelling.lower()
    if spelling in _SPELLINGS:
        return _SPELLINGS[spelling]
    parts = [_PARTS.get(part, "") for part in spelling.split("/")]
    if spelling.startswith("/"):
        return f"/{'/'.join(parts[1:])}" if all(parts[1:]) else ""
    return "/".join(parts) if all(parts) else ""


def convert(value: float, source: str, target: str) -> float | None:
    """Return the value in another unit, or None if the units do not measure the same.

    Both are UCUM codes. Mass and amount of substance, `meq` and `mmol`, and rates with and without a body surface are
    never converted. International units and enzyme units count as one.
    """
    if source == target:
        return value
    source, target = _INTERNATIONAL.sub("U", source), _INTERNATIONAL.sub("U", target)
    if source == target:
        return value
    conversion = _find_conversion(source, target)
    return None if conversion is None else float(f"{value * conversion[0] + conversion[1]:.12g}")


@cache
def _find_conversion(source: str, target: str) -> tuple[float, float] | None:
    """Return factor and offset from one unit to another, or None."""
    if not (_is_plausible(source) and _is_plausible(target)) or _annotations(source) != _annotations(target):
        return None
    if sorted(_AMOUNT.findall(source)) != sorted(_AMOUNT.findall(target)):
        return None
    if "%" in (source, target) and {source, target} != {"%", "1"}:
        return None
    units = _registry()
    try:
        from_unit, to_unit = units.from_ucum(source), units.from_ucum(target)
        # A unit may contain a factor, as `mg/(24.h)` does.
        shift = units.Quantity(0.0, from_unit.units).to(to_unit.units).magnitude
        end = units.Quantity(from_unit.magnitude, from_unit.units).to(to_unit.units).magnitude
        offset = float(shift) / float(to_unit.magnitude)
        factor = float(end - shift) / float(to_unit.magnitude)
    except Exception:  # noqa: BLE001 - a unit is any text, and the errors of ucumvert, lark and pint share no base
        return None
    return factor, offset


def _is_plausible(code: str) -> bool:
    return 0 < len(code) <= _MAX_CODE and _LARGE_NUMBER.search(code) is None


def _annotations(code: str) -> list[str]:
    return sorted(annotation for annotation in _ANNOTATION.findall(code) if annotation not in _COUNTED)


@cache
def _registry() -> Any:
    from ucumvert import PintUcumRegistry

    return PintUcumRegistry()
