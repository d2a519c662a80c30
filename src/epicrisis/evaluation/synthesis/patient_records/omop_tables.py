"""Write the structured entries of fictional patients as tables of the OMOP CDM 5.4, one CSV file each.

    with OmopTables(folder) as tables:
        tables.add(patient, entries)

Ids are whole numbers, as the model demands: `person_source_value` has the patient's id, `visit_source_value` the stay.
Concepts without a number of OMOP's own have one above two billion, which OMOP leaves to local use.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from epicrisis.evaluation.synthesis.patient_records.chart_entries import ChartEntry
from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient

_COLUMNS = {
    "person": "person_id gender_concept_id year_of_birth person_source_value gender_source_value",
    "visit_occurrence": "visit_occurrence_id person_id visit_concept_id visit_start_date visit_start_datetime "
    "visit_end_date visit_end_datetime visit_type_concept_id visit_source_value",
    "condition_occurrence": "condition_occurrence_id person_id condition_concept_id condition_start_date "
    "condition_end_date condition_type_concept_id visit_occurrence_id condition_source_value",
    "drug_exposure": "drug_exposure_id person_id drug_concept_id drug_exposure_start_date drug_exposure_end_date "
    "verbatim_end_date drug_type_concept_id stop_reason sig visit_occurrence_id drug_source_value",
    "procedure_occurrence": "procedure_occurrence_id person_id procedure_concept_id procedure_date "
    "procedure_type_concept_id visit_occurrence_id procedure_source_value",
    "measurement": "measurement_id person_id measurement_concept_id measurement_date measurement_datetime "
    "measurement_type_concept_id value_as_number unit_concept_id range_low range_high visit_occurrence_id "
    "measurement_source_value unit_source_value",
    "observation": "observation_id person_id observation_concept_id observation_date observation_type_concept_id "
    "visit_occurrence_id observation_source_value",
    "concept": "concept_id concept_name domain_id vocabulary_id concept_class_id standard_concept concept_code",
}
_TABLES = {
    "encounter": "visit_occurrence",
    "problem": "condition_occurrence",
    "medication": "drug_exposure",
    "immunization": "drug_exposure",
    "procedure": "procedure_occurrence",
    "laboratory": "measurement",
    "vital-sign": "measurement",
    "allergy": "observation",
}
"""The table of each kind of entry."""
_DOMAINS = {
    "problem": "Condition",
    "medication": "Drug",
    "immunization": "Drug",
    "procedure": "Procedure",
    "allergy": "Observation",
}
_VOCABULARIES = {"loinc": "LOINC", "cvx": "CVX"}
_FEMALE, _MALE = 8532, 8507
_INPATIENT = 9201
_FROM_RECORD, _PROBLEM_LIST, _PRESCRIPTION, _ADMINISTRATION = 32817, 32840, 32838, 32818
_FIRST_LOCAL_CONCEPT = 2_000_000_001
_DAY = 10
"""Characters of an ISO date."""


class OmopTables:
    """Writes the tables of many patients to a folder. A context manager; the concepts are written at its end.

    Raises OSError if the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._files = ExitStack()
        self._writers: dict[str, csv.DictWriter[str]] = {}
        self._counts: Counter[str] = Counter()
        self._visits: dict[str, int] = {}
        self._concepts: dict[tuple[str, str], int] = {}
        folder.mkdir()
        with self._files as files:
            for table, columns in _COLUMNS.items():
                file = files.enter_context((folder / f"{table}.csv").open("w", encoding="utf-8", newline=""))
                self._writers[table] = csv.DictWriter(file, columns.split(), lineterminator="\n")
                self._writers[table].writeheader()
            self._files = files.pop_all()
        self._add_row(
            "concept",
            concept_id=_INPATIENT,
            concept_name="Inpatient Visit",
            domain_id="Visit",
            vocabulary_id="Visit",
            concept_class_id="Visit",
            standard_concept="S",
            concept_code="IP",
        )

    def __enter__(self) -> OmopTables:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def add(self, patient: FictionalPatient, entries: Iterable[ChartEntry]) -> None:
        """Write a patient and their entries. Stays come before the entries that name them."""
        person = self._next("person")
        gender = (_FEMALE, "F") if patient.female else (_MALE, "M")
        self._add_row(
            "person",
            person_id=person,
            gender_concept_id=gender[0],
            year_of_birth=patient.born,
            person_source_value=patient.id,
            gender_source_value=gender[1],
        )
        for entry in entries:
            self._add_entry(person, entry)

    def _add_entry(self, person: int, entry: ChartEntry) -> None:
        table = _TABLES[entry.kind]
        number = self._next(table)
        row: dict[str, Any] = {f"{table}_id": number, "person_id": person}
        if entry.kind == "encounter":
            self._visits[entry.encounter] = number
            row |= _visit_cells(entry)
        else:
            row["visit_occurrence_id"] = self._visits.get(entry.encounter, "")
            row |= self._cells(entry)
        self._add_row(table, **row)

    def _cells(self, entry: ChartEntry) -> dict[str, Any]:
        """Return the cells of an entry that is no stay."""
        day, table = entry.time[:_DAY], _TABLES[entry.kind]
        prefix = table.partition("_")[0]
        cells: dict[str, Any] = {
            f"{prefix}_concept_id": self._find_concept(entry),
            f"{prefix}_source_value": entry.name,
            f"{prefix}_type_concept_id": _FROM_RECORD,
        }
        match table:
            case "condition_occurrence":
                cells |= {"condition_start_date": day, "condition_end_date": entry.end}
                if not entry.encounter:
                    cells["condition_type_concept_id"] = _PROBLEM_LIST
            case "drug_exposure":
                is_vaccine = entry.kind == "immunization"
                cells |= {
                    "drug_type_concept_id": _ADMINISTRATION if is_vaccine else _PRESCRIPTION,
                    "drug_exposure_start_date": day,
                    # The model requires an end; without one it is the first day.
                    "drug_exposure_end_date": entry.end or day,
                    "verbatim_end_date": entry.end,
                    "stop_reason": entry.reason,
                    "sig": entry.value,
                }
            case "measurement":
                cells |= self._measurement_cells(entry)
            case _:
                cells[f"{prefix}_date"] = day
        return cells

    def _measurement_cells(self, entry: ChartEntry) -> dict[str, Any]:
        has_range = entry.low is not None and entry.high is not None
        return {
            "measurement_date": entry.time[:_DAY],
            "measurement_datetime": entry.time.replace("T", " ") + ":00",
            "value_as_number": entry.value,
            "unit_concept_id": self._find_unit(entry.unit),
            "unit_source_value": entry.unit,
            "range_low": f"{entry.low:g}" if has_range else "",
            "range_high": f"{entry.high:g}" if has_range else "",
        }

    def _find_concept(self, entry: ChartEntry) -> int:
        system, _, code = entry.code.partition(":")
        vocabulary = _VOCABULARIES.get(system, "Fictional")
        domain = _DOMAINS.get(entry.kind, "Measurement")
        return self._concept(vocabulary, code or entry.name, entry.name, domain)

    def _find_unit(self, unit: str) -> int:
        return self._concept("UCUM", unit, unit, "Unit") if unit else 0

    def _concept(self, vocabulary: str, code: str, name: str, domain: str) -> int:
        key = vocabulary, code
        if key not in self._concepts:
            self._concepts[key] = _FIRST_LOCAL_CONCEPT + len(self._concepts)
            self._add_row(
                "concept",
                concept_id=self._concepts[key],
                concept_name=name,
                domain_id=domain,
                vocabulary_id=vocabulary,
                concept_class_id=domain,
                standard_concept="S",
                concept_code=code,
            )
        return self._concepts[key]

    def _next(self, table: str) -> int:
        self._counts[table] += 1
        return self._counts[table]

    def _add_row(self, table: str, **cells: Any) -> None:
        self._writers[table].writerow(cells)


def _visit_cells(entry: ChartEntry) -> dict[str, Any]:
    return {
        "visit_concept_id": _INPATIENT,
        "visit_start_date": entry.time[:_DAY],
        "visit_start_datetime": entry.time.replace("T", " ") + ":00",
        "visit_end_date": entry.end[:_DAY],
        "visit_end_datetime": entry.end.replace("T", " ") + ":00",
        "visit_type_concept_id": _FROM_RECORD,
        "visit_source_value": entry.encounter,
    }
