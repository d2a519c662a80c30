"""Read patients' records from tables of MIMIC-III and MIMIC-IV: results, vital signs, medications, codes and stays.

The tables of one addition are read together: `d_labitems` and others name what the rows refer to, and `admissions`
dates the stays. Notes have their own reader (`note_tables`) and the same ids of patients and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from epicrisis.core.clinical_facts import ClinicalFact
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
)
from epicrisis.corpus.records.facts.fact_values import parse_value
from epicrisis.corpus.records.facts.times import reported_since
from epicrisis.corpus.records.note_documents import NoteCleaning

_ORDER = ("d_labitems", "d_items", "d_icd_diagnoses", "d_icd_procedures", "patients", "admissions")
"""The tables that others refer to, which are read first."""
_VITAL_ITEMS = {
    **dict.fromkeys(("220045", "211"), "Heart rate"),
    **dict.fromkeys(("220210", "618", "615"), "Respiratory rate"),
    **dict.fromkeys(("220277", "646"), "Oxygen saturation"),
    **dict.fromkeys(("220179", "455"), "Non invasive blood pressure systolic"),
    **dict.fromkeys(("220180", "8441"), "Non invasive blood pressure diastolic"),
    **dict.fromkeys(("220181", "456"), "Non invasive blood pressure mean"),
    **dict.fromkeys(("220050", "51"), "Arterial blood pressure systolic"),
    **dict.fromkeys(("220051", "8368"), "Arterial blood pressure diastolic"),
    **dict.fromkeys(("220052", "52"), "Arterial blood pressure mean"),
    **dict.fromkeys(("223761", "678"), "Temperature Fahrenheit"),
    **dict.fromkeys(("223762", "676"), "Temperature Celsius"),
    **dict.fromkeys(("226512", "224639", "763", "762"), "Weight"),
    "226730": "Height",
}
"""The items of chartevents that are vital signs, of both systems that charted them."""
_VITAL_UNITS = {"Temperature Fahrenheit": "[degF]", "Temperature Celsius": "Cel", "Oxygen saturation": "%"}
"""Units of items that often have none."""
_NOT_GIVEN = ("not ", "hold", "held", "refused")
_GIVEN = ("administered", "applied", "started", "restarted", "confirmed", "given", "bolus", "partial", "delayed")
_EMPTY_RESULT = "___"
_NO_PATIENT = "names no patient in subject_id, and every fact needs one; export the row again"


def read_files(files: Sequence[tuple[Path, str]], cleaning: NoteCleaning) -> Iterator[reader_base.ReaderItem]:
    """Yield the documents of all tables (path, name): identities, facts by patient, then the fingerprints."""
    unknown = "no table of MIMIC that is read; look at its name and its columns"
    tables, skipped = group_tables(files, "mimic", _ORDER, unknown)
    yield from skipped
    fingerprints: list[reader_base.ReaderItem] = []
    with FactSpool() as spool:
        reader = _Reader(spool, cleaning.removal_log)
        for table, paths in tables.items():
            for path, _ in paths:
                yield from reader_base.hold_fingerprint(path, reader.read(path, table), fingerprints)
        yield from spool.documents(cleaning.removal_log)
    yield from fingerprints


class _Reader:
    """Reads the rows of each table into the spool."""

    def __init__(self, spool: FactSpool, log: RemovalLog) -> None:
        self._spool = spool
        self._log = log
        self._names: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}
        """By table and key of an entry: its words and codes."""

    def read(self, path: Path, table: str) -> Iterator[reader_base.ReaderItem]:
        """Store the facts of a file. Yield identities, and why rows were skipped."""
        for row in read_table(path, "subject_id"):
            if isinstance(row, reader_base.Skipped):
                yield row
            elif table.startswith("d_"):
                self._add_name(row, table)
            elif stands_for_nobody(row.id("subject_id")):
                yield reader_base.skip(path, row.where, _NO_PATIENT)
            elif table == "patients":
                yield from self._read_patient(row)
            else:
                self._add(row, table)

    def _add_name(self, row: TableRow, table: str) -> None:
        if table == "d_labitems":
            fluid, label = row.text("fluid"), row.text("label")
            loinc = row.text("loinc_code")
            # The same substance in blood and in urine is not the same measurement.
            name = label if fluid.lower() in ("", "blood") or fluid.lower() in label.lower() else f"{label} ({fluid})"
            self._names[table, row.id("itemid")] = name, ((f"loinc:{loinc}",) if loinc else ())
        elif table == "d_items":
            self._names[table, row.id("itemid")] = row.text("label"), ()
        else:
            code, system = _icd_code(row)
            # The same code means something else in each version, such as E8581.
            self._names[table, f"{system}:{code}"] = row.text("long_title"), (f"{system}:{code}",)

    def _read_patient(self, row: TableRow) -> Iterator[reader_base.PatientIdentity]:
        born = row.time("dob")[0][:10]
        self._spool.add_person(row.id("subject_id"), born=born)
        yield reader_base.PatientIdentity(row.id("subject_id"), born=born)
        time, _ = row.time("dod")
        if time:
            source = f"mimic:patients/{row.id('subject_id')}"
            fact = ClinicalFact("observation", "Death", time=time, codes=("snomed:419620001",), source=source)
            self._spool.add(FactRecord(row.id("subject_id"), source, (FactEntry(fact),)))

    def _add(self, row: TableRow, table: str) -> None:
        entries = _READERS[table](self, row)
        if entries:
            record = FactRecord(row.id("subject_id"), entries[0].fact.source, tuple(entries), None, _is_error(row))
            self._spool.add(record)

    def _entry(self, row: TableRow, source: str, kind: FactKind, name: str, *times: str) -> FactEntry:
        time, written_time = row.time(*times)
        stay = row.id("hadm_id")
        fact = ClinicalFact(kind, name, time=time or None, encounter=stay, source=f"mimic:{source}")
        return FactEntry(fact, written_time=written_time)

    def _count_lack(self, problem: str) -> list[FactEntry]:
        self._log.fact_problems[problem] += 1
        return []

    def read_admission(self, row: TableRow) -> list[FactEntry]:
        stay = Stay(row.text("admittime"), row.text("dischtime"))
        self._spool.add_stay(row.id("hadm_id"), stay, row.id("subject_id"))
        source = f"admissions/{row.id('hadm_id')}"
        words = row.text("admission_type").lower()
        entry = self._entry(row, source, "encounter", f"{words} admission".strip(), "admittime")
        reason = row.text("diagnosis")
        start = replace(
            entry,
            fact=replace(entry.fact, event="start", category=words),
            remark=f"Reason: {reason}." if reason else "",
        )
        end, _ = row.time("dischtime")
        place = row.text("discharge_location").lower()
        if not end:
            return [start]
        discharge = replace(entry.fact, event="end", time=end)
        return [start, FactEntry(discharge, remark=f"Discharged to: {place}." if place else "")]

    def read_lab(self, row: TableRow) -> list[FactEntry]:
        name, codes = self._names.get(("d_labitems", row.id("itemid")), ("", ()))
        if not name:
            self._log.fact_problems["named by the number of an item (add d_labitems)"] += 1
            name = f"laboratory item {row.id('itemid')}"
        value, number = row.text("value"), row.text("valuenum")
        comment = row.text("comments")
        if value in ("", _EMPTY_RESULT):
            value, comment = (number, comment) if number else (comment, "")
        if not value:
            return self._count_lack("row of labevents without a value")
        written_unit = row.text("valueuom")
        time, written_time = row.time("charttime")
        written, parsed = parse_value(value), read_number(number, self._log) if number else None
        fact = ClinicalFact(
            "laboratory",
            name,
            time=time or None,
            codes=(*codes, f"mimic-lab:{row.id('itemid')}"),
            value=value,
            number=written.number if written.comparator else parsed,
            comparator=written.comparator,
            unit=to_ucum(written_unit) or written_unit,
            reference_range=describe_range(row.text("ref_range_lower"), row.text("ref_range_upper")),
            interpretation=row.text("flag").lower(),
            encounter=row.id("hadm_id"),
            source=f"mimic:labevents/{row.id('labevent_id') or row.id('row_id')}",
        )
        since = reported_since(time, row.time("storetime")[0])
        return [FactEntry(fact, since, written_unit, comment, written_time)]

    def read_chart(self, row: TableRow) -> list[FactEntry]:
        item = row.id("itemid")
        name = _VITAL_ITEMS.get(item, "")
        if not name:
            return self._count_lack("row of chartevents that is no vital sign")
        label, _ = self._names.get(("d_items", item), ("", ()))
        value, written_unit = row.text("value") or row.text("valuenum"), row.text("valueuom")
        if not value:
            return self._count_lack("row of chartevents without a value")
        # No column identifies a row of MIMIC-IV.
        key = row.id("row_id") or f"{row.id('stay_id')}-{item}-{row.text('charttime')}"
        entry = self._entry(row, f"chartevents/{key}", "vital-sign", label or name, "charttime")
        number = row.text("valuenum")
        fact = replace(
            entry.fact,
            codes=(f"mimic-item:{item}",),
            value=value,
            number=read_number(number, self._log) if number else None,
            unit=to_ucum(written_unit) or written_unit or _VITAL_UNITS.get(name, ""),
        )
        since = reported_since(fact.time or "", row.time("storetime")[0])
        return [replace(entry, fact=fact, since=since, written_unit=written_unit)]

    def read_omr(self, row: TableRow) -> list[FactEntry]:
        name, value = row.text("result_name"), row.text("result_value")
        if not name or not value:
            return self._count_lack("row of omr without a value")
        written_unit = name.partition("(")[2].rstrip(")") if name.endswith(")") else ""
        unit = to_ucum(written_unit) or ("mm[Hg]" if name.startswith("Blood Pressure") else "")
        source = f"omr/{row.id('subject_id')}-{row.text('chartdate')}-{row.id('seq_num')}-{name}"
        entry = self._entry(row, source, "vital-sign", name, "chartdate")
        number = None if "/" in value else read_number(value, self._log)
        return [replace(entry, fact=replace(entry.fact, value=value, number=number, unit=unit))]

    def read_prescription(self, row: TableRow) -> list[FactEntry]:
        name = row.text("drug")
        if not name:
            return self._count_lack("row of prescriptions without a drug")
        key = row.id("row_id") or f"{row.id('pharmacy_id')}-{row.text('drug_type')}-{name}"
        times = ("starttime", "startdate")
        entry = self._entry(row, f"prescriptions/{key}", "medication", name, *times)
        doses = row.id("doses_per_24_hrs")
        dose = " ".join(filter(None, (row.text("dose_val_rx"), row.text("dose_unit_rx"), row.text("route"))))
        codes = [f"{system}:{code}" for system, code in (("ndc", row.id("ndc")), ("gsn", row.id("gsn"))) if code]
        fact = replace(
            entry.fact,
            event="start",
            codes=tuple(code for code in codes if not code.endswith(":0")),
            value=f"{dose}, {doses} in 24 h" if doses else dose,
            category="request",
        )
        strength = row.text("prod_strength")
        start = replace(entry, fact=fact, remark=f"Product: {strength}." if strength else "")
        end, _ = row.time("stoptime", "enddate")
        if not end:
            return [start]
        return [start, end_entry(fact, end)]

    def read_emar(self, row: TableRow) -> list[FactEntry]:
        name, action = row.text("medication"), row.text("event_txt").lower()
        if not name:
            return self._count_lack("row of emar without a medication")
        entry = self._entry(row, f"emar/{row.id('emar_id')}", "medication", name, "charttime")
        is_missed = any(word in action for word in _NOT_GIVEN)
        is_given = not is_missed and any(word in action for word in _GIVEN)
        event: FactEvent = "given" if is_given else "state"
        status = "not-done" if is_missed else "" if action in ("", "administered") else action
        fact = replace(entry.fact, event=event, status=status, category="administration")
        since = reported_since(fact.time or "", row.time("storetime")[0])
        return [replace(entry, fact=fact, since=since, remark=action if is_missed else "")]

    def read_diagnosis(self, row: TableRow) -> list[FactEntry]:
        return self._read_code(row, "d_icd_diagnoses", "diagnoses_icd", "problem")

    def read_procedure(self, row: TableRow) -> list[FactEntry]:
        return self._read_code(row, "d_icd_procedures", "procedures_icd", "procedure")

    def _read_code(self, row: TableRow, names: str, table: str, kind: FactKind) -> list[FactEntry]:
        code, system = _icd_code(row)
        if not code:
            return self._count_lack(f"row of {table} without a code")
        name, _ = self._names.get((names, f"{system}:{code}"), ("", ()))
        if not name:
            self._log.fact_problems[f"named by a code (add {names})"] += 1
        if kind == "procedure":
            system = system.replace("icd10cm", "icd10pcs")
        source = f"{table}/{row.id('hadm_id')}-{row.id('seq_num')}"
        entry = self._entry(row, source, kind, name or f"{system.upper()} {code}", "chartdate")
        category = "encounter-diagnosis" if kind == "problem" else ""
        # Codes are assigned when the stay is over.
        stay = self._spool.find_stay(row.id("hadm_id"), row.id("subject_id"))
        discharged = stay.discharged if stay else ""
        fact = replace(
            entry.fact,
            time=entry.fact.time or discharged or None,
            codes=(f"{system}:{code}",),
            category=category,
        )
        return [replace(entry, fact=fact, since=discharged)]


def _icd_code(row: TableRow) -> tuple[str, str]:
    """Return a code without blanks, and its system."""
    if code := row.text("icd9_code"):
        return code, "icd9cm"
    return row.text("icd_code"), "icd10cm" if row.id("icd_version") == "10" else "icd9cm"


def _is_error(row: TableRow) -> bool:
    return row.text("error") in ("1", "1.0")


_READERS: Mapping[str, Callable[[_Reader, TableRow], list[FactEntry]]] = {
    "admissions": _Reader.read_admission,
    "labevents": _Reader.read_lab,
    "chartevents": _Reader.read_chart,
    "omr": _Reader.read_omr,
    "prescriptions": _Reader.read_prescription,
    "emar": _Reader.read_emar,
    "diagnoses_icd": _Reader.read_diagnosis,
    "procedures_icd": _Reader.read_procedure,
}
