"""Turn structured facts of patients into documents with a line for each fact.

with FactSpool() as spool:
    spool.add(FactRecord("p1", "fhir:Observation/1", entries))
    for document in spool.documents(log): ...

A document has the facts of one patient, day, kind and encounter. A single fact has too few words to be found by
meaning. The id does not depend on the text, so that a later export of the day replaces the document. Sources that do
not export days completely have a document for each fact instead, see `FactRecord.is_separate`.

The facts of all files are stored in a private temporary file until the last one is read, since the facts of one day
can be anywhere in an export. Memory holds the facts of one patient at a time.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from types import TracebackType
from typing import Any

from epicrisis.core.allergy_denials import read_denial
from epicrisis.core.clinical_facts import FACTS, FAMILY_HISTORY, ClinicalFact, write_facts
from epicrisis.core.fact_kinds import KINDS, FactEvent
from epicrisis.core.types import Document
from epicrisis.core.ucum import to_ucum
from epicrisis.corpus.base.note_times import is_no_date, parse_note_time
from epicrisis.corpus.base.reader_base import DeletedDocument, StatedSources
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.records.assertions import assess_name
from epicrisis.corpus.records.facts.fact_values import name_denial, states_absence, states_no_value
from epicrisis.corpus.records.facts.times import split_offset
from epicrisis.corpus.records.note_documents import SOURCE
from epicrisis.system.temporary_folders import TemporaryFolder

_FIELDS = tuple(field.name for field in fields(ClinicalFact))
_FACT_VALUES = attrgetter(*_FIELDS)
_PREFIX = "epicrisis-facts-"
_CLOCK = len("2150-03-04T10:30")
"""The length of a local time."""
_ALLERGY_STATUS = re.compile(
    r"(?:(?:personal )?(?:history|hx) of allergy|allergy status) to ([^\n]+)|([^\n]+) allergy status", re.IGNORECASE
)
_NOT_CARRIED_OUT = re.compile(r"\bnot carried out\b", re.IGNORECASE)
_FAMILY_CODE = re.compile(r"icd10(?:cm)?:Z8[0-4]|icd9(?:cm)?:V1[6-9]")
"""Codes of the history of the family."""
_BATCH = 5_000
"""Rows written together."""
_SCHEMA = """
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
CREATE TABLE record(
    patient TEXT, source TEXT, version TEXT, is_withdrawn INTEGER, is_separate INTEGER, entries TEXT
);
CREATE TABLE stay(
    encounter TEXT, patient TEXT, admitted TEXT, discharged TEXT, is_visit INTEGER, PRIMARY KEY(encounter, patient)
) WITHOUT ROWID;
CREATE TABLE person(patient TEXT PRIMARY KEY, name TEXT, born TEXT) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class FactEntry:
    """A fact whose place in a text is not known yet, and what its line says beyond the fact."""

    fact: ClinicalFact
    """Its time may have its offset from UTC at the end (see `times.read_fact_time`), which becomes `utc_offset`."""
    since: str = ""
    """When the record had it, a partial ISO date: the day of its document. Empty: the fact's own time."""
    written_unit: str = ""
    """The unit as written; empty: the fact's unit."""
    remark: str = ""
    """Text of the source at the end of the line, such as a comment."""
    written_time: str = ""
    """The time as written, if it could not be read."""


@dataclass(frozen=True, slots=True)
class FactRecord:
    """All facts of one row or resource."""

    patient: str
    source: str
    """`fhir:Observation/1`. Of several versions of a source, the latest is used."""
    entries: tuple[FactEntry, ...]
    version: str | None = None
    """Orders versions of the source, later ones last; equal ones are in their order. None: rows of a table, which
    are all used, except for repetitions."""
    is_withdrawn: bool = False
    """Whether the source was entered in error: its facts are removed from the documents they would be in."""
    is_separate: bool = False
    """Whether each fact has a document of its own, which only a later version of the source replaces. Senders of
    messages and of documents do not repeat all facts of a day, so a later file must not replace the day."""


@dataclass(frozen=True, slots=True)
class Stay:
    """The days of a hospital stay, or an encounter that is no stay."""

    admitted: str = ""
    discharged: str = ""
    is_visit: bool = False


@dataclass(frozen=True, slots=True, order=True)
class _DocumentKey:
    patient: str
    day: str
    encounter: str
    label: str
    source: str = ""
    """Of a fact that has a document of its own."""

    @property
    def document_id(self) -> str:
        if self.source:
            return f"note:{self.patient}:{self.source}"
        return f"note:{self.patient}:{self.day}:{self.encounter}:{self.label}"


@dataclass(slots=True)
class _Group:
    """The entries of a document. Without entries, the document has been withdrawn."""

    entries: list[FactEntry] = field(default_factory=list)


class FactSpool:
    """Store facts of many patients in a private temporary file, and return them as documents. A context manager.

    Raises OSError if the temporary folder cannot be written.
    """

    def __init__(self) -> None:
        self._folder = TemporaryFolder(_PREFIX)
        # Sorting uses files of SQLite's own, which it removes from the folder when it opens them.
        self._database = sqlite3.connect(self._folder.path / "facts", isolation_level=None, check_same_thread=False)
        self._database.executescript(_SCHEMA)
        self._rows: list[tuple[str, str, str | None, bool, bool, str]] = []
        self._database.execute("BEGIN")

    def __enter__(self) -> FactSpool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary file. Idempotent."""
        self._database.close()
        self._folder.close()

    def add(self, record: FactRecord) -> None:
        """Store the facts of a record. One that says that there is none, or nothing known, counts as refuted."""
        ordered = order_ends(record.entries)
        entries = json.dumps([_pack(_assess_entry(entry)) for entry in ordered], ensure_ascii=False)
        flags = (record.is_withdrawn, record.is_separate)
        self._rows.append((record.patient, record.source, record.version, *flags, entries))
        if len(self._rows) >= _BATCH:
            self._write()

    def add_stay(self, encounter: str, stay: Stay, patient: str = "") -> None:
        """Store the days of a stay for the documents of its encounter.

        `patient` is needed for encounters that are unique within a patient only.
        """
        days = []
        for time in (stay.admitted, stay.discharged):
            parsed = parse_note_time(time)
            days.append(parsed[0] if parsed else "")
        values = (encounter, patient, *days, stay.is_visit)
        self._database.execute("INSERT OR REPLACE INTO stay VALUES (?, ?, ?, ?, ?)", values)

    def find_stay(self, encounter: str, patient: str = "") -> Stay | None:
        """Return the days of an encounter, or None if no file describes it."""
        query = (
            "SELECT admitted, discharged, is_visit FROM stay WHERE encounter = ? AND patient IN ('', ?) "
            "ORDER BY patient DESC"
        )
        row = self._database.execute(query, (encounter, patient)).fetchone()
        if row is None:
            return None
        born = self.find_person(patient)[1]
        admitted, discharged = ("" if day and is_no_date(day, born) else day for day in row[:2])
        return Stay(admitted, discharged, bool(row[2]))

    def add_person(self, patient: str, name: str = "", born: str = "") -> None:
        """Store a patient's name for the documents, and the birth date, before which no fact has a time."""
        earlier_name, earlier_birth = self.find_person(patient)
        values = (patient, name or earlier_name, born or earlier_birth)
        self._database.execute("INSERT OR REPLACE INTO person VALUES (?, ?, ?)", values)

    def find_person(self, patient: str) -> tuple[str, str]:
        """Return a patient's name and birth date; empty if they are not known."""
        row = self._database.execute("SELECT name, born FROM person WHERE patient = ?", (patient,)).fetchone()
        return (row[0], row[1]) if row else ("", "")

    def documents(self, log: RemovalLog, incremental: str = "") -> Iterator[Document | DeletedDocument | StatedSources]:
        """Yield the documents by patient and day, and the deletion of those whose facts were all withdrawn.

        Facts are counted in the log by kind. `incremental` is the beginning of the sources of an export that need not
        be complete: what it states of each patient is yielded before the documents.
        """
        self._write()
        query = (
            "SELECT patient, source, version, is_withdrawn, is_separate, entries FROM record ORDER BY patient, rowid"
        )
        patient: str | None = None
        records: list[FactRecord] = []
        for patient_id, source, version, is_withdrawn, is_separate, entries in self._database.execute(query):
            if patient_id != patient:
                yield from _list_sources(records, incremental)
                yield from self._build_documents(records, log)
                patient, records = patient_id, []
            unpacked = tuple(map(_unpack, json.loads(entries)))
            records.append(
                FactRecord(patient_id, source, unpacked, version, bool(is_withdrawn), is_separate=bool(is_separate))
            )
        yield from _list_sources(records, incremental)
        yield from self._build_documents(records, log)

    def _write(self) -> None:
        self._database.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?, ?)", self._rows)
        self._rows.clear()

    def _build_documents(self, records: Sequence[FactRecord], log: RemovalLog) -> Iterator[Document | DeletedDocument]:
        """Yield the documents of one patient."""
        groups: dict[_DocumentKey, _Group] = {}
        latest = _select_latest(records)
        born = self.find_person(records[0].patient)[1] if records else ""
        for record in records:
            for entry in (_leave_out_unborn(entry, born) for entry in record.entries):
                group = groups.setdefault(_find_key(record, entry), _Group())
                if latest.get(_identify(record)) is record and not record.is_withdrawn:
                    group.entries.append(entry)
        current = {key.document_id for key, group in groups.items() if group.entries}
        for key, group in sorted(groups.items(), key=lambda item: item[0]):
            if group.entries:
                yield self._build_document(key, group, log)
            elif key.document_id not in current:
                yield DeletedDocument(key.document_id, patient=key.patient)

    def _build_document(self, key: _DocumentKey, group: _Group, log: RemovalLog) -> Document:
        group.entries.sort(key=lambda entry: entry.fact.time or "")
        lines, facts, offset = [], [], 0
        for entry in group.entries:
            line = write_line(entry.fact, key.day, entry.written_unit, _full_remark(entry))
            lines.append(line)
            facts.append(replace(entry.fact, start=offset, end=offset + len(line)))
            offset += len(line) + 1
            _count_fact(entry, log)
        stay = self.find_stay(key.encounter, key.patient) or Stay()
        metadata: dict[str, Any] = {
            "note_type": key.label,
            "visit" if stay.is_visit else "encounter": key.encounter,
            "patient_name": self.find_person(key.patient)[0],
            "admitted": stay.admitted,
            "discharged": stay.discharged,
            "time_missing": not key.day,
            FACTS: write_facts(facts),
        }
        title = key.label[:1].upper() + key.label[1:]
        return Document(
            id=key.document_id,
            text="\n".join(lines),
            title=f"{title}, {key.day}" if key.day else title,
            source=SOURCE,
            date=key.day or None,
            patient=key.patient,
            metadata={name: value for name, value in metadata.items() if value},
        )


def end_entry(fact: ClinicalFact, time: str, status: str = "", remark: str = "", since: str = "") -> FactEntry:
    """Return the end of what a fact states, without a time if it is not known. Its values are those of the fact."""
    end = replace(
        fact, event="end", time=time or None, value="", number=None, unit="", interpretation="", status=status
    )
    return FactEntry(end, since, remark=remark)


def _list_sources(records: Sequence[FactRecord], incremental: str) -> Iterator[StatedSources]:
    """Yield the sources of a patient's records that begin like those of an incremental export."""
    if records and incremental:
        sources = frozenset(record.source for record in records if record.source.startswith(incremental))
        yield StatedSources(records[0].patient, sources, incremental)


def _full_remark(entry: FactEntry) -> str:
    if not entry.written_time:
        return entry.remark
    return f"{entry.remark} Time as written: {entry.written_time}.".strip()


def _count_fact(entry: FactEntry, log: RemovalLog) -> None:
    fact = entry.fact
    log.facts[fact.kind] += 1
    if entry.written_time:
        log.fact_problems["with a time that could not be read"] += 1
    elif fact.time is None:
        log.fact_problems["without a time"] += 1
    if fact.number is not None and fact.unit and fact.unit == entry.written_unit and not to_ucum(fact.unit):
        log.fact_problems["with a unit that has no UCUM code"] += 1


def _identify(record: FactRecord) -> tuple[str, str]:
    """Return what is equal for versions of one resource, or for repetitions of one row."""
    return record.source, "" if record.version is not None else repr(record.entries)


def _select_latest(records: Iterable[FactRecord]) -> Mapping[tuple[str, str], FactRecord]:
    """Return the latest version of each record. A version without a time is as late as its place."""
    latest: dict[tuple[str, str], FactRecord] = {}
    for record in records:
        key = _identify(record)
        previous = latest.get(key)
        is_older = previous and previous.version and record.version and record.version < previous.version
        if not is_older and (previous is None or record.version is not None):
            latest[key] = record
    return latest


def order_ends(entries: Sequence[FactEntry]) -> list[FactEntry]:
    """Return the facts of a record, whose ends are no earlier than their beginning.

    An end that is written before the beginning is a mistake, but says that it is over. Its time is in a remark.
    """
    starts = [entry.fact.time for entry in entries if entry.fact.event == "start" or entry.fact.category == "dispense"]
    start = next(filter(None, starts), "")
    ordered: list[FactEntry] = []
    for entry in entries:
        end = entry.fact.time or ""
        if entry.fact.event == "end" and end and end[:_CLOCK] < start[: min(len(end), _CLOCK)]:
            remark = f"{entry.remark} End as written: {split_offset(end)[0]}, before the beginning.".strip()
            entry = replace(entry, fact=replace(entry.fact, time=start), remark=remark)
        ordered.append(entry)
    return ordered


def _leave_out_unborn(entry: FactEntry, born: str) -> FactEntry:
    """Return the entry without times before the birth of its patient. Its own time is then at the end of its line."""
    fact, since = entry.fact, entry.since
    since = "" if since and is_no_date(since, born) else since
    if not fact.time or not is_no_date(fact.time, born):
        return replace(entry, since=since)
    event: FactEvent = "state" if fact.event == "start" else fact.event
    fact = replace(fact, time=since or None, event=event, utc_offset="")
    return replace(entry, fact=fact, since=since, written_time=entry.written_time or entry.fact.time or "")


def _assess_entry(entry: FactEntry) -> FactEntry:
    """Return the entry with the status that its name gives it.

    `refuted`: it names nothing that the patient has. A problem may also be suspected, or of the family. `not-done`: a
    value that says only that there is none.
    """
    entry = _read_situation(entry)
    fact = name_denial(entry.fact)
    if KINDS[fact.kind].is_value and states_no_value(fact.value):
        return replace(entry, fact=replace(fact, unit="", status="not-done"), written_unit="")
    if states_absence(fact):
        return _refute(replace(entry, fact=fact), fact.name)
    if fact.kind == "allergy" and (denied := read_denial(fact.name)):
        return _refute(replace(entry, fact=fact), denied)
    if fact.kind != "problem" or fact.event == "end" or "refuted" in fact.status:
        return replace(entry, fact=fact)
    assertion = assess_name(fact.name)
    if assertion.status == "absent":
        return _refute(entry, assertion.name)
    is_family = assertion.status == "family" or any(map(_FAMILY_CODE.match, fact.codes))
    status = FAMILY_HISTORY if is_family else "suspected" if assertion.status == "uncertain" else ""
    return replace(entry, fact=replace(fact, status=", ".join(filter(None, (fact.status, status)))))


def _read_situation(entry: FactEntry) -> FactEntry:
    """Return a diagnosis that is none as what it is: an allergy, or something that was not done (ICD-10 Z53, Z88)."""
    fact = entry.fact
    if fact.kind != "problem":
        return entry
    if match := _ALLERGY_STATUS.fullmatch(fact.name):
        name = (match[1] or match[2]).removesuffix(" status")
        remark = " ".join(filter(None, (entry.remark, f"As written: {fact.name}.")))
        return replace(entry, fact=replace(fact, kind="allergy", name=name, category=""), remark=remark)
    if _NOT_CARRIED_OUT.search(fact.name) and fact.event != "end":
        return replace(entry, fact=replace(fact, event="state", status="not-done"))
    return entry


def _refute(entry: FactEntry, name: str) -> FactEntry:
    """Return the entry as a refuted one of this name, with the words as written if they were others.

    `Not allergic to penicillin (refuted)` would deny the denial.
    """
    fact = entry.fact
    words = f"As written: {fact.name}." if name != fact.name else ""
    refuted = replace(fact, name=name, status="refuted", event="state" if fact.event == "start" else fact.event)
    return replace(entry, fact=refuted, remark=" ".join(filter(None, (entry.remark, words))))


def _find_key(record: FactRecord, entry: FactEntry) -> _DocumentKey:
    fact = entry.fact
    day = max((entry.since or "")[:10], (fact.time or "")[:10])
    source = f"{record.source}:end" if fact.event == "end" else record.source
    return _DocumentKey(record.patient, day, fact.encounter, group_label(fact), source if record.is_separate else "")


def _pack(entry: FactEntry) -> list[Any]:
    return [_FACT_VALUES(entry.fact), entry.since, entry.written_unit, entry.remark, entry.written_time]


def _unpack(values: list[Any]) -> FactEntry:
    row, *texts = values
    fact = dict(zip(_FIELDS, row, strict=True))
    fact["codes"] = tuple(fact["codes"])
    if fact["time"] and not fact["utc_offset"]:
        fact["time"], fact["utc_offset"] = split_offset(fact["time"])
    return FactEntry(ClinicalFact(**fact), *texts)


_MEDICATION_LABELS = {
    "request": "medication orders",
    "statement": "medication list",
    "administration": "medications given",
    "dispense": "medications dispensed",
}
_STOPPED = frozenset(("stopped", "discontinued"))
_NOT_DONE = frozenset(("not-done", "not-taken", "not given", "refused"))
"""Statuses which say that something did not happen."""
_USUAL = frozenset(("final", "completed", "finished", "confirmed"))
"""Statuses that a line does not repeat."""


def group_label(fact: ClinicalFact) -> str:
    """Return what the document of the fact is called: `laboratory results`, `medication orders`."""
    if fact.kind == "medication":
        return _MEDICATION_LABELS.get(fact.category, KINDS["medication"].plural)
    if fact.kind == "problem" and fact.category == "encounter-diagnosis":
        return "diagnoses"
    if fact.kind == "observation" and fact.category:
        return fact.category.replace("-", " ").lower()
    kind = KINDS[fact.kind]
    return kind.documents or kind.plural


def write_line(fact: ClinicalFact, day: str, written_unit: str = "", remark: str = "") -> str:
    """Return one line that states the fact, in a document of this day, with its time of day if it has one."""
    time = fact.time or ""
    when = "" if time == day else time
    if day and time.startswith(f"{day}T"):
        when = time[11:]
    text = f"{when.replace('T', ' ')} " if when else ""
    text += _opening(fact) + fact.name
    if value := _written_value(fact, written_unit):
        text += (": " if KINDS[fact.kind].is_value or fact.kind == "allergy" else ", ") + value
    remarks = [fact.interpretation, f"reference {fact.reference_range}" if fact.reference_range else ""]
    if fact.kind in ("medication", "problem"):
        remarks.append(fact.category.replace("-", " "))
    if fact.status not in _USUAL:
        remarks.append(fact.status)
    if joined := "; ".join(filter(None, remarks)):
        text += f" ({joined})"
    if remark:
        text += f" {remark}"
    return " ".join(text.split())


def _opening(fact: ClinicalFact) -> str:
    if fact.status in _NOT_DONE:
        return "Not given: " if KINDS[fact.kind].is_given else "Not done: "
    if fact.kind == "medication" and fact.event == "end" and fact.status in _STOPPED:
        return "Stopped "
    return KINDS[fact.kind].openings.get(fact.event, "")


def _written_value(fact: ClinicalFact, written_unit: str) -> str:
    unit = written_unit or fact.unit
    if fact.kind == "medication":
        # A dose is written with its unit and route.
        return fact.value
    return f"{fact.value} {unit}" if fact.value and unit and fact.value != unit else fact.value
