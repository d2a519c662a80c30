"""MedQ: 48 open questions with a reference answer, in a sheet with the file name medq-30."""

from __future__ import annotations

from pathlib import Path

from epicrisis.corpus import sandbox
from epicrisis.corpus.reader_base import check_file, path_error, printable_path
from epicrisis.errors import InputError
from epicrisis.types import Question

COLUMNS = ["ID", "Question", "Answer", "Domain"]


def read(path: Path) -> tuple[tuple[Question, ...], dict[str, str]]:
    """Return the questions in order, with the reference answer as `gold`, and their medical domains by id.

    Raises InputError for another file, and for a row with an empty cell.
    """
    check_file(path)
    try:
        head, *rows = sandbox.sheet_rows(path)
    except ValueError as error:
        raise path_error(path, "not a sheet (.xlsx) that can be read; pull the file again") from error
    if head != COLUMNS:
        raise path_error(path, f"its columns are not {', '.join(COLUMNS)}; pull the file again")
    questions: list[Question] = []
    domains: dict[str, str] = {}
    for number, row in enumerate(rows, 2):
        key, text, answer, domain = map(str.strip, row)
        if not (key and text and answer and domain) or key in domains:
            raise InputError(
                f"{printable_path(path)}, row {number}: a cell is empty, or its ID occurs twice; pull it again"
            )
        questions.append(Question(text=text, form="open", id=key, gold=answer))
        domains[key] = domain
    return tuple(questions), domains
