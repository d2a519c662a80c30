"""Group the observations of a patient's day into one note, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, TypeAlias

from epicrisis.corpus.fhir.resources import WITHDRAWN, as_list, concept_text
from epicrisis.corpus.note_times import parse_note_time

DayKey: TypeAlias = tuple[str, str, str, str]
"""Patient, day, category, encounter."""


class ObservationDays:
    """Group observations by day. Of several with one id the latest is used: by `meta.lastUpdated`, else by order."""

    def __init__(self) -> None:
        self._lines: dict[DayKey, dict[str, tuple[str, str]]] = {}
        self._places: dict[DayKey, str] = {}
        self._latest: dict[tuple[str, str], tuple[str, DayKey]] = {}
        self._count = 0

    def add(self, observation: Mapping[str, Any], where: str, patient: str, encounter: str) -> None:
        """Add an observation of a patient. Raises ValueError if it has no value."""
        period = observation.get("effectivePeriod") or {}
        times = (observation.get("effectiveDateTime"), observation.get("effectiveInstant"), period.get("start"))
        time = str(next(filter(None, (*times, observation.get("issued"))), ""))
        parsed = parse_note_time(time)
        date = parsed[0] if parsed else time
        day, clock = (date[:10], date[11:]) if parsed else (date, "")
        names = map(concept_text, as_list(observation.get("category")))
        category = next(filter(None, names), "observations").replace("-", " ").lower()
        key = (patient, day, "laboratory results" if category == "laboratory" else category, encounter)
        text = ""
        if observation.get("status") not in WITHDRAWN:
            line = _format_observation(observation)
            text = f"{clock} {line}" if clock else line
        self._count += 1
        observation_id = str(observation.get("id") or f"\0{self._count}")
        updated = str((observation.get("meta") or {}).get("lastUpdated") or "")
        previous_update, previous_key = self._latest.get((patient, observation_id), ("", key))
        if previous_update and updated and updated < previous_update:
            return
        self._lines.setdefault(previous_key, {}).pop(observation_id, None)
        self._lines.setdefault(key, {})[observation_id] = (clock, text)
        self._latest[patient, observation_id] = (updated, key)
        self._places.setdefault(key, where)

    def all(self) -> Iterator[tuple[str, DayKey, str]]:
        """Yield place, key and text of each day, in the order of its first observation.

        The text has a line for each observation, sorted by time, those without one first. It is empty if all of them
        were withdrawn or moved to another day.
        """
        for key, lines in self._lines.items():
            texts = (text for _, text in sorted(lines.values(), key=itemgetter(0)))
            yield self._places[key], key, "\n".join(filter(None, texts))


def _format_observation(observation: Mapping[str, Any]) -> str:
    """Return a line: `Hemoglobin: 9.1 g/dL (low; reference 12 to 16 g/dL)`. Raises ValueError if it has no value."""
    values = [_format_value(observation)]
    for component in observation.get("component") or []:
        if text := _format_value(component):
            values.append(f"{concept_text(component.get('code'))}: {text}")
    value = "; ".join(filter(None, values))
    if not value:
        raise ValueError("has no value that can be read")
    remarks = list(map(concept_text, as_list(observation.get("interpretation"))))
    for reference in observation.get("referenceRange") or []:
        if text := _format_range(reference):
            remarks.append(f"reference {text}")
    if observation.get("status") in ("preliminary", "registered", "corrected", "amended"):
        remarks.append(str(observation["status"]))
    line = f"{concept_text(observation.get('code')) or 'Observation'}: {value}"
    if any(remarks):
        line += f" ({'; '.join(filter(None, remarks))})"
    for note in observation.get("note") or []:
        if note.get("text"):
            line += f" {note['text']}"
    return line


def _format_value(observation: Mapping[str, Any]) -> str:
    for key, value in observation.items():
        if not key.startswith("value") or value is None:
            continue
        if isinstance(value, bool):
            return "yes" if value else "no"
        if not isinstance(value, dict):
            return str(value)
        if "low" in value or "high" in value:
            return _format_range(value)
        if "numerator" in value:
            return f"{_format_quantity(value['numerator'])} / {_format_quantity(value.get('denominator') or {})}"
        if "value" in value:
            return _format_quantity(value)
        return concept_text(value) or str(value.get("start") or "")
    absent = concept_text(observation.get("dataAbsentReason"))
    return f"not available ({absent})" if absent else ""


def _format_quantity(quantity: Mapping[str, Any]) -> str:
    parts = (quantity.get("comparator"), quantity.get("value"), quantity.get("unit") or quantity.get("code"))
    return " ".join(str(part) for part in parts if part not in (None, ""))


def _format_range(interval: Mapping[str, Any]) -> str:
    if interval.get("text"):
        return str(interval["text"])
    low, high = _format_quantity(interval.get("low") or {}), _format_quantity(interval.get("high") or {})
    if low and high:
        return f"{low} to {high}"
    if low:
        return f"at least {low}"
    return f"at most {high}" if high else ""
