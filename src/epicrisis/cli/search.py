"""`epicrisis search`: the ranking alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from epicrisis.cli.common import Config, EncoderName, Json, LocalOnly, show_json, translated
from epicrisis.dates import last_day
from epicrisis.types import By


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog='Example: epicrisis search ~/lib "anal sphincter imaging in dyschesia" --by hybrid -k 16'
    )(search)  # fmt: skip


@translated
def search(
    library: Annotated[Path, typer.Argument(help="The library's folder.")],
    query: Annotated[str, typer.Argument(help="What to look for.")],
    by: Annotated[By | None, typer.Option(help="How passages are found.")] = None,
    k: Annotated[int | None, typer.Option("-k", help="How many passages.")] = None,
    as_of: Annotated[str | None, typer.Option(help="Hide what may be newer than this date (YYYY[-MM[-DD]]).")] = None,
    patient: Annotated[str | None, typer.Option(help="Search this patient's record as well.")] = None,
    encoder: EncoderName = None,
    config: Config = None,
    local_only: LocalOnly = False,
    json: Json = False,
) -> None:
    """Find the passages nearest to a query: dense, by words (BM25), or both fused (RRF)."""
    from epicrisis.cli.screen import Screen
    from epicrisis.errors import InputError
    from epicrisis.pipeline import open_retriever
    from epicrisis.privacy import set_local_only
    from epicrisis.settings import load
    from epicrisis.types import Scope

    if not query.strip():
        raise InputError("the query is empty: say what to look for")
    flags = {"by": by, "k": k, "encoder": encoder, "local_only": local_only or None, "strategy": "rag"}
    settings = load(flags, config)
    set_local_only(settings.local_only)
    if as_of is not None:
        try:
            last_day(as_of)
        except ValueError as error:
            raise InputError(f"--as-of: {error}") from None
    opened, retriever = open_retriever(settings, library)
    with opened:
        ranking = retriever.rank(query, settings.k, settings.by, Scope(patient=patient, as_of=as_of))
    if json:
        show_json(ranking)
    else:
        Screen().ranking(ranking)
