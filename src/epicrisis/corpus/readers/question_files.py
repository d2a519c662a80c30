"""Read questions from JSON lines, and questions and abstracts from PubMedQA's file (`ori_pqal.json`)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document, EvidenceSpan, Question
from epicrisis.corpus.base import jsonl
from epicrisis.corpus.base.reader_base import Skipped, check_file, path_error, printable_path, skip, unreadable

if TYPE_CHECKING:
    from epicrisis.corpus.base.line_schemas import PubMedQAEntry

MAX_FILE_BYTES = 512 * 1024 * 1024
OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}
_LETTERS = {text: letter for letter, text in OPTIONS.items()}
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
        return read_pubmedqa_questions(path)
    if name.endswith((".jsonl", ".jsonl.gz")):
        return jsonl.convert_objects(path, _accepted_lines(path), partial(_build_question, set()))
    raise path_error(path, "questions come as .jsonl, .jsonl.gz or PubMedQA's .json; rename or convert it")


def _build_question(ids: set[str], number: int, value: dict[str, Any]) -> Question:
    """Return the line's question, and add its id to the ids of earlier lines. Raises ValueError with the reason."""
    from epicrisis.corpus.base.line_schemas import QuestionLine, validate

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
    """Yield the file's lines with questions. Lines with another state are left out."""
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


def load_pubmedqa(path: Path) -> Mapping[str, Any]:
    """Return the file's entries by PMID, not yet checked. Raises InputError for any other file."""
    shown_path = printable_path(path)
    cure = "it must map PMIDs to objects with CONTEXTS; for other data write JSON lines with id and text"
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{shown_path}: larger than {MAX_FILE_BYTES // 2**20} MB; {cure}")
        raw = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        jsonl.check_value_count(raw)
    except ValueError as error:
        raise InputError(f"{shown_path}: {error}") from error
    try:
        entries = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{shown_path}: not a JSON file in UTF-8; {cure}") from error
    values = entries.values() if isinstance(entries, dict) else ()
    if not any(isinstance(entry, dict) and "CONTEXTS" in entry for entry in values):
        raise InputError(f"{shown_path}: not PubMedQA's file; {cure}")
    return dict(entries)


def read_pubmedqa_documents(path: Path, entries: Mapping[str, Any]) -> Iterator[Document | Skipped]:
    """Yield the abstracts of `load_pubmedqa(path)` in the file's order, with the id `pubmed:<PMID>`.

    A document has no title, since the title of these articles is the question, and no conclusion, which is its answer.
    """
    for key, value in entries.items():
        try:
            entry = _validate_pubmedqa(key, value)
        except ValueError as error:
            yield skip(path, f"entry {key!a}", str(error))
            continue
        yield Document(
            id=f"pubmed:{key}",
            text="\n".join(entry.contexts),
            source="PubMedQA",
            date=entry.year,
            metadata={"labels": entry.labels, "meshes": entry.meshes},
        )


def read_pubmedqa_questions(path: Path) -> Iterator[Question]:
    """Return an iterator over the questions in the file's order, with yes, no and maybe as A, B and C.

    Raises InputError for another file, and at a broken entry: a benchmark with a question less would be another one.
    """
    check_file(path)
    return itertools.starmap(partial(_build_pubmedqa_question, path), load_pubmedqa(path).items())


def _build_pubmedqa_question(path: Path, key: str, value: Any) -> Question:
    try:
        entry = _validate_pubmedqa(key, value)
        if entry.final_decision not in (None, *_LETTERS):
            raise ValueError("final_decision: neither yes, no nor maybe")
    except ValueError as error:
        raise path_error(path, f"entry {key!a}: {error}; fetch the file again") from error
    return Question(
        text=entry.question,
        options=OPTIONS,
        form="choice",
        id=key,
        gold=_LETTERS.get(entry.final_decision or ""),
        gold_documents=(f"pubmed:{key}",),
    )


def _validate_pubmedqa(key: str, value: Any) -> PubMedQAEntry:
    """Return the entry. Raises ValueError with the reason."""
    from epicrisis.corpus.base.line_schemas import PubMedQAEntry, validate

    if fault := jsonl.find_json_fault([key, value]):
        raise ValueError(fault)
    entry = validate(PubMedQAEntry, value)
    if not "".join(entry.contexts).strip():
        raise ValueError("CONTEXTS: empty")
    return entry
