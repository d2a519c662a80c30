"""Units in clinical texts, and their factors to the base unit of their dimension."""

from __future__ import annotations

import math
import re

UNITS: dict[str, tuple[str, float]] = {
    name: (base, factor)
    for base, factor, names in (
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
    )
    for name in names.split()
}
"""The base unit and the factor of each name, in lower case. Months have no factor to days, as they differ in length."""

_ONE = rf"(?:{'|'.join(map(re.escape, sorted(UNITS, key=len, reverse=True)))})(?![A-Za-z])"
UNIT_PATTERN = (
    r"(?:mm ?hg(?![a-z])|(?:°|º|degrees?|deg\.?)\s?(?:f(?:ahrenheit)?|c(?:elsius)?)(?![a-z])|(?-i:[FC])(?![\w'-])|"
    rf"{_ONE}(?:\s?(?:/|\bper\b)\s?{_ONE}){{0,2}}|/\s?(?:min|minute|hr|h|hour|day|d)(?![A-Za-z]))"
)
"""A pattern of a unit after a number, for any case of letters."""


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
