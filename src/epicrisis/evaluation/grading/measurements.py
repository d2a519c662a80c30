"""The file of one measurer: a line a case, durable before it counts, the last one of a case valid.

A measure is found by its case's key and the hash of what was measured, never by its place; a failed one is made again
by the next run, all else is final. Knows no metric and no judge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from epicrisis.answers import Failure, Usage
from epicrisis.errors import InputError
from epicrisis.evaluation.grading.grader import STATES, GradeState
from epicrisis.evaluation.runs.jsonl_store import acquire_lock, append_line, read_lines
from epicrisis.serialization import to_json

MEASURES = "measures"
"""The folder beside a run's records that the measurers' files lie in, a file each."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one measurer makes of one answer."""

    key: str
    """Of the case."""
    of: str
    """`Response.of`."""
    state: GradeState
    values: Mapping[str, float] = field(default_factory=dict)
    """By metric, 0 to 1, higher is better; empty unless the state is `judged`: neither an unreadable verdict nor a
    failed call says anything."""
    reason: str = ""
    """The judge's, or why its verdict could not be read."""
    shown: str = ""
    """Which passages a judge saw: `cited` or `given`; empty where it saw none."""
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)


class MeasureStore:
    """The measures of one measurer, this process's to add to while the object lives.

    `recipe` is all that decides the values; lines of another one are there and count for nothing. Raises InputError
    where the file holds something else, or where another process is at work on it.
    """

    def __init__(self, path: Path, recipe: Mapping[str, Any]) -> None:
        self._path = path
        self._lock = acquire_lock(path)
        self._recipe = to_json(recipe)
        self.usage = Usage()
        """Of all measures made by this recipe, failed ones included."""
        self._made: dict[str, Measurement] = {}
        for made, measurement in _parsed(path):
            if made == self._recipe:
                self._note(measurement)

    def is_done(self, key: str, of: str) -> bool:
        """Whether this very answer has a measure that is not to be made again."""
        made = self._made.get(key)
        return made is not None and made.of == of and made.state != "failed"

    @property
    def failed(self) -> int:
        """How many measures are to be made again."""
        return sum(made.state == "failed" for made in self._made.values())

    def append(self, measurement: Measurement) -> None:
        """Durable when it returns."""
        append_line(self._path, {"recipe": self._recipe, "measure": to_json(measurement)})
        self._note(measurement)

    def _note(self, measurement: Measurement) -> None:
        self._made[measurement.key] = measurement
        self.usage += measurement.usage


def read_measurements(path: Path) -> tuple[dict[str, Any], dict[str, Measurement]]:
    """The recipe of the last line, and the last measure that it made of each case. Raises InputError."""
    lines = list(_parsed(path))
    if not lines:
        return {}, {}
    recipe = lines[-1][0]
    return recipe, {each.key: each for made, each in lines if made == recipe}


def store_name(name: str) -> str:
    """A measurer's name as that of its file."""
    return re.sub(r"[^A-Za-z0-9.+]+", "-", name).strip("-") + ".jsonl"


def _parsed(path: Path) -> Iterator[tuple[dict[str, Any], Measurement]]:
    for line in read_lines(path):
        try:
            told = dict(line.value["measure"])
            failure = None if told["failure"] is None else Failure(**told["failure"])
            measurement = Measurement(**{**told, "failure": failure, "usage": Usage(**told["usage"]) + Usage()})
            recipe = dict(line.value["recipe"])
            whole = measurement.state in STATES and (measurement.state == "judged") == bool(measurement.values)
            whole = whole and all(_is_share(value) for value in measurement.values.values())
            whole = whole and isinstance(measurement.key, str) and all(map(_is_text, recipe["metrics"]))
            whole = whole and ("judge" not in recipe or _is_text(recipe["judge"]["name"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            whole = False
        if not whole:
            raise InputError(f"{path}, line {line.number}, is no measure: take the line out, or delete the file")
        yield recipe, measurement


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1 + 1e-6


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def check_shares(values: Mapping[str, float]) -> dict[str, float]:
    """The values as they are kept: finite numbers within 0 and 1, rounding taken off. Raises ValueError."""
    wrong = [name for name, value in values.items() if not math.isfinite(value) or not -1e-6 <= value <= 1 + 1e-6]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} lie outside 0 and 1")
    return {name: min(1.0, max(0.0, float(value))) for name, value in values.items()}
