"""EHRNoteQA (Kweon et al. 2024, PhysioNet `ehr-notes-qa-llms` 1.0.1): one question a patient about up to three
discharge summaries of MIMIC-IV, by GPT-4 and three clinicians, with five choices or to be answered openly.

`EHRNoteQA.jsonl`: `patient_id`, `num_notes`, `question`, `choice_A` to `choice_E`, `answer` (a letter). The summaries
are the patient's first `num_notes` by chart time, as the authors' own preprocessing takes them. The form is known from
that code; the file itself is credentialed and was not seen.
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


def read(path: Path, asked: str = "ehrnoteqa") -> RecordSource:
    """All questions in the file's order, id and patient its `patient_id`; of `ehrnoteqa-open` the options are off, and
    the right one's text is gold. Raises InputError where no notes lie beside the file."""
    files = mimic.find_note_files(path)
    if not files:
        raise InputError(
            f"{printable_path(path.name)}: no notes beside it: put MIMIC-IV-Note's discharge.csv.gz, and radiology.csv.gz for "
            "the rest of the record, into its folder"
        )
    lines = _lines(path)
    patients = frozenset(line.patient_id for line in lines)
    summaries = _summaries(files, patients)
    questions = []
    for line in lines:
        options = {letter: str(getattr(line, f"choice_{letter}")) for letter in _LETTERS}
        choice = asked == "ehrnoteqa"
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
    lines, seen = [], set()
    for item in jsonl.read_objects(path):
        if isinstance(item, Skipped):
            raise InputError(f"{item.path}, {item.where}: {item.reason}")
        number, value = item
        try:
            line = _Line.model_validate(value)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)[0]["loc"]
            raise InputError(
                f"{printable_path(path)}, line {number}: not a question of EHRNoteQA: wrong at {'.'.join(map(str, wrong))}"
            ) from None
        if line.patient_id in seen:
            raise InputError(
                f"{printable_path(path)}, line {number}: its patient was there before; the set asks once a patient"
            )
        seen.add(line.patient_id)
        lines.append(line)
    return lines


def _summaries(files: Sequence[Path], patients: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """The patients' discharge summaries by chart time: ids alone, their texts are not kept."""

    def wanted(note: ClinicalNote) -> bool:
        return normalize_id(note.patient) in patients and mimic.is_kind(note, mimic.DISCHARGE)

    timed: dict[str, list[tuple[str, str]]] = {}
    for item in (item for path in files for item in mimic.read_selected_notes(path, wanted)):
        if isinstance(item, Document):
            timed.setdefault(str(item.patient), []).append((item.date or "", item.id))
    return {patient: tuple(note for _, note in sorted(each)) for patient, each in timed.items()}
