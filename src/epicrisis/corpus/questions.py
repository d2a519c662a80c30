"""Read questions from JSON lines or from PubMedQA's file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from epicrisis.corpus import jsonl, pubmedqa
from epicrisis.corpus.reader_base import Skipped, check_file, path_error, skip
from epicrisis.types import EvidenceSpan, Question

_ACCEPTED = "accepted"
_NOT_ACCEPTED = ("proposed", "rejected", "left-out")


def read_questions(path: Path) -> Iterator[Question | Skipped]:
    """Return an iterator over the questions in the file's order.

    A broken line, or an id used before, is `Skipped`. Raises InputError at the call for a path that cannot be such a
    file. `.json` is PubMedQA's file. `.jsonl` and `.jsonl.gz` are JSON lines with these keys:

    * `text` or `question` (required);
    * `options`: texts by letter, or a list of texts, lettered from A;
    * `gold`: one of the letters, or any text if there are no options; an empty `gold` with a `form` means that no
      document has the answer;
    * `id`: by default the line's number;
    * `form`: `choice`, `extractive` or `open`;
    * `also`: other right answers;
    * `evidence`: a list of places (`document_id`, `start`, `end`);
    * `gold_documents`, `patient` and `category`;
    * `state`, as `epicrisis questions generate` writes it: `accepted` lines are questions; `proposed`, `rejected` and
      `left-out` lines are ignored. A file with no other lines yields one `Skipped`.
    """
    check_file(path)
    name = path.name.lower()
    if name.endswith(".json"):
        return pubmedqa.read_questions(path)
    if name.endswith((".jsonl", ".jsonl.gz")):
        return jsonl.convert_objects(path, _accepted_lines(path), partial(_build_question, set()))
    raise path_error(path, "questions come as .jsonl, .jsonl.gz or PubMedQA's .json; rename or convert it")


def _build_question(ids: set[str], number: int, value: dict[str, Any]) -> Question:
    """Return the line's question, and add its id to the ids of earlier lines. Raises ValueError with the reason."""
    from epicrisis.corpus.line_schemas import QuestionLine, validate

    line = validate(QuestionLine, value)
    question_id = line.id or str(number)
    if question_id in ids:
        raise ValueError("id: the same as an earlier question's; use each id once")
    ids.add(question_id)
    return Question(
        text=line.text,
        options=line.options or {},
        form=line.form or ("choice" if line.options else "open"),
        id=question_id,
        gold=line.gold,
        gold_documents=tuple(line.gold_documents or ()),
        patient=line.patient,
        other_answers=tuple(line.also or ()),
        evidence=tuple(EvidenceSpan(**span.model_dump()) for span in line.evidence or ()),
        category=line.category,
    )


def _accepted_lines(path: Path) -> Iterator[jsonl.NumberedObject | Skipped]:
    """Yield the file's lines, without those whose state says that they are no questions, or not yet."""
    ignored, remaining = 0, 0
    for item in jsonl.read_objects(path):
        state = _ACCEPTED if isinstance(item, Skipped) else item[1].get("state", _ACCEPTED)
        if state in _NOT_ACCEPTED:
            ignored += 1
            continue
        remaining += 1
        if isinstance(item, Skipped) or state == _ACCEPTED:
            yield item
        else:
            states = ", ".join((_ACCEPTED, *_NOT_ACCEPTED))
            yield skip(path, f"line {item[0]}", f"state: none of {states}")
    if ignored and not remaining:
        cure = f'set the state of the good ones to "{_ACCEPTED}"'
        yield skip(path, "", f"none of its {ignored} lines is accepted; {cure}")
