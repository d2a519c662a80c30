"""PubMedQA with its contexts: each question comes with its abstract, unlike in MIRAGE's set (errata P9).

`corpus/pubmedqa.py` reads the format. This module adds the test split.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from epicrisis.corpus import pubmedqa
from epicrisis.corpus.reader_base import path_error, printable_path
from epicrisis.evaluation.datasets.dataset import read_content
from epicrisis.types import Document, Question


def read(path: Path, split: Path | None = None) -> tuple[tuple[Question, ...], Mapping[str, Document]]:
    """Return the questions of `ori_pqal.json`, and their abstracts by document id, without title and conclusion.

    With `split` (`test_ground_truth.json`), only the questions in the split, in its order. Raises InputError for
    another or an invalid file, or if the two files disagree.
    """
    questions = tuple(pubmedqa.read_questions(path))
    documents: dict[str, Document] = {}
    for item in pubmedqa.read_documents(path, pubmedqa.load_entries(path)):
        if isinstance(item, Document):
            documents[item.id] = item
    if split is None:
        return questions, documents
    try:
        decisions = TypeAdapter(dict[str, str]).validate_python(json.loads(read_content(split)), strict=True)
    except (ValueError, RecursionError):
        raise path_error(split, "not PubMedQA's test split, which maps PMIDs to decisions; pull it again") from None
    by_id = {question.id: question for question in questions}
    wrong = []
    for key, decision in decisions.items():
        question = by_id.get(key)
        if question is None or question.gold is None or question.options[question.gold] != decision:
            wrong.append(key)
    if wrong:
        entries = f"{len(wrong)} entries ({wrong[0]!a}, ...)"
        raise path_error(split, f"{entries} are not as in {printable_path(path.name)}; pull both")
    chosen = tuple(map(by_id.__getitem__, decisions))
    gold_documents: dict[str, Document] = {}
    for question in chosen:
        for document_id in question.gold_documents:
            gold_documents[document_id] = documents[document_id]
    return chosen, gold_documents
