"""What is asked on the command line: one question, or a file of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from epicrisis.types import Question


def one(text: str, options: str | None) -> Question:
    """The question with its options, which come as one text with commas."""
    from epicrisis.pipeline import as_question

    return as_question(text, [part.strip() for part in options.split(",") if part.strip()] if options else None)


def many(file: Path) -> tuple[list[Question], int]:
    """The questions of a file, and how many of its lines are none; those are named on standard error.

    Raises InputError where there is not one question.
    """
    from epicrisis.corpus.questions import read_questions
    from epicrisis.corpus.reading import Skipped
    from epicrisis.errors import InputError

    read = list(read_questions(file))
    skipped = [item for item in read if isinstance(item, Skipped)]
    for item in skipped:
        typer.echo(f"epicrisis: {item.path}, {item.where}: {item.reason}", err=True)
    questions = [item for item in read if not isinstance(item, Skipped)]
    if not questions:
        raise InputError(f"{file} holds no question that can be read")
    return questions, len(skipped)
