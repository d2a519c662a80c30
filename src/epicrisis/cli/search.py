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
    Without,
    said,
)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog='Examples: epicrisis search ~/lib "anal sphincter imaging in dyschesia" --by hybrid -k 16   |   '
        'epicrisis search ~/pubmed "statins in dementia" --since 2015 --type "Randomized Controlled Trial" '
        "--without retracted --rerank medcpt   |   "
        'epicrisis search ~/ward --patient 10083814 "chest pain" --unit note -k 3 --order rank'
    )(search)  # fmt: skip


@translated
def search(
    context: typer.Context,
    library: Annotated[Path, typer.Argument(help="The library's folder.")],
    query: Annotated[str, typer.Argument(help="What to look for.")],
    by: ByName = None,
    k: K = None,
    count: CountName = None,
    since: Since = None,
    as_of: AsOf = None,
    types: Types = None,
    journals: Journals = None,
    without: Without = None,
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

    Of a patient's record only the notes that words of time in the query can mean, such as "the last admission";
    --setting timeline=false searches all.
    """
    from dataclasses import replace

    from epicrisis.cli.screen import Screen
    from epicrisis.configuration import load
    from epicrisis.errors import InputError
    from epicrisis.opening import open_retriever, scope_of
    from epicrisis.searching import NO_TIME, found, ordered, time_asked
    from epicrisis.types import Question

    if not query.strip():
        raise InputError("the query is empty: say what to look for")
    settings = load({**said(context), "strategy": "rag"}, config)
    with open_retriever(settings, library) as opened:
        opened.check(Question(query, patient=patient))
        scope = scope_of(settings.scope, patient)
        wanted = patient is not None and settings.timeline
        time = time_asked(query, lambda: opened.retriever.record(scope).passages) if wanted else NO_TIME
        seen = replace(scope, hidden=scope.hidden | time.hidden)
        ranking = ordered(settings, patient, found(settings, opened.retriever, query, seen))
        ranking = replace(ranking, notes=(*ranking.notes, *time.said, *time.open))
    if json:
        show_json(ranking)
    else:
        Screen().ranking(ranking)
