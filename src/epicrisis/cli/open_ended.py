"""`epicrisis open-ended`: open answers judged. Blind pairs of a run's answers, a model's verdicts on them, and what all
verdicts come to; or each answer marked against its reference, and what the marks come to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from epicrisis.cli.common import fail, plain_name, show_json, translated
from epicrisis.cli.options import (
    AllowRemote,
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
from epicrisis.cli.terminal import open_console, say, say_above
from epicrisis.printable import quote_for_shell

if TYPE_CHECKING:
    from epicrisis.evaluation.grading.blind_pairs import BlindPairs
    from epicrisis.evaluation.grading.correctness import CorrectnessGrade, OpenCase
    from epicrisis.evaluation.grading.grader import GradeStore
    from epicrisis.evaluation.grading.preference import PairGrade
    from epicrisis.settings import Settings

    R = TypeVar("R", PairGrade, CorrectnessGrade)

NOT_JUDGED = 2

Folder = Annotated[Path, typer.Argument(help="A folder that `open-ended pairs` wrote.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or its records.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Judge open answers: those of `experiment open-ended` blindly, in pairs; any against their references.",
    )
    group.command(epilog="Example: epicrisis open-ended pairs runs/medq")(pairs)
    group.command(epilog="Example: epicrisis open-ended judge runs/medq/judging --model URL")(judge)
    group.command(
        epilog="Examples: epicrisis open-ended verdicts runs/medq/judging   |   "
        "epicrisis open-ended verdicts runs/medq/judging anna.csv ben.csv"
    )(verdicts)
    group.command(epilog="Example: epicrisis open-ended mark runs/openmedqa --model URL")(mark)
    group.command(epilog="Example: epicrisis open-ended marks runs/openmedqa")(marks)
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
    from epicrisis.evaluation.grading.blind_pairs import KEY, make_pairs, write_pairs
    from epicrisis.evaluation.runs.record import read_records
    from epicrisis.evaluation.runs.run_folder import RECORDS

    records = chain.from_iterable(read_records(run / RECORDS if run.is_dir() else run) for run in runs)
    paired = make_pairs(records, ARMS, seed)
    output = output or (runs[0] if runs[0].is_dir() else runs[0].parent) / JUDGING
    write_pairs(paired, output)
    told = {
        "pairs": len(paired.pairs),
        "same_words": len(paired.key.same),
        "left_out": len(paired.key.left_out),
        "telling": paired.revealing,
    }
    if json:
        show_json({**told, "output": str(output)})
        return
    say(
        f"{told['pairs']} pairs in {output}; {told['same_words']} questions whose two answers are the same words "
        f"(ties), {told['left_out']} without a pair because an arm did not answer"
    )
    if paired.revealing:
        say(f"note: in {paired.revealing} pairs one answer alone speaks of documents or findings: not quite blind")
    say(f"keep {KEY} away from the reviewers")


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
    allow_remote: AllowRemote = False,
    json: Json = False,
) -> None:
    """Let a model judge the pairs, each in both orders. Interrupted, the same command goes on."""
    from epicrisis.cli.screen import usage_line
    from epicrisis.evaluation.experiments.open_ended import MODELS
    from epicrisis.evaluation.grading.blind_pairs import read_pairs

    paired = read_pairs(folder)
    settings, role = _settings(context, config, folder, patients=paired.key.patients)
    output = output or folder / MODELS.replace("*", plain_name(settings.model_for(role).name))
    file = asyncio.run(_judged(settings, role, paired, output, json))
    states = [reply.state for reply in file.grades.values()]
    if json:
        counts = {state: states.count(state) for state in sorted(set(states))}
        show_json({"replies": counts, "usage": file.usage, "output": str(output)})
    else:
        say(f"{len(states)} replies to {len(paired.pairs)} pairs in both orders, written to {output}")
        say(usage_line(file.usage))
    if failed := states.count("failed"):
        fail(f"{failed} calls failed; the same command asks them again", NOT_JUDGED)


def _settings(context: typer.Context, config: Path | None, folder: Path, *, patients: bool) -> tuple[Settings, str]:
    """What the command was told, and the role that the judge plays in it."""
    from epicrisis.configuration import load_settings
    from epicrisis.patient_data_policy import protect_run_folder

    settings = protect_run_folder(load_settings(said(context), config), folder, patients)
    if patients and settings.cache.path is None:
        # What quotes patients' records is not kept among the models.
        settings = settings.model_copy(update={"cache": settings.cache.model_copy(update={"mode": "off"})})
    role = "judge" if context.params["model"] is None else "writer"
    note_demo(settings, [role])
    return settings, role


async def _show(replies: AsyncIterator[R], name: Callable[[R], str], total: int, done: int, json: bool) -> None:
    """A bar, and a line for each call that failed."""
    from rich.progress import Progress

    with Progress(console=open_console(stderr=True), disable=json) as bar:
        task = bar.add_task("Judging", total=total, completed=done)
        async for reply in replies:
            if reply.failure is not None:
                say_above(bar, f"{name(reply)}: {reply.failure.message}")
            bar.advance(task)


async def _judged(settings: Settings, role: str, paired: BlindPairs, output: Path, json: bool) -> GradeStore[PairGrade]:
    from epicrisis.evaluation.grading.model_client import open_model_client
    from epicrisis.evaluation.grading.preference import (
        ORDERS,
        grade_pairs,
        open_preference_store,
        preference_grader,
    )

    async with open_model_client(settings, role) as asker:
        grader = preference_grader(asker)
        file = open_preference_store(output, grader)
        total = len(paired.pairs) * len(ORDERS)
        done = sum(file.is_done((pair.id, order)) for pair in paired.pairs for order in ORDERS)
        await _show(grade_pairs(paired.pairs, grader, file), lambda reply: reply.pair, total, done, json)
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
    from epicrisis.evaluation.experiments.open_ended import conclusions, read_judging, read_judging_folder, tables

    named = bool(files or judged)
    judging = read_judging(folder, files or (), judged or ()) if named else read_judging_folder(folder)
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


@translated
def mark(
    context: typer.Context,
    run: RunPath,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where the marks go; else RUN/marking/MODEL.jsonl.")
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
    allow_remote: AllowRemote = False,
    json: Json = False,
) -> None:
    """Let a model mark each open answer: correct, incorrect, or cannot be said, against the question's reference.

    It sees question, reference and answer, and not who wrote it. Let several models judge, best none that wrote the
    answers or their examples. Interrupted, the same command goes on.
    """
    from epicrisis.cli.screen import usage_line
    from epicrisis.errors import InputError
    from epicrisis.evaluation.grading.correctness import CORRECTNESS_FOLDER, read_open_cases

    cases = read_open_cases(run)
    to_mark = sum(case.gradable for case in cases)
    if not to_mark:
        raise InputError(f"{run} has no answer to mark: name a run of open questions that have a reference (`gold`)")
    folder = run if run.is_dir() else run.parent
    settings, role = _settings(context, config, folder, patients=any(case.patient for case in cases))
    output = output or folder / CORRECTNESS_FOLDER / f"{plain_name(settings.model_for(role).name)}.jsonl"
    file = asyncio.run(_marked(settings, role, cases, output, json))
    states = [reply.state for reply in file.grades.values()]
    if json:
        counts = {state: states.count(state) for state in sorted(set(states))}
        show_json({"to_mark": to_mark, "marks": counts, "usage": file.usage, "output": str(output)})
    else:
        say(
            f"{states.count('judged')} of {to_mark} answers marked, written to {output}; {states.count('unparsed')} "
            f"verdicts could not be read, {len(cases) - to_mark} open cases have nothing to mark"
        )
        say(usage_line(file.usage))
    if failed := states.count("failed"):
        fail(f"{failed} calls failed; the same command asks them again", NOT_JUDGED)


async def _marked(
    settings: Settings, role: str, cases: Sequence[OpenCase], output: Path, json: bool
) -> GradeStore[CorrectnessGrade]:
    from epicrisis.evaluation.grading.correctness import (
        correctness_grader,
        grade_cases,
        open_correctness_store,
    )
    from epicrisis.evaluation.grading.model_client import open_model_client

    async with open_model_client(settings, role) as asker:
        grader = correctness_grader(asker)
        file = open_correctness_store(output, grader, cases)
        to_mark = [case for case in cases if case.gradable]
        done = sum(file.is_done(case.key) for case in to_mark)
        await _show(grade_cases(to_mark, grader, file), lambda reply: reply.key, len(to_mark), done, json)
    return file


@translated
def marks(
    run: RunPath,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[MARKS]...", help="Judges' files; else all in RUN/marking.")
    ] = None,
    json: Json = False,
) -> None:
    """What the marks come to: the share correct by each judge and by their majority, and how far they agree."""
    from epicrisis.errors import InputError
    from epicrisis.evaluation.grading.correctness import WROTE, read_correctness
    from epicrisis.evaluation.grading.correctness_tables import correctness_conclusions, correctness_tables

    marking = read_correctness(run, files or None)
    if not marking.judges:
        raise InputError(
            f"nobody has marked {run}: let a model do it (epicrisis open-ended mark {quote_for_shell(run)} --model URL)"
        )
    found = {" and ".join(sorted(marking.models[WROTE])): marking}
    if json:
        show_data({"conclusions": correctness_conclusions(found), "tables": correctness_tables(found)})
        return
    for table in correctness_tables(found):
        show_table(table)
    for sentence in correctness_conclusions(found):
        say_sentence(sentence)
