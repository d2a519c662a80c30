"""Loading of question sets about patient records from the user's files. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from functools import partial
from pathlib import Path

from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun
from epicrisis.corpus.base.reader_base import ReaderItem, is_folder, path_error
from epicrisis.corpus.readers.question_files import read_questions
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.evaluation.datasets.dataset import require_readable
from epicrisis.evaluation.datasets.patient_records import extractive_sets, mimic_iv_sets, populations
from epicrisis.evaluation.datasets.patient_records.source import (
    RecordReader,
    RecordSet,
    find_source_file,
    read_patients_notes,
)

GENERATED_NOTES, GENERATED_BUNDLES = "record/notes.csv", "fhir"


def _read_generated(path: Path) -> RecordSet:
    """Return the questions of `epicrisis synthesize-record`, or of another folder with the same format, in order.

    Raises InputError for a line without a question about a patient, and if there are no notes in the folder.
    """
    notes = path.parent / GENERATED_NOTES
    if not notes.is_file():
        raise path_error(path, f"no {GENERATED_NOTES} in its folder: make both with epicrisis synthesize-record -o DIR")
    questions = tuple(require_readable(read_questions(path)))
    patients: set[str] = set()
    for question in questions:
        if question.patient is None:
            raise path_error(path, f"question {question.id!a} names no patient: give each the patient of its record")
        patients.add(question.patient)
    return RecordSet(questions=questions, notes=partial(_read_generated_notes, notes, patients), licence="fictional")


def _read_generated_notes(notes: Path, patients: Set[str]) -> Iterator[ReaderItem]:
    """Yield the notes of these patients, and the structured entries of the folder's FHIR bundles if it has any."""
    yield from read_patients_notes((notes,), patients)
    bundles = notes.with_name(GENERATED_BUNDLES)
    if bundles.is_dir():
        yield from read_sources([bundles])


_COVID_QA, *_REPORT_SETS = extractive_sets.READERS
_READERS = (
    RecordReader("generated", ("questions.jsonl",), _read_generated),
    RecordReader(populations.GENERATED_FACTS, ("fact_questions.jsonl",), _read_generated),
    _COVID_QA,
    *mimic_iv_sets.READERS,
    *_REPORT_SETS,
)
NAMES = tuple(reader.name for reader in _READERS)


def load_records(place: Path, name: str | None = None, population: str = "all") -> RecordSet:
    """Return the set in a file or folder, recognised by the names of its files, or by `name` if they have others.

    MIMIC's files of notes in the same folder are the records. A filter by length is applied later. Raises InputError.
    """
    populations.check_population_name(population)
    name, read_source = _find_reader(place, name)
    source = read_source()
    questions = populations.select_questions(name, source, population)
    if not questions:
        raise path_error(place, f"no question of {name} is in the population {population}; take another")
    repetitions = len(source.questions) - len({question.id for question in source.questions})
    if repetitions:
        raise path_error(
            place,
            f"{count_noun(repetitions, 'question id')} {agree(repetitions, 'occurs', 'occur')} twice; give each "
            "question its own",
        )
    patients = {None, *(question.patient for question in questions)}

    def notes() -> Iterator[ReaderItem]:
        for item in source.notes():
            if getattr(item, "patient", None) in patients:
                yield item

    return replace(source, name=name, questions=questions, notes=notes)


def _find_reader(place: Path, name: str | None) -> tuple[str, Callable[[], RecordSet]]:
    """Return the name of the set and a function that reads it."""
    if name is not None and name not in NAMES:
        raise InputError(f"no set of records is called {name!a}: known are {', '.join(NAMES)}")
    folder = is_folder(place)
    for reader in _READERS:
        path = find_source_file(place, *reader.files)
        if name == reader.name and path is None and not folder:
            path = place
        if path is not None and name in (None, reader.name):
            return reader.name, partial(reader.load, path)
    missing = f"no file of {name} in it" if name else f"no set of records ({', '.join(NAMES)}) in it"
    raise path_error(place, f"{missing}; the files are called as published, see docs/evaluation.md#question-sets")
