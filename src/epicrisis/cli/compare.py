"""`epicrisis compare`: runs held against each other, question by question."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from epicrisis.cli.common import translated
from epicrisis.cli.options import Json
from epicrisis.cli.tables import show_data, show_findings


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples: epicrisis compare runs/rag runs/brief-context   |   "
        "epicrisis compare before.jsonl after.jsonl --measure right-of-answered"
    )(compare)


@translated
def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or files of answers (ask --file).")
    ],
    measure: Annotated[
        Literal["right", "right-of-answered"],
        typer.Option(help="Right of all that did not fail, or of those that state a choice."),
    ] = "right",
    plain: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters alone.")] = False,
    json: Json = False,
) -> None:
    """Compare runs: what each got right, how each two differ on the same questions, and what that shows.

    Each run is held against each one named before it. Says too in what else the runs differ: where that is more than
    one thing, no difference can be put down to one of them.
    """
    from epicrisis.errors import InputError
    from epicrisis.evaluation.analysis.run_comparison import compare_run_files

    if len(runs) < 2:
        raise InputError("one run is compared with nothing: name two or more")
    found = compare_run_files(runs, measure=measure)
    if json:
        show_data(found)
    else:
        show_findings(found, plain=plain, drawn=True)
