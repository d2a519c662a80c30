"""Questions from the command line: one question, or a file of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from epicrisis.cli.terminal import say

if TYPE_CHECKING:
    from epicrisis.types import Question


def parse_question(text: str, options: str | None, patient: str | None = None) -> Question:
    """Return the question about `patient`, with `options` split at commas.

    The text `-` reads the question from standard input. Raises InputError for an empty question, and for standard
    input that is not UTF-8.
    """
    from epicrisis.api import build_question

    if text == "-":
        text = read_standard_input()
    choices = None
    if options:
        choices = [option.strip() for option in options.split(",") if option.strip()]
    return replace(build_question(text, choices), patient=patient)


def read_standard_input() -> str:
    """Return standard input without surrounding blanks. Raises InputError if it is not UTF-8."""
    from epicrisis.errors import InputError

    try:
        return sys.stdin.read().strip()
    except UnicodeDecodeError:
        raise InputError("standard input is not UTF-8: convert it, or type the question as an argument") from None


def read_question_file(file: Path, patient: str | None = None) -> tuple[list[Question], int]:
    """Return the questions of a file, and the number of its lines that were skipped.

    Questions without a patient are about `patient`.
    Lines that cannot be read are named in warnings on standard error. Raises InputError for a file without a readable
    question, and for a question about another patient.
    """
    from epicrisis.corpus.questions import read_questions
    from epicrisis.corpus.reader_base import Skipped
    from epicrisis.errors import InputError

    questions = []
    skipped = 0
    for item in read_questions(file):
        if isinstance(item, Skipped):
            skipped += 1
            say(f"warning: {item.path}, {item.where}: {item.reason}", err=True)
        elif patient is not None and item.patient not in (None, patient):
            raise InputError(
                f"{file}: question {item.id} is about another patient than --patient. Leave --patient out; each "
                "question is then asked about its own patient"
            )
        else:
            questions.append(item if patient is None else replace(item, patient=patient))
    if not questions:
        raise InputError(f"{file} contains no readable question")
    if skipped:
        say(f"warning: {skipped} lines of {file} were skipped; they are listed above", err=True)
    return questions, skipped
