"""Questions with what came back for them: from a file of released replies, or from a run of one's own.

Knows no scoring.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from epicrisis.answers import Answer
from epicrisis.corpus import jsonl
from epicrisis.corpus.reader_base import Skipped, check_file, is_folder, os_error_reason, printable_path
from epicrisis.errors import InputError
from epicrisis.evaluation.rescoring.readings import Reading
from epicrisis.types import Question

Outputs: TypeAlias = Mapping[str, tuple[str, ...]]
"""Replies by question id."""

SPLITS = ("test", "dev")
"""MIRAGE's names of the splits, with which its files begin."""

_NAMES = " or ".join(f"{split}_<id>.json" for split in SPLITS)
_CURE = "each line is an object with id and outputs, a list of texts; [] where nothing came back"


@dataclass(frozen=True, slots=True)
class Replied:
    """A question and its replies. The first counts; none at all: nothing came back."""

    question: Question
    outputs: tuple[str, ...]
    reading: Reading | None = None
    """How the run itself read the reply, where it is one of our own: then scoring `ours` takes this."""


class _Line(BaseModel):
    model_config = ConfigDict(strict=True)

    id: str
    outputs: list[str]


def read_outputs(path: Path) -> Outputs:
    """The replies of JSON lines (`{"id": ..., "outputs": [...]}`), or of a folder as MIRAGE releases them: files
    `test_<id>.json` or `dev_<id>.json`, each a list of texts.

    Raises InputError for anything else in it: with a reply less it would be another run.
    """
    return _folder(path) if is_folder(path) else _file(path)


def _file(path: Path) -> Outputs:
    check_file(path)
    outputs: dict[str, tuple[str, ...]] = {}
    for item in jsonl.read_objects(path):
        if isinstance(item, Skipped):
            raise InputError(f"{item.path}, {item.where}: {item.reason}")
        number, value = item
        try:
            line = _Line.model_validate(value)
        except ValidationError:
            raise InputError(f"{printable_path(path)}, line {number}: not a released reply; {_CURE}") from None
        if line.id in outputs:
            raise InputError(f"{printable_path(path)}, line {number}: its id was there before; keep one of the two")
        outputs[line.id] = tuple(line.outputs)
    return outputs


def _folder(folder: Path) -> Outputs:
    texts: TypeAdapter[list[str]] = TypeAdapter(list[str])
    outputs: dict[str, tuple[str, ...]] = {}
    for path in sorted(folder.glob("*.json")):
        split, _, key = path.stem.partition("_")
        if split not in SPLITS or not key or key in outputs:
            raise InputError(f"{printable_path(path)}: name the folder of one run, its files called {_NAMES}")
        try:
            outputs[key] = tuple(texts.validate_python(json.loads(path.read_bytes()), strict=True))
        except OSError as error:
            raise InputError(
                f"{printable_path(path)}: {os_error_reason(error)}; check the file and its permissions"
            ) from error
        except (ValueError, RecursionError):
            raise InputError(f"{printable_path(path)}: not a JSON list of texts; fetch the file again") from None
    if not outputs:
        raise InputError(f"{printable_path(folder)}: no file called {_NAMES} in it; name the folder that holds them")
    return outputs


def released(questions: Iterable[Question], outputs: Outputs) -> tuple[Replied, ...]:
    """The questions, in their order, with their replies; replies to other questions are left aside.

    Raises InputError where a question has none: an empty reply is `[]`, a missing one another data set.
    """
    asked = list(questions)
    missing = [question.id for question in asked if question.id not in outputs]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(asked)} questions have no reply ({', '.join(missing[:3])}"
            f"{', ...' if len(missing) > 3 else ''}): give the replies to these very questions"
        )
    return tuple(Replied(question, outputs[question.id]) for question in asked)


def recorded(answer: Answer) -> Replied:
    """Return the question and the answer of a run's record as a reply.

    What MIRAGE's scorers read of it is the letter where there is one, else the answer's text, and nothing where the
    answer failed: a record does not keep the reply's own words.
    """
    choice = answer.choice if answer.state == "answered" else None
    outputs = () if answer.state in ("failed", "over-window") else (choice or answer.text,)
    return Replied(answer.question, outputs, Reading(answer.state, choice))
