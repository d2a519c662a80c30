"""The output of `epicrisis synthesize-record`: `notes.csv` and `questions.jsonl` about fictional patients.

Other folders with the same format can be read too.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from epicrisis.corpus.questions import read_questions
from epicrisis.corpus.reader_base import path_error
from epicrisis.evaluation.datasets.dataset import require_readable
from epicrisis.evaluation.datasets.patient_records.source import RecordSource, read_patients_notes

NAMES = ("generated",)
FILES = ("questions.jsonl",)
NOTES = "notes.csv"


def read(path: Path) -> RecordSource:
    """Return all questions in order; their gold documents are the related notes.

    Raises InputError for a line without a question about a patient, and if there are no notes in the folder.
    """
    notes = path.with_name(NOTES)
    if not notes.is_file():
        raise path_error(path, f"no {NOTES} in its folder: make both with epicrisis synthesize-record -o DIR")
    questions = tuple(require_readable(read_questions(path)))
    patients: set[str] = set()
    for question in questions:
        if question.patient is None:
            raise path_error(path, f"question {question.id!a} names no patient: give each the patient of its record")
        patients.add(question.patient)
    read_notes = partial(read_patients_notes, (notes,), patients)
    return RecordSource(questions, read_notes, "fictional")
