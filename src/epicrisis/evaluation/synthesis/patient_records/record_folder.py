"""Write fictional records to a folder: record/notes.csv, questions.jsonl and README.md, all of them or none.

Structured entries of the same patients are written on request: facts.jsonl with questions, FHIR, OMOP and C-CDA.

Offsets of questions refer to the texts in notes.csv: lines end with line feeds, no line ends with blanks, and no two
empty lines follow each other.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from epicrisis.core.errors import InputError, StorageError
from epicrisis.core.printable import printable_json
from epicrisis.core.serialization import to_json
from epicrisis.corpus.base.reader_base import os_error_reason, printable_path
from epicrisis.evaluation.grading.computed_answers import PARTS_SEPARATOR
from epicrisis.evaluation.synthesis.patient_records.ccda_documents import build_document
from epicrisis.evaluation.synthesis.patient_records.chart_entries import list_entries
from epicrisis.evaluation.synthesis.patient_records.entry_questions import (
    CURRENT_DRUG,
    NO_ENTRY,
    StructuredQuestion,
    draw_entry_questions,
)
from epicrisis.evaluation.synthesis.patient_records.fhir_bundles import build_bundle
from epicrisis.evaluation.synthesis.patient_records.fictional_record import FictionalRecord, check_length, make_record
from epicrisis.evaluation.synthesis.patient_records.omop_tables import OmopTables
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.record_questions import CATEGORIES, RecordQuestion, draw_questions
from epicrisis.system.local_only import restrict_to_owner
from epicrisis.system.temporary_folders import TemporaryFolder, remove_abandoned_folders

FORMATS = ("fhir", "omop", "ccda")
"""The formats, each of which has a folder of its name."""
RECORD = "record"
"""The folder of what belongs into a library. Questions stand beside it."""
FACTS, FACT_QUESTIONS = "facts.jsonl", "fact_questions.jsonl"
NOTES, QUESTIONS, README = f"{RECORD}/notes.csv", "questions.jsonl", "README.md"
_SCRATCH_PREFIX = ".records-"
COLUMNS = ("subject_id", "hadm_id", "note_id", "charttime", "note_type", "text", "admittime", "dischtime")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSummary:
    """The sizes of one record in the folder."""

    patient: str
    stays: int
    notes: int
    characters: int
    tokens: int
    """From `fictional_record.estimate_tokens`."""
    questions: int
    """Fewer than requested if the record offers no more."""
    entries: int = 0
    """Structured entries."""


def write_records(
    folder: Path,
    patients: int,
    tokens: Sequence[int],
    stays: int | None = None,
    seed: int = 0,
    questions_each: int = 21,
    structured: Sequence[str] = (),
) -> tuple[RecordSummary, ...]:
    """Write the records of `patients` patients, with the lengths in `tokens` in turn.

    `structured` names the formats of structured entries (`structured_files.FORMATS`). The same arguments give the same
    bytes. Only this user can read the folder. If one record fails, it stays empty. Raise InputError if the folder is
    not empty, a length does not fit the stays, or a format is unknown, and StorageError if it cannot be written.
    """
    for length in tokens:
        check_length(length)
    check_formats(structured)
    try:
        remove_abandoned_folders(_SCRATCH_PREFIX, folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{printable_path(folder)} exists already: choose a new or empty folder (-o)")
        parent = folder if folder.exists() else folder.parent
        parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder(_SCRATCH_PREFIX, parent) as scratch:
            (scratch / RECORD).mkdir()
            with StructuredFiles(scratch, structured) as entries:
                summaries = _write_files(scratch, patients, tokens, stays, seed, questions_each, entries)
            restrict_to_owner(scratch)
            folder.mkdir(mode=0o700, exist_ok=True)
            restrict_to_owner(folder)
            names = (README, RECORD, QUESTIONS, FACTS, FACT_QUESTIONS)
            for path in filter(Path.exists, (scratch.joinpath(name) for name in names)):
                path.rename(folder / path.name)
        return summaries
    except OSError as error:
        raise StorageError(
            f"{printable_path(folder)} cannot be written ({os_error_reason(error)}): free some space, or choose "
            "another folder (-o)"
        ) from error


def _write_files(
    folder: Path,
    patients: int,
    tokens: Sequence[int],
    stays: int | None,
    seed: int,
    questions_each: int,
    entries: StructuredFiles,
) -> tuple[RecordSummary, ...]:
    summaries: list[RecordSummary] = []
    kinds: Counter[str] = Counter()
    choices = 0
    with (
        (folder / NOTES).open("w", encoding="utf-8", newline="") as notes_file,
        (folder / QUESTIONS).open("w", encoding="utf-8", newline="\n") as questions_file,
    ):
        rows = csv.writer(notes_file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for number in range(patients):
            record = make_record(f"fict{seed}-{number + 1:03d}", tokens[number % len(tokens)], stays, seed)
            draws = Draws("questions", seed, record.patient.id)
            questions = draw_questions(record, questions_each, draws, choices)
            for note in record.notes:
                admitted = discharged = ""
                if note.encounter:
                    admitted = note.stay.admitted.isoformat(timespec="minutes")
                    discharged = note.stay.discharged.isoformat(timespec="minutes")
                cells = note.encounter, note.id, note.time, note.kind, note.text, admitted, discharged
                rows.writerow((record.patient.id, *cells))
            for question in questions:
                questions_file.write(f"{_question_line(question)}\n")
                kinds[question.question.category] += 1
                choices += bool(question.question.options)
            summaries.append(
                RecordSummary(
                    patient=record.patient.id,
                    stays=len(record.patient.stays),
                    notes=len(record.notes),
                    characters=record.characters,
                    tokens=record.tokens,
                    questions=len(questions),
                    entries=entries.add(record, draws),
                )
            )
    counts = ", ".join(f"{kinds[category]} {category}" for category in CATEGORIES)
    text = _README_TEMPLATE.format(patients=patients, seed=seed, kinds=counts)
    (folder / README).write_text(text, encoding="utf-8", newline="\n")
    return tuple(summaries)


def _question_line(record_question: RecordQuestion) -> str:
    question = record_question.question
    line: dict[str, Any] = {"id": question.id, "text": question.text, "form": question.form}
    if question.options:
        line["options"] = dict(question.options)
    line |= {
        "gold": question.gold,
        "also": list(question.other_answers),
        "category": question.category,
        "about": record_question.about,
        "patient": question.patient,
        "gold_documents": list(question.gold_documents),
        "evidence": list(map(to_json, question.evidence)),
        "depth": record_question.depth,
    }
    return printable_json(json.dumps(line, ensure_ascii=False))


_README_TEMPLATE = """# Fictional patient records

Everything here is invented: no note, no patient and no value is of a real person, and nothing here is medical advice.
Made by `epicrisis synthesize-record` ({patients} patients, seed {seed}); the same command makes the same files.

* `record/notes.csv`: the notes of each patient in order of time.
* `questions.jsonl`: questions ({kinds}).
  `evidence` holds all places where the answer stands, offsets in characters into the note's text (`end` excluded);
  places of one `fact` say the same, and of a holistic question all facts are needed. `depth` is their mean place in
  the record, 0 to 1. An empty `gold` means that the record does not say.

To search in them:

    epicrisis library add LIBRARY record/notes.csv --column patient=subject_id --column time=charttime \\
        --column type=note_type --column text=text --column encounter=hadm_id --column note-id=note_id

With `--structured`, `facts.jsonl` holds the structured entries of each patient and `fact_questions.jsonl` questions
about them, a question set as `questions.jsonl`: `gold` is the parts of the right answer, with semicolons between them.
`record/fhir`, `record/omop` and `record/ccda` hold the same entries in these formats.
"""


def check_formats(formats: Sequence[str]) -> None:
    """Raise InputError for an unknown format."""
    for name in formats:
        if name not in FORMATS:
            raise InputError(f"--structured {name}: choose from {', '.join(FORMATS)}, with commas between them")


class StructuredFiles:
    """Writes the entries of several patients to a folder. A context manager; without formats it writes nothing.

    Raises OSError if the folder cannot be written.
    """

    def __init__(self, folder: Path, formats: Sequence[str]) -> None:
        self._folder = folder
        self._formats = frozenset(formats)
        self._files = ExitStack()

    def __enter__(self) -> StructuredFiles:
        with ExitStack() as files:
            if self._formats:
                self._facts = files.enter_context(_open_lines(self._folder / FACTS))
                self._questions = files.enter_context(_open_lines(self._folder / FACT_QUESTIONS))
            if "omop" in self._formats:
                self._tables = files.enter_context(OmopTables(self._folder / RECORD / "omop"))
            for name in self._formats & {"fhir", "ccda"}:
                (self._folder / RECORD / name).mkdir()
            self._files = files.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def add(self, record: FictionalRecord, draws: Draws) -> int:
        """Write the entries of a record in all formats, and questions. Return the number of entries."""
        if not self._formats:
            return 0
        patient, entries = record.patient, list_entries(record)
        for entry in entries:
            self._facts.write(json.dumps(asdict(entry), ensure_ascii=False) + "\n")
        questions = draw_entry_questions(patient, entries, draws.substream("entries"))
        for number, question in enumerate(questions, 1):
            line = _fact_question_line(f"{patient.id}-f{number:03d}", patient.id, question)
            self._questions.write(json.dumps(line, ensure_ascii=False) + "\n")
        if "fhir" in self._formats:
            bundle = json.dumps(build_bundle(patient, entries), ensure_ascii=False, indent=1)
            (self._folder / RECORD / "fhir" / f"{patient.id}.json").write_text(
                bundle + "\n", encoding="utf-8", newline="\n"
            )
        if "ccda" in self._formats:
            (self._folder / RECORD / "ccda" / f"{patient.id}.xml").write_bytes(build_document(patient, entries))
        if "omop" in self._formats:
            self._tables.add(patient, entries)
        return len(entries)


def _fact_question_line(id_: str, patient: str, question: StructuredQuestion) -> dict[str, Any]:
    """Return a line of a question set. An empty `gold` means that the record has no answer."""
    line: dict[str, Any] = {"id": id_, "text": question.text, "form": "open"}
    line["gold"] = PARTS_SEPARATOR.join(sorted(question.expected or ()))
    if question.expected == frozenset({NO_ENTRY}):
        line["also"] = ["no"]
    elif question.category == CURRENT_DRUG:
        line["also"] = ["yes"]
    return line | {"category": question.category, "patient": patient}


def _open_lines(path: Path) -> Any:
    return path.open("w", encoding="utf-8", newline="\n")
