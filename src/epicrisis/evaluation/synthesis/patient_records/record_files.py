"""The folder of generated records: notes.csv, questions.jsonl and README.md, all of them or none.

One record is held at a time.

Offsets of questions count in the text of notes.csv as it stands: line feeds, no blanks at the ends of lines, no two
blank lines together. Knows no command line.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epicrisis.corpus.reader_base import because, shown
from epicrisis.errors import InputError, StorageError
from epicrisis.evaluation.synthesis.patient_records.fictional_record import FictionalRecord, check_length, make_record
from epicrisis.evaluation.synthesis.patient_records.note_writing import FictionalNote
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.record_questions import CATEGORIES, RecordQuestion, ask
from epicrisis.printable import printable_json
from epicrisis.serialization import to_json
from epicrisis.temporary_folders import TemporaryFolder, remove_abandoned_folders

NOTES, QUESTIONS, README = "notes.csv", "questions.jsonl", "README.md"
_PREFIX = ".records-"
COLUMNS = (
    "subject_id",
    "hadm_id",
    "note_id",
    "charttime",
    "note_type",
    "text",
    "admittime",
    "dischtime",
)


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """One record that was written."""

    patient: str
    stays: int
    notes: int
    characters: int
    tokens: int
    """Estimated without a model, see `record.estimated`."""
    questions: int
    """Fewer than were asked for where the record gives no more."""


def write_records(
    folder: Path,
    patients: int,
    tokens: Sequence[int],
    stays: int | None = None,
    seed: int = 0,
    questions_each: int = 21,
) -> tuple[WrittenRecord, ...]:
    """So many records, the lengths in turn. The same arguments make the same bytes.

    Nothing is left in the folder where one of them cannot be made. Raises InputError where the folder holds anything,
    or a length does not fit the stays, StorageError where the folder cannot be written.
    """
    for length in tokens:
        check_length(length)
    try:
        remove_abandoned_folders(_PREFIX, folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{shown(folder)} is there already: name a new or empty folder (-o)")
        with _whole(folder) as place:
            return _written(place, patients, tokens, stays, seed, questions_each)
    except OSError as error:
        raise StorageError(
            f"{shown(folder)} cannot be written ({because(error)}): free some space, or name another folder (-o)"
        ) from error


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A place on the folder's disk to write into. What was written moves into the folder when all of it is there."""
    beside = folder if folder.exists() else folder.parent
    beside.mkdir(parents=True, exist_ok=True)
    with TemporaryFolder(_PREFIX, beside) as place:
        yield place
        folder.mkdir(exist_ok=True)
        for name in (README, NOTES, QUESTIONS):
            (place / name).rename(folder / name)


def _written(
    folder: Path, patients: int, tokens: Sequence[int], stays: int | None, seed: int, questions_each: int
) -> tuple[WrittenRecord, ...]:
    made: list[WrittenRecord] = []
    kinds: Counter[str] = Counter()
    letter = 0
    with (
        (folder / NOTES).open("w", encoding="utf-8", newline="") as notes,
        (folder / QUESTIONS).open("w", encoding="utf-8", newline="\n") as questions,
    ):
        rows = csv.writer(notes, lineterminator="\n")
        rows.writerow(COLUMNS)
        for number in range(patients):
            record = make_record(f"fict{seed}-{number + 1:03d}", tokens[number % len(tokens)], stays, seed)
            asked = ask(record, questions_each, Draws("questions", seed, record.patient.id), letter)
            letter += sum(bool(each.question.options) for each in asked)
            rows.writerows(_row(record, note) for note in record.notes)
            questions.writelines(f"{printable_json(json.dumps(_line(each), ensure_ascii=False))}\n" for each in asked)
            kinds.update(each.question.category for each in asked)
            sizes = len(record.patient.stays), len(record.notes), record.characters, record.tokens, len(asked)
            made.append(WrittenRecord(record.patient.id, *sizes))
    told = _README.format(patients=patients, seed=seed, kinds=", ".join(f"{kinds[c]} {c}" for c in CATEGORIES))
    (folder / README).write_text(told, encoding="utf-8", newline="\n")
    return tuple(made)


def _row(record: FictionalRecord, note: FictionalNote) -> tuple[str, ...]:
    stay = note.stay
    times = (stay.admitted, stay.discharged) if note.encounter else ()
    told = [time.isoformat(timespec="minutes") for time in times] or ["", ""]
    return (record.patient.id, note.encounter, note.id, note.time, note.kind, note.text, *told)


def _line(asked: RecordQuestion) -> dict[str, Any]:
    question = asked.question
    return {
        "id": question.id,
        "text": question.text,
        "form": question.form,
        **({"options": dict(question.options)} if question.options else {}),
        "gold": question.gold,
        "also": list(question.other_answers),
        "category": question.category,
        "about": asked.about,
        "patient": question.patient,
        "gold_documents": list(question.gold_documents),
        "evidence": [to_json(place) for place in question.evidence],
        "depth": asked.depth,
    }


_README = """# Fictional patient records

Everything here is invented: no note, no patient and no value is of a real person, and nothing here is medical advice.
Made by `epicrisis synthesize-record` ({patients} patients, seed {seed}); the same command makes the same files.

* `notes.csv`: the notes of each patient in order of time.
* `questions.jsonl`: questions ({kinds}).
  `evidence` holds all places where the answer stands, offsets in characters into the note's text (`end` excluded);
  places of one `fact` say the same, and of a holistic question all facts are needed. `depth` is their mean place in
  the record, 0 to 1. An empty `gold` means that the record does not say.

To search in them:

    epicrisis library add LIBRARY notes.csv --format notes --patient subject_id --time charttime --type note_type \\
        --text text --encounter hadm_id --note-id note_id
"""
