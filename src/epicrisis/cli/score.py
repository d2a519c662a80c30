"""`epicrisis evaluate score`: kept replies scored again, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from epicrisis.cli.common import translated
from epicrisis.cli.options import Config, Json
from epicrisis.cli.tables import show_data, show_table


def register(app: typer.Typer) -> None:
    """Adds the command to the group `evaluate`."""
    app.command(
        epilog="Examples: epicrisis evaluate score runs/rag   |   "
        "epicrisis evaluate score gpt35_cot_pubmedqa.jsonl --dataset mirage/pubmedqa --scoring mirage-2024"
    )(score)


@translated
def score(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Folders of runs, files of answers (ask --file), or MIRAGE's released replies: JSON lines of id and "
            "outputs, or a folder of test_<id>.json.",
        ),
    ],
    scoring: Annotated[
        Literal["ours", "mirage-2024", "mirage-head"] | None,
        typer.Option(help="How a reply is read; all three side by side where not said."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="The question set that released replies answer; found by their ids where it is one of MIRAGE."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", envvar="EPICRISIS_DATA", help="Where the set's files are, if not where they are pulled to."
        ),
    ] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Score kept replies again, by each scoring side by side. No model is asked.

    Abstained, unparsed and empty replies stand apart; MIRAGE's scorings, which put a letter where a reply has none,
    give its published figures to the digit.
    """
    from epicrisis.configuration import load_settings
    from epicrisis.evaluation.rescoring.rescoring import make_table, rescore_runs
    from epicrisis.evaluation.rescoring.scores import SCORINGS

    found = rescore_runs(
        runs,
        load_settings(config=config).home,
        scorings=(scoring,) if scoring else SCORINGS,
        dataset=dataset,
        data=data,
    )
    if json:
        show_data(found)
    else:
        show_table(make_table(found))
