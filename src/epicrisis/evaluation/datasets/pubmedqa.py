"""PubMedQA with its contexts: each question comes with its abstract, unlike in MIRAGE's set (errata P9).

`corpus/pubmedqa.py` reads the format. This module adds the test split.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from epicrisis.corpus import pubmedqa
from epicrisis.corpus.reader_base import check_file, os_error_reason, printable_path
from epicrisis.errors import InputError
from epicrisis.types import Document, Question


def read(path: Path, split: Path | None = None) -> tuple[tuple[Question, ...], Mapping[str, Document]]:
    """Return the questions of `ori_pqal.json`, and their abstracts by document id, without title and conclusion.

    With `split` (`test_ground_truth.json`), only the questions in the split, in its order. Raises InputError for
    another or an invalid file, or if the two files disagree.
    """
    questions = tuple(pubmedqa.read_questions(path))
    documents = {
        item.id: item
        for item in pubmedqa.read_documents(path, pubmedqa.load_entries(path))
        if isinstance(item, Document)
    }
    if split is None:
        return questions, documents
    by_id = {question.id: question for question in questions}
    decisions = _split(split)
    wrong = [key for key, decision in decisions.items() if key not in by_id or _decision(by_id[key]) != decision]
    if wrong:
        raise InputError(
            f"{printable_path(split)}: {len(wrong)} entries ({wrong[0]!a}, ...) are not as in "
            f"{printable_path(path.name)}; pull both"
        )
    chosen = tuple(by_id[key] for key in decisions)
    return chosen, {document: documents[document] for q in chosen for document in q.gold_documents}


def _decision(question: Question) -> str | None:
    return None if question.gold is None else question.options[question.gold]


def _split(path: Path) -> dict[str, str]:
    check_file(path)
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"{printable_path(path)}: {os_error_reason(error)}; check the path and its permissions"
        ) from error
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not all(isinstance(decision, str) for decision in value.values()):
        raise InputError(
            f"{printable_path(path)}: not PubMedQA's test split, which maps PMIDs to decisions; pull it again"
        )
    return value
