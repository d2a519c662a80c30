"""Search an open library for the passages nearest to a query, for the command line and for other programs.

with open_library_search(settings, "~/lib") as search:
    ranking = search_passages(settings, search, "aspirin in pregnancy")
"""

from __future__ import annotations

from dataclasses import replace

from epicrisis.components import LibrarySearch, build_scope
from epicrisis.errors import InputError
from epicrisis.evidence_selection import (
    EMPTY_MESSAGE,
    NO_RESTRICTION,
    find_evidence,
    order_evidence,
    resolve_time_restriction,
)
from epicrisis.library.patient_check import check_patient, resolve_patient
from epicrisis.library.patients import MIXED_NOTICE
from epicrisis.settings import Settings
from epicrisis.types import Question, Ranking


def search_passages(settings: Settings, search: LibrarySearch, query: str, patient: str | None = None) -> Ranking:
    """Return the best `settings.k` passages or notes. Remarks of the search are in `notes`.

    `patient` is an id or a record number. In a record, time expressions of the query select the notes; if nothing is
    found in them, all notes are searched. Raises InputError for an empty query, and for one that does not fit the
    patients of the library.
    """
    if not query.strip():
        raise InputError("the query is empty: give the words to look for")
    patient = resolve_patient(search.rosters, patient)
    check_patient(search.rosters, Question(query, patient=patient))
    scope = build_scope(settings.scope, patient)
    time = NO_RESTRICTION
    if patient is not None and settings.timeline:
        time = resolve_time_restriction(query, lambda: search.retriever.record(scope).passages)
    narrowed = replace(scope, hidden=scope.hidden | time.hidden)
    ranking = order_evidence(settings, patient, find_evidence(settings, search.retriever, query, narrowed))
    mixed = (MIXED_NOTICE,) if patient is not None and search.rosters[0].is_mixed() else ()
    notes = (*ranking.notes, *time.messages, *time.unresolved_messages, *mixed)
    if time.hidden and not ranking.hits:
        ranking = order_evidence(settings, patient, find_evidence(settings, search.retriever, query, scope))
        notes = (*notes, EMPTY_MESSAGE, *ranking.notes)
    return replace(ranking, notes=notes)
