"""`epicrisis evaluate`, `rescore` and `sample-size`: a question set answered and scored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from epicrisis.cli.command import Flags, command
from epicrisis.cli.options import ANSWER, CONFIG, Data, Draw, Json, LibraryOption, RunFolder, Yes
from epicrisis.cli.run_progress import run_cases, run_folder, show_runs
from epicrisis.cli.terminal import say_sentence, show_data, show_table
from epicrisis.serialization import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epicrisis.evaluation.runs.case import Case
    from epicrisis.evaluation.runs.run_folder import RunPlan
    from epicrisis.pipeline import Pipeline

Sample = Annotated[
    int | None, typer.Option("--questions", "-n", min=1, help="Size of a random sample. Default: all questions.")
]
LeakGuard = Annotated[
    Literal["none", "source-hidden", "before-source"],
    typer.Option(help="Hide the documents a question was made from, or all documents not older than them."),
]


@command(
    *ANSWER,
    examples=[
        "epicrisis evaluate mirage/pubmedqa --library ~/lib --model URL",
        "epicrisis evaluate my-questions.jsonl --library ~/lib -n 50 --leak-guard source-hidden",
    ],
)
def evaluate(
    questions: Annotated[str, typer.Argument(metavar="SET", help="Name of a question set, or a file of questions.")],
    library: LibraryOption = None,
    sample: Sample = None,
    draw: Draw = 0,
    leak_guard: LeakGuard = "none",
    output: RunFolder = None,
    data: Data = None,
    yes: Yes = False,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Answer a question set and score the answers.

    Every answer is saved at once; interrupted, the same command continues. `epicrisis questions list` names the sets.
    """
    from epicrisis.evaluation.experiments.plain_run import plan_plain_run
    from epicrisis.evaluation.experiments.run_findings import read_findings

    settings = flags.settings()
    folder = run_folder(output, questions, settings.strategy, settings.model_for("writer").name)

    async def prepare(pipeline: Pipeline) -> tuple[RunPlan, Sequence[Case]]:
        return plan_plain_run(questions, settings, pipeline, data=data, n=sample, draw=draw, guard=leak_guard)

    manifest = asyncio.run(run_cases(settings, library, folder, prepare, yes=yes, quiet=json))
    show_runs(read_findings([folder]), {folder: manifest}, json=json)


@command(
    CONFIG,
    examples=[
        "epicrisis rescore runs/rag",
        "epicrisis rescore gpt35_cot_pubmedqa.jsonl --dataset mirage/pubmedqa --scoring mirage-2024",
    ],
)
def rescore(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Folders of runs, files of answers, or MIRAGE's released replies (JSON lines of id and outputs, or a "
            "folder of test_<id>.json).",
        ),
    ],
    scoring: Annotated[
        Literal["ours", "mirage-2024", "mirage-head"] | None,
        typer.Option(help="How replies are read. Default: all three, side by side."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Question set of released replies. Default: recognised by the ids.")
    ] = None,
    data: Data = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Score saved replies again, with our reader and with both of MIRAGE's. No model is called.

    Abstentions, unreadable and empty replies are counted apart. MIRAGE's scorers, which assign a letter to replies
    without one, reproduce its published figures to the digit.
    """
    from epicrisis.evaluation.rescoring.rescoring import make_table, rescore_runs
    from epicrisis.evaluation.rescoring.scores import SCORINGS

    scorings = (scoring,) if scoring else SCORINGS
    scores = rescore_runs(runs, flags.settings().home, scorings=scorings, dataset=dataset, data=data)
    if json:
        show_data(scores)
    else:
        show_table(make_table(scores))


@command(
    examples=[
        "epicrisis sample-size --difference 5 --comparisons 5",
        "epicrisis sample-size --available 105",
    ]
)
def sample_size(
    difference: Annotated[float, typer.Option(help="Difference to detect, in points (5: 60 % against 65 %).")] = 5,
    discordant: Annotated[
        float, typer.Option(help="Share of questions that only one of the two answers correctly, 0 to 1.")
    ] = 0.2,
    power: Annotated[float, typer.Option(help="Probability of detecting the difference, 0 to 1.")] = 0.8,
    comparisons: Annotated[int, typer.Option(help="Number of comparisons that p values are corrected for.")] = 1,
    available: Annotated[
        int | None, typer.Option(help="Also show what this many questions can detect (MIRAGE's PubMedQA: 500).")
    ] = None,
    json: Json = False,
) -> None:
    """Compute how many questions a comparison needs, and what the available questions can detect.

    For two systems that answer the same questions. An earlier `epicrisis compare` shows the share of discordant
    questions (won and lost together); without one, guess on the high side.
    """
    from epicrisis.evaluation.analysis.sample_size import compute_sample_size

    result = compute_sample_size(difference / 100, discordant, power, comparisons, available)
    if json:
        show_data({**to_json(result), "sentences": result.sentences})
        return
    for sentence in result.sentences:
        say_sentence(sentence)
