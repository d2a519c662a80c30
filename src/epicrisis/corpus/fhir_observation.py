"""Observations of FHIR as lines of a note, a note a day: what was measured, its value and unit, range and mark.

Numbers are as JSON has them, units as the source writes them; nothing is converted. Does not read files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from epicrisis.corpus.note_times import parse_note_time

WITHDRAWN = ("entered-in-error", "cancelled")


@dataclass(frozen=True, slots=True)
class ObservationDay:
    """What was observed of a patient on one day, within one category and encounter; `text` a line each, by time, and
    empty where all of it was withdrawn or moved to another day."""

    where: str
    patient: str
    date: str
    category: str
    encounter: str
    text: str

    @property
    def id(self) -> str:
        """Not of the text: a later export of the day replaces it."""
        return ":".join((self.patient, self.date, self.encounter, self.category))


class ObservationDays:
    """Observations, put together by the day; of several with one id the later counts (by `meta.lastUpdated` where both
    say it, else as they stand)."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str, str, str], dict[str, tuple[str, str]]] = {}
        self._places: dict[tuple[str, str, str, str], str] = {}
        self._met: dict[tuple[str, str], tuple[str, tuple[str, str, str, str]]] = {}
        self._count = 0

    def add(self, found: Mapping[str, Any], where: str, patient: str, encounter: str) -> None:
        """Raises ValueError for an observation without value."""
        given = _time(found)
        read = parse_note_time(given)
        date = read[0] if read else given
        day = date[:10] if read else date
        key = (patient, day, _category(found), encounter)
        clock = date[11:] if read else ""
        said = (
            ""
            if found.get("status") in WITHDRAWN
            else " ".join(part for part in (clock, format_observation(found)) if part)
        )
        self._count += 1
        own, stamp = str(found.get("id") or f"\0{self._count}"), str((found.get("meta") or {}).get("lastUpdated") or "")
        before, place = self._met.get((patient, own), ("", key))
        if before and stamp and stamp < before:
            return
        self._lines.setdefault(place, {}).pop(own, None)
        self._lines.setdefault(key, {})[own] = (clock, said)
        self._met[patient, own] = (stamp, key)
        self._places.setdefault(key, where)

    def all(self) -> Iterator[ObservationDay]:
        """The days in the order in which each was first met; its lines by time, those without one first."""
        for key, lines in self._lines.items():
            patient, day, category, encounter = key
            text = "\n".join(text for _, text in sorted(lines.values(), key=lambda each: each[0]) if text)
            yield ObservationDay(self._places[key], patient, day, category, encounter, text)


def format_observation(found: Mapping[str, Any]) -> str:
    """`Hemoglobin: 9.1 g/dL (low; reference 12 to 16 g/dL)`. Raises ValueError where nothing was observed."""
    parts = [
        f"{concept_text(each.get('code'))}: {text}" for each in found.get("component") or [] if (text := _value(each))
    ]
    value = "; ".join(part for part in (_value(found), *parts) if part)
    if not value:
        raise ValueError("has no value that can be read")
    remarks = [concept_text(each) for each in as_list(found.get("interpretation"))]
    remarks += [f"reference {text}" for each in found.get("referenceRange") or [] if (text := _range(each))]
    if found.get("status") in ("preliminary", "registered", "corrected", "amended"):
        remarks.append(str(found["status"]))
    said = f" ({'; '.join(part for part in remarks if part)})" if any(remarks) else ""
    comments = [str(note["text"]) for note in found.get("note") or [] if note.get("text")]
    return " ".join((f"{concept_text(found.get('code')) or 'Observation'}: {value}{said}", *comments))


def concept_text(given: Any) -> str:
    """The words of a CodeableConcept: its text, else the first coding's display, else its code."""
    if not isinstance(given, dict):
        return ""
    codings = [coding for coding in as_list(given.get("coding")) if isinstance(coding, dict)]
    words = (given.get("text"), *(each.get("display") for each in codings), *(each.get("code") for each in codings))
    return next((str(word).strip() for word in words if word), "")


def _time(found: Mapping[str, Any]) -> str:
    period = found.get("effectivePeriod") or {}
    times = (found.get("effectiveDateTime"), found.get("effectiveInstant"), period.get("start"), found.get("issued"))
    return next((str(time) for time in times if time), "")


def _category(found: Mapping[str, Any]) -> str:
    """`laboratory results`, `vital signs`, ...; `observations` where none is given."""
    name = next((name for each in as_list(found.get("category")) if (name := concept_text(each))), "observations")
    name = name.replace("-", " ").lower()
    return f"{name} results" if name == "laboratory" else name


def _value(found: Mapping[str, Any]) -> str:
    for key, value in found.items():
        if not key.startswith("value") or value is None:
            continue
        if isinstance(value, dict) and ("low" in value or "high" in value):
            return _range(value)
        if isinstance(value, dict) and "numerator" in value:
            return f"{_quantity(value['numerator'])} / {_quantity(value.get('denominator') or {})}"
        if isinstance(value, dict) and "value" in value:
            return _quantity(value)
        if isinstance(value, dict):
            return concept_text(value) or str(value.get("start") or "")
        return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    absent = concept_text(found.get("dataAbsentReason"))
    return f"not available ({absent})" if absent else ""


def _quantity(given: Mapping[str, Any]) -> str:
    parts = (given.get("comparator"), given.get("value"), given.get("unit") or given.get("code"))
    return " ".join(str(part) for part in parts if part not in (None, ""))


def _range(given: Mapping[str, Any]) -> str:
    if given.get("text"):
        return str(given["text"])
    low, high = (_quantity(given.get(end) or {}) for end in ("low", "high"))
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}" if high else ""


def as_list(given: Any) -> list[Any]:
    """A list as it is, nothing as none, and anything else as a list of it."""
    return given if isinstance(given, list) else [] if given is None else [given]
