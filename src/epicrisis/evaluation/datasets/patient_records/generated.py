"""The output of `epicrisis synthesize-record`: `notes.csv` and `questions.jsonl` about fictional patients.

Other folders with the same format can be read too.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from epicrisis.corpus.questions import read_questions
from epicrisis.corpus.reader_base import Skipped, printable_path
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.patient_records import mimic
from epicrisis.evaluation.datasets.patient_records.source import RecordSource

NAMES = ("generated",)
FILES = ("questions.jsonl",)
NOTES = "notes.csv"


def read(path: Path) -> RecordSource:
    """Return all questions in order; their gold documents are the related notes.

    Raises InputError for a line without a question about a patient, and if there are no notes in the folder.
    """
    notes = path.with_name(NOTES)
    if not notes.is_file():
        raise InputError(
            f"{printable_path(path)}: no {NOTES} in its folder: make both with epicrisis synthesize-record -o DIR"
        )
    questions = []
    for item in read_questions(path):
        if isinstance(item, Skipped):
            raise InputError(f"{', '.join(filter(None, (item.path, item.where)))}: {item.reason}")
        if item.patient is None:
            raise InputError(
                f"{printable_path(path)}: question {item.id!a} names no patient: give each the patient of its record"
            )
        questions.append(item)
    patients = frozenset(question.patient or "" for question in questions)
    related = {question.id: frozenset(question.gold_documents) for question in questions}
    return RecordSource(tuple(questions), partial(mimic.read_patients_notes, (notes,), patients), related, "fictional")
