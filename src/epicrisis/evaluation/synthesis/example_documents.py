"""Solved questions as documents of a library: read from files, and counted in a library.

The id of a document is `<set>/<question's id>`, its text the question, its source the set. The metadata has the form
of `retrieval.examples`, with `how` it was solved, by which `model`, and the question's `form`. So a library holds one
solution of a question, and a later one replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from epicrisis.core.types import Document, Example, Passage
from epicrisis.corpus.base import jsonl
from epicrisis.corpus.base.jsonl import find_json_fault
from epicrisis.corpus.base.line_schemas import Identifier, NonBlank, NullableText, QuestionLine, describe_errors
from epicrisis.corpus.base.reader_base import Skipped, check_file, printable_path
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.retrieval.solved_questions import read_example
from epicrisis.system.json_lines import read_lines

READY_MADE = "ready-made"
"""The method of solved questions without one."""
KEPT = "kept"

Numbered: TypeAlias = tuple[int, Mapping[str, Any]]
"""A line's number, from 1, and its JSON object."""


class _Line(QuestionLine):
    """A solved question. `gold` is ignored."""

    choice: Identifier | None = None
    answer: NonBlank
    reasoning: NullableText = ""
    set: NullableText = ""
    how: NullableText = ""
    model: NullableText = ""


@dataclass(frozen=True, slots=True)
class ExampleCount:
    """The number of solved questions in a library with the same set, method, model and form."""

    set: str
    how: str
    model: str
    form: str
    count: int


def read_examples(path: Path) -> Iterator[Document | Skipped]:
    """Yield the solved questions of your own file, in its order.

    JSON lines (`.jsonl`, `.jsonl.gz`) require `id`, `question` and `answer`, and with `options` (letters with texts, or
    a list of texts) the right letter as `choice`. `reasoning`, `set` (default: the file's name), `how` and `model` are
    optional. Of lines with a `state`, as in files of `epicrisis examples build`, only kept ones count. Broken lines and
    lines about a patient are skipped and reported. Raises InputError for a path that is no such file.
    """
    check_file(path)
    return _documents(jsonl.read_objects(path), path)


def read_built_examples(path: Path) -> Iterator[Document | Skipped]:
    """Yield the solved questions of a file of `epicrisis examples build`. An incomplete last line is ignored."""
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
    problem = find_json_fault(dict(value))
    if not problem and line.patient is not None:
        problem = "patient: examples are shown with questions about others; leave this one out"
    elif not problem and line.id is None:
        problem = "id: missing; give each question its own"
    elif not problem and line.options and line.choice not in line.options:
        problem = "choice: none of the options; give the letter of the right one"
    if problem:
        return Skipped(printable_path(path), f"line {number}", problem)
    name = line.set or printable_path(path.name)
    metadata = {
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
    return Document(f"{name}/{line.id}", line.text, source=name, metadata=metadata)


def library_examples(library: LibraryStore) -> Iterator[tuple[Passage, Example]]:
    """Yield every solved question of a library with its first passage, in no order.

    Raises InputError if the library holds anything else.
    """
    for batch in library.open_table().batches():
        for stored in batch:
            if stored.passage.ordinal == 0:
                yield stored.passage, read_example(stored.passage)


def count_examples(library: LibraryStore) -> tuple[ExampleCount, ...]:
    """Count the solved questions by set, method, model and form. Raises InputError as `library_examples` does."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for passage, _ in library_examples(library):
        how, model, form = (str(passage.metadata.get(name, "")) for name in ("how", "model", "form"))
        counts[passage.source, how, model, form] += 1
    return tuple(ExampleCount(*group, count) for group, count in sorted(counts.items()))
