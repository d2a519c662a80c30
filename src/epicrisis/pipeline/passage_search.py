"""Search an open library for the passages or sentences nearest to a query, for the command line and for other programs.

with open_library_search(settings, "~/lib") as search:
    ranking = search_passages(settings, search, "aspirin in pregnancy")
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from epicrisis.core.errors import InputError
from epicrisis.core.types import Question, Ranking, Scope, SentenceRanking
from epicrisis.library.core.patient_check import check_patient, describe_strangers, find_strangers, resolve_patient
from epicrisis.library.core.patients import MIXED_NOTICE
from epicrisis.pipeline.components import LibrarySearch, build_scope
from epicrisis.pipeline.evidence_selection import (
    EMPTY_MESSAGE,
    NO_RESTRICTION,
    SENTENCE_PASSAGES,
    TimeRestriction,
    find_evidence,
    list_evidence,
    order_evidence,
    resolve_time_restriction,
)
from epicrisis.privacy.record_access import RecordAccess
from epicrisis.settings.settings import Settings


def search_passages(
    settings: Settings,
    search: LibrarySearch,
    query: str,
    patient: str | None = None,
    access: RecordAccess | None = None,
    readable: frozenset[str] | None = None,
) -> Ranking:
    """Return the best `settings.k` passages or notes. Remarks of the search are in `notes`.

    `access` records what is read of a patient's record; without it the caller does, who gives the patients that the
    reader may learn of as `readable` (None: all).

    `patient` is an id or a record number. In a record, time expressions of the query select the notes; if nothing is
    found in them, all notes are searched. Raises InputError for an empty query, and for one that does not fit the
    patients of the library.
    """
    scope, time, remarks = _restrict(settings, search, query, patient, access, readable)
    narrowed = replace(scope, hidden=scope.hidden | time.hidden)
    ranking = order_evidence(settings, scope.patient, find_evidence(settings, search.retriever, query, narrowed))
    notes = (*ranking.notes, *time.messages, *time.unresolved_messages, *remarks)
    if time.hidden and not ranking.hits:
        ranking = order_evidence(settings, scope.patient, find_evidence(settings, search.retriever, query, scope))
        notes = (*notes, EMPTY_MESSAGE, *ranking.notes)
    if access is not None and scope.patient is not None:
        access.record("search", scope.patient, ranking.document_ids)
    return replace(ranking, notes=notes)


def search_sentences(
    settings: Settings,
    search: LibrarySearch,
    query: str,
    patient: str | None = None,
    access: RecordAccess | None = None,
    readable: frozenset[str] | None = None,
) -> SentenceRanking:
    """Return the best `settings.sentences` sentences of the best passages. Remarks of the search are in `notes`.

    The arguments are those of `search_passages`, as are the treatment of time expressions and the errors.
    """
    scope, time, remarks = _restrict(settings, search, query, patient, access, readable)
    retriever = search.retriever
    narrowed = replace(scope, hidden=scope.hidden | time.hidden)
    ranking = retriever.rank(query, SENTENCE_PASSAGES, settings.by, narrowed)
    notes = (*ranking.notes, *time.messages, *time.unresolved_messages, *remarks)
    if time.hidden and not ranking.hits:
        narrowed = scope
        ranking = retriever.rank(query, SENTENCE_PASSAGES, settings.by, narrowed)
        notes = (*notes, EMPTY_MESSAGE, *ranking.notes)
    sentences = list_evidence(settings, retriever, query, ranking, settings.sentences, narrowed)
    if access is not None and scope.patient is not None:
        access.record("evidence", scope.patient, [sentence.passage.document_id for sentence in sentences.sentences])
    absent = (f"{sentences.absence}; the nearest sentences are shown",) if sentences.absence else ()
    return replace(sentences, notes=(*absent, *notes, *sentences.notes))


def _restrict(
    settings: Settings,
    search: LibrarySearch,
    query: str,
    patient: str | None,
    access: RecordAccess | None,
    readable: frozenset[str] | None,
) -> tuple[Scope, TimeRestriction, tuple[str, ...]]:
    """Return the scope of a query, its restriction by time, and remarks on the library and its components.

    Raises InputError for an empty query, for one that does not fit the patients of the library, and for a patient whose
    record the user may not read.
    """
    if not query.strip():
        raise InputError("the query is empty: give the words to look for")
    if access is not None:
        readable = access.readable
    rosters = [roster.snapshot() if readable is None else roster.limit(readable) for roster in search.rosters]
    with access.refusals("search", None) if access is not None else nullcontext():
        patient = resolve_patient(rosters, patient)
    # Before the question is checked, so that a patient not assigned and one who is not there are refused alike.
    if access is not None and patient is not None:
        access.check("search", patient, is_known=any(patient in roster.patients() for roster in search.rosters[:1]))
    question = Question(query, patient=patient)
    with access.refusals("search", patient) if access is not None else nullcontext():
        check_patient(rosters, question)
    scope = build_scope(settings.scope, patient)
    time = NO_RESTRICTION
    if patient is not None and settings.timeline:
        time = resolve_time_restriction(query, lambda: search.retriever.record(scope).passages)
    mixed = (MIXED_NOTICE,) if patient is not None and rosters and rosters[0].is_mixed() else ()
    strangers = find_strangers(rosters, question, titled=readable is None) if patient is not None else ()
    other = (describe_strangers(strangers),) if strangers else ()
    return scope, time, (*mixed, *other, *search.remarks)
