"""Read PubMedQA's file (`ori_pqal.json`): abstracts as documents, and the questions about them.

A document has no title, since the title of these articles is the question, and no conclusion, which is its answer.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.corpus.jsonl import check_value_count, find_json_fault
from epicrisis.corpus.reader_base import Skipped, check_file, path_error, printable_path, skip, unreadable
from epicrisis.errors import InputError
from epicrisis.types import Document, Question

if TYPE_CHECKING:
    from epicrisis.corpus.line_schemas import PubMedQAEntry

MAX_FILE_BYTES = 512 * 1024 * 1024
OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}
_LETTERS = {text: letter for letter, text in OPTIONS.items()}


def load_entries(path: Path) -> Mapping[str, Any]:
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
        check_value_count(raw)
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


def read_documents(path: Path, entries: Mapping[str, Any]) -> Iterator[Document | Skipped]:
    """Yield the abstracts of `load_entries(path)` in the file's order, with the id `pubmed:<PMID>`."""
    for key, value in entries.items():
        try:
            entry = _validate_entry(key, value)
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


def read_questions(path: Path) -> Iterator[Question]:
    """Return an iterator over the questions in the file's order, with yes, no and maybe as A, B and C.

    Raises InputError for another file, and at a broken entry: a benchmark with a question less would be another one.
    """
    check_file(path)
    return itertools.starmap(partial(_build_question, path), load_entries(path).items())


def _build_question(path: Path, key: str, value: Any) -> Question:
    try:
        entry = _validate_entry(key, value)
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


def _validate_entry(key: str, value: Any) -> PubMedQAEntry:
    """Return the entry. Raises ValueError with the reason."""
    from epicrisis.corpus.line_schemas import PubMedQAEntry, validate

    if fault := find_json_fault([key, value]):
        raise ValueError(fault)
    entry = validate(PubMedQAEntry, value)
    if not "".join(entry.contexts).strip():
        raise ValueError("CONTEXTS: empty")
    return entry
