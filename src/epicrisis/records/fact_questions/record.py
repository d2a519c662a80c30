"""The structured facts of one patient, read from the passages of the record: valid entries, stays and the last day."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime

from epicrisis.core.clinical_facts import ClinicalFact, read_facts
from epicrisis.core.dates import TimeRange, time_range
from epicrisis.core.fact_kinds import VALUE_KINDS, FactKind
from epicrisis.core.fact_times import local_range
from epicrisis.core.types import Passage
from epicrisis.retrieval.hospital_stays import HospitalStay, NoteTime, group_stays

_WITHDRAWN_STATUSES = """
entered-in-error cancelled nullified withdrawn refuted ruled-out not-done not-taken registered
"""
_WITHDRAWN = frozenset(_WITHDRAWN_STATUSES.split())
"""Statuses of entries that state nothing about the patient."""
_CORRECTING = ("corrected", "amended")
_PRELIMINARY = frozenset({"preliminary", "partial"})
_FUTURE = frozenset({"planned", "proposed", "pending"})
_PLANS: Mapping[FactKind, frozenset[str]] = {
    "encounter": _FUTURE | _WITHDRAWN,
    "procedure": _FUTURE | _WITHDRAWN | {"preparation"},
    "immunization": _FUTURE | _WITHDRAWN,
    "medication": _FUTURE | {"intended"},
}
"""Statuses of entries whose time is that of a plan, also of one that was given up."""
_INPATIENT = re.compile(r"inpatient|hospital|admission|admitted|acute|short stay|emergency|\bimp\b|\bacute\b|icu", re.I)


@dataclass(frozen=True, slots=True)
class PatientFacts:
    """The structured facts of a patient as of a day."""

    facts: tuple[ClinicalFact, ...]
    """Valid facts, each once, by document and place."""
    stays: tuple[HospitalStay, ...]
    passages: Mapping[str, tuple[Passage, ...]]
    """The passages of each document with facts."""
    last: datetime | None
    """The last minute that the record can speak of: its latest date, or the as-of date if that is earlier."""
    withdrawn: tuple[ClinicalFact, ...] = ()
    """Facts whose status says that they were withdrawn, or replaced by a correction."""

    @property
    def ongoing(self) -> frozenset[str]:
        """The encounter of the stay that goes on at the end of the record, if any."""
        return frozenset(stay.encounter for stay in self.stays if stay.is_ongoing)

    @property
    def values(self) -> tuple[ClinicalFact, ...]:
        """The laboratory values, vital signs and other observations."""
        return tuple(fact for fact in self.facts if fact.kind in VALUE_KINDS)

    def passage_of(self, fact: ClinicalFact) -> Passage:
        """Return the passage with the whole line of a fact, or else the one with its beginning."""
        candidates = self.passages[fact.document_id]
        for passage in candidates:
            if passage.start <= fact.start and fact.end <= passage.end:
                return passage
        return next(passage for passage in candidates if passage.start <= fact.start < passage.end)

    def line_of(self, fact: ClinicalFact) -> str:
        """Return the words of the document that state the fact."""
        passage = self.passage_of(fact)
        return passage.text[fact.start - passage.start : fact.end - passage.start]


def read_fact_record(passages: Sequence[Passage], as_of: str | None = None) -> PatientFacts | None:
    """Return the facts of a patient's record, or None if it has none."""
    facts: dict[tuple[str, int], ClinicalFact] = {}
    documents: dict[str, list[Passage]] = {}
    for passage in passages:
        for fact in read_facts(passage):
            facts.setdefault((fact.document_id, fact.start), fact)
            documents.setdefault(fact.document_id, [])
    if not facts:
        return None
    for passage in passages:
        if passage.document_id in documents:
            documents[passage.document_id].append(passage)
    ordered = [facts[key] for key in sorted(facts)]
    valid, withdrawn = _separate_withdrawn(ordered)
    parts = {name: tuple(sorted(group, key=lambda part: part.start)) for name, group in documents.items()}
    last = _find_last(passages, ordered, as_of)
    return PatientFacts(tuple(valid), _find_stays(passages, valid, last), parts, last, tuple(withdrawn))


def read_time(fact: ClinicalFact) -> TimeRange | None:
    """Return the first and the last minute of a fact in local time, as questions name times; None without a date."""
    return local_range(fact)


def read_date(date: str | None) -> TimeRange | None:
    """Return the range of a partial ISO date; None for no date or an unreadable one."""
    try:
        return time_range(date) if date else None
    except ValueError:
        return None


def _separate_withdrawn(facts: Sequence[ClinicalFact]) -> tuple[list[ClinicalFact], list[ClinicalFact]]:
    """Return the valid facts, and those withdrawn or replaced by another version of their source."""
    withdrawn_sources: set[str] = set()
    versions: dict[tuple[str, str, str, str], list[ClinicalFact]] = {}
    for fact in facts:
        if is_withdrawn(fact) and fact.source:
            withdrawn_sources.add(fact.source)
        elif fact.kind in VALUE_KINDS and fact.source:
            versions.setdefault((fact.source, fact.event, fact.name, fact.time or ""), []).append(fact)
    replaced: set[tuple[str, int]] = set()
    for group in versions.values():
        replaced.update((fact.document_id, fact.start) for fact in _find_replaced(group))
    valid: list[ClinicalFact] = []
    withdrawn: list[ClinicalFact] = []
    for fact in facts:
        is_invalid = is_withdrawn(fact) or fact.source in withdrawn_sources
        if is_invalid or (fact.document_id, fact.start) in replaced:
            withdrawn.append(fact)
        else:
            valid.append(fact)
    return valid, withdrawn


def is_withdrawn(fact: ClinicalFact) -> bool:
    """Return whether the status of a fact says that it states nothing about the patient."""
    return not _WITHDRAWN.isdisjoint(list_statuses(fact))


def is_preliminary(fact: ClinicalFact) -> bool:
    """Return whether the value of a fact may still change."""
    return not _PRELIMINARY.isdisjoint(list_statuses(fact))


def is_planned_end(fact: ClinicalFact) -> bool:
    """Return whether a fact is a planned end without a sign of having happened."""
    return fact.event == "end" and "planned" in list_statuses(fact)


def _is_plan(fact: ClinicalFact) -> bool:
    """Return whether the time of a fact is that of a plan."""
    return is_planned_end(fact) or not _PLANS.get(fact.kind, frozenset()).isdisjoint(list_statuses(fact))


def list_plan_documents(facts: Iterable[ClinicalFact]) -> frozenset[str]:
    """Return the ids of documents that state nothing but plans. Their day may never come."""
    facts = list(facts)
    happened = {fact.document_id for fact in facts if not _is_plan(fact)}
    return frozenset(fact.document_id for fact in facts) - happened


def list_statuses(fact: ClinicalFact) -> frozenset[str]:
    """Return the statuses of a fact in lower case. A source may give several: `active, confirmed`."""
    return frozenset(re.split(r"[\s,;/]+", fact.status.lower().replace("_", "-"))) - {""}


def _find_replaced(versions: Sequence[ClinicalFact]) -> list[ClinicalFact]:
    """Return the versions of one result that a corrected version, or a final one, replaces."""
    corrections = [fact for fact in versions if not list_statuses(fact).isdisjoint(_CORRECTING)]
    preliminary = [fact for fact in versions if is_preliminary(fact)]
    if corrections:
        return [fact for fact in versions if fact not in corrections]
    return preliminary if len(preliminary) < len(versions) else []


def _find_last(passages: Iterable[Passage], facts: Iterable[ClinicalFact], as_of: str | None) -> datetime | None:
    """Return the latest minute of the record's dates, but no later than the as-of date."""
    facts = list(facts)
    plans = list_plan_documents(facts)
    dates = [passage.date for passage in passages if passage.document_id not in plans]
    dates += [fact.time for fact in facts if not _is_plan(fact)]
    times = [time[1] for time in map(read_date, dates) if time is not None]
    limit = read_date(as_of)
    if limit is not None:
        return limit[1]
    return max(times, default=None)


def _find_stays(
    passages: Sequence[Passage], facts: Sequence[ClinicalFact], last: datetime | None
) -> tuple[HospitalStay, ...]:
    """Return the hospital stays by time: those of encounter facts if any is an inpatient one, else those of notes."""
    notes: dict[str, NoteTime] = {}
    begun: set[str] = set()
    ended: set[str] = set()
    for fact in facts:
        if (
            fact.kind != "encounter"
            or list_statuses(fact) & _FUTURE
            or not _INPATIENT.search(f"{fact.name} {fact.category}")
        ):
            continue
        id_ = fact.encounter or fact.source or fact.document_id
        note = notes.get(id_, NoteTime(f"{id_}", encounter=id_))
        if fact.event == "start":
            begun.add(id_)
        if fact.event == "end":
            ended.add(id_)
            note = replace(note, discharged=fact.time)
        elif read_date(fact.time) is not None:
            note = replace(note, admitted=fact.time)
        notes[id_] = note
    dated = [note for note in notes.values() if note.admitted]
    if dated:
        return _extend_last(group_stays(dated, ()), begun - ended, last)
    written = NoteTime.from_passages(passages)
    ongoing = [stay.encounter for stay in group_stays(written) if stay.is_ongoing]
    return group_stays([note for note in written if note.admitted or note.discharged], ongoing)


def _extend_last(stays: Sequence[HospitalStay], unended: Set[str], last: datetime | None) -> tuple[HospitalStay, ...]:
    """Return the stays, the last of which goes on until the end of the record if it has begun and not ended.

    An earlier one that has not ended lacks its discharge.
    """
    *earlier, newest = stays
    if newest.encounter in unended and newest.start and last is not None and newest.start[0] <= last:
        newest = replace(newest, end=(last, last), is_ongoing=True)
    return (*earlier, newest)
