"""Read tables of structured data, recognised by their columns: OMOP CDM and MIMIC, as CSV or Parquet.

find_table(Path("measurement.csv"))         # ("omop", "measurement")
for row in read_table(Path("measurement.csv")): ...

Rows are streamed. Parquet needs pyarrow, which comes with the extra `large`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from epicrisis.core.errors import InputError
from epicrisis.corpus.base.csv_rows import CsvLayout, read_header, read_rows
from epicrisis.corpus.base.reader_base import Skipped, describe_damage, path_error, skip
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.records.facts.times import read_fact_time

_COLUMNS: Mapping[tuple[str, str], str] = {
    ("omop", "person"): "person_id year_of_birth",
    ("omop", "visit_occurrence"): "visit_occurrence_id person_id visit_concept_id visit_start_date",
    ("omop", "condition_occurrence"): "condition_occurrence_id person_id condition_concept_id condition_start_date",
    ("omop", "drug_exposure"): "drug_exposure_id person_id drug_concept_id drug_exposure_start_date",
    ("omop", "procedure_occurrence"): "procedure_occurrence_id person_id procedure_concept_id procedure_date",
    ("omop", "device_exposure"): "device_exposure_id person_id device_concept_id device_exposure_start_date",
    ("omop", "measurement"): "measurement_id person_id measurement_concept_id measurement_date",
    ("omop", "observation"): "observation_id person_id observation_concept_id observation_date",
    ("omop", "death"): "person_id death_date",
    ("omop", "note"): "note_id person_id note_date note_text",
    ("omop", "concept"): "concept_id concept_name vocabulary_id concept_code",
    ("mimic", "patients"): "subject_id gender dod",
    ("mimic", "admissions"): "subject_id hadm_id admittime dischtime",
    ("mimic", "d_labitems"): "itemid label fluid",
    ("mimic", "d_items"): "itemid label linksto",
    ("mimic", "labevents"): "subject_id hadm_id itemid charttime value valuenum valueuom flag",
    ("mimic", "chartevents"): "subject_id hadm_id itemid charttime storetime value valuenum valueuom warning",
    ("mimic", "omr"): "subject_id chartdate result_name result_value",
    ("mimic", "prescriptions"): "subject_id hadm_id drug_type drug dose_val_rx dose_unit_rx",
    ("mimic", "emar"): "subject_id emar_id charttime medication event_txt",
}
_CODED = (
    ("diagnoses_icd", "subject_id hadm_id seq_num {code}"),
    ("procedures_icd", "subject_id hadm_id seq_num {code}"),
    ("d_icd_diagnoses", "{code} long_title"),
    ("d_icd_procedures", "{code} long_title"),
)
"""MIMIC's tables of codes, two of which share their columns and are told apart by the name of the file."""
_SUFFIX = ".parquet"
_MISSING = frozenset(("", "null", "\\n", "nan", "na", "none", "nat", "<na>"))
_LONGEST_MISSING = max(map(len, _MISSING))
_read_time = lru_cache(maxsize=65536)(read_fact_time)
"""Results of one specimen have one time."""
TableName: TypeAlias = tuple[str, str]
"""The format and the name of a table: `("omop", "measurement")`."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row with its place in the file. Missing values are empty texts."""

    where: str
    cells: Mapping[str, str]
    """By the name of the column in lower case."""

    def text(self, *names: str) -> str:
        """Return the first value that is there, in one line, or an empty text."""
        for name in names:
            value = self.cells.get(name, "")
            # Most values are a single word, and most missing ones are empty.
            if value and not value.isalnum():
                value = " ".join(value.split())
            if value and (len(value) > _LONGEST_MISSING or value.lower() not in _MISSING):
                return value
        return ""

    def id(self, name: str) -> str:
        """Return an id; `4711.0`, as tables with missing values write it, is `4711`."""
        value = self.text(name)
        return value[:-2] if value.endswith(".0") and value[:-2].isdecimal() else value

    def time(self, *names: str) -> tuple[str, str]:
        """Return the first readable time, with its offset from UTC, and, if there is none, a time as written."""
        unreadable = ""
        for name in names:
            value = self.text(name)
            if value and (time := _read_time(value)):
                return time, ""
            unreadable = unreadable or value
        return "", unreadable


def find_table(path: Path) -> TableName | None:
    """Return the table that a file contains, or None."""
    try:
        header = set(read_column_names(path))
    except (InputError, OSError):
        return None
    for table, columns in _COLUMNS.items():
        if header.issuperset(columns.split()):
            return table
    name = path.name.lower()
    for table_name, columns in _CODED:
        for code in ("icd_code", "icd9_code"):
            if name.startswith(table_name) and header.issuperset(columns.format(code=code).split()):
                return "mimic", table_name
    return None


def group_tables(
    files: Sequence[tuple[Path, str]], format: str, first: Sequence[str], unknown: str
) -> tuple[dict[str, list[tuple[Path, str]]], list[Skipped]]:
    """Return the files (path, name) of each table, the tables in `first` before others, and what is not read.

    `unknown`: why a file that contains none of the tables of this format is not read.
    """
    tables: dict[str, list[tuple[Path, str]]] = {}
    skipped: list[Skipped] = []
    for path, name in files:
        if damage := describe_damage(path):
            skipped.append(skip(path, "", damage))
        elif (table := find_table(path)) is not None and table[0] == format:
            tables.setdefault(table[1], []).append((path, name))
        else:
            skipped.append(skip(path, "", unknown))
    order = sorted(tables, key=lambda name: (first.index(name) if name in first else len(first), name))
    return {name: tables[name] for name in order}, skipped


def detect_table_format(path: Path, default: str | None) -> str | None:
    """Return the format of the table that a file contains, or the default if it contains none that is read."""
    table = find_table(path)
    return table[0] if table else default


def read_column_names(path: Path) -> list[str]:
    """Return the names of the columns in lower case. Raises InputError if the file has no readable header."""
    if path.name.lower().endswith(_SUFFIX):
        return [str(name).lower() for name in _open_parquet(path).schema_arrow.names]
    return [name.lower() for name in read_header(path)[0]]


def read_table(path: Path, patient_column: str = "") -> Iterator[TableRow | Skipped]:
    """Yield the rows of a file, or why one was skipped."""
    if path.name.lower().endswith(_SUFFIX):
        yield from _read_parquet(path)
        return
    header, delimiter = read_header(path)
    names = [name.lower() for name in header]
    patient = names.index(patient_column) if patient_column in names else 0
    layout = CsvLayout(len(names), delimiter, patient, len(names) - 1)
    for row in read_rows(path, layout):
        if isinstance(row, Skipped):
            yield row
        else:
            yield TableRow(f"line {row.line}", dict(zip(names, row.cells, strict=True)))


def read_unquoted(path: Path) -> Iterator[TableRow | Skipped]:
    """Yield the rows of a vocabulary, whose fields are separated by tabs and never quoted, as Athena writes it."""
    from epicrisis.corpus.base.encodings import detect_file_encoding, open_as_utf8

    header, delimiter = ([], "") if path.name.lower().endswith(_SUFFIX) else read_header(path)
    if delimiter != "\t":
        yield from read_table(path)
        return
    names = [name.lower() for name in header]
    with open_as_utf8(path, detect_file_encoding(path)) as file:
        file.readline()
        for number, line in enumerate(file, 2):
            cells = line.decode(errors="replace").rstrip("\r\n").split("\t")
            if len(cells) == len(names):
                yield TableRow(f"line {number}", dict(zip(names, cells, strict=True)))
            elif cells != [""]:
                reason = f"has {len(cells)} columns, the first line {len(names)}; create the file again"
                yield skip(path, f"line {number}", reason)


def read_number(text: str, log: RemovalLog) -> float | None:
    """Return a finite number. Text that is none is counted in the log, and None is returned."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return number
    log.fact_problems["with a number that could not be read"] += 1
    return None


def describe_range(low: str, high: str) -> str:
    """Return a reference range in words: `0.6 to 1.2`, `at least 60`, `at most 5`; empty without bounds."""
    if low and high:
        return f"{low} to {high}"
    if low:
        return f"at least {low}"
    return f"at most {high}" if high else ""


def _open_parquet(path: Path) -> Any:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise path_error(path, "Parquet needs pyarrow: pip install 'epicrisis[large]'") from None
    try:
        return parquet.ParquetFile(path)
    except (ArrowException, OSError) as error:
        raise path_error(path, "not a readable Parquet file; export it again") from error


def _read_parquet(path: Path) -> Iterator[TableRow | Skipped]:
    from pyarrow import ArrowException, string

    file = _open_parquet(path)
    names = [str(name).lower() for name in file.schema_arrow.names]
    number = 0
    try:
        for batch in file.iter_batches():
            columns = [column.cast(string()).to_pylist() for column in batch.columns]
            for cells in zip(*columns, strict=True):
                number += 1
                texts = ("" if cell is None else cell for cell in cells)
                yield TableRow(f"row {number}", dict(zip(names, texts, strict=True)))
    except (ArrowException, OSError):
        yield skip(path, f"after row {number}", "the file breaks off, or has columns of lists; export it again")
