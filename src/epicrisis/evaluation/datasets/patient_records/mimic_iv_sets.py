"""Question sets about notes of MIMIC-IV: EHR-DS-QA and EHRNoteQA.

EHR-DS-QA (Kotschenreuther 2024, PhysioNet): questions by Llama models about discharge summaries of MIMIC-IV.

A physician reviewed 506 of 156,599 pairs. Only the pairs he marked correct are read (478 according to the study).

`discharge_notes_qa.json`, a list of notes: `note_id`, `subject_id`, `hadm_id`, `note_type`, `note` (its text),
`human_verified` and `qa_pairs` of `question`, `answer` and `correct`; or the same as `.csv`, with the pairs as a Python
list. The format is known from the authors' description and code; the file needs credentials and was not available.

EHRNoteQA (Kweon et al. 2024, PhysioNet `ehr-notes-qa-llms` 1.0.1): questions by GPT-4 and three clinicians.

Each patient has one question about up to three discharge summaries of MIMIC-IV, with five choices or open.

`EHRNoteQA.jsonl`: `patient_id`, `num_notes`, `question`, `choice_A` to `choice_E`, `answer` (a letter), and where the
file has it the question's `topic` or `category`, which becomes its category. The summaries
are the patient's first `num_notes` by chart time, as in the authors' preprocessing. The format is known from that code;
the file needs credentials and was not available.
"""

from __future__ import annotations

import ast
import csv
import sys
from bisect import insort
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.types import Question
from epicrisis.corpus.base import jsonl
from epicrisis.corpus.base.reader_base import ReaderItem, path_error, printable_path
from epicrisis.corpus.records.note_documents import ClinicalNote, NoteCleaning, build_documents
from epicrisis.corpus.records.note_tables import MIMIC_NOTE_TYPES
from epicrisis.evaluation.datasets.dataset import require_readable
from epicrisis.evaluation.datasets.patient_records.source import (
    DISCHARGE,
    PHYSIONET_LICENCE,
    RecordReader,
    RecordSet,
    describe_first_error,
    find_note_files,
    read_json,
    read_notes_of_kind,
    read_patients_notes,
)

_EHR_DS_QA_FILES = (
    "discharge_notes_qa.json",
    "discharge_notes_qa.csv",
    "ehr_notes_qa*.json",
    "ehr_notes_qa*.csv",
    "ehr_ds_qa*.json",
)
_WHAT = "EHR-DS-QA's file"
_LETTERS = "ABCDE"


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


def read_ehr_ds_qa(path: Path) -> RecordSet:
    """Return the pairs marked correct, in order, as open questions about the note's patient; the study used all.

    MIMIC's notes in the same folder are the records. Without them each note is a record of its own.
    """
    questions: list[Question] = []
    patients: set[str] = set()
    note_types: set[str] = set()
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
                note_types.add(_name_note_type(note).casefold())
    files = find_note_files(path)

    def reviewed_notes() -> Iterator[ClinicalNote]:
        for note in _read_reviewed_notes(path):
            kind = _name_note_type(note)
            yield ClinicalNote(
                where="",
                patient=note.subject_id,
                text=note.note,
                times=(),
                note_type=kind,
                encounter=note.hadm_id or "",
                note_id=note.note_id,
            )

    def notes() -> Iterator[ReaderItem]:
        if files:
            yield from read_patients_notes(files, patients)
        else:
            yield from build_documents(path, path.name, reviewed_notes, NoteCleaning(keep_boilerplate=True))

    notices = [
        f"{len(questions)} of {count_noun(reviewed, 'reviewed pair')} {agree(len(questions), 'is', 'are')} marked "
        "correct; the rest is left out"
    ]
    if not files:
        notices.append(
            "no notes beside the questions: the notes asked about are the record; put discharge.csv.gz and "
            "radiology.csv.gz there"
        )
    studied = frozenset(question.id for question in questions)
    return RecordSet(
        questions=tuple(questions),
        notes=notes,
        licence=PHYSIONET_LICENCE,
        notices=tuple(notices),
        studied=studied,
        note_types=frozenset(note_types),
    )


def _name_note_type(note: _Note) -> str:
    return MIMIC_NOTE_TYPES.get(note.note_type, note.note_type)


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


class _Line(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    patient_id: str = Field(min_length=1)
    num_notes: int = Field(ge=1)
    question: str = Field(min_length=1)
    choice_A: str
    choice_B: str
    choice_C: str
    choice_D: str
    choice_E: str
    answer: Annotated[str, BeforeValidator(lambda value: str(value).strip()[:1].upper()), Field(pattern="[A-E]")]
    topic: str = Field("", validation_alias=AliasChoices("topic", "category"))


def read_ehrnoteqa(path: Path, choice: bool = True) -> RecordSet:
    """Return all questions in order, with `patient_id` as id and patient.

    Without `choice` questions have no options, and the text of the right one is gold. Raises InputError if there are
    no notes in the folder of the file.
    """
    files = find_note_files(path)
    if not files:
        raise InputError(
            f"{printable_path(path.name)}: no notes in its folder: put MIMIC-IV-Note's discharge.csv.gz, and "
            "radiology.csv.gz for the rest of the record, into its folder"
        )
    lines = _read_lines(path)
    # The ids of each patient's discharge summaries, by chart time.
    summaries: dict[str, list[tuple[str, str]]] = {}
    for note in read_notes_of_kind(files, DISCHARGE, lines.keys()):
        insort(summaries.setdefault(str(note.patient), []), (note.date or "", note.id))
    questions = []
    incomplete = 0
    for line in lines.values():
        options = {letter: str(getattr(line, f"choice_{letter}")) for letter in _LETTERS}
        gold_documents = tuple(note_id for _, note_id in summaries.get(line.patient_id, ())[: line.num_notes])
        incomplete += len(gold_documents) < line.num_notes
        questions.append(
            Question(
                text=line.question,
                options=options if choice else {},
                form="choice" if choice else "open",
                id=line.patient_id,
                gold=line.answer if choice else options[line.answer],
                gold_documents=gold_documents,
                patient=line.patient_id,
                category=line.topic,
            )
        )
    notices: tuple[str, ...] = ()
    if incomplete:
        notices = (
            f"{incomplete} of {count_noun(len(questions), 'patient')} {agree(incomplete, 'has', 'have')} fewer "
            "discharge summaries here than there should be",
        )
    notes = partial(read_patients_notes, files, lines.keys())
    return RecordSet(
        questions=tuple(questions),
        notes=notes,
        licence=PHYSIONET_LICENCE,
        notices=notices,
        studied=frozenset(lines),
        note_types=frozenset((DISCHARGE,)),
    )


def _read_lines(path: Path) -> dict[str, _Line]:
    """Return the lines by patient id. Raises InputError."""
    lines: dict[str, _Line] = {}
    for number, value in require_readable(jsonl.read_objects(path)):
        try:
            line = _Line.model_validate(value)
        except ValidationError as error:
            wrong = describe_first_error(error)
            raise InputError(
                f"{printable_path(path)}, line {number}: not a question of EHRNoteQA: wrong at {wrong}"
            ) from None
        if line.patient_id in lines:
            raise InputError(
                f"{printable_path(path)}, line {number}: its patient occurs twice; the set has one question per patient"
            )
        lines[line.patient_id] = line
    return lines


READERS = (
    RecordReader("ehrnoteqa", ("EHRNoteQA.jsonl",), read_ehrnoteqa),
    RecordReader("ehrnoteqa-open", ("EHRNoteQA.jsonl",), partial(read_ehrnoteqa, choice=False)),
    RecordReader("ehr-ds-qa", _EHR_DS_QA_FILES, read_ehr_ds_qa),
)
