"""What is asked on the command line: one question, or a file of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from epicrisis.cli.terminal import say

if TYPE_CHECKING:
    from epicrisis.types import Question


def one(text: str, options: str | None, patient: str | None = None) -> Question:
    """Return the question, of that patient, with its options, which come as one text with commas.

    `-` stands for a question on standard input. Raises InputError where that is no text in UTF-8.
    """
    from epicrisis.api import build_question

    if text == "-":
        text = typed()
    listed = [part.strip() for part in options.split(",") if part.strip()] if options else None
    return replace(build_question(text, listed), patient=patient)


def typed() -> str:
    """Return what stands on standard input, without blanks around it. Raises InputError where it is not UTF-8."""
    from epicrisis.errors import InputError

    try:
        return sys.stdin.read().strip()
    except UnicodeDecodeError:
        raise InputError("standard input is not UTF-8: convert it, or type the question as an argument") from None


def many(file: Path, patient: str | None = None) -> tuple[list[Question], int]:
    """The questions of a file, and how many of its lines are none; those are named on standard error.

    Those that say no patient are of that `patient`. Raises InputError where there is not one question, or where one
    says another patient.
    """
    from epicrisis.corpus.questions import read_questions
    from epicrisis.corpus.readers import Skipped
    from epicrisis.errors import InputError

    read = list(read_questions(file))
    skipped = [item for item in read if isinstance(item, Skipped)]
    for item in skipped:
        say(f"epicrisis: {item.path}, {item.where}: {item.reason}", err=True)
    questions = [item for item in read if not isinstance(item, Skipped)]
    if not questions:
        raise InputError(f"{file} holds no question that can be read")
    other = next((each for each in questions if patient is not None and each.patient not in (None, patient)), None)
    if other is not None:
        raise InputError(
            f"{file}: question {other.id} is of another patient than --patient says: leave --patient out, each "
            "question is then asked of its own"
        )
    return [each if patient is None else replace(each, patient=patient) for each in questions], len(skipped)
