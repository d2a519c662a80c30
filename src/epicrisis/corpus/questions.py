"""Questions from JSON lines or from PubMedQA's file. Knows nothing of how they are answered or scored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from epicrisis.corpus import jsonl, pubmedqa
from epicrisis.corpus.reader_base import Skipped, check_file, shown
from epicrisis.errors import InputError
from epicrisis.types import EvidenceSpan, Question

_ACCEPTED = "accepted"
_PASSED_OVER = ("proposed", "rejected", "left-out")


def read_questions(path: Path) -> Iterator[Question | Skipped]:
    """The questions in the file's order; a broken line, or an id seen before, is left out and said.

    JSON lines (`.jsonl`, `.jsonl.gz`): `text` or `question` is required; `options` maps letters to texts, or lists the
    texts, lettered from A; `gold` is one of the letters, or any text where there are no options; `id` is the line's
    number where it is missing; `gold_documents` and `patient` are optional, and so are `form` (`choice`, `extractive`,
    `open`), `also` (other right answers), `category` and `evidence` (places of `document_id`, `start` and `end`); an
    empty `gold` beside a `form` says that no document has the answer. Of lines with a `state`, as those of
    `epicrisis questions generate`, the `accepted` ones are questions; `proposed`, `rejected` and `left-out` ones are
    passed over, and where there is none but these that is said. `.json`: PubMedQA's file. Raises InputError at the
    call for a path that cannot be such a file.
    """
    check_file(path)
    name = path.name.lower()
    if name.endswith(".json"):
        return pubmedqa.questions(path)
    if name.endswith((".jsonl", ".jsonl.gz")):
        return _lines(path)
    raise InputError(f"{shown(path)}: questions come as .jsonl, .jsonl.gz or PubMedQA's .json; rename or convert it")


def _lines(path: Path) -> Iterator[Question | Skipped]:
    from pydantic import ValidationError

    from epicrisis.corpus.line_schemas import QuestionLine, reason

    seen: set[str] = set()
    for item in _accepted(path):
        if isinstance(item, Skipped):
            yield item
            continue
        number, value = item
        where = f"line {number}"
        try:
            line = QuestionLine.model_validate(value)
        except ValidationError as error:
            yield Skipped(shown(path), where, reason(error))
            continue
        question_id = line.id or str(number)
        if question_id in seen:
            yield Skipped(shown(path), where, "id: the same as an earlier question's; give each its own")
            continue
        seen.add(question_id)
        yield Question(
            text=line.text,
            options=line.options or {},
            form=line.form or ("choice" if line.options else "open"),
            id=question_id,
            gold=line.gold,
            gold_documents=tuple(line.gold_documents or ()),
            patient=line.patient,
            other_answers=tuple(line.also or ()),
            evidence=tuple(EvidenceSpan(**place.model_dump()) for place in line.evidence or ()),
            category=line.category,
        )


def _accepted(path: Path) -> Iterator[tuple[int, dict[str, Any]] | Skipped]:
    """The lines, without those whose state says that they are no questions, or not yet."""
    passed_over, left = 0, 0
    for item in jsonl.objects(path):
        state = _ACCEPTED if isinstance(item, Skipped) else item[1].get("state", _ACCEPTED)
        if state in _PASSED_OVER:
            passed_over += 1
            continue
        left += 1
        if isinstance(item, Skipped) or state == _ACCEPTED:
            yield item
        else:
            known = ", ".join((_ACCEPTED, *_PASSED_OVER))
            yield Skipped(shown(path), f"line {item[0]}", f"state: none of {known}")
    if passed_over and not left:
        cure = f'set the state of those that are good to "{_ACCEPTED}"'
        yield Skipped(shown(path), "", f"none of its {passed_over} lines is accepted; {cure}")
