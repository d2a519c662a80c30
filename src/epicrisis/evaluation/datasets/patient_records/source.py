"""The result of reading a set about patient records, and helpers of its readers."""

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
    """All questions of a set, and its records."""

    questions: tuple[Question, ...]
    notes: Callable[[], Iterator[ReaderItem]]
    """Yields the notes of all patients in the questions. Each call reads the files again."""
    related: Mapping[str, frozenset[str]]
    """Maps a question id to the notes with the answer, according to the set."""
    licence: str = ""
    notices: tuple[str, ...] = ()
    """Notices for the reader, for example about questions that were left out."""
    studied: frozenset[str] | None = None
    """Ids of the questions that the EHR study used (section 4.1); None if it did not use this set."""


def read_json(path: Path, what: str) -> Any:
    """Return the JSON value of a file. Raises InputError; `what` names the expected file in the message."""
    check_file(path)
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise InputError(
            f"{printable_path(path)}: {os_error_reason(error)}; check the path and its permissions"
        ) from error
    except (ValueError, RecursionError):
        raise InputError(f"{printable_path(path)}: not {what}: it is not JSON in UTF-8; fetch it again") from None


def find_source_file(place: Path, *names: str) -> Path | None:
    """Return the file, or the first file in the folder that matches one of these names or patterns, or None."""
    if place.is_file():
        return place if any(place.match(name) for name in names) else None
    return next((path for name in names for path in sorted(place.glob(name)) if path.is_file()), None)
