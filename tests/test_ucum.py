"""Units as UCUM codes and their conversion."""

from __future__ import annotations

import subprocess
import sys

import pytest

from epicrisis.core.ucum import convert, to_ucum


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("mg/dl", "mg/dL"),
        ("MG/DL", "mg/dL"),
        ("K/uL", "10*3/uL"),
        ("x10^9/L", "10*9/L"),
        ("mm Hg", "mm[Hg]"),
        ("bpm", "/min"),
        ("insp/min", "/min"),
        ("mEq/L", "meq/L"),
        ("IU/L", "[iU]/L"),
        ("deg. C", "Cel"),
        ("°F", "[degF]"),
        ("mcg", "ug"),
        ("#/hpf", "/[HPF]"),
        ("mL/min/1.73m2", "mL/min/{1.73_m2}"),
        ("tablets", ""),
        ("mg/", ""),
        ("/", ""),
        ("", ""),
    ],
)
def test_written_unit_becomes_ucum_code_or_nothing(text: str, code: str) -> None:
    assert to_ucum(text) == code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (1.8, "mg/dL", "g/L", 0.018),
        (120.0, "umol/L", "mmol/L", 0.12),
        (98.6, "[degF]", "Cel", 37.0),
        (37.0, "Cel", "[degF]", 98.6),
        (7.5, "10*3/uL", "10*9/L", 7.5),
        (150.0, "[lb_av]", "kg", 68.0388555),
        (30.0, "u[iU]/mL", "m[iU]/L", 30.0),
        (30.0, "[iU]/L", "U/L", 30.0),
        (80.0, "{beats}/min", "/min", 80.0),
        (2000.0, "mg/(24.h)", "g/d", 2.0),
    ],
)
def test_value_is_converted_to_unit_of_the_same_dimension(
    value: float, source: str, target: str, expected: float
) -> None:
    assert convert(value, source, target) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("mg/dL", "mmol/L"),
        ("meq/L", "mmol/L"),
        ("mosm/kg", "mmol/kg"),
        ("%", "mmol/mol"),
        ("%", "mg/g"),
        ("g/dL", "%"),
        ("mL/min/{1.73_m2}", "mL/min"),
        ("ng/mL{FEU}", "ng/mL{DDU}"),
        ("mm[Hg]", "Cel"),
        ("{INR}", "s"),
        ("mg/dL", ""),
        ("", "mg/dL"),
        ("K/uL", "10*3/uL"),
        ("10*9999999/L", "10*3/L"),
        ("(" * 200, "mg"),
        ("__import__", "mg"),
    ],
)
def test_value_in_unit_of_another_kind_is_not_converted(source: str, target: str) -> None:
    assert convert(5.0, source, target) is None


def test_unit_without_code_converts_to_itself() -> None:
    assert convert(2.0, "tablets", "tablets") == 2.0


def test_module_loads_no_library_before_the_first_conversion() -> None:
    code = "import sys, epicrisis.core.ucum as u; u.to_ucum('mg/dl'); sys.exit('pint' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
