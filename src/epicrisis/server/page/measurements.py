"""Measurements of a patient's record as rows: name, values in the order of time, and the course as a small line.

Only the notes that the FHIR reader writes from Observations are read: one line for each observation of a day, in a
format of our own (docs/note-formats.md). Nothing is read out of the prose of other notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from epicrisis.printable import printable
from epicrisis.types import Passage

MAX_VALUES = 6
"""Values of one row, the last ones. The row says how many came before."""
WIDTH, HEIGHT, EDGE = 96, 24, 3
_LINE = re.compile(r"(?:(\d\d:\d\d(?::\d\d)?) )?([^:\n]++): (\S[^\n]*+)")
_QUANTITY = re.compile(r"(-?\d++(?:\.\d++)?)(?: ([^\s();:]++))?(?= \(|$)")
_COMPLETE = re.compile(r"(?:\d\d:\d\d(?::\d\d)? )?[^:\n]++: -?\d++(?:\.\d++)? [^\s();:]++(?: \([^()\n]*+\))?")


@dataclass(frozen=True, slots=True)
class MeasuredValue:
    """One observation."""

    document_id: str
    time: str
    text: str
    """The value with its remarks, without the unit of the row."""


@dataclass(frozen=True, slots=True)
class MeasurementRow:
    """The values of one measurement in one unit."""

    name: str
    unit: str
    values: tuple[MeasuredValue, ...]
    """The last MAX_VALUES in the order of time."""
    earlier: int
    """How many more came before."""
    course: str
    """The points of the line in the units of its drawing. Empty with fewer than two numbers."""
    summary: str
    """The course in words."""


@dataclass(frozen=True, slots=True)
class _Observation:
    name: str
    unit: str
    number: float | None
    value: MeasuredValue


def is_measurement_note(passage: Passage) -> bool:
    """Return whether a note is a day of observations: its id has the patient, day, stay and category as its end."""
    metadata = passage.metadata
    stay = str(metadata.get("encounter") or "")
    end = ":".join((passage.patient or "", (passage.date or "")[:10], stay, str(metadata.get("note_type") or "")))
    return bool(passage.patient and passage.date) and passage.document_id.endswith(end)


def list_measurements(passages: Sequence[Passage]) -> tuple[tuple[MeasurementRow, ...], int]:
    """Return the rows of measurement notes, by name, and how many of their lines are in no row."""
    series: dict[tuple[str, str], list[_Observation]] = {}
    left_out = 0
    notes: dict[str, list[Passage]] = {}
    for passage in sorted(filter(is_measurement_note, passages), key=attrgetter("date", "document_id", "start")):
        notes.setdefault(passage.document_id, []).append(passage)
    for pieces in notes.values():
        lines, cut = _list_lines(pieces)
        left_out += cut
        for line in lines:
            observation = _read_line(line, pieces[0])
            if observation is None:
                left_out += 1
            else:
                series.setdefault((observation.name, observation.unit), []).append(observation)
    return tuple(_make_row(series[key]) for key in sorted(series, key=_fold)), left_out


def _list_lines(passages: Sequence[Passage]) -> tuple[list[str], int]:
    """Return the lines of a note, and the number of lines that a passage may have been cut in.

    The library does not keep the white space between passages. Lines at such a place count only if the first is
    complete without doubt: a number with its unit, and its remarks in brackets.
    """
    lines: list[str] = []
    cut = 0
    for passage in passages:
        new = list(filter(None, map(str.strip, passage.text.splitlines())))
        if lines and new and not _is_boundary(lines[-1], new[0]):
            del lines[-1], new[0]
            cut += 2
        lines += new
    return lines, cut


def _is_boundary(before: str, after: str) -> bool:
    """Return whether a line surely ends with `before`, and another one begins with `after`."""
    return bool(_COMPLETE.fullmatch(before) and _LINE.fullmatch(after)) and not after.startswith("(")


def _fold(key: tuple[str, str]) -> tuple[str, str]:
    return key[0].casefold(), key[1]


def _read_line(line: str, passage: Passage) -> _Observation | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    clock, name, value = match.groups()
    quantity = _QUANTITY.match(value)
    unit = quantity[2] or "" if quantity else ""
    text = value if quantity is None else f"{quantity[1]}{value[quantity.end() :]}"
    time = f"{(passage.date or '')[:10]} {clock or ''}".strip()
    number = None if quantity is None else float(quantity[1])
    return _Observation(name, unit, number, MeasuredValue(passage.document_id, time, printable(text)))


def _make_row(observations: Sequence[_Observation]) -> MeasurementRow:
    shown = observations[-MAX_VALUES:]
    numbers = [observation.number for observation in shown if observation.number is not None]
    # A text among the numbers (`not available`) has no place on a line.
    is_drawn = len(numbers) == len(shown) > 1
    return MeasurementRow(
        name=printable(observations[0].name),
        unit=printable(observations[0].unit),
        values=tuple(observation.value for observation in shown),
        earlier=len(observations) - len(shown),
        course=_draw(numbers) if is_drawn else "",
        summary=f"from {numbers[0]:g} to {numbers[-1]:g}" if is_drawn else "",
    )


def _draw(numbers: Sequence[float]) -> str:
    low, high = min(numbers), max(numbers)
    step = (WIDTH - 2 * EDGE) / (len(numbers) - 1)
    scale = (HEIGHT - 2 * EDGE) / (high - low) if high > low else 0.0
    points: list[str] = []
    for place, number in enumerate(numbers):
        y = HEIGHT - EDGE - (number - low) * scale if scale else HEIGHT / 2
        points.append(f"{EDGE + place * step:.1f},{y:.1f}")
    return " ".join(points)


def select_documents(passages: Iterable[Passage], document_ids: Iterable[str]) -> list[Passage]:
    """Return the passages of these documents."""
    wanted = set(document_ids)
    return [passage for passage in passages if passage.document_id in wanted]
