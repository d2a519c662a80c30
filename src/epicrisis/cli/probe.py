"""`epicrisis probe`: does this model lose the middle on this library, and is map-reduce worth it?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from epicrisis.cli.common import translated
from epicrisis.cli.evaluate import Data, Folder, Yes
from epicrisis.cli.experiment import asked
from epicrisis.cli.options import (
    AllowRemote,
    AtOnce,
    BudgetMinutes,
    BudgetTokens,
    BudgetUsd,
    Cache,
    Config,
    Deadline,
    EncoderName,
    Json,
    LocalOnly,
    Log,
    LongQuestions,
    ModelName,
    Seed,
    said,
)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples: epicrisis probe --library ~/lib --model URL   |   "
        "epicrisis probe --library ~/lib --model URL --set my-questions.jsonl -n 100 -k 32"
    )(probe)


@translated
def probe(
    context: typer.Context,
    library: Annotated[Path, typer.Option("--library", help="The library's folder.")],
    model: ModelName = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Question set whose key documents the library holds; where not said, sentences of "
            "the library with a number left out.",
        ),
    ] = None,
    sample: Annotated[int, typer.Option("--questions", "-n", min=2, help="How many questions.")] = 40,
    k: Annotated[int, typer.Option("-k", min=3, help="How many documents a prompt.")] = 16,
    seed: Seed = None,
    output: Folder = None,
    data: Data = None,
    deadline: Deadline = None,
    long_questions: LongQuestions = None,
    encoder: EncoderName = None,
    at_once: AtOnce = None,
    cache: Cache = None,
    budget_tokens: BudgetTokens = None,
    budget_usd: BudgetUsd = None,
    budget_minutes: BudgetMinutes = None,
    yes: Yes = False,
    log: Log = None,
    config: Config = None,
    local_only: LocalOnly = False,
    allow_remote: AllowRemote = False,
    json: Json = False,
) -> None:
    """Ask whether this model loses the middle of long prompts, on your own documents, and whether map-reduce is worth
    its tokens.

    The same questions with the passage that answers them first, in the middle and last of k; RAG against BriefContext,
    beside that passage alone and no document at all.
    """
    from epicrisis.evaluation.experiments.experiment import Grid, Request

    request = Request(sets=tuple(sets or ()), data=data, questions=sample, grid=Grid(ks=(k,)))
    # `-k` here is how many documents are placed, not how many a search gives.
    flags = {key: value for key, value in said(context).items() if key != "k"}
    asked("probe", request, flags, config, library, output, yes=yes, json=json, answers_alone=True)
