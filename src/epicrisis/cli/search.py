"""`epicrisis search`: the ranking alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from epicrisis.cli.common import show_json, translated
from epicrisis.cli.options import (
    AllowRemote,
    AsOf,
    Beside,
    ByName,
    Config,
    CountName,
    EncoderName,
    Fuse,
    Hide,
    Journals,
    Json,
    K,
    LocalOnly,
    LongQuestions,
    OrderName,
    Patient,
    Rerank,
    RerankDepth,
    RrfK,
    Setting,
    Since,
    Types,
    UnitName,
    With,
    Without,
    said,
)
from epicrisis.cli.questions import typed


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog='Examples: epicrisis search ~/lib "anal sphincter imaging in dyschesia" --by hybrid -k 16   |   '
        'epicrisis search ~/pubmed "statins in dementia" --since 2015 --type "Randomized Controlled Trial" '
        "--rerank medcpt   |   "
        'epicrisis search ~/ward --patient 10083814 "chest pain" --unit note -k 3 --order rank'
    )(search)


@translated
def search(
    context: typer.Context,
    library: Annotated[Path, typer.Argument(help="The library's folder.")],
    query: Annotated[str, typer.Argument(help="What to look for; `-` reads it from standard input.")],
    by: ByName = None,
    k: K = None,
    count: CountName = None,
    since: Since = None,
    as_of: AsOf = None,
    types: Types = None,
    journals: Journals = None,
    without: Without = None,
    including: With = None,
    hide: Hide = None,
    patient: Patient = None,
    unit: UnitName = None,
    order: OrderName = None,
    beside: Beside = None,
    rerank: Rerank = None,
    rerank_depth: RerankDepth = None,
    long_questions: LongQuestions = None,
    fuse: Fuse = None,
    rrf_k: RrfK = None,
    encoder: EncoderName = None,
    setting: Setting = None,
    config: Config = None,
    local_only: LocalOnly = False,
    allow_remote: AllowRemote = False,
    json: Json = False,
) -> None:
    """Find the passages nearest to a query: dense, by words (BM25), or both fused (RRF).

    Of a patient's record only the notes that words of time in the query can mean, such as "the last admission", and
    all notes where nothing is found in these; --setting timeline=false searches all at once.
    """
    from dataclasses import replace

    from epicrisis.cli.screen import Screen
    from epicrisis.components import build_scope, open_library_search
    from epicrisis.configuration import load_settings
    from epicrisis.errors import InputError
    from epicrisis.evidence_selection import (
        EMPTY_MESSAGE,
        NO_RESTRICTION,
        find_evidence,
        order_evidence,
        resolve_time_restriction,
    )
    from epicrisis.library.patients import MIXED_NOTICE
    from epicrisis.types import Question

    if query == "-":
        query = typed()
    if not query.strip():
        raise InputError("the query is empty: say what to look for")
    settings = load_settings({**said(context), "strategy": "rag"}, config)
    with open_library_search(settings, library) as opened:
        patient = opened.resolve_patient(patient)
        opened.check_patient(Question(query, patient=patient))
        scope = build_scope(settings.scope, patient)
        wanted = patient is not None and settings.timeline
        time = (
            resolve_time_restriction(query, lambda: opened.retriever.record(scope).passages)
            if wanted
            else NO_RESTRICTION
        )
        seen = replace(scope, hidden=scope.hidden | time.hidden)
        ranking = order_evidence(settings, patient, find_evidence(settings, opened.retriever, query, seen))
        mixed = (MIXED_NOTICE,) if patient is not None and opened.rosters[0].is_mixed() else ()
        notes = (*ranking.notes, *time.messages, *time.unresolved_messages, *mixed)
        if time.hidden and not ranking.hits:
            ranking = order_evidence(settings, patient, find_evidence(settings, opened.retriever, query, scope))
            notes = (*notes, EMPTY_MESSAGE, *ranking.notes)
        ranking = replace(ranking, notes=notes)
    if json:
        show_json(ranking)
    else:
        Screen().ranking(ranking)
