"""Store the facts of a C-CDA document for the documents of its patient, with the stays that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.corpus.ccda.documents import ClinicalDocument
from epicrisis.corpus.ccda.values import STAY_CLASSES, VISIT_CLASSES
from epicrisis.corpus.facts.documents import FactEntry, FactRecord, FactSpool, Stay


def add_facts(document: ClinicalDocument, patient: str, spool: FactSpool, *, is_left_out: bool) -> None:
    """Store the facts of a document. Those of a withdrawn or superseded one hold only if another document has them."""
    if document.encounter:
        stay = Stay(document.admitted, document.discharged, is_visit=not document.is_stay)
        spool.add_stay(document.encounter, stay, patient)
    # The earliest version of all.
    version = "0" if is_left_out else document.time or "1"
    for row in document.coded.entries:
        entries = tuple(_place_in_stay(entry, document) for entry in row)
        source = entries[0].fact.source
        _add_coded_stay([entry.fact for entry in entries], patient, spool)
        spool.add(FactRecord(patient, source, entries, version, is_left_out, is_separate=True))


def _add_coded_stay(facts: Sequence[ClinicalFact], patient: str, spool: FactSpool) -> None:
    """Store the days of an encounter entry. It is a stay by its class, else if it ends on a later day."""
    head = facts[0]
    if head.kind != "encounter" or not head.encounter:
        return
    start = head.time or ""
    end = facts[-1].time or "" if facts[-1].event == "end" else ""
    is_stay = head.category in STAY_CLASSES.values() or bool(
        head.category not in VISIT_CLASSES.values() and end and end[:10] != start[:10]
    )
    spool.add_stay(head.encounter, Stay(start, end, is_visit=not is_stay), patient)


def _place_in_stay(entry: FactEntry, document: ClinicalDocument) -> FactEntry:
    """Return the fact as one of the document's encounter if it happened in it. Documents also list earlier facts."""
    day = (entry.fact.time or "")[:10]
    first, last = document.admitted[:10], document.discharged[:10]
    if not entry.fact.encounter and document.encounter and first and last and first <= day <= last:
        return replace(entry, fact=replace(entry.fact, encounter=document.encounter))
    return entry
