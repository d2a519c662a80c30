"""Values that HL7 v2 and C-CDA write alike: times, object identifiers and record numbers."""

from __future__ import annotations

import re

_TIME = re.compile(r"(\d{4})(?:(\d\d)(?:(\d\d)(?:(\d\d)(?:(\d\d)(?:(\d\d)(?:\.\d{1,9})?)?)?)?)?)?([+-]\d{2,4})?")
_OBJECT_ID = re.compile(r"[0-2](?:\.\d+)+")
_UNIVERSAL_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
DAY_EVENTS = {
    "MORN": "in the morning",
    "NOON": "at noon",
    "AFT": "in the afternoon",
    "EVE": "in the evening",
    "NIGHT": "at night",
    "HS": "at bedtime",
    "WAKE": "after waking",
    "C": "with meals",
    "CM": "with breakfast",
    "CD": "with lunch",
    "CV": "with dinner",
    "AC": "before meals",
    "ACM": "before breakfast",
    "ACD": "before lunch",
    "ACV": "before dinner",
    "PC": "after meals",
    "PCM": "after breakfast",
    "PCD": "after lunch",
    "PCV": "after dinner",
    "IC": "between meals",
    "ICM": "between breakfast and lunch",
    "ICD": "between lunch and dinner",
    "ICV": "between dinner and bedtime",
}
"""The events of a day in words: codes of `Timing.repeat.when` in FHIR, and of `EIVL_TS` in CDA."""


def iso_time(time: str) -> str:
    """Return `2015-06-22T08:30-05:00` for `20150622083000.000-0500`, or less of it; other text as it is."""
    time = time.strip()
    match = _TIME.fullmatch(time)
    if match is None:
        return time
    year, month, day, hour, minute, second, zone = match.groups()
    date = "-".join(filter(None, (year, month, day)))
    # Without minutes, `note_times` reads the day alone.
    if not minute:
        return date
    offset = f"{zone[:3]}:{zone[3:]:0<2}" if zone else ""
    return f"{date}T{hour}:{minute}:{second or '00'}{offset}"


def identifier_system(authority: str) -> str:
    """Return the system of an identifier as FHIR writes it: `urn:oid:1.2.3` for an object identifier."""
    authority = authority.strip()
    if _OBJECT_ID.fullmatch(authority):
        return f"urn:oid:{authority}"
    return f"urn:uuid:{authority.lower()}" if _UNIVERSAL_ID.fullmatch(authority) else authority
