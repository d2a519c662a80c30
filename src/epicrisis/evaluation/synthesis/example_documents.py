"""Solved questions as documents of a library: out of the lines that keep them, in, and what a library holds of them.

A document is called `<set>/<question's id>`, its text is the question, its source the set; the rest is metadata in the
form that `retrieval.examples` reads, with `how` it was solved, by which `model`, and the question's `form`. So a
library holds one solution of a question: a later one takes its place. Knows no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from epicrisis.corpus import jsonl
from epicrisis.corpus.json_checks import find_json_fault
from epicrisis.corpus.line_schemas import (
    Identifier,
    NonBlank,
    NullableText,
    QuestionLine,
    describe_errors,
)
from epicrisis.corpus.reader_base import Skipped, check_file, printable_path
from epicrisis.evaluation.runs.jsonl_store import read_lines
from epicrisis.library.library import Library
from epicrisis.library.passage_table import PassageTable
from epicrisis.retrieval.examples import read_example
from epicrisis.types import Document, Example, Passage

READY_MADE = "ready-made"
"""How those were solved of which nobody says it."""
KEPT = "kept"

Numbered: TypeAlias = tuple[int, Mapping[str, Any]]
"""A line's number, from 1, and its object."""


class _Line(QuestionLine):
    """A solved question; `gold` is not looked at."""

    choice: Identifier | None = None
    answer: NonBlank
    reasoning: NullableText = ""
    set: NullableText = ""
    how: NullableText = ""
    model: NullableText = ""


@dataclass(frozen=True, slots=True)
class ExampleCount:
    """Solved questions of a library that were made alike."""

    set: str
    how: str
    model: str
    form: str
    count: int


def read_examples(path: Path) -> Iterator[Document | Skipped]:
    """The solved questions of a file of one's own, in its order.

    JSON lines (`.jsonl`, `.jsonl.gz`): `id`, `question` and `answer` are required, and with `options` (letters with
    their texts, or a list of texts) the right one's letter, `choice`; `reasoning`, `set` (else the file's name), `how`
    and `model` are optional. Of lines with a `state`, as those of `epicrisis examples build`, the kept ones count. A
    broken line is left out and said, and so is one of a patient. Raises InputError for a path that is no such file.
    """
    check_file(path)
    return _documents(jsonl.read_objects(path), path)


def read_built_examples(path: Path) -> Iterator[Document | Skipped]:
    """Those of a file that `epicrisis examples build` writes; what a kill left half-written at its end is no line."""
    return _documents(((line.number, line.value) for line in read_lines(path)), path)


def _documents(lines: Iterable[Numbered | Skipped], path: Path) -> Iterator[Document | Skipped]:
    for item in lines:
        if isinstance(item, Skipped):
            yield item
        elif item[1].get("state", KEPT) == KEPT:
            yield _document(*item, path)


def _document(number: int, value: Mapping[str, Any], path: Path) -> Document | Skipped:
    try:
        line = _Line.model_validate(value)
    except ValidationError as error:
        return Skipped(printable_path(path), f"line {number}", describe_errors(error))
    if wrong := find_json_fault(dict(value)) or _unfit(line):
        return Skipped(printable_path(path), f"line {number}", wrong)
    name = line.set or printable_path(path.name)
    told = {
        "question": line.text,
        "question_id": line.id,
        "options": line.options or {},
        "choice": line.choice if line.options else None,
        "reasoning": line.reasoning,
        "answer": line.answer,
        "how": line.how or READY_MADE,
        "model": line.model,
        "form": "choice" if line.options else "open",
    }
    return Document(f"{name}/{line.id}", line.text, source=name, metadata=told)


def _unfit(line: _Line) -> str | None:
    if line.patient is not None:
        return "patient: an example is shown with everybody's questions; leave a patient's out"
    if line.id is None:
        return "id: missing; give each question its own"
    if line.options and line.choice not in line.options:
        return "choice: none of the options; name the letter of the right one"
    return None


def library_examples(library: Library) -> Iterator[tuple[Passage, Example]]:
    """Every solved question of the library once, in no order, with its first passage.

    Raises InputError where the library holds anything else.
    """
    for batch in PassageTable(library.path, library.manifest.dimensions).batches():
        yield from ((stored.passage, read_example(stored.passage)) for stored in batch if stored.passage.ordinal == 0)


def count_examples(library: Library) -> tuple[ExampleCount, ...]:
    """How many by set, how, model and form, in the order of these. Raises InputError as `library_examples` does."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for passage, _ in library_examples(library):
        how, model, form = (str(passage.metadata.get(name, "")) for name in ("how", "model", "form"))
        counts[passage.source, how, model, form] += 1
    return tuple(ExampleCount(*made, count) for made, count in sorted(counts.items()))
