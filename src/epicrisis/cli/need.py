"""`epicrisis evaluate need`: how many questions a comparison takes, before a run is paid for."""

from __future__ import annotations

from typing import Annotated

import typer

from epicrisis.cli.common import translated
from epicrisis.cli.options import Json
from epicrisis.cli.tables import say_sentence, show_data
from epicrisis.serialization import to_json


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples: epicrisis evaluate need --difference 5 --comparisons 5   |   "
        "epicrisis evaluate need --questions-at-hand 105"
    )(need)


@translated
def need(
    difference: Annotated[
        float, typer.Option(help="The difference to be found, in points (5: 60 % against 65 %).")
    ] = 5,
    discordant: Annotated[
        float, typer.Option(help="Share of the questions that one of the two alone answers rightly, 0 to 1.")
    ] = 0.2,
    power: Annotated[float, typer.Option(help="How often it shall be found, 0 to 1.")] = 0.8,
    comparisons: Annotated[int, typer.Option(help="How many comparisons the p values are corrected for.")] = 1,
    questions_at_hand: Annotated[
        int | None, typer.Option(help="Say too what so many questions can show (MIRAGE's PubMedQA: 500).")
    ] = None,
    json: Json = False,
) -> None:
    """How many questions do I need? And what is the least that those I have can show?

    For two systems asked the same questions. The share of questions that one alone has right is that of an earlier
    run (`epicrisis compare`: won and lost together), or a guess on the high side.
    """
    from epicrisis.evaluation.analysis.sample_size import compute_sample_size as needed

    told = needed(difference / 100, discordant, power, comparisons, questions_at_hand)
    if json:
        show_data({**to_json(told), "sentences": told.sentences})
        return
    for sentence in told.sentences:
        say_sentence(sentence)
