"""`epicrisis evaluate`: a question set answered and scored, one record a question, resumable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from epicrisis.cli import need, score
from epicrisis.cli.common import translated
from epicrisis.cli.options import (
    AllowRemote,
    AsOf,
    AtOnce,
    BudgetMinutes,
    BudgetTokens,
    BudgetUsd,
    ByName,
    Cache,
    Config,
    CountName,
    Deadline,
    Depth,
    EncoderName,
    ExampleLibrary,
    Fuse,
    Hide,
    Journals,
    Json,
    K,
    LocalOnly,
    Log,
    LongQuestions,
    ModelName,
    Partition,
    Preflight,
    Preset,
    Rerank,
    RerankDepth,
    RrfK,
    Seed,
    Setting,
    Since,
    Strategy,
    Types,
    Votes,
    With,
    Without,
    said,
)
from epicrisis.cli.running import folder_of, run_cases, show_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epicrisis.evaluation.runs.case import Case
    from epicrisis.evaluation.runs.run_folder import RunPlan
    from epicrisis.pipeline import Pipeline

Library = Annotated[Path | None, typer.Option("--library", help="The library's folder.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", envvar="EPICRISIS_DATA", help="Where the sets' files are, if not where they are pulled to."),
]
Sample = Annotated[int | None, typer.Option("--questions", "-n", min=1, help="So many of the set, drawn by --draw.")]
Draw = Annotated[int, typer.Option("--draw", help="Seed by which the questions are drawn.")]
Folder = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="The run's folder, to go on from; else in `runs/`, named by what is asked."),
]
LeakGuard = Annotated[
    Literal["none", "source-hidden", "before-source"],
    typer.Option(help="Hide each question's own documents, or all that is not older than they are."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before a large run (see epicrisis plan).")]


class _RunByDefault(TyperGroup):
    """`evaluate SET` is `evaluate run SET`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


group = typer.Typer(
    cls=_RunByDefault,
    no_args_is_help=True,
    help="Answer a question set and score the answers: `epicrisis evaluate SET ...`, or one of the commands below.",
    epilog="Example: epicrisis evaluate mirage/pubmedqa --library ~/lib --model URL   (its options: "
    "epicrisis evaluate run --help)",
)


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group.command(
        help="Answer the questions of SET and score the answers: one record a question in a folder of its own.\n\n"
        "Stopped at any moment, the same command goes on from there. `epicrisis questions list` names the sets.",
        epilog="Examples: epicrisis evaluate mirage/pubmedqa --library ~/lib --model URL   |   "
        "epicrisis evaluate my-questions.jsonl --library ~/lib -n 50 --leak-guard source-hidden",
    )(run)
    score.register(group)
    need.register(group)
    app.add_typer(group, name="evaluate")


@translated
def run(
    context: typer.Context,
    questions: Annotated[str, typer.Argument(metavar="SET", help="A question set's name, or a file of your own.")],
    library: Library = None,
    strategy: Strategy = None,
    model: ModelName = None,
    sample: Sample = None,
    draw: Draw = 0,
    leak_guard: LeakGuard = "none",
    output: Folder = None,
    data: Data = None,
    by: ByName = None,
    k: K = None,
    count: CountName = None,
    partition: Partition = None,
    preflight: Preflight = None,
    depth: Depth = None,
    votes: Votes = None,
    examples: ExampleLibrary = None,
    preset: Preset = None,
    setting: Setting = None,
    seed: Seed = None,
    deadline: Deadline = None,
    since: Since = None,
    as_of: AsOf = None,
    types: Types = None,
    journals: Journals = None,
    without: Without = None,
    including: With = None,
    hide: Hide = None,
    rerank: Rerank = None,
    rerank_depth: RerankDepth = None,
    long_questions: LongQuestions = None,
    fuse: Fuse = None,
    rrf_k: RrfK = None,
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
    """The run; see `register` for what its help says."""
    from epicrisis.configuration import load_settings
    from epicrisis.evaluation.experiments.plain_run import plan_plain_run
    from epicrisis.evaluation.experiments.run_findings import read_findings

    settings = load_settings(said(context), config)
    folder = folder_of(output, questions, settings.strategy, settings.model_for("writer").name)

    async def planned(pipeline: Pipeline) -> tuple[RunPlan, Sequence[Case]]:
        return plan_plain_run(questions, settings, pipeline, data=data, n=sample, draw=draw, guard=leak_guard)

    manifest = asyncio.run(run_cases(settings, library, folder, planned, yes=yes, quiet=json))
    show_runs(read_findings([folder]), {folder: manifest}, json=json)
