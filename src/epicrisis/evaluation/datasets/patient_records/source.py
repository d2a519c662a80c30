"""The result of reading a set about patient records, and helpers of its readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epicrisis.corpus.reader_base import ReaderItem, path_error
from epicrisis.evaluation.datasets.dataset import read_content
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
    try:
        return json.loads(read_content(path).decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise path_error(path, f"not {what}: it is not JSON in UTF-8; fetch it again") from None


def map_gold_documents(questions: Iterable[Question]) -> dict[str, frozenset[str]]:
    """Return the ids of the gold documents by question id, as in `RecordSource.related`."""
    return {question.id: frozenset(question.gold_documents) for question in questions}


def find_source_file(place: Path, *names: str) -> Path | None:
    """Return the file, or the first file in the folder that matches one of these names or patterns, or None."""
    if place.is_file():
        return place if any(map(place.match, names)) else None
    for name in names:
        for path in sorted(place.glob(name)):
            if path.is_file():
                return path
    return None
