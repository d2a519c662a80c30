"""EHRNoteQA (Kweon et al. 2024, PhysioNet `ehr-notes-qa-llms` 1.0.1): questions by GPT-4 and three clinicians.

Each patient has one question about up to three discharge summaries of MIMIC-IV, with five choices or open.

`EHRNoteQA.jsonl`: `patient_id`, `num_notes`, `question`, `choice_A` to `choice_E`, `answer` (a letter). The summaries
are the patient's first `num_notes` by chart time, as in the authors' preprocessing. The format is known from that code;
the file needs credentials and was not available.
"""

from __future__ import annotations

from bisect import insort
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from epicrisis.corpus import jsonl
from epicrisis.corpus.reader_base import printable_path
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.dataset import require_readable
from epicrisis.evaluation.datasets.patient_records.source import (
    DISCHARGE,
    PHYSIONET_LICENCE,
    RecordReader,
    RecordSource,
    describe_first_error,
    find_note_files,
    read_notes_of_kind,
    read_patients_notes,
)
from epicrisis.types import Question

_LETTERS = "ABCDE"


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


def read(path: Path, choice: bool = True) -> RecordSource:
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
            )
        )
    notices: tuple[str, ...] = ()
    if incomplete:
        notices = (f"{incomplete} of {len(questions)} patients have fewer discharge summaries here than they should",)
    notes = partial(read_patients_notes, files, lines.keys())
    return RecordSource(tuple(questions), notes, PHYSIONET_LICENCE, notices, frozenset(lines))


READERS = (
    RecordReader("ehrnoteqa", ("EHRNoteQA.jsonl",), read),
    RecordReader("ehrnoteqa-open", ("EHRNoteQA.jsonl",), partial(read, choice=False)),
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
