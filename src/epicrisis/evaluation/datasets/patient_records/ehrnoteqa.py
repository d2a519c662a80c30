"""EHRNoteQA (Kweon et al. 2024, PhysioNet `ehr-notes-qa-llms` 1.0.1): questions by GPT-4 and three clinicians.

Each patient has one question about up to three discharge summaries of MIMIC-IV, with five choices or open.

`EHRNoteQA.jsonl`: `patient_id`, `num_notes`, `question`, `choice_A` to `choice_E`, `answer` (a letter). The summaries
are the patient's first `num_notes` by chart time, as in the authors' preprocessing. The format is known from that code;
the file needs credentials and was not available.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from epicrisis.corpus import jsonl
from epicrisis.corpus.note_documents import ClinicalNote, normalize_id
from epicrisis.corpus.reader_base import Skipped, printable_path
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.patient_records import mimic
from epicrisis.evaluation.datasets.patient_records.source import RecordSource
from epicrisis.types import Document, Question

NAMES = ("ehrnoteqa", "ehrnoteqa-open")
FILES = ("EHRNoteQA.jsonl",)
LICENCE = "PhysioNet Credentialed Health Data License 1.5.0"
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


def read(path: Path, name: str = "ehrnoteqa") -> RecordSource:
    """Return all questions in order, with `patient_id` as id and patient.

    Questions of `ehrnoteqa-open` have no options, and the text of the right one is gold. Raises InputError if there are
    no notes in the folder of the file.
    """
    files = mimic.find_note_files(path)
    if not files:
        raise InputError(
            f"{printable_path(path.name)}: no notes in its folder: put MIMIC-IV-Note's discharge.csv.gz, and "
            "radiology.csv.gz for the rest of the record, into its folder"
        )
    lines = _lines(path)
    patients = frozenset(line.patient_id for line in lines)
    summaries = _summaries(files, patients)
    questions = []
    for line in lines:
        options = {letter: str(getattr(line, f"choice_{letter}")) for letter in _LETTERS}
        choice = name == "ehrnoteqa"
        questions.append(
            Question(
                text=line.question,
                options=options if choice else {},
                form="choice" if choice else "open",
                id=line.patient_id,
                gold=line.answer if choice else options[line.answer],
                gold_documents=summaries.get(line.patient_id, ())[: line.num_notes],
                patient=line.patient_id,
            )
        )
    short = sum(len(q.gold_documents) < line.num_notes for q, line in zip(questions, lines, strict=True))
    notices = (f"{short} of {len(questions)} patients have fewer discharge summaries here than they should",) * bool(
        short
    )
    related = {question.id: frozenset(question.gold_documents) for question in questions}
    notes = partial(mimic.read_patients_notes, files, patients)
    return RecordSource(tuple(questions), notes, related, LICENCE, notices, frozenset(related))


def _lines(path: Path) -> list[_Line]:
    lines, patient_ids = [], set()
    for item in jsonl.read_objects(path):
        if isinstance(item, Skipped):
            raise InputError(f"{item.path}, {item.where}: {item.reason}")
        number, value = item
        try:
            line = _Line.model_validate(value)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]["loc"]
            raise InputError(
                f"{printable_path(path)}, line {number}: not a question of EHRNoteQA: "
                f"wrong at {'.'.join(map(str, wrong))}"
            ) from None
        if line.patient_id in patient_ids:
            raise InputError(
                f"{printable_path(path)}, line {number}: its patient occurs twice; the set has one question per patient"
            )
        patient_ids.add(line.patient_id)
        lines.append(line)
    return lines


def _summaries(files: Sequence[Path], patients: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Return the ids of each patient's discharge summaries, by chart time."""

    def is_summary(note: ClinicalNote) -> bool:
        return normalize_id(note.patient) in patients and mimic.is_kind(note, mimic.DISCHARGE)

    timed: dict[str, list[tuple[str, str]]] = {}
    for item in (item for path in files for item in mimic.read_selected_notes(path, is_summary)):
        if isinstance(item, Document):
            timed.setdefault(str(item.patient), []).append((item.date or "", item.id))
    return {patient: tuple(note for _, note in sorted(summaries)) for patient, summaries in timed.items()}
