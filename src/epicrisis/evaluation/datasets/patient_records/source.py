"""What a reader of these sets gives, and how it says that a file cannot be read. Knows no form of a file and no
population.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epicrisis.corpus.reader_base import ReaderItem, check_file, os_error_reason, printable_path
from epicrisis.errors import InputError
from epicrisis.types import Question


@dataclass(frozen=True, slots=True)
class RecordSource:
    """A set as its files hold it, all of it."""

    questions: tuple[Question, ...]
    notes: Callable[[], Iterator[ReaderItem]]
    """The records of all patients asked about, read anew at each call."""
    related: Mapping[str, frozenset[str]]
    """Question id -> ids of the notes that the set marks as holding the answer."""
    licence: str = ""
    notices: tuple[str, ...] = ()
    """What a reader must know: what was left out, what was found elsewhere than stated."""
    studied: frozenset[str] | None = None
    """Ids of the questions that the EHR study took (its section 4.1); `None` where it did not take this set."""


def read_json(path: Path, what: str) -> Any:
    """The file's JSON value. Raises InputError, `what` naming the file that it should be."""
    check_file(path)
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise InputError(
            f"{printable_path(path)}: {os_error_reason(error)}; check the path and its permissions"
        ) from error
    except (ValueError, RecursionError):
        raise InputError(f"{printable_path(path)}: not {what}: it is no JSON in UTF-8; fetch it again") from None


def find_source_file(place: Path, *names: str) -> Path | None:
    """The file itself, or the first of these names (patterns too) that lies in the folder; `None` where none does."""
    if place.is_file():
        return place if any(place.match(name) for name in names) else None
    return next((path for name in names for path in sorted(place.glob(name)) if path.is_file()), None)
