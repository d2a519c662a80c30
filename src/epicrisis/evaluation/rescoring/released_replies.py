"""Questions with the replies to them, from a file of released replies or from the records of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from epicrisis.answers import Answer
from epicrisis.corpus import jsonl
from epicrisis.corpus.reader_base import check_file, is_folder, os_error_reason, printable_path
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.dataset import require_readable
from epicrisis.types import AnswerState, Question

RepliesById: TypeAlias = Mapping[str, tuple[str, ...]]
"""Replies by question id."""

SPLITS = ("test", "dev")
"""MIRAGE's names of the splits; its file names begin with them."""

_FILE_NAMES = " or ".join(map("{}_<id>.json".format, SPLITS))
_LINE_FORMAT = "each line must be an object with id and outputs, a list of texts; [] if there was no reply"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a scoring reads one reply. `choice` is a letter if the state is `answered`, else None."""

    state: AnswerState
    """`failed` for an empty reply."""
    choice: str | None = None
    by_default: bool = False
    """The reply does not state the letter; MIRAGE's scorer set it."""


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question and its replies. Only the first reply counts."""

    question: Question
    outputs: tuple[str, ...]
    """Empty if there was no reply."""
    reading: Reading | None = None
    """How our own run read the reply; the scoring `ours` uses it."""


class _Line(BaseModel):
    model_config = ConfigDict(strict=True)

    id: str
    outputs: list[str]


def read_released_replies(path: Path) -> RepliesById:
    """Read the replies of a run.

    `path` is a file with JSON lines (`{"id": ..., "outputs": [...]}`) or a folder as MIRAGE releases it: files
    `test_<id>.json` or `dev_<id>.json`, each a list of texts. Raises InputError for any other content, because a run
    with a missing reply would be another run.
    """
    if is_folder(path):
        return _read_folder(path)
    check_file(path)
    replies: dict[str, tuple[str, ...]] = {}
    for number, value in require_readable(jsonl.read_objects(path)):
        try:
            line = _Line.model_validate(value)
        except ValidationError:
            raise InputError(f"{printable_path(path)}, line {number}: not a released reply; {_LINE_FORMAT}") from None
        if line.id in replies:
            raise InputError(
                f"{printable_path(path)}, line {number}: an earlier line has the same id; keep one of the two"
            )
        replies[line.id] = tuple(line.outputs)
    return replies


def _read_folder(folder: Path) -> RepliesById:
    texts: TypeAdapter[list[str]] = TypeAdapter(list[str])
    replies: dict[str, tuple[str, ...]] = {}
    for path in sorted(folder.glob("*.json")):
        split, _, key = path.stem.partition("_")
        if split not in SPLITS or not key or key in replies:
            raise InputError(f"{printable_path(path)}: pass the folder of one run with files called {_FILE_NAMES}")
        try:
            replies[key] = tuple(texts.validate_python(json.loads(path.read_bytes()), strict=True))
        except OSError as error:
            raise InputError(
                f"{printable_path(path)}: {os_error_reason(error)}; check the file and its permissions"
            ) from error
        except (ValueError, RecursionError):
            raise InputError(f"{printable_path(path)}: not a JSON list of texts; fetch the file again") from None
    if not replies:
        raise InputError(
            f"{printable_path(folder)}: the folder has no file called {_FILE_NAMES}; pass the folder with them"
        )
    return replies


def pair_with_replies(questions: Iterable[Question], replies: RepliesById) -> tuple[AnsweredQuestion, ...]:
    """Return the questions in their order, each with its replies. Replies to other questions are ignored.

    Raises InputError if a question is missing; an empty list of replies counts as present.
    """
    questions = list(questions)
    missing = [question.id for question in questions if question.id not in replies]
    if missing:
        ids = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"{len(missing)} of {len(questions)} questions have no reply ({ids}): pass the replies to these questions"
        )
    return tuple(AnsweredQuestion(question, replies[question.id]) for question in questions)


def read_recorded_answer(answer: Answer) -> AnsweredQuestion:
    """Return the question and the answer of a run's record.

    Records do not contain the words of the reply. MIRAGE's scorers get the letter instead, the answer's text if there
    is no letter, and no reply if the answer failed.
    """
    choice = answer.choice if answer.state == "answered" else None
    outputs = () if answer.state in ("failed", "over-window") else (choice or answer.text,)
    return AnsweredQuestion(answer.question, outputs, Reading(answer.state, choice))
