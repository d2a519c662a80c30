"""Conversion of units that need no knowledge of the substance: mass to mass, amount to amount, never mass to amount.

convert(Decimal("1800"), "ug/dL", "mg/dL")  # Decimal("1.8")
"""

from __future__ import annotations

import re
from decimal import Decimal

_FACTORS: dict[str, tuple[str, str]] = {}
for _dimension, _names in {
    "mass": "kg 1e3 g 1 mg 1e-3 ug 1e-6 mcg 1e-6 ng 1e-9 pg 1e-12 [lb_av] 453.59237 lb 453.59237 lbs 453.59237",
    "amount": "mol 1 mmol 1e-3 umol 1e-6 nmol 1e-9 pmol 1e-12",
    "equivalents": "eq 1 meq 1e-3 ueq 1e-6",
    "volume": "L 1 l 1 dL 1e-1 dl 1e-1 mL 1e-3 ml 1e-3 uL 1e-6 ul 1e-6 fL 1e-15 fl 1e-15",
    "length": "m 1 cm 1e-2 mm 1e-3 [in_i] 0.0254 [ft_i] 0.3048",
    "time": "h 3600 hr 3600 min 60 s 1 d 86400",
    "units": "U 1 mU 1e-3 uU 1e-6 kU 1e3",
    "international": "[IU] 1 IU 1 m[IU] 1e-3 mIU 1e-3 u[IU] 1e-6 uIU 1e-6",
    "pressure": "mm[Hg] 1 mmHg 1",
    "percent": "% 1",
    "count": "10*3 1e3 K 1e3 10*6 1e6 M 1e6 10*9 1e9 10*12 1e12 x10E3 1e3 x10E6 1e6 x10E9 1e9 x10E12 1e12",
}.items():
    _words = _names.split()
    for _name, _factor in zip(_words[::2], _words[1::2], strict=True):
        _FACTORS[_name] = (_dimension, _factor)
_ANNOTATION = re.compile(r"\{[^{}]{0,40}\}")
_SPELLINGS = (("µ", "u"), ("μ", "u"), ("10^", "10*"), ("x10*", "10*"), ("mEq", "meq"), ("°", ""))
_CELSIUS = frozenset({"Cel", "C", "degC"})
_FAHRENHEIT = frozenset({"[degF]", "F", "degF"})


def convert(number: Decimal, unit: str, target: str) -> Decimal | None:
    """Return the number in the target unit, or None if the units are not convertible or unknown."""
    unit, target = _normalize(unit), _normalize(target)
    if unit == target:
        return number
    if unit in _FAHRENHEIT and target in _CELSIUS:
        return (number - 32) / Decimal("1.8")
    if unit in _CELSIUS and target in _FAHRENHEIT:
        return number * Decimal("1.8") + 32
    if (unit in _CELSIUS and target in _CELSIUS) or (unit in _FAHRENHEIT and target in _FAHRENHEIT):
        return number
    source, goal = _parse(unit), _parse(target)
    if source is None or goal is None or source[0] != goal[0]:
        return None
    return number * source[1] / goal[1]


def _normalize(unit: str) -> str:
    """Return one spelling of a unit. Annotations in braces have no dimension in UCUM, and stay if they are all."""
    unit = unit.strip()
    for old, new in _SPELLINGS:
        unit = unit.replace(old, new)
    plain = _ANNOTATION.sub("", unit).strip("/")
    return plain if plain and "1.73" not in unit else unit


def _parse(unit: str) -> tuple[str, Decimal] | None:
    """Return the dimension of a unit and its factor to the base unit: (`mass/volume`, 0.01) for `mg/dL`."""
    dimensions: list[str] = []
    factor = Decimal(1)
    for place, part in enumerate(unit.split("/")):
        if part not in _FACTORS:
            return None
        dimension, size = _FACTORS[part]
        dimensions.append(dimension)
        factor = factor / Decimal(size) if place else factor * Decimal(size)
    return "/".join(dimensions), factor
