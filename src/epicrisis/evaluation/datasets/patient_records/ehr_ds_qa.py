"""EHR-DS-QA (Kotschenreuther 2024, PhysioNet): questions by Llama models about discharge summaries of MIMIC-IV.

A physician reviewed 506 of 156,599 pairs. Only the pairs he marked correct are read (478 according to the study).

`discharge_notes_qa.json`, a list of notes: `note_id`, `subject_id`, `hadm_id`, `note_type`, `note` (its text),
`human_verified` and `qa_pairs` of `question`, `answer` and `correct`; or the same as `.csv`, with the pairs as a Python
list. The format is known from the authors' description and code; the file needs credentials and was not available.
"""

from __future__ import annotations

import ast
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epicrisis.corpus.note_documents import ClinicalNote, NoteCleaning, build_documents
from epicrisis.corpus.note_tables import MIMIC_NOTE_TYPES
from epicrisis.corpus.reader_base import ReaderItem, path_error, printable_path
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.patient_records.source import (
    PHYSIONET_LICENCE,
    RecordReader,
    RecordSource,
    describe_first_error,
    find_note_files,
    read_json,
    read_patients_notes,
)
from epicrisis.types import Question

_FILES = (
    "discharge_notes_qa.json",
    "discharge_notes_qa.csv",
    "ehr_notes_qa*.json",
    "ehr_notes_qa*.csv",
    "ehr_ds_qa*.json",
)
_WHAT = "EHR-DS-QA's file"


class _Pair(BaseModel):
    question: str = Field(min_length=1)
    answer: str = Field(min_length=1)
    correct: bool | None = None


class _Note(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    note_id: str = Field(min_length=1)
    subject_id: str = Field(min_length=1)
    hadm_id: str | None = None
    note_type: str = "DS"
    note: str = Field(min_length=1)
    qa_pairs: list[_Pair]


def read(path: Path) -> RecordSource:
    """Return the pairs marked correct, in order, as open questions about the note's patient; the study used all.

    MIMIC's notes in the same folder are the records. Without them each note is a record of its own.
    """
    questions: list[Question] = []
    patients: set[str] = set()
    reviewed = 0
    for note in _read_reviewed_notes(path):
        for number, pair in enumerate(note.qa_pairs, 1):
            reviewed += pair.correct is not None
            if pair.correct:
                questions.append(
                    Question(
                        text=pair.question,
                        id=f"{note.note_id}:{number}",
                        gold=pair.answer,
                        gold_documents=(f"note:{note.note_id}",),
                        patient=note.subject_id,
                    )
                )
                patients.add(note.subject_id)
    files = find_note_files(path)

    def reviewed_notes() -> Iterator[ClinicalNote]:
        for note in _read_reviewed_notes(path):
            kind = MIMIC_NOTE_TYPES.get(note.note_type, note.note_type)
            yield ClinicalNote("", note.subject_id, note.note, (), kind, note.hadm_id or "", note.note_id)

    def notes() -> Iterator[ReaderItem]:
        if files:
            yield from read_patients_notes(files, patients)
        else:
            yield from build_documents(path, path.name, reviewed_notes, NoteCleaning(keep_boilerplate=True))

    notices = [f"{len(questions)} of {reviewed} reviewed pairs are marked correct; the rest is left out"]
    if not files:
        notices.append(
            "no notes beside the questions: the notes asked about are the record; put discharge.csv.gz and "
            "radiology.csv.gz there"
        )
    studied = frozenset(question.id for question in questions)
    return RecordSource(tuple(questions), notes, PHYSIONET_LICENCE, tuple(notices), studied)


READERS = (RecordReader("ehr-ds-qa", _FILES, read),)


def _read_reviewed_notes(path: Path) -> list[_Note]:
    """Return the reviewed notes. Raises InputError for the first invalid one."""
    notes, ids = [], set()
    for number, value in enumerate(_entries(path), 1):
        if not isinstance(value, dict) or str(value.get("human_verified")).casefold() != "true":
            continue
        try:
            note = _Note.model_validate(value)
        except ValidationError as error:
            wrong = describe_first_error(error)
            raise InputError(f"{printable_path(path)}, note {number}: wrong at {wrong}; fetch it again") from None
        if note.note_id in ids:
            raise InputError(f"{printable_path(path)}, note {number}: its note_id occurs twice; give each note once")
        ids.add(note.note_id)
        notes.append(note)
    return notes


def _entries(path: Path) -> Iterator[Any]:
    if path.suffix.casefold() != ".csv":
        value = read_json(path, _WHAT)
        if not isinstance(value, list):
            raise path_error(path, f"not {_WHAT}: it is not a list of notes; fetch it again")
        yield from value
        return
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            yield {**row, "qa_pairs": _parse_list(row.get("qa_pairs") or "")}


def _parse_list(text: str) -> Any:
    """Return a list in Python's notation, or the text if it is not one, which validation then refuses."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text
