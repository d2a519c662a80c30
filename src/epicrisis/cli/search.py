"""`epicrisis search`: the ranking alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from epicrisis.cli.common import (
    AsOf,
    Config,
    EncoderName,
    Fuse,
    Hide,
    Journals,
    Json,
    LocalOnly,
    LongQuestions,
    Rerank,
    RerankDepth,
    RrfK,
    Since,
    Types,
    Without,
    scope_flags,
    show_json,
    translated,
)
from epicrisis.types import By


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog='Examples: epicrisis search ~/lib "anal sphincter imaging in dyschesia" --by hybrid -k 16   |   '
        'epicrisis search ~/pubmed "statins in dementia" --since 2015 --type "Randomized Controlled Trial" '
        "--without retracted --rerank medcpt"
    )(search)  # fmt: skip


@translated
def search(
    library: Annotated[Path, typer.Argument(help="The library's folder.")],
    query: Annotated[str, typer.Argument(help="What to look for.")],
    by: Annotated[By | None, typer.Option(help="How passages are found.")] = None,
    k: Annotated[int | None, typer.Option("-k", help="How many passages.")] = None,
    since: Since = None,
    as_of: AsOf = None,
    types: Types = None,
    journals: Journals = None,
    without: Without = None,
    hide: Hide = None,
    patient: Annotated[str | None, typer.Option(help="Search this patient's record as well.")] = None,
    rerank: Rerank = None,
    rerank_depth: RerankDepth = None,
    long_questions: LongQuestions = None,
    fuse: Fuse = None,
    rrf_k: RrfK = None,
    encoder: EncoderName = None,
    config: Config = None,
    local_only: LocalOnly = False,
    json: Json = False,
) -> None:
    """Find the passages nearest to a query: dense, by words (BM25), or both fused (RRF)."""
    from epicrisis.cli.screen import Screen
    from epicrisis.errors import InputError
    from epicrisis.pipeline import open_retriever, scope_of
    from epicrisis.privacy import set_local_only
    from epicrisis.settings import load

    if not query.strip():
        raise InputError("the query is empty: say what to look for")
    flags = {
        "by": by, "k": k, "encoder": encoder, "local_only": local_only or None, "strategy": "rag",
        "scope": scope_flags(as_of, since, types, journals, without, hide), "fuse": fuse or None, "rrf_k": rrf_k,
        "rerank": {"name": rerank, "depth": rerank_depth}, "long_questions": long_questions,
    }  # fmt: skip
    settings = load(flags, config)
    set_local_only(settings.local_only)
    with open_retriever(settings, library) as opened:
        ranking = opened.retriever.rank(query, settings.k, settings.by, scope_of(settings.scope, patient))
    if json:
        show_json(ranking)
    else:
        Screen().ranking(ranking)
