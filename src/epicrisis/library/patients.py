"""Whose records a library holds, and whether a question fits them: asked of a patient who is there, and of no other.

Reads columns of the table, never a text. Knows no model and no ranking.
"""

from __future__ import annotations

import json
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from epicrisis.corpus.reader_base import PatientIdentity
from epicrisis.dates import find_dates, first_day, last_day
from epicrisis.errors import InputError
from epicrisis.library.engine_errors import ours
from epicrisis.library.library import Library
from epicrisis.library.library_folder import check_parts
from epicrisis.library.manifest import NAME, read_manifest
from epicrisis.library.passage_table import PassageTable, among
from epicrisis.library.patient_identities import forget, literature_is_declared, read_identities, version
from epicrisis.library.person_names import bare, is_common, mentions, name_keys
from epicrisis.printable import quote_for_shell
from epicrisis.types import Question

MIXED = (
    "documents of no patient are in this library of notes and are read with every patient's questions: say that they "
    "are literature (library add LIBRARY FILES --literature), or take them out (library delete)"
)
_PIECE = 8192
_MOST_WORDS = 12
"""Of a name. A longer one is known as it is written alone: turned round at each of 20,000 words it takes 3 GB."""
_TELLING = 4
"""Characters of an id that is known wherever it stands alone; a shorter one may be any word."""
_TELLING_DIGITS = 6
"""The same of one that is a number: of four or five digits it may be a year or a dose (MIMIC-III's ids have 1 to 5, its
years run from 2100 to 2200)."""
_WHICH = r"(?:(?i:['\u2019]s)?[\s_]+(?i:ids?|no\.?|numbers?))?"
_CALLED = (
    rf"(?:\b(?i:patients?|subjects?|mrns?){_WHICH}(?:[\s:#=]{{1,3}}|/)|"
    r"\b(?i:patients|subjects|mrns)\s(?:(?:\0|\d+)(?:, ?(?:and |or )?| (?:and|or|&) )){1,9})"
)
"""What stands before an id; of several each counts: patients 10083814 and 4321."""
_CALLED_LONG = rf"\b(?i:patients?|subjects?|mrns?|p?id){_WHICH}[\s:#=/-]{{1,3}}"
"""Before an id that no dose can be: `MRN:10083815` is that id, wherever it stands."""
_JOINED_DIGITS = 7
"""Digits from which on a number is known as well with zeros before it, in groups (12 345 678), or as MRN12345678."""
_GROUPED = re.compile(r"(?<=\d)[ -](?=\d)")
_NUMBER = re.compile(r"(?<!\w)(?<!\w[-./:])(?:mrn|pid|pt|id)?(\d++)(?![-./:]?\w)")
_MEASURE = (
    r"(?!\s*+(?:-\s*+)?(?i:(?:years?|yrs?|y/?o|months?|weeks?|days?|hours?|hrs?|minutes?|times?|[mk]?g|mcg|[u\u00b5\u03bc]g|m?l|dl|"
    r"mmol|mol|meq|units?|iu|mm|cm|mmhg|bpm|kcal|tablets?|pills?|doses?|drops?|puffs?)\b|%|\u00b0))"
)
"""Behind a number that is no id: the patient 65 years old."""
_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc", "'"))


@dataclass(frozen=True, slots=True)
class PatientRecord:
    """What is known of a record without its text. `first` and `last` are the notes' dates as they are written."""

    id: str
    notes: int
    first: str | None
    last: str | None
    encounters: int
    """Hospital stays that the notes name."""
    note_types: Mapping[str, int]
    """How many notes of each type, the most frequent first; those that say none are not counted."""
    name: str | None = None
    """Where the source gave one."""
    names: tuple[str, ...] = ()
    """All names there are, such as a former one."""
    born: str | None = None
    """`1950-01-02`, or less of it."""
    numbers: tuple[str, ...] = ()
    """Record numbers and other identifiers by which the patient can be named, `system|value` where there is one."""


def holds_patients(folder: Path) -> bool:
    """Whether the library in this folder holds a passage of a patient's record; False where there is none as yet.

    Raises LibraryDamaged, StorageError.
    """
    if not (folder / NAME).exists():
        return False
    manifest = read_manifest(folder)
    if not manifest.complete:
        return False
    check_parts(folder)
    return PassageTable(folder, manifest.dimensions).has_notes()


class Roster:
    """The patients of one library; read anew when it has changed."""

    def __init__(self, library: Library) -> None:
        self.path = library.path
        self._table = PassageTable(library.path, library.manifest.dimensions)
        self._reading = threading.Lock()
        self._version = (-1, -1)
        self._patients: Mapping[str, PatientRecord] = {}
        self._literature = self._is_declared = False
        self._names: Mapping[str, frozenset[str]] = {}
        self._numbers: Mapping[str, frozenset[str]] = {}

    def patients(self) -> Mapping[str, PatientRecord]:
        """By id, in their order."""
        self._read()
        return self._patients

    def literature(self) -> bool:
        """Whether something there is of no patient."""
        self._read()
        return self._literature

    def is_mixed(self) -> bool:
        """Return whether documents of no patient lie among notes and nobody has said that they are literature."""
        self._read()
        return bool(self._patients) and self._literature and not self._is_declared

    def named(self) -> Mapping[str, frozenset[str]]:
        """Return the ids of patients by the keys of their names; see `names.name_keys`."""
        self._read()
        return self._names

    def numbered(self, number: str) -> frozenset[str]:
        """Return the ids of the patients who have this record number, with or without its system."""
        self._read()
        return self._numbers.get(_plain_id(number), frozenset())

    def _read(self) -> None:
        with self._reading:
            self._table.refresh()
            now = (self._table.version, version(self.path))
            if self._version != now:
                self._read_anew()
                self._version = now
            if self._literature and not self._is_declared:
                self._is_declared = literature_is_declared(self.path)

    def _read_anew(self) -> None:
        records: dict[str, _Record] = {}
        for row in self._first_passages():
            records.setdefault(row["patient"], _Record()).take(row)
        known = read_identities(self.path)
        self._patients = {id_: records[id_].patient(known.get(id_, PatientIdentity(id_))) for id_ in sorted(records)}
        self._literature = self._table.has_literature()
        patients = self._patients.values()
        self._names = _by_key((key, each.id) for each in patients for name in each.names for key in name_keys(name))
        self._numbers = _by_key((key, each.id) for each in patients for key in _written_numbers(each))

    def _first_passages(self) -> Iterator[dict[str, Any]]:
        return _first_passages(self._table, self.path, "patient IS NOT NULL")


def names_in_notes(library: Library, patients: Iterable[str]) -> Mapping[str, str]:
    """Return the first name that the notes give of each of these patients, as far as they give one."""
    if not (wanted := sorted(patients)):
        return {}
    names: dict[str, str] = {}
    table = PassageTable(library.path, library.manifest.dimensions)
    for row in _first_passages(table, library.path, among("patient", wanted)):
        if name := _name_in(row):
            names.setdefault(row["patient"], name)
    return names


def _first_passages(table: PassageTable, path: Path, condition: str) -> Iterator[dict[str, Any]]:
    """One row a note."""
    with ours(path):
        found = table.lance.search().where(f"({condition}) AND ordinal = 0")
        for batch in found.select(["patient", "date", "metadata"]).to_batches(_PIECE):
            yield from batch.to_pylist()


def _name_in(row: Mapping[str, Any]) -> str:
    return str(json.loads(row["metadata"]).get("patient_name") or "")


@dataclass(slots=True)
class _Record:
    dates: list[str] = field(default_factory=list)
    encounters: set[str] = field(default_factory=set)
    types: Counter[str] = field(default_factory=Counter)
    notes: int = 0
    name: str | None = None

    def take(self, row: Mapping[str, Any]) -> None:
        told = json.loads(row["metadata"])
        self.notes += 1
        self.dates += [row["date"]] if row["date"] else []
        self.encounters |= {str(told["encounter"])} if told.get("encounter") else set()
        self.types.update([str(told["note_type"])] if told.get("note_type") else [])
        self.name = self.name or (str(told["patient_name"]) if told.get("patient_name") else None)

    def patient(self, known: PatientIdentity) -> PatientRecord:
        first = min(self.dates, key=lambda date: (first_day(date), date), default=None)
        last = max(self.dates, key=lambda date: (last_day(date), date), default=None)
        names = dict.fromkeys((*known.names, *([self.name] if self.name else ())))
        return PatientRecord(
            known.patient,
            self.notes,
            first,
            last,
            len(self.encounters),
            dict(self.types.most_common()),
            next(iter(names), None),
            tuple(names),
            known.born or None,
            tuple(_aliases(known)),
        )


def _by_key(pairs: Iterable[tuple[str, str]]) -> Mapping[str, frozenset[str]]:
    collected: dict[str, set[str]] = {}
    for key, patient in pairs:
        collected.setdefault(key, set()).add(patient)
    return {key: frozenset(ids) for key, ids in collected.items()}


def _aliases(identity: PatientIdentity) -> Iterator[str]:
    """Record numbers to be named by. One without a digit (`unknown`) may be any word of a question."""
    for system, value in identity.numbers:
        if any(letter.isdecimal() for letter in value):
            yield f"{system}|{value}" if system else value


def forget_patients(library: Library, patients: Iterable[str]) -> None:
    """Forget who these patients are, of whom the library has no note any more."""
    there = Roster(library).patients()
    forget(library.path, [patient for patient in patients if patient not in there])


def _written_numbers(patient: PatientRecord) -> set[str]:
    """The record numbers as a person may write them: with the system and without."""
    return {_plain_id(written) for number in patient.numbers for written in (number, _value_of(number))}


def _value_of(number: str) -> str:
    return number.rpartition("|")[2]


# -- does a question fit? -------------------------------------------------------------------------------------------


def resolved_patient(rosters: Sequence[Roster], patient: str | None) -> str | None:
    """Return the id of the patient whose id or record number this is; what is neither comes back as it is.

    `id:X` and `number:X` say which of the two is meant. Raises InputError for a record number of several patients, and
    for one that is another patient's id as well.
    """
    if patient is None or not rosters:
        return patient
    roster = rosters[0]
    kind, _, value = patient.partition(":")
    if patient not in roster.patients() and kind in ("id", "number") and value:
        held = roster.numbered(value) if kind == "number" else frozenset({value} & set(roster.patients()))
    else:
        held = roster.numbered(patient) | ({patient} & set(roster.patients()))
    if len(held) > 1:
        raise InputError(
            f"--patient: {patient!a} is not of one patient alone, as a record number or an id: give the id as id:... "
            f"or the number as number:... with its system (`epicrisis library patients {roster.path}` lists them)"
        )
    return next(iter(held), patient)


def check_patient(rosters: Sequence[Roster], question: Question) -> None:
    """Raises InputError where the question is of nobody though the libraries hold notes alone, is of a patient who is
    not there, or names another patient than its own, by id or by full name.

    The first library is the one that is asked, the others stand beside it with literature: nobody's notes are read
    there. An id or a record number counts where it stands as a word of its own: one of four characters or more
    anywhere, a shorter one and a number of fewer than six digits behind `patient`, `subject` or `MRN`, and there not in
    a date or before a unit; behind these a longer one in a compound as well. A name counts from two words on, in any
    case of letters, the first or the last name first, with or without middle names and accents (see `names`).
    """
    if not rosters:
        return
    known, where = rosters[0].patients(), rosters[0].path
    listed = f"`epicrisis library patients {quote_for_shell(where)}` lists them"
    which = f"question {question.id!a}: " if question.id else "the question: "
    if question.patient is not None and question.patient not in known:
        raise InputError(f"{which}{where} has no notes of patient {question.patient!a}: {listed}")
    if question.patient is None and known and not any(roster.literature() for roster in rosters):
        raise InputError(f"{which}{where} holds patients' notes alone: say whose with --patient ({listed})")
    if _names_another(question, rosters[0]):
        others = "a patient of this library" if question.patient is None else "another patient of this library"
        raise InputError(
            f"{which}it names {others}: ask with --patient of the one it is about ({listed}), or leave the name or "
            "number out"
        )


def _names_another(question: Question, roster: Roster) -> bool:
    known = roster.patients()
    asked = "\n".join([question.text, *question.options.values()])
    own = None if question.patient is None else known.get(question.patient)
    others = [patient for patient in known.values() if patient is not own]
    if _calls_one(asked, own, others) or _names_one(_named(asked), own, others):
        return True
    texts = (question.text, *question.options.values())
    # Hyphens are part of a name, or stand between its words.
    ways = ((text, hyphens) for text in texts for hyphens in (True, False))
    return any(_spells_another(text, hyphens, own, roster.named()) for text, hyphens in ways)


def _spells_another(text: str, hyphens: bool, own: PatientRecord | None, named: Mapping[str, frozenset[str]]) -> bool:
    """By full name in any spelling. Words of the own name are no other's, in whatever spelling both share."""
    runs = mentions(text, hyphens=hyphens) if named else []
    taken: set[int] = set()
    for run in runs:
        if own is not None and any(own.id in named.get(key, ()) for key in run.keys):
            taken.update(range(run.first, run.last + 1))
    for run in runs:
        if taken.isdisjoint(range(run.first, run.last + 1)) and any(key in named for key in run.keys):
            return True
    return False


def _calls_one(asked: str, own: PatientRecord | None, others: Sequence[PatientRecord]) -> bool:
    """By id. One that has a digit counts in any case of letters; `mary` would be a word."""
    exact, plain, same = asked, _plain(asked), set[str]()
    if own is not None:
        for id_ in _called(own):
            same.add(_plain_id(id_))
            exact, plain = _without(id_, exact), _without(_plain_id(id_), plain)
    for id_ in (id_ for patient in others for id_ in _called(patient)):
        folded = _plain_id(id_)
        loose = folded not in same and any(letter.isdecimal() for letter in id_)
        if _calls(plain, folded) if loose else _calls(exact, id_):
            return True
    written = {*_long_numbers(_plain(asked)), *_long_numbers(_GROUPED.sub("", _plain(asked)))}
    if own is not None and written:
        written.difference_update(number for id_ in _called(own) for number in _digits(id_))
    return bool(written) and any(
        number in written for patient in others for id_ in _called(patient) for number in _digits(id_)
    )


def _long_numbers(plain: str) -> Iterator[str]:
    """The numbers of many digits that a text has, without zeros before them."""
    for match in _NUMBER.finditer(plain):
        yield from _digits(match[1])


def _digits(id_: str) -> Iterator[str]:
    """The digits of an id that is nothing else, but for groups; none of one with few."""
    digits = id_.replace("-", "").replace(" ", "").lstrip("0")
    if len(digits) >= _JOINED_DIGITS and digits.isdecimal():
        yield digits


def _called(patient: PatientRecord) -> Iterator[str]:
    """The id, and the record numbers: the longer form first, of which the other is a part."""
    yield patient.id
    for number in patient.numbers:
        yield number
        if _value_of(number) != number:
            yield _value_of(number)


def _names_one(asked: str, own: PatientRecord | None, others: Sequence[PatientRecord]) -> bool:
    """By full name."""
    if own is not None:
        # Not what is part of its own name: Anna Maria Muster is no Maria Muster. Its own name turned round is its own
        # as well, but not where another has that very name.
        taken = {name for patient in others for name in _given(patient.name)} - set(_given(own.name))
        for name in _spellings(own.name):
            asked = asked if name in taken else _person(name).sub("\0", asked)
    # A name of common words alone counts only with its capitals: see `_spells_another`.
    names = (name for patient in others if not is_common(patient.name or "") for name in _spellings(patient.name))
    return any(name in asked and _person(name).search(asked) for name in names)


def _calls(text: str, id_: str) -> bool:
    if not id_.strip() or id_ not in text:
        return False
    if len(id_) >= (_TELLING_DIGITS if id_.isdecimal() else _TELLING):
        return re.search(rf"{_alone(id_)}|{_CALLED_LONG}{_written(id_)}(?!\w|[-./:]\d)", text) is not None
    called = re.compile(rf"{_CALLED}{_written(id_)}(?![-./:]?\w){_MEASURE}")
    return any(
        not any(date.start < match.end() <= date.end for date in find_dates(text)) for match in called.finditer(text)
    )


def _without(id_: str, text: str) -> str:
    own = rf"(?P<called>{_CALLED_LONG}){_written(id_)}(?![-./:]?\w)|{_alone(id_)}"
    return re.sub(own, lambda match: f"{match['called'] or ''}\0", text) if id_.strip() else text


def _alone(id_: str) -> str:
    """The id where it is no part of a longer word, number or compound id."""
    return rf"(?<!\w)(?<!\w[-./:]){_written(id_)}(?![-./:]?\w)"


def _written(id_: str) -> str:
    """A number also as spreadsheets write ids: `10083814.0`."""
    return re.escape(id_) + (r"(?:\.0)?" if id_.isdecimal() else "")


def _person(name: str) -> re.Pattern[str]:
    """The name where it is no part of a longer one."""
    return re.compile(rf"(?<!\w)(?<!\w-){re.escape(name)}(?!-?\w)")


@lru_cache(maxsize=65536)
def _given(name: str | None) -> tuple[str, ...]:
    """A full name as the source has it; `Muster, Anna` is `Anna Muster` as well. None of a single word."""
    plain = _named(name or "")
    last, _, first = plain.partition(", ")
    return (plain, f"{first} {last}") if first else (plain,) if " " in plain else ()


@lru_cache(maxsize=65536)
def _spellings(name: str | None) -> tuple[str, ...]:
    """These, and the last name first: `Muster, Anna` and `Muster Anna` of `Anna Muster`."""
    given = _given(name)
    if len(given) == 2:
        return *given, given[0].replace(",", "", 1)
    words = given[0].split() if given else []
    if len(words) > _MOST_WORDS:
        return given
    # The patient test is no Test Patient.
    places = range(1, len(words) if "patient" not in words else 0)
    return *given, *(
        f"{' '.join(words[place:])}{mark} {' '.join(words[:place])}" for place in places for mark in (",", "")
    )


@lru_cache(maxsize=65536)
def _plain_id(id_: str) -> str:
    return _plain(id_)


def _named(text: str) -> str:
    """With one blank behind a comma, however a name is written."""
    return re.sub(r" ?, ?", ", ", _plain(text)).strip()


def _plain(text: str) -> str:
    straight = unicodedata.normalize("NFKC", bare(text)).translate(_APOSTROPHES)
    return " ".join(straight.casefold().split())
