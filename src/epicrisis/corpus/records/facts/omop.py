"""Read patients' records from tables of the OMOP CDM (5.3 and 5.4): structured facts, stays and notes.

The tables of one addition are read together: `concept` names what the others refer to, and `visit_occurrence` dates the
stays. Without `concept`, the names and units are those of the source columns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from epicrisis.core.clinical_facts import ClinicalFact, Comparator
from epicrisis.core.fact_kinds import FactEvent, FactKind
from epicrisis.core.ucum import to_ucum
from epicrisis.corpus.base import reader_base
from epicrisis.corpus.base.patient_numbers import stands_for_nobody
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.records.facts.fact_documents import FactEntry, FactRecord, FactSpool, Stay, end_entry
from epicrisis.corpus.records.facts.fact_tables import (
    TableRow,
    describe_range,
    group_tables,
    read_number,
    read_table,
    read_unquoted,
)
from epicrisis.corpus.records.facts.fact_values import VITAL_SIGNS, FactValue, names_allergies, parse_value
from epicrisis.corpus.records.facts.times import add_supply
from epicrisis.corpus.records.note_documents import ClinicalNote, NoteCleaning, build_items

_STAYS = frozenset(("9201", "9203", "262", "8717", "32037", "581379", "581385", "8883"))
"""Concepts of visits that are stays: inpatient, emergency, intensive care, observation."""
_NOT_STAYS = frozenset(("9202", "5083", "581477", "581476", "38004515", "32036", "581458", "8756"))
_VITAL_CONCEPTS = frozenset(
    ("3027018", "3024171", "3020891", "3004249", "3012888", "3027598", "40762499", "3025315", "3036277", "3038553")
)
"""Vital signs by OMOP's concept, for tables without `concept`."""
_YES = frozenset(("yes", "present", "true", "positive", "1", "y"))
_NO = frozenset(("no", "absent", "false", "negative", "0", "n", "none"))
_OPERATORS: Mapping[str, Comparator] = {"4171756": "<", "4171754": "<=", "4172704": ">", "4171755": ">="}
_DRUG_CATEGORIES = {
    "32838": "request",
    "38000177": "request",
    "32839": "request",
    "32818": "administration",
    "38000180": "administration",
    "43542356": "administration",
    "32825": "dispense",
    "32869": "dispense",
    "38000175": "dispense",
    "38000176": "dispense",
    "32865": "statement",
    "44787730": "statement",
}
"""What a drug exposure is, by `drug_type_concept_id`."""
_PROBLEM_LISTS = frozenset(("32840", "38000245"))
_VOCABULARIES = {"snomed": "snomed", "rxnorm": "rxnorm", "loinc": "loinc", "icd10cm": "icd10cm", "cvx": "cvx"}
_SCHEMA = "CREATE TABLE concept(id TEXT PRIMARY KEY, name TEXT, vocabulary TEXT, code TEXT) WITHOUT ROWID"
_NO_PATIENT = "names no patient in person_id, and every fact needs one; export the row again"
_ORDER = ("concept", "person", "visit_occurrence")


@dataclass(frozen=True, slots=True)
class Concept:
    """An entry of the vocabulary."""

    name: str = ""
    vocabulary: str = ""
    code: str = ""

    @property
    def codes(self) -> tuple[str, ...]:
        """The code with the short name of its system, if there is one."""
        if not self.code:
            return ()
        system = self.vocabulary.lower()
        return (f"{_VOCABULARIES.get(system, system.replace(' ', '-'))}:{self.code}",)


class _Vocabulary:
    """The table `concept`, in a temporary database that SQLite removes."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute(_SCHEMA)
        self._database.execute("BEGIN")
        self.find = lru_cache(maxsize=200_000)(self._find)

    def close(self) -> None:
        self._database.close()

    def add(self, row: TableRow) -> None:
        values = (row.id("concept_id"), row.text("concept_name"), row.text("vocabulary_id"), row.text("concept_code"))
        self._database.execute("INSERT OR REPLACE INTO concept VALUES (?, ?, ?, ?)", values)

    def _find(self, concept: str) -> Concept:
        query = "SELECT name, vocabulary, code FROM concept WHERE id = ?"
        row = self._database.execute(query, (concept,)).fetchone() if concept not in ("", "0") else None
        return Concept(*row) if row else Concept()


def read_files(files: Sequence[tuple[Path, str]], cleaning: NoteCleaning) -> Iterator[reader_base.ReaderItem]:
    """Yield the documents of all tables (path, name): identities, facts by patient, notes, then the fingerprints."""
    tables, skipped = group_tables(files, "omop", _ORDER, "no table of the OMOP CDM that is read; look at its columns")
    yield from skipped
    fingerprints: list[reader_base.ReaderItem] = []
    log = cleaning.removal_log
    with FactSpool() as spool, closing(_Vocabulary()) as vocabulary:
        reader = _Reader(spool, vocabulary, log)
        for table, paths in tables.items():
            for path, _ in paths if table != "note" else ():
                yield from reader_base.hold_fingerprint(path, reader.read(path, table), fingerprints)
        yield from spool.documents(log)
        for path, name in tables.get("note", ()):
            notes = build_items(path, name, partial(reader.read_notes, path), cleaning)
            yield from reader_base.append_fingerprint(path, notes)
    yield from fingerprints


class _Reader:
    """Reads the rows of each table into the spool."""

    def __init__(self, spool: FactSpool, vocabulary: _Vocabulary, log: RemovalLog) -> None:
        self._spool = spool
        self._vocabulary = vocabulary
        self._log = log

    def read(self, path: Path, table: str) -> Iterator[reader_base.ReaderItem]:
        """Store the facts of a file. Yield identities, and why rows were skipped."""
        rows = read_unquoted(path) if table == "concept" else read_table(path, "person_id")
        for row in rows:
            if isinstance(row, reader_base.Skipped):
                yield row
            elif table == "concept":
                self._vocabulary.add(row)
            elif stands_for_nobody(row.id("person_id")):
                yield reader_base.skip(path, row.where, _NO_PATIENT)
            elif table == "person":
                person = _read_person(row)
                self._spool.add_person(person.patient, born=person.born)
                yield person
            else:
                self._add(row, table)

    def read_notes(self, path: Path) -> Iterator[ClinicalNote | reader_base.Skipped]:
        """Yield the rows of the table `note`."""
        for row in read_table(path, "person_id"):
            if isinstance(row, reader_base.Skipped):
                yield row
                continue
            encounter = row.id("visit_occurrence_id")
            stay = self._spool.find_stay(encounter, row.id("person_id")) or Stay()
            note_type = self._name(row, "note_class_concept_id") or self._name(row, "note_type_concept_id")
            yield ClinicalNote(
                where=row.where,
                patient=row.id("person_id"),
                text=row.cells.get("note_text", ""),
                times=tuple(filter(None, (row.text("note_datetime"), row.text("note_date")))),
                note_type=row.text("note_title") or note_type or "note",
                encounter="" if stay.is_visit else encounter,
                note_id=f"omop-{row.id('note_id')}" if row.id("note_id") else "",
                born=self._spool.find_person(row.id("person_id"))[1],
                admitted=stay.admitted,
                discharged=stay.discharged,
                more={"visit": encounter} if stay.is_visit else {},
            )

    def _add(self, row: TableRow, table: str) -> None:
        if table == "visit_occurrence":
            self._add_stay(row)
        entries = _READERS[table](self, row)
        if not entries:
            self._log.fact_problems[f"row of {table} without a name or value"] += 1
            return
        source = _source(table, row)
        self._spool.add(FactRecord(row.id("person_id"), source, tuple(entries)))

    def _add_stay(self, row: TableRow) -> None:
        concept = row.id("visit_concept_id")
        start, _ = row.time("visit_start_datetime", "visit_start_date")
        end, _ = row.time("visit_end_datetime", "visit_end_date")
        is_visit = concept in _NOT_STAYS
        stay = Stay(is_visit=True) if is_visit else Stay(start, end)
        self._spool.add_stay(row.id("visit_occurrence_id"), stay, row.id("person_id"))

    def _name(self, row: TableRow, column: str) -> str:
        return self._vocabulary.find(row.id(column)).name

    def _named(self, row: TableRow, prefix: str) -> tuple[str, tuple[str, ...]]:
        """Return name and codes of the row's concept: the standard one, that of the source, or the source's words."""
        standard = self._vocabulary.find(row.id(f"{prefix}_concept_id"))
        origin = self._vocabulary.find(row.id(f"{prefix}_source_concept_id"))
        words = row.text(f"{prefix}_source_value")
        concept = row.id(f"{prefix}_concept_id")
        codes = tuple(dict.fromkeys((*standard.codes, *origin.codes)))
        if not codes and concept not in ("", "0"):
            codes = (f"omop:{concept}",)
        name = standard.name or origin.name or words
        if not name and codes:
            name = f"concept {concept}"
            self._log.fact_problems["named by the number of a concept (add the table concept)"] += 1
        return name, codes

    def _fact(self, row: TableRow, table: str, kind: FactKind, name: str, *times: str) -> FactEntry:
        """Return a fact of the row's patient and visit, at the first readable of the times."""
        time, written_time = row.time(*times)
        encounter = row.id("visit_occurrence_id")
        fact = ClinicalFact(kind, name, time=time or None, encounter=encounter, source=_source(table, row))
        return FactEntry(fact, written_time=written_time)

    def _end(self, entry: FactEntry, row: TableRow, status: str, *times: str) -> list[FactEntry]:
        """Return the end of a fact that has one."""
        end, _ = row.time(*times)
        return [end_entry(entry.fact, end, status)] if end else []

    def read_visit(self, row: TableRow) -> list[FactEntry]:
        name = self._name(row, "visit_concept_id") or row.text("visit_source_value") or "visit"
        is_stay = row.id("visit_concept_id") in _STAYS
        entry = self._fact(row, "visit_occurrence", "encounter", name, "visit_start_datetime", "visit_start_date")
        entry = _with(entry, event="start" if is_stay else "state")
        if not is_stay:
            return [entry]
        place = self._name(row, "discharged_to_concept_id") or row.text(
            "discharged_to_source_value", "discharge_to_source_value"
        )
        ends = self._end(entry, row, "", "visit_end_datetime", "visit_end_date")
        return [entry, *(replace(end, remark=f"Discharged to: {place}." if place else "") for end in ends)]

    def read_condition(self, row: TableRow) -> list[FactEntry]:
        name, codes = self._named(row, "condition")
        if not name:
            return []
        times = ("condition_start_datetime", "condition_start_date")
        entry = self._fact(row, "condition_occurrence", "problem", name, *times)
        is_list = row.id("condition_type_concept_id") in _PROBLEM_LISTS
        is_diagnosis = bool(row.id("visit_occurrence_id")) and not is_list
        status = self._name(row, "condition_status_concept_id") or row.text("condition_status_source_value")
        entry = _with(
            entry,
            event="start",
            codes=codes,
            status=status.lower(),
            category="encounter-diagnosis" if is_diagnosis else "",
        )
        reason = row.text("stop_reason")
        ends = self._end(entry, row, "", "condition_end_datetime", "condition_end_date")
        return [entry, *(replace(end, remark=reason) for end in ends)]

    def read_drug(self, row: TableRow) -> list[FactEntry]:
        name, codes = self._named(row, "drug")
        if not name:
            return []
        category = _DRUG_CATEGORIES.get(row.id("drug_type_concept_id"), "")
        is_vaccine = any(code.startswith("cvx:") for code in codes)
        kind: FactKind = "immunization" if is_vaccine else "medication"
        event: FactEvent = "given" if category == "administration" or is_vaccine else "start"
        if category == "dispense":
            event = "state"
        route = self._name(row, "route_concept_id") or row.text("route_source_value")
        dose = (
            f"{row.text('dose_value')} {row.text('dose_unit_source_value')}".strip() if row.text("dose_value") else ""
        )
        quantity = row.text("quantity")
        parts = [row.text("sig"), dose, route, f"quantity {quantity}" if quantity else ""]
        parts.append(f"for {row.id('days_supply')} days" if row.text("days_supply") else "")
        times = ("drug_exposure_start_datetime", "drug_exposure_start_date")
        entry = self._fact(row, "drug_exposure", kind, name, *times)
        value = "" if is_vaccine else ", ".join(filter(None, parts))
        entry = _with(entry, event=event, codes=codes, value=value, category=category)
        if kind == "immunization" or event == "given":
            return [entry]
        reason = row.text("stop_reason")
        ends = self._end(
            entry,
            row,
            "stopped" if reason else "",
            *("verbatim_end_date", "drug_exposure_end_datetime", "drug_exposure_end_date"),
        )
        if category != "dispense" and not row.text("verbatim_end_date"):
            # The model demands an end, so where none is known it is the day of the start.
            ends = [end for end in ends if (end.fact.time or "")[:10] != (entry.fact.time or "")[:10]]
        if not ends and (end := add_supply(entry.fact.time or "", row.id("days_supply"), row.id("refills"))):
            ends = [end_entry(entry.fact, end)]
        return [entry, *(replace(end, remark=reason) for end in ends)]

    def read_procedure(self, row: TableRow) -> list[FactEntry]:
        name, codes = self._named(row, "procedure")
        if not name:
            return []
        entry = self._fact(row, "procedure_occurrence", "procedure", name, "procedure_datetime", "procedure_date")
        modifier = self._name(row, "modifier_concept_id") or row.text("modifier_source_value")
        return [replace(_with(entry, codes=codes), remark=modifier)]

    def read_device(self, row: TableRow) -> list[FactEntry]:
        name, codes = self._named(row, "device")
        if not name:
            return []
        times = ("device_exposure_start_datetime", "device_exposure_start_date")
        entry = self._fact(row, "device_exposure", "observation", name, *times)
        entry = _with(entry, event="start", codes=codes, category="devices")
        return [entry, *self._end(entry, row, "", "device_exposure_end_datetime", "device_exposure_end_date")]

    def read_measurement(self, row: TableRow) -> list[FactEntry]:
        name, codes = self._named(row, "measurement")
        is_vital = bool(VITAL_SIGNS.intersection(codes)) or row.id("measurement_concept_id") in _VITAL_CONCEPTS
        entry = self._valued(row, "measurement", "vital-sign" if is_vital else "laboratory", name, codes)
        if entry is None:
            return []
        return [_with(entry, reference_range=describe_range(row.text("range_low"), row.text("range_high")))]

    def read_observation(self, row: TableRow) -> list[FactEntry]:
        name, codes = self._named(row, "observation")
        entry = self._valued(row, "observation", "observation", name, codes)
        if entry is None and name:
            entry = self._fact(row, "observation", "observation", name, "observation_datetime", "observation_date")
            entry = _with(entry, codes=codes)
        if entry is None:
            return []
        if name.lower().startswith("allergy to") or names_allergies(name):
            return self._read_allergy(entry, row)
        return [entry]

    def _read_allergy(self, entry: FactEntry, row: TableRow) -> list[FactEntry]:
        """Return an allergy, whose substance is the value if the name is only that of a group."""
        substance = self._name(row, "value_as_concept_id") or row.text("value_as_string")
        # "None" is a missing value elsewhere, and an answer to the question for allergies.
        texts = [row.cells.get(name, "").strip() for name in ("value_as_string", "value_source_value")]
        answer = (substance or next(filter(None, texts), "")).lower()
        if answer in _NO:
            return [_with(entry, value=entry.fact.value or answer)]
        entry = _with(entry, kind="allergy")
        is_group = names_allergies(entry.fact.name)
        if not substance or answer in _YES or not is_group:
            return [entry]
        codes = self._vocabulary.find(row.id("value_as_concept_id")).codes
        return [_with(entry, name=substance, value="", codes=(*codes, *entry.fact.codes))]

    def read_death(self, row: TableRow) -> list[FactEntry]:
        entry = self._fact(row, "death", "observation", "Death", "death_datetime", "death_date")
        cause = self._name(row, "cause_concept_id") or row.text("cause_source_value")
        return [_with(entry, value=f"cause {cause}" if cause else "", codes=("snomed:419620001",))]

    def _valued(self, row: TableRow, table: str, kind: FactKind, name: str, codes: tuple[str, ...]) -> FactEntry | None:
        """Return a measurement or observation with its value, or None if it has no name or value."""
        number = row.text("value_as_number")
        words = self._name(row, "value_as_concept_id") or row.text("value_as_string")
        value = _shorten_number(number) or words or row.text("value_source_value")
        if not name or not value:
            return None
        # Sources write `<0.2` and `150 mmol/L` as text, too.
        written = FactValue() if number else parse_value(value, row.text("unit_source_value"))
        operator = _OPERATORS.get(row.id("operator_concept_id"), "")
        written_unit = row.text("unit_source_value") or written.written_unit
        unit_concept = self._vocabulary.find(row.id("unit_concept_id"))
        unit = unit_concept.code if unit_concept.vocabulary == "UCUM" else to_ucum(written_unit)
        if not (unit or written_unit) and row.id("unit_concept_id") not in ("", "0"):
            self._log.fact_problems["with a unit that only its concept names (add the table concept)"] += 1
        interpretation = words if number and words else ""
        qualifier = self._name(row, "qualifier_concept_id") or row.text("qualifier_source_value")
        entry = self._fact(row, table, kind, name, f"{table}_datetime", f"{table}_date")
        entry = _with(
            entry,
            codes=codes,
            value=f"{operator} {written.text or value}".strip(),
            number=read_number(number, self._log) if number else written.number,
            comparator=operator or written.comparator,
            unit=unit or written_unit,
            interpretation=interpretation or qualifier,
        )
        return replace(entry, written_unit=written_unit or unit)


def _read_person(row: TableRow) -> reader_base.PatientIdentity:
    parts = [row.id("year_of_birth"), row.id("month_of_birth"), row.id("day_of_birth")]
    born = ""
    for part, width in zip(parts, (4, 2, 2), strict=True):
        if not part.isdecimal():
            break
        born = f"{born}-{part:0>{width}}" if born else part
    number = row.text("person_source_value")
    numbers = (("", number),) if number and number != row.id("person_id") else ()
    return reader_base.PatientIdentity(row.id("person_id"), born=born, numbers=numbers)


def _with(entry: FactEntry, **changes: object) -> FactEntry:
    return replace(entry, fact=replace(entry.fact, **changes))  # type: ignore[arg-type]


def _source(table: str, row: TableRow) -> str:
    key = row.id("person_id" if table == "death" else f"{table}_id")
    return f"omop:{table}/{key}" if key else ""


def _shorten_number(number: str) -> str:
    """Return `2` for `2.0`, as tables write whole numbers."""
    return number[:-2] if number.endswith(".0") else number


_READERS: Mapping[str, Callable[[_Reader, TableRow], list[FactEntry]]] = {
    "visit_occurrence": _Reader.read_visit,
    "condition_occurrence": _Reader.read_condition,
    "drug_exposure": _Reader.read_drug,
    "procedure_occurrence": _Reader.read_procedure,
    "device_exposure": _Reader.read_device,
    "measurement": _Reader.read_measurement,
    "observation": _Reader.read_observation,
    "death": _Reader.read_death,
}
