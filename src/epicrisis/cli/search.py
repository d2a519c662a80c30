"""`epicrisis search`: the ranking of passages, without an answer."""

from __future__ import annotations

from typing import Annotated

import typer

from epicrisis.cli.command import Flags, command
from epicrisis.cli.options import SEARCH, Json, LibraryPath, Patient
from epicrisis.cli.question_input import read_standard_input
from epicrisis.cli.terminal import show_json


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    command(
        app,
        *SEARCH,
        panel=panel,
        examples=[
            'epicrisis search ~/lib "anal sphincter imaging in dyschesia" --by hybrid -k 16',
            'epicrisis search ~/pubmed "statins in dementia" --setting scope.since=2015 --setting rerank.name=medcpt',
            'epicrisis search ~/ward --patient 10083814 "chest pain" -k 3 --setting unit=note',
        ],
    )(search)


def search(
    library: LibraryPath,
    query: Annotated[str, typer.Argument(help="Words or a question; `-` reads them from standard input.")],
    patient: Patient = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Find the passages nearest to a query: dense, by words (BM25), or both combined (hybrid).

    In a patient's record, words of time in the query ("the last admission") select the notes to search. If nothing is
    found in them, all notes are searched; `--setting timeline=false` always searches all.
    """
    from dataclasses import replace

    from epicrisis.cli.event_display import EventDisplay
    from epicrisis.components import build_scope, open_library_search
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
    from epicrisis.types import Question

    if query == "-":
        query = read_standard_input()
    if not query.strip():
        raise InputError("the query is empty: give the words to look for")
    settings = flags.settings({"strategy": "rag"})
    with open_library_search(settings, library) as opened:
        patient = resolve_patient(opened.rosters, patient)
        check_patient(opened.rosters, Question(query, patient=patient))
        scope = build_scope(settings.scope, patient)
        time = NO_RESTRICTION
        if patient is not None and settings.timeline:
            time = resolve_time_restriction(query, lambda: opened.retriever.record(scope).passages)
        narrowed = replace(scope, hidden=scope.hidden | time.hidden)
        ranking = order_evidence(settings, patient, find_evidence(settings, opened.retriever, query, narrowed))
        mixed = (MIXED_NOTICE,) if patient is not None and opened.rosters[0].is_mixed() else ()
        notes = (*ranking.notes, *time.messages, *time.unresolved_messages, *mixed)
        if time.hidden and not ranking.hits:
            ranking = order_evidence(settings, patient, find_evidence(settings, opened.retriever, query, scope))
            notes = (*notes, EMPTY_MESSAGE, *ranking.notes)
        ranking = replace(ranking, notes=notes)
    if json:
        show_json(ranking)
    else:
        EventDisplay().ranking(ranking)
