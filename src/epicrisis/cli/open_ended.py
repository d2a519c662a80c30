"""`epicrisis open-ended`: blind pairs of a run's answers, a model's verdicts on them, and what all verdicts come to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epicrisis.cli.common import fail, plain_name, show_json, translated
from epicrisis.cli.options import (
    AtOnce,
    BudgetMinutes,
    BudgetTokens,
    BudgetUsd,
    Cache,
    Config,
    Json,
    LocalOnly,
    Log,
    LogText,
    ModelName,
    Record,
    Seed,
    said,
)
from epicrisis.cli.running import note_demo
from epicrisis.cli.tables import say_sentence, show_data, show_table

if TYPE_CHECKING:
    from epicrisis.evaluation.judging.by_model import VerdictFile
    from epicrisis.evaluation.judging.pairs import Paired
    from epicrisis.settings import Settings

NOT_JUDGED = 2

Folder = Annotated[Path, typer.Argument(help="A folder that `open-ended pairs` wrote.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(no_args_is_help=True, help="Judge the answers of `experiment open-ended`, blindly, in pairs.")
    group.command(epilog="Example: epicrisis open-ended pairs runs/medq")(pairs)
    group.command(epilog="Example: epicrisis open-ended judge runs/medq/judging --model URL")(judge)
    group.command(
        epilog="Examples: epicrisis open-ended verdicts runs/medq/judging   |   "
        "epicrisis open-ended verdicts runs/medq/judging anna.csv ben.csv"
    )(verdicts)
    app.add_typer(group, name="open-ended")


@translated
def pairs(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="A run's folder (or its records), or one for each arm.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The folder to write; else `judging` in the first run's.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Decides which answer stands first.")] = 0,
    json: Json = False,
) -> None:
    """Pair the answers of RAG and BriefContext for blind judging.

    Give pairs.csv (a spreadsheet) or pairs.jsonl to the reviewers; keep pairs.key.json, which says whose answer is
    which. Verdicts are 1, 2 or tie.
    """
    from itertools import chain

    from epicrisis.evaluation.experiments.open_ended import ARMS, JUDGING
    from epicrisis.evaluation.judging.pairs import KEY, pairs_of, write
    from epicrisis.evaluation.runs.folder import RECORDS
    from epicrisis.evaluation.runs.records import read_records

    records = chain.from_iterable(read_records(run / RECORDS if run.is_dir() else run) for run in runs)
    paired = pairs_of(records, ARMS, seed)
    output = output or (runs[0] if runs[0].is_dir() else runs[0].parent) / JUDGING
    write(paired, output)
    told = {
        "pairs": len(paired.pairs),
        "same_words": len(paired.key.same),
        "left_out": len(paired.key.left_out),
        "telling": paired.telling,
    }
    if json:
        show_json({**told, "output": str(output)})
        return
    typer.echo(
        f"{told['pairs']} pairs in {output}; {told['same_words']} questions whose two answers are the same words "
        f"(ties), {told['left_out']} without a pair because an arm did not answer"
    )
    if paired.telling:
        typer.echo(f"note: in {paired.telling} pairs one answer alone speaks of documents or findings: not quite blind")
    typer.echo(f"keep {KEY} away from the reviewers")


@translated
def judge(
    context: typer.Context,
    folder: Folder,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where the verdicts go; else judged-MODEL.jsonl beside."),
    ] = None,
    model: ModelName = None,
    seed: Seed = None,
    at_once: AtOnce = None,
    cache: Cache = None,
    record: Record = None,
    budget_tokens: BudgetTokens = None,
    budget_usd: BudgetUsd = None,
    budget_minutes: BudgetMinutes = None,
    log: Log = None,
    log_text: LogText = False,
    config: Config = None,
    local_only: LocalOnly = False,
    json: Json = False,
) -> None:
    """Let a model judge the pairs, each in both orders. Interrupted, the same command goes on."""
    from epicrisis.cli.screen import usage_line
    from epicrisis.configuration import load
    from epicrisis.evaluation.experiments.open_ended import MODELS
    from epicrisis.evaluation.judging.pairs import read

    settings = load(said(context), config)
    paired = read(folder)
    if paired.key.patients and settings.cache.path is None:
        # What quotes patients' records is not kept among the models.
        settings = settings.model_copy(update={"cache": settings.cache.model_copy(update={"mode": "off"})})
    role = "judge" if model is None else "writer"
    note_demo(settings, [role])
    output = output or folder / MODELS.replace("*", plain_name(settings.model_for(role).name))
    file = asyncio.run(_judged(settings, role, paired, output, json))
    states = [reply.state for reply in file.replies.values()]
    if json:
        counts = {state: states.count(state) for state in sorted(set(states))}
        show_json({"replies": counts, "usage": file.usage, "output": str(output)})
    else:
        typer.echo(f"{len(states)} replies to {len(paired.pairs)} pairs in both orders, written to {output}")
        typer.echo(usage_line(file.usage))
    if failed := states.count("failed"):
        fail(f"{failed} calls failed; the same command asks them again", NOT_JUDGED)


async def _judged(settings: Settings, role: str, paired: Paired, output: Path, json: bool) -> VerdictFile:
    from rich.console import Console
    from rich.progress import Progress

    from epicrisis.evaluation.asking import opened
    from epicrisis.evaluation.judging.by_model import ORDERS, VerdictFile, judge, recipe

    async with opened(settings, role) as asker:
        file = VerdictFile(output, recipe(asker))
        total = len(paired.pairs) * len(ORDERS)
        done = sum(file.is_done(pair.id, order) for pair in paired.pairs for order in ORDERS)
        with Progress(console=Console(stderr=True), disable=json) as bar:
            task = bar.add_task("Judging", total=total, completed=done)
            async for reply in judge(paired.pairs, asker, file):
                if reply.failure is not None:
                    bar.console.print(f"{reply.pair}: {reply.failure.message}", markup=False)
                bar.advance(task)
    return file


@translated
def verdicts(
    folder: Folder,
    files: Annotated[list[Path] | None, typer.Argument(help="What reviewers filled in (CSV or JSONL).")] = None,
    judged: Annotated[list[Path] | None, typer.Option("--judged", help="A model's verdicts (repeat for more).")] = None,
    json: Json = False,
) -> None:
    """What the verdicts come to: better and worse with their test, agreement, and whether the place decides.

    Without files those in the folder are read: verdicts-NAME.csv or .jsonl of reviewers, judged-NAME.jsonl of models.
    They stand in `epicrisis report` of the run too.
    """
    from epicrisis.errors import InputError
    from epicrisis.evaluation.experiments.open_ended import conclusions, judging_in, judging_of, tables

    named = bool(files or judged)
    judging = judging_of(folder, files or (), judged or ()) if named else judging_in(folder)
    if not (judging.people or judging.models):
        raise InputError("there is no verdict: name the files of reviewers, or a model's with --judged")
    found = {" and ".join(judging.paired.key.writers): judging}
    if json:
        show_data({"conclusions": conclusions(found), "tables": tables(found)})
        return
    for table in tables(found):
        show_table(table)
    for sentence in conclusions(found):
        say_sentence(sentence)
