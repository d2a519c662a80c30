"""`epicrisis evaluate`, `rescore`, `sample-size`, `compare` and `report`: question sets scored, and runs compared."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from epicrisis.cli.command import Flags, command
from epicrisis.cli.options import (
    ANSWER,
    CONFIG,
    Data,
    Draw,
    Json,
    LibraryOption,
    RunFolder,
    SearchCluster,
    Yes,
    output_option,
)
from epicrisis.cli.run_progress import run_cases, run_folder, show_runs
from epicrisis.cli.terminal import say, say_sentence, show_data, show_findings, show_tables
from epicrisis.core.errors import InputError
from epicrisis.core.serialization import to_json
from epicrisis.report.saved_answers import write_private_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epicrisis.evaluation.runs.run_folder import RunPlan
    from epicrisis.pipeline.pipeline import Pipeline
    from epicrisis.pipeline.recording.case import Case

Runs = Annotated[list[Path], Argument(metavar="RUN", help="Folders of runs, or files of answers (`ask --file`).")]
Sample = Annotated[
    int | None, Option("--questions", "-n", min=1, help="Size of a random sample. Default: all questions.")
]
LeakGuard = Annotated[
    Literal["none", "source-hidden", "before-source"],
    Option(help="Hide the documents a question was made from, or all documents not older than them."),
]


@command(
    *ANSWER,
    examples=[
        "epicrisis evaluate mirage/pubmedqa --library ~/lib --model URL",
        "epicrisis evaluate my-questions.jsonl --library ~/lib -n 50 --leak-guard source-hidden",
        "epicrisis evaluate mirage/pubmedqa --library ~/lib --model URL --on ray://head.example.org:10001",
    ],
)
def evaluate(
    questions: Annotated[str, Argument(metavar="SET", help="Name of a question set, or a file of questions.")],
    library: LibraryOption = None,
    sample: Sample = None,
    draw: Draw = 0,
    leak_guard: LeakGuard = "none",
    output: RunFolder = None,
    data: Data = None,
    yes: Yes = False,
    on: SearchCluster = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Answer a question set and score the answers.

    Every answer is saved at once; after an interruption, the same command continues. `epicrisis questions list` lists
    the sets.
    """
    from epicrisis.evaluation.experiments.planning import plan_plain_run
    from epicrisis.evaluation.experiments.run_findings import read_findings

    settings = flags.settings()
    folder = run_folder(output, questions, settings.strategy, settings.model_for("writer").name)

    async def prepare(pipeline: Pipeline) -> tuple[RunPlan, Sequence[Case]]:
        return plan_plain_run(questions, settings, pipeline, data=data, n=sample, draw=draw, guard=leak_guard)

    manifest = asyncio.run(run_cases(settings, library, folder, prepare, yes=yes, quiet=json, cluster=on))
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
        Argument(
            metavar="RUN",
            help="Folders of runs, files of answers, or MIRAGE's released replies (JSON lines of id and outputs, or a "
            "folder of test_<id>.json).",
        ),
    ],
    scoring: Annotated[
        Literal["ours", "mirage-2024", "mirage-head"] | None,
        Option(help="How replies are read. Default: all three, side by side."),
    ] = None,
    dataset: Annotated[
        str | None, Option(help="Question set of released replies. Default: recognised by the ids.")
    ] = None,
    data: Data = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Score saved replies again, by our scoring and by both versions of MIRAGE's. No model is called.

    Our scoring counts abstentions, unreadable and empty replies separately. MIRAGE's scorers assign a letter to replies
    without one, and reproduce its published figures exactly.
    """
    from epicrisis.evaluation.rescoring.rescoring import make_table, rescore_runs
    from epicrisis.evaluation.rescoring.scores import SCORINGS

    scorings = (scoring,) if scoring else SCORINGS
    scores = rescore_runs(runs, flags.settings().home, scorings=scorings, dataset=dataset, data=data)
    if json:
        show_data(scores)
    else:
        show_tables([make_table(scores)])


@command(examples=["epicrisis sample-size --difference 5 --comparisons 5", "epicrisis sample-size --available 105"])
def sample_size(
    difference: Annotated[float, Option(help="Difference to detect, in points (5: 60 % against 65 %).")] = 5,
    discordant: Annotated[
        float, Option(help="Share of questions that only one of the two answers correctly, 0 to 1.")
    ] = 0.2,
    power: Annotated[float, Option(help="Probability of detecting the difference, 0 to 1.")] = 0.8,
    comparisons: Annotated[int, Option(help="Number of comparisons that p values are corrected for.")] = 1,
    available: Annotated[
        int | None, Option(help="Also show what this many questions can detect (MIRAGE's PubMedQA: 500).")
    ] = None,
    json: Json = False,
) -> None:
    """Compute how many questions a comparison needs, and what the available questions can detect.

    For two systems that answer the same questions. An earlier `epicrisis compare` shows the share of discordant
    questions (wins plus losses); without one, choose a high estimate.
    """
    from epicrisis.evaluation.analysis.sample_size import compute_sample_size

    result = compute_sample_size(difference / 100, discordant, power, comparisons, available)
    if json:
        show_data({**to_json(result), "sentences": result.sentences})
        return
    for sentence in result.sentences:
        say_sentence(sentence)


@command(
    examples=[
        "epicrisis compare runs/rag runs/brief-context",
        "epicrisis compare before.jsonl after.jsonl --measure right-of-answered",
    ]
)
def compare(
    runs: Runs,
    measure: Annotated[
        Literal["right", "right-of-answered"],
        Option(help="Correct among all questions that did not fail, or among those with a choice."),
    ] = "right",
    ascii_only: Annotated[bool, Option("--ascii", help="Draw with ASCII characters.")] = False,
    json: Json = False,
) -> None:
    """Compare runs question by question: accuracy, paired differences, and conclusions.

    Each run is compared with each run named before it. If two runs differ in more than one setting, this is shown,
    because no difference can then be attributed to one of them.
    """
    from epicrisis.evaluation.analysis.run_comparison import compare_run_files

    if len(runs) < 2:
        raise InputError("a comparison needs two or more runs: give the folder of each")
    comparison = compare_run_files(runs, measure=measure)
    if json:
        show_data(comparison)
    else:
        show_findings(comparison, ascii_only=ascii_only, with_intervals=True)


@command(
    examples=["epicrisis report runs/positions -o report.html", "epicrisis report runs/* -o report.html --no-plots"]
)
def report(
    runs: Runs,
    output: Annotated[
        Path | None, output_option(help="File of the page. An existing report is overwritten, other files are not.")
    ] = None,
    plots: Annotated[bool, Option("--plots/--no-plots", help="Draw plots (needs the extra `report`).")] = True,
    title: Annotated[str, Option(help="Title of the page.")] = "Report of experiments",
    json: Json = False,
) -> None:
    """Write one HTML page about finished runs: tables, plots with their data, and the papers' figures.

    The page works offline, without JavaScript, and in print. Runs of one experiment share their tables; `preflight`
    has a section for each library. No model is called.
    """
    from epicrisis.evaluation.experiments.run_findings import read_findings

    if output is None and not json:
        raise InputError("give the file of the page with -o report.html, or add --json")
    if output is not None:
        _check_output(output)
    findings = read_findings(runs)
    if output is not None:
        from epicrisis.report.page import render_page

        write_private_text(output, render_page(findings, title, plots=plots))
    if json:
        show_data(findings)
    elif output is not None:
        say(f"{len(findings)} experiment{'s' if len(findings) != 1 else ''} written to {output}")


def _check_output(path: Path) -> None:
    """Raise InputError if the page cannot be written there."""
    from epicrisis.report.page import GENERATOR

    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: choose a file in an existing folder")
    if not path.exists():
        return
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            if GENERATOR in file.read(2_000):
                return
    raise InputError(f"{path} exists and is not a report of this program: choose another file")
