"""PubMedQA's file (`ori_pqal.json`): abstracts as documents, and the questions asked of them.

A document has neither title nor conclusion: the title of these articles is the question, word for word, and the
conclusion (`LONG_ANSWER`) is its answer. Knows nothing of splits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.corpus.compression import check_value_count
from epicrisis.corpus.reader_base import Skipped, check_file, os_error_reason, printable_path
from epicrisis.errors import InputError
from epicrisis.types import Document, Question

if TYPE_CHECKING:
    from epicrisis.corpus.line_schemas import PubMedQAEntry

LARGEST = 512 * 1024 * 1024
"""Bytes of a file, which is parsed as a whole."""
OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}
_LETTERS = {text: letter for letter, text in OPTIONS.items()}


def load_entries(path: Path) -> Mapping[str, Any]:
    """The file's entries by PMID, not yet looked at. Raises InputError for any other file."""
    cure = "it must map PMIDs to objects with CONTEXTS; for other data write JSON lines with id and text"
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{printable_path(path)}: larger than {LARGEST // 2**20} MB; {cure}")
        raw = path.read_bytes()
        if too_many := _too_many(raw):
            raise InputError(f"{printable_path(path)}: {too_many}")
        value = json.loads(raw.decode("utf-8-sig"))
    except OSError as error:
        raise InputError(
            f"{printable_path(path)}: {os_error_reason(error)}; check the path and its permissions"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{printable_path(path)}: not a JSON file in UTF-8; {cure}") from error
    if not isinstance(value, dict) or not any(isinstance(v, dict) and "CONTEXTS" in v for v in value.values()):
        raise InputError(f"{printable_path(path)}: not PubMedQA's file; {cure}")
    return value


def _too_many(raw: bytes) -> str:
    try:
        check_value_count(raw)
    except ValueError as error:
        return str(error)
    return ""


def read_documents(path: Path, entries: Mapping[str, Any]) -> Iterator[Document | Skipped]:
    """The abstracts of `load_entries(path)`, in the file's order: `pubmed:<PMID>`, the sections joined by a line feed."""
    for key, value in entries.items():
        try:
            entry = _entry(key, value)
        except ValueError as error:
            yield Skipped(printable_path(path), f"entry {key!a}", str(error))
            continue
        yield Document(
            id=f"pubmed:{key}",
            text="\n".join(entry.contexts),
            source="PubMedQA",
            date=entry.year,
            metadata={"labels": entry.labels, "meshes": entry.meshes},
        )


def read_questions(path: Path) -> Iterator[Question]:
    """The questions in the file's order, with yes, no and maybe as A, B and C.

    Raises InputError at the call for a file that is not PubMedQA's, and at an entry that is broken: with a question
    less it would be another benchmark.
    """
    check_file(path)
    return _questions(path, load_entries(path))


def _questions(path: Path, entries: Mapping[str, Any]) -> Iterator[Question]:
    for key, value in entries.items():
        try:
            entry = _entry(key, value)
            gold = None if entry.final_decision is None else _LETTERS.get(entry.final_decision, "")
            if gold == "":
                raise ValueError("final_decision: neither yes, no nor maybe")
        except ValueError as error:
            raise InputError(f"{printable_path(path)}: entry {key!a}: {error}; fetch the file again") from error
        yield Question(
            text=entry.question,
            options=OPTIONS,
            form="choice",
            id=key,
            gold=gold,
            gold_documents=(f"pubmed:{key}",),
        )


def _entry(key: str, value: Any) -> PubMedQAEntry:
    """Raises ValueError with the reason."""
    from pydantic import ValidationError

    from epicrisis.corpus.line_schemas import PubMedQAEntry, describe_errors, find_json_fault

    if wrong := find_json_fault([key, value]):
        raise ValueError(wrong)
    try:
        entry = PubMedQAEntry.model_validate(value)
    except ValidationError as error:
        raise ValueError(describe_errors(error)) from error
    if not "".join(entry.contexts).strip():
        raise ValueError("CONTEXTS: empty")
    return entry
