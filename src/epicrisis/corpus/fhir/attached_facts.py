"""Read the coded entries of C-CDA documents that are attached to FHIR resources as structured facts.

Servers render such documents from the data that they also export as resources, with other ids and codes. So that no
fact is there twice, an entry is left out if resources of the export state the same kind of fact for the patient: for
results, vital signs, procedures, immunizations and stays on that day or the days beside it, for medications, problems
and allergies at any time. Its words are still in the note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from epicrisis.core.clinical_facts import FactKind
from epicrisis.core.dates import first_day, last_day
from epicrisis.corpus.ccda.documents import ClinicalDocument
from epicrisis.corpus.ccda.fact_records import add_facts
from epicrisis.corpus.ccda.facts import CodedFacts
from epicrisis.corpus.facts.documents import FactEntry, FactRecord, FactSpool
from epicrisis.corpus.fhir.export_index import ExportIndex
from epicrisis.corpus.removal_log import RemovalLog

_VALUES: tuple[FactKind, ...] = ("laboratory", "vital-sign", "observation")
_SAME_KINDS: dict[FactKind, tuple[FactKind, ...]] = {
    "laboratory": ("laboratory", "observation"),
    "vital-sign": ("vital-sign", "observation"),
    "observation": _VALUES,
}
"""Kinds under which a resource may have what an entry calls by another one; for other kinds, the kind alone."""
_LASTING = ("medication", "problem", "allergy")
"""Kinds whose dates differ between a list and its resources."""
_STATED = "of attached C-CDA documents, which resources of the export state"


def record_stated(record: FactRecord, index: ExportIndex) -> None:
    """Record which facts a resource states, if its patient has attached documents with facts."""
    if not index.has_clinical_documents(record.patient):
        return
    for entry in record.entries:
        first, last = _day_numbers(entry)
        index.add_stated(record.patient, entry.fact.kind, first, last)


def add_attached_facts(index: ExportIndex, spool: FactSpool, log: RemovalLog) -> None:
    """Store the facts of all attached documents, after those of the resources."""
    for patient, values, stay, is_left_out in index.list_clinical_documents():
        document = ClinicalDocument.from_json(values)
        rows: list[tuple[FactEntry, ...]] = []
        for row in document.coded.entries:
            if _is_stated(row[0], patient, index):
                log.fact_problems[_STATED] += len(row)
            else:
                rows.append(row)
        if index.find_stated(patient, "encounter", 0, date.max.toordinal()):
            rows = [_without_encounter(row) for row in rows]
        log.fact_problems.update(document.coded.problems)
        encounter, admitted, discharged = stay
        document = replace(
            document,
            coded=CodedFacts(tuple(rows)),
            encounter=encounter,
            admitted=admitted,
            discharged=discharged,
            is_stay=True,
        )
        add_facts(document, patient, spool, is_left_out=is_left_out)


def _is_stated(entry: FactEntry, patient: str, index: ExportIndex) -> bool:
    """Return whether a resource may state the fact of an entry. Days differ between time zones."""
    kind = entry.fact.kind
    first, last = (0, date.max.toordinal()) if kind in _LASTING else _day_numbers(entry)
    return any(index.find_stated(patient, other, first - 1, last + 1) for other in _SAME_KINDS.get(kind, (kind,)))


def _day_numbers(entry: FactEntry) -> tuple[int, int]:
    """Return the first and the last day of a fact as ordinals; all days without a date."""
    time = entry.fact.time
    if not time:
        return 0, date.max.toordinal()
    return _ordinal(first_day(time)), _ordinal(last_day(time))


def _ordinal(day: int) -> int:
    return date(day // 10_000, day // 100 % 100, day % 100).toordinal()


def _without_encounter(row: Sequence[FactEntry]) -> tuple[FactEntry, ...]:
    """Return the facts without the document's own number of an encounter, which the export states under another."""
    return tuple(replace(entry, fact=replace(entry.fact, encounter="")) for entry in row)
