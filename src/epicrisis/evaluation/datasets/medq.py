"""MedQ: 48 open questions with a reference answer, in a sheet whose file is called medq-30. Knows no grading."""

from __future__ import annotations

from pathlib import Path

from epicrisis.corpus import sandbox
from epicrisis.corpus.reader_base import check_file, printable_path
from epicrisis.errors import InputError
from epicrisis.types import Question

COLUMNS = ["ID", "Question", "Answer", "Domain"]


def read(path: Path) -> tuple[tuple[Question, ...], dict[str, str]]:
    """The questions in the sheet's order, `gold` the reference answer; and the medical domain of each, by id.

    Raises InputError for a file that is no such sheet, and at a row that lacks a cell.
    """
    check_file(path)
    try:
        head, *rows = sandbox.sheet_rows(path)
    except ValueError as error:
        raise InputError(
            f"{printable_path(path)}: not a sheet (.xlsx) that can be read; pull the file again"
        ) from error
    if head != COLUMNS:
        raise InputError(f"{printable_path(path)}: its columns are not {', '.join(COLUMNS)}; pull the file again")
    questions: list[Question] = []
    domains: dict[str, str] = {}
    for number, row in enumerate(rows, 2):
        key, text, answer, domain = (cell.strip() for cell in row)
        if not (key and text and answer and domain) or key in domains:
            raise InputError(
                f"{printable_path(path)}, row {number}: a cell is empty, or its ID was there before; pull it again"
            )
        questions.append(Question(text=text, form="open", id=key, gold=answer))
        domains[key] = domain
    return tuple(questions), domains
