"""The noun of these sets, and one door for all of them. Downloads nothing: the user has the files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from epicrisis.corpus.reader_base import ReaderItem, is_folder, printable_path
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.patient_records import (
    cliniqg4qa,
    covid_qa,
    ehr_ds_qa,
    ehrnoteqa,
    generated,
    populations,
    radqa,
)
from epicrisis.evaluation.datasets.patient_records.source import RecordSource, find_source_file
from epicrisis.types import Question

_READERS = (generated, covid_qa, ehrnoteqa, ehr_ds_qa, cliniqg4qa, radqa)
NAMES = tuple(name for reader in _READERS for name in reader.NAMES)
"""What the sets are called."""


@dataclass(frozen=True, slots=True)
class RecordSet:
    """Questions about patients' records, in the order of their source, and the records. The questions' ids are unique.

    A question's evidence and gold documents are places and ids of `notes`.
    """

    name: str
    questions: tuple[Question, ...]
    notes: Callable[[], Iterator[ReaderItem]]
    """The notes of the patients asked about, and what could not be read of them; read anew at each call."""
    related: Mapping[str, frozenset[str]]
    """Question id -> ids of the notes that "include related" keeps, and "exclude related" leaves out."""
    population: str
    """`all`, or the named filter that was asked for. Of one by length the questions are of all lengths until
    `populations.long_enough` had the answering model's tokens."""
    licence: str = ""
    notices: tuple[str, ...] = ()
    """What a reader must know: what was left out, and what was found elsewhere than the source says."""

    @property
    def sha256(self) -> str:
        """Of what is asked and what is right, in order; not of the notes."""
        rows = [
            [q.id, q.text, dict(q.options), q.gold, q.gold_documents, q.other_answers, q.patient]
            for q in self.questions
        ]
        return hashlib.sha256(json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def load_records(place: Path, name: str | None = None, population: str = "all") -> RecordSet:
    """The set in that file, or folder, told by its files' names, or by `name` where they have others.

    MIMIC's files of notes in the same folder are the records. `population` is one of `populations.POPULATIONS`; by
    length it is cut by `populations.long_enough`. Raises InputError with the cure.
    """
    populations.check_population_name(population)
    name, read = _reader(place, name)
    source = read()
    questions = populations.select_questions(name, source, population)
    if not questions:
        raise InputError(
            f"{printable_path(place)}: no question of {name} is in the population {population}; take another"
        )
    ids = [question.id for question in source.questions]
    if len(set(ids)) < len(ids):
        raise InputError(
            f"{printable_path(place)}: {len(ids) - len(set(ids))} question ids were there before; give each its own"
        )
    patients = {question.patient for question in questions}

    def notes() -> Iterator[ReaderItem]:
        yield from (item for item in source.notes() if getattr(item, "patient", None) in {None, *patients})

    related = {question.id: source.related.get(question.id, frozenset()) for question in questions}
    return RecordSet(name, questions, notes, related, population, source.licence, source.notices)


def _reader(place: Path, name: str | None) -> tuple[str, Callable[[], RecordSource]]:
    """What the set is called, and how it is read."""
    if name is not None and name not in NAMES:
        raise InputError(f"no set of records is called {name!a}: known are {', '.join(NAMES)}")
    folder = is_folder(place)
    for reader in _READERS:
        path = find_source_file(place, *reader.FILES)
        if name in reader.NAMES and path is None and not folder:
            path = place
        if path is None or name not in (None, *reader.NAMES):
            continue
        called = name or reader.NAMES[0]
        if called in ehrnoteqa.NAMES:
            return called, partial(ehrnoteqa.read, path, called)
        return called, partial(reader.read, path)
    wanted = f"no file of {name} in it" if name else f"no set of records ({', '.join(NAMES)}) in it"
    raise InputError(f"{printable_path(place)}: {wanted}; the files are called as published, see docs/questions.md")
