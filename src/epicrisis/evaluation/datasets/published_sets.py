"""Exam questions in their authors' files: MedQA, MedMCQA and CareQA, recognised by the keys of a row.

| | a row's keys | the right option |
|---|---|---|
| MedQA | `question`, `options` | `answer_idx`, a letter |
| MedMCQA | `id`, `question`, `opa` to `opd` | `cop`, a number |
| CareQA | `unique_id`, `question`, `op1` to `op4`, `category` | `cop`, a number |

A file is JSON lines with any name (MedMCQA's end in `.json`), or one JSON list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from epicrisis.core.errors import InputError
from epicrisis.core.types import Question
from epicrisis.corpus.base import jsonl
from epicrisis.corpus.base.reader_base import Skipped, check_file, path_error, printable_path
from epicrisis.evaluation.datasets.dataset import read_content, require_readable
from epicrisis.evaluation.datasets.pinned_readers import read_prompt_engine

_OPTIONS = {"answer_idx": (), "opa": ("opa", "opb", "opc", "opd"), "op1": ("op1", "op2", "op3", "op4")}
"""The keys of the options, by the key that identifies the format. MedQA's options are one object."""
_LETTERS = "ABCD"
_SECRET = {"None", "-1"}
"""Values of `cop` if the right option is not published."""

_Row: TypeAlias = tuple[str, dict[str, Any]]
"""The position in the file, and the row."""


def read(path: Path) -> tuple[Question, ...] | None:
    """Return the questions in order, or None for another format. Files of prompt_engine are read too.

    Ids are those of the rows, or their numbers from 1. A row without a right option, as in MedMCQA's test split, is a
    question without gold. Raises InputError for an invalid row, and if the first number of `cop` is ambiguous.
    """
    check_file(path)
    rows = _rows(path)
    if rows is None:
        content = _read_json(path)
        entries = content.values() if isinstance(content, dict) else ()
        is_prompt_engine = any(isinstance(entry, dict) and "correct_answer" in entry for entry in entries)
        return read_prompt_engine(path) if is_prompt_engine else None
    first = _first_option(path, rows)
    questions: dict[str, Question] = {}
    for number, (where, row) in enumerate(rows, 1):
        question = _question(path, where, _as_line(row, first), str(number))
        if question.id in questions:
            raise InputError(f"{printable_path(path)}, {where}: its id occurs twice; give each question its own")
        questions[question.id] = question
    return tuple(questions.values())


def _rows(path: Path) -> list[_Row] | None:
    """Return all rows if the first has a known format. Raises InputError if a later row is not an object."""
    lines = jsonl.read_objects(path)
    head = next(lines)
    if not isinstance(head, Skipped) and _form(head[1]):
        rows = [(f"line {head[0]}", head[1])]
        for number, row in require_readable(lines):
            rows.append((f"line {number}", row))
        return rows
    content = _read_json(path)
    if not isinstance(content, list) or not content or not _form(content[0]):
        return None
    return [(f"entry {number}", row) for number, row in enumerate(content, 1)]


def _read_json(path: Path) -> Any:
    """Return the file as one JSON value, or None if it is not JSON or has another name."""
    if path.suffix.lower() != ".json":
        return None
    try:
        return json.loads(read_content(path))
    except (ValueError, RecursionError):
        return None


def _form(row: Any) -> str | None:
    """Return the key that identifies the format, or None. A row with `gold` has the format of `corpus.questions`."""
    if not isinstance(row, dict) or "gold" in row:
        return None
    for key in _OPTIONS:
        if key in row:
            return key
    return None


def _first_option(path: Path, rows: Iterable[_Row]) -> int:
    """Return the number of option A. MedMCQA's own files count from 1, those of the hub from 0."""
    numbers = {str(row.get("cop")) for _, row in rows if isinstance(row, dict)}
    if numbers <= _SECRET:
        return 0
    if ("0" in numbers) == ("4" in numbers):
        raise path_error(
            path,
            "option numbers (cop) from 0 to 3 and from 1 to 4 cannot be distinguished in it; give the whole file, or "
            "write the letters: JSON lines with text, options and gold",
        )
    return 0 if "0" in numbers else 1


def _as_line(row: Any, first: int) -> dict[str, Any]:
    """Return the row with the keys of `corpus.questions`."""
    form = _form(row)
    if form is None:
        return {}
    options = [row.get(option) for option in _OPTIONS[form]] or row.get("options")
    gold, number = row.get("answer_idx"), str(row.get("cop"))
    if form != "answer_idx" and number not in _SECRET:
        # Another number stays as it is: then the gold is not a letter, and the line is refused.
        numbers = map(str, range(first, first + len(_LETTERS)))
        gold = dict(zip(numbers, _LETTERS, strict=True)).get(number, number)
    return {
        "id": row.get("id", row.get("unique_id")),
        "question": row.get("question"),
        "options": options,
        "gold": gold,
        "category": row.get("category") if form == "op1" else None,
    }


def _question(path: Path, where: str, line: dict[str, Any], number: str) -> Question:
    from pydantic import ValidationError

    from epicrisis.corpus.base.jsonl import find_json_fault
    from epicrisis.corpus.base.line_schemas import QuestionLine, describe_errors

    try:
        if wrong := find_json_fault(line):
            raise InputError(f"{printable_path(path)}, {where}: {wrong}; correct or remove it")
        fields = QuestionLine.model_validate(line)
    except ValidationError as error:
        raise InputError(f"{printable_path(path)}, {where}: {describe_errors(error)}; correct or remove it") from None
    if not fields.options:
        raise InputError(f"{printable_path(path)}, {where}: it has no options; correct or remove it")
    return Question(
        text=fields.text,
        options=fields.options,
        form="choice",
        id=fields.id or number,
        gold=fields.gold,
        category=fields.category,
    )
