"""The vital signs by LOINC: rates, temperature, pressures, saturation, weight, height."""

from __future__ import annotations

_CODES = """
8867-4 9279-1 8310-5 8331-1 8480-6 8462-4 8478-0 85354-9 2708-6 59408-5 29463-7 3141-9 8302-2 39156-5 55284-4 8328-7
9843-4 8289-1 85353-1
"""
VITAL_SIGNS = frozenset(f"loinc:{code}" for code in _CODES.split())
"""Their codes as facts have them: `loinc:8867-4`."""
