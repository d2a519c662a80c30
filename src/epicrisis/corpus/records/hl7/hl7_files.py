"""Read notes of patients from files of HL7 v2: reports (ORU) and documents (MDM), and structured facts.

All files of an addition are read together: a later message may correct, replace or cancel what an earlier one said, and
PV1 segments of any message tell the days of stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from epicrisis.corpus.base import reader_base
from epicrisis.corpus.base.patient_numbers import PatientNumbers, StatedPerson
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.records.facts.fact_documents import FactSpool, Stay
from epicrisis.corpus.records.hl7.hl7_facts import build_fact_records
from epicrisis.corpus.records.hl7.hl7_values import iso_time
from epicrisis.corpus.records.hl7.messages import Hl7Message, Hl7Segment, read_messages
from epicrisis.corpus.records.hl7.notes import (
    TEXT_KINDS,
    Hl7Group,
    Hl7Visit,
    concept_name,
    is_report,
    order_id,
    person_name,
    read_groups,
    read_person,
    read_visit,
    report_text,
    result_status,
)
from epicrisis.corpus.records.hl7.statement_facts import StatementFacts
from epicrisis.corpus.records.hl7.statements import count_unread, read_statements
from epicrisis.corpus.records.note_documents import ClinicalNote, DocumentKey, NoteCleaning, build_items, find_replaced

_CANCELLED = ("CA", "CANCELED", "CANCELLED")
_OBSOLETE = "OB"
_UNFINISHED = {"DI": "preliminary", "IP": "preliminary", "IN": "preliminary", "PA": "preliminary"}
"""TXA-17 of documents that nobody has signed."""
_Place = tuple[Path, str, int]
"""File, message, number of the group."""


@dataclass(slots=True)
class _Feed:
    """What the messages of all files say about each other."""

    patients: dict[StatedPerson, str] = field(default_factory=dict)
    """Empty for a person that cannot be told from another."""
    visits: dict[tuple[str, str], Hl7Visit] = field(default_factory=dict)
    """By patient and id."""
    order_visits: dict[tuple[str, str], str] = field(default_factory=dict)
    """By patient and order: the visit, which a correction may not repeat."""
    latest: dict[DocumentKey, tuple[str, _Place]] = field(default_factory=dict)
    """By patient and document: when its last version was sent, and where that is."""
    successors: defaultdict[DocumentKey, set[DocumentKey]] = field(default_factory=lambda: defaultdict(set))
    replaced: set[DocumentKey] = field(default_factory=set)

    def find_visit(self, patient: str, group: Hl7Group, header: Hl7Segment) -> Hl7Visit:
        """Return the visit of a group with all that messages say about it."""
        visit_id = group.visit.id or self.order_visits.get((patient, order_id(group.order, header)), "")
        return self.visits.get((patient, visit_id), group.visit)


def read_files(
    files: Sequence[tuple[Path, str]], cleaning: NoteCleaning, numbers: PatientNumbers
) -> Iterator[reader_base.ReaderItem]:
    """Yield the patients, then the notes file by file, the results as facts, and the files' fingerprints.

    A message whose patient contradicts an earlier one is skipped. `numbers` are the patients of the addition.
    """
    feed = _Feed()
    damaged: set[Path] = set()
    for path, _ in files:
        reader_base.check_file(path)
        if damage := reader_base.describe_damage(path):
            damaged.add(path)
            yield reader_base.skip(path, "", damage)
            continue
        yield from _record_file(path, feed, numbers, cleaning.removal_log)
    yield from _list_changes(feed, cleaning, numbers)
    readable = [(path, name) for path, name in files if path not in damaged]
    fingerprints: list[reader_base.ReaderItem] = []
    for path, name in readable:
        yield from reader_base.hold_fingerprint(path, _read_texts(path, name, feed, cleaning), fingerprints)
    yield from _read_fact_documents([path for path, _ in readable], feed, cleaning.removal_log)
    yield from fingerprints


def _list_changes(feed: _Feed, cleaning: NoteCleaning, numbers: PatientNumbers) -> Iterator[reader_base.ReaderItem]:
    """Yield the patients, and the documents that others replace."""
    for person, patient in feed.patients.items():
        if patient:
            yield numbers.identify(patient, person)
    feed.replaced = find_replaced(feed.successors)
    if not cleaning.keep_superseded:
        # An earlier addition may have contained them.
        for patient, note_id in sorted(feed.replaced):
            yield reader_base.DeletedDocument(f"note:{note_id}", patient=patient)


def _read_texts(path: Path, name: str, feed: _Feed, cleaning: NoteCleaning) -> Iterator[reader_base.ReaderItem]:
    """Yield the reports and documents of a file, and what of them was not read."""
    remarks: dict[tuple[str, str], None] = {}
    yield from build_items(path, name, partial(_read_notes, path, feed, remarks), cleaning)
    for _, remark in remarks:
        yield reader_base.FileRemark(name, "part", f"of HL7 messages: {remark}")


def _record_file(path: Path, feed: _Feed, numbers: PatientNumbers, log: RemovalLog) -> Iterator[reader_base.Skipped]:
    """Record the patients, stays and documents of a file. Yield what of it cannot be read."""
    for place, message in read_messages(path):
        if isinstance(message, reader_base.Skipped):
            yield message
            continue
        try:
            _record_people(message, feed, numbers)
            groups, others = read_groups(message) if message.kind in TEXT_KINDS else ([], {})
            statements = read_statements(message)
        except ValueError as error:
            yield reader_base.skip(path, place, str(error))
            continue
        if message.kind not in TEXT_KINDS:
            others = count_unread(message, statements) if statements else {f"{message.kind[:3] or 'other'} message": 1}
        for name, count in others.items():
            log.other_resources[name] += count
        for number, group in enumerate(groups):
            if patient := feed.patients.get(group.person, ""):
                _record_document(group, patient, message, (path, place, number), feed)


def _record_people(message: Hl7Message, feed: _Feed, numbers: PatientNumbers) -> None:
    """Record the patients of a message and the days of their stays. Raises ValueError with the reason."""
    patient, account = "", ""
    for segment in message.segments:
        if segment.name == "PID":
            person, account = read_person(segment, message.header), segment.text(18)
            if person not in feed.patients:
                feed.patients[person] = ""
                feed.patients[person] = numbers.resolve(person)
            elif not feed.patients[person]:
                raise ValueError(
                    "its patient is refused as in an earlier message; correct the record number or birth date"
                )
            patient = feed.patients[person]
        elif segment.name == "PV1" and patient:
            visit = read_visit(segment, account)
            earlier = feed.visits.get((patient, visit.id), visit)
            if visit.id:
                feed.visits[patient, visit.id] = Hl7Visit(
                    visit.id,
                    visit.admitted or earlier.admitted,
                    visit.discharged or earlier.discharged,
                    visit.is_stay or earlier.is_stay,
                )


def _record_document(group: Hl7Group, patient: str, message: Hl7Message, place: _Place, feed: _Feed) -> None:
    """Record the visit of an order, the version of a document, and which one it replaces."""
    if group.visit.id and (key := order_id(group.order, message.header)):
        feed.order_visits.setdefault((patient, key), group.visit.id)
    document = _document_id(group, message)
    if not document:
        return
    sent = iso_time(message.header.text(7))
    is_text = bool(group.results) or message.event == "T11"
    if is_text and sent >= feed.latest.get((patient, document), ("", place))[0]:
        feed.latest[patient, document] = (sent, place)
    order = group.order
    if order is not None and order.name == "TXA" and message.event == "T10" and group.results:
        parent = _document_number(order, 13)
        if parent and parent != document:
            feed.successors[patient, parent].add((patient, document))


def _document_id(group: Hl7Group, message: Hl7Message) -> str:
    """Return the id of a document or report, or an empty string."""
    order = group.order
    if order is not None and order.name == "TXA":
        return _document_number(order, 12)
    return order_id(order, message.header) if is_report(group) else ""


def _document_number(order: Hl7Segment, field_number: int) -> str:
    """Return the number of a document with the system that gave it."""
    number = order.text(field_number)
    return ":".join(filter(None, (order.text(field_number, 2), number))) if number else ""


def _read_notes(
    path: Path, feed: _Feed, remarks: dict[tuple[str, str], None]
) -> Iterator[ClinicalNote | reader_base.Skipped]:
    for place, message in read_messages(path):
        if isinstance(message, reader_base.Skipped) or message.kind not in TEXT_KINDS:
            continue
        try:
            groups, _ = read_groups(message)
        except ValueError:
            continue
        for number, group in enumerate(groups):
            patient = feed.patients.get(group.person, "")
            if not patient or not (is_report(group) or (group.order is not None and group.order.name == "TXA")):
                continue
            where = f"{place}, report {number + 1}" if len(groups) > 1 else place
            document = _document_id(group, message)
            here = (path, place, number)
            is_latest = feed.latest.get((patient, document), ("", here))[1] == here
            note = _build_note(group, message, patient, where, feed, remarks)
            if note is None:
                continue
            if not is_latest:
                # The last version has the same id.
                note = replace(note, note_id="", is_superseded=True)
            if note.text or note.is_error:
                yield note
            else:
                yield reader_base.skip(path, where, "holds no text that can be read")


def _build_note(
    group: Hl7Group, message: Hl7Message, patient: str, where: str, feed: _Feed, remarks: dict[tuple[str, str], None]
) -> ClinicalNote | None:
    """Return the note of a report or document; None for a document of which only the status is sent."""
    order, document = group.order, _document_id(group, message)
    content = report_text(group)
    remarks.update(dict.fromkeys((where, remark) for remark in content.remarks))
    status, amends, authors, note_type, is_error = "", "", "", "", False
    times: tuple[str, ...] = ()
    if order is not None and order.name == "TXA":
        is_error = message.event == "T11" or order.text(19).upper() in _CANCELLED
        if not group.results and not is_error:
            return None
        status = _UNFINISHED.get(order.text(17).upper(), "")
        amends = _document_number(order, 13) if message.event in ("T05", "T06") else ""
        note_type = order.text(25) or order.text(2, 2) or order.text(2)
        authors = person_name(order, 9)
        times = (iso_time(order.text(6)), iso_time(order.text(4)), iso_time(message.header.text(7)))
    elif order is not None:
        note_type, status = concept_name(order, 4), result_status(order, 25)
        is_error = status in ("cancelled", "entered-in-error") or (not content.text and not content.remarks)
        times = (iso_time(order.text(22)), iso_time(order.text(7)), iso_time(message.header.text(7)))
        authors = _interpreter(order)
    visit = feed.find_visit(patient, group, message.header)
    words = [word for word in (status if status != "final" else "", "addendum" if amends else "") if word]
    return ClinicalNote(
        where=where,
        patient=patient,
        text=content.text or ("(withdrawn)" if is_error else ""),
        times=tuple(filter(None, times))[:1],
        note_type=note_type,
        encounter=visit.id if visit.is_stay else "",
        note_id=document,
        patient_name=next(iter(group.person.names), ""),
        born=group.person.born,
        admitted=visit.admitted if visit.is_stay else "",
        discharged=visit.discharged if visit.is_stay else "",
        more={
            "visit": "" if visit.is_stay else visit.id,
            "authors": [authors] if authors else [],
            "amends": [f"note:{amends}"] if amends else [],
            "status": ", ".join(words),
        },
        is_error=is_error,
        is_superseded=(patient, document) in feed.replaced or _is_obsolete(order),
        headings=content.headings,
    )


def _is_obsolete(order: Hl7Segment | None) -> bool:
    return order is not None and order.name == "TXA" and order.text(19).upper() == _OBSOLETE


def _interpreter(order: Hl7Segment) -> str:
    """Return who interpreted the results: OBR-32, whose name is in subcomponents."""
    parts = [*order.text(32).split(order.delimiters.subcomponent), "", ""]
    return " ".join(filter(None, (parts[2], parts[1])))


def _read_fact_documents(paths: Sequence[Path], feed: _Feed, log: RemovalLog) -> Iterator[reader_base.ReaderItem]:
    """Yield the results and other statements of all files as documents of facts."""
    statement_facts = StatementFacts()
    with FactSpool() as spool:
        for person, patient in feed.patients.items():
            if patient:
                spool.add_person(patient, next(iter(person.names), ""), person.born)
        for (patient, visit_id), visit in feed.visits.items():
            spool.add_stay(visit_id, Stay(visit.admitted, visit.discharged, is_visit=not visit.is_stay), patient)
        for path in paths:
            for _, message in read_messages(path):
                if not isinstance(message, reader_base.Skipped):
                    _add_facts(message, feed, statement_facts, spool)
        yield from spool.documents(log)


def _add_facts(message: Hl7Message, feed: _Feed, statement_facts: StatementFacts, spool: FactSpool) -> None:
    """Store the facts of a message. One that cannot be read has been reported."""
    try:
        groups = read_groups(message)[0] if message.kind in TEXT_KINDS else []
        statements = read_statements(message)
    except ValueError:
        return
    for group in groups:
        patient = feed.patients.get(group.person, "")
        if not patient or is_report(group) or (group.order is not None and group.order.name == "TXA"):
            continue
        encounter = feed.find_visit(patient, group, message.header).id
        for record in build_fact_records(group, message.header, patient, encounter):
            spool.add(record)
    for statement in statements:
        if patient := feed.patients.get(statement.person, ""):
            for record in statement_facts.build_records(statement, message.header, patient):
                spool.add(record)
