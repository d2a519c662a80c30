"""`epicrisis examples`: libraries of solved questions, made by a chat model, added ready-made, and looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from epicrisis.cli.common import fail, show_json, translated
from epicrisis.cli.evaluate import Data, Draw
from epicrisis.cli.library import LibraryPath
from epicrisis.cli.options import (
    AllowRemote,
    AtOnce,
    BudgetMinutes,
    BudgetTokens,
    BudgetUsd,
    Cache,
    Config,
    EncoderName,
    Json,
    LocalOnly,
    Log,
    LogText,
    ModelName,
    Preset,
    Record,
    Seed,
    said,
)
from epicrisis.cli.running import note_demo
from epicrisis.cli.terminal import open_console, say, say_above, say_lines

if TYPE_CHECKING:
    from collections import Counter

    from epicrisis.answers import Usage
    from epicrisis.corpus.reader_base import ReaderItem
    from epicrisis.errors import EpicrisisError
    from epicrisis.evaluation.synthesis.leaks import Leak
    from epicrisis.evaluation.synthesis.solved_examples import SelectedQuestions, SolvingMethod
    from epicrisis.library.ingest_report import IngestReport
    from epicrisis.protocols import Encoder
    from epicrisis.settings import Settings

group = typer.Typer(no_args_is_help=True, help="Make, fill and look at libraries of solved questions.")

INCOMPLETE = 2
NAMED = 5
"""Ids that are named on the screen; --json names all."""


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    app.add_typer(group, name="examples")


@group.command(
    epilog="Examples: epicrisis examples build ~/solved --from train.jsonl --how solved --model URL -n 500   |   "
    "epicrisis examples build ~/cot --from mirage/medmcqa --how chain-of-thought --model URL --budget-usd 5 "
    "--encoder pubmedbert"
)
@translated
def build(
    context: typer.Context,
    path: LibraryPath,
    source: Annotated[str, typer.Option("--from", help="A question set, or a file of questions.")],
    how: Annotated[
        Literal["solved", "chain-of-thought", "tree-of-thought"],
        typer.Option(help="The model solves it and right ones are kept; or it is told the answer and reasons to it."),
    ],
    model: ModelName = None,
    n: Annotated[int | None, typer.Option("-n", "--n", min=1, help="So many of the set, drawn by --draw.")] = None,
    draw: Draw = 0,
    data: Data = None,
    openly: Annotated[bool, typer.Option("--open", help="Ask without options; the right one is the answer.")] = False,
    tries: Annotated[int, typer.Option(min=1, help="Draws until a written reasoning arrives at the answer.")] = 3,
    encoder: EncoderName = None,
    preset: Preset = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="What came of each question (JSONL); else beside the library.")
    ] = None,
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
    """Solve the questions of a set with a chat model and keep those that arrive at the known answer.

    Every question has its line in a file, what is kept is added to the library. Interrupted, the same command goes on;
    with a larger -n it adds to what is there.
    """
    from epicrisis.configuration import load_settings
    from epicrisis.evaluation.datasets.load import load_dataset as load_set
    from epicrisis.evaluation.synthesis.example_documents import read_built_examples
    from epicrisis.evaluation.synthesis.solved_examples import select_questions

    settings = load_settings(said(context), config)
    note_demo(settings, ["writer"])
    path, used, name = _encoder(settings, path)
    questions = select_questions(load_set(source, settings.home, data), n, draw, openly=openly)
    output = output or path.absolute().with_name(f"{path.absolute().name}.{how}{'.open' if openly else ''}.jsonl")
    made = _Made()
    stopped = asyncio.run(_solved(settings, questions, how, tries, output, made, json))
    report = _added(path, read_built_examples(output), used, name, json) if output.exists() else None
    _tell(path, output, questions, made, report, json)
    if stopped is not None:
        fail(stopped.message, stopped.exit_code)
    if made.failed:
        fail(f"{made.failed} questions failed; the same command asks them again", INCOMPLETE)
    _fail_for_skipped(report)


def _tell(
    path: Path, output: Path, questions: SelectedQuestions, made: _Made, report: IngestReport | None, json: bool
) -> None:
    if json:
        told = {"set": questions.name, "questions": len(questions.questions), "left_aside": questions.left_aside}
        lines = {"lines": made.states, "failed": made.failed, "usage": made.usage, "output": str(output)}
        show_json({**told, **lines, "library": str(path), "added": report})
    else:
        say_lines(_lines(questions, made, output))
        if report is not None:
            say(f"{path}: {_told(report)}")


class _Made:
    """What came of the questions so far. Lives as long as the command, however the asking ends."""

    def __init__(self) -> None:
        from epicrisis.answers import Usage

        self.states: Counter[str] | Mapping[str, int] = {}
        self.failed = 0
        self.usage: Usage = Usage()


async def _solved(
    settings: Settings,
    questions: SelectedQuestions,
    how: SolvingMethod,
    tries: int,
    output: Path,
    made: _Made,
    quiet: bool,
) -> EpicrisisError | None:
    """Asks what has no line yet. Where that was stopped by a budget or a dead endpoint, why: what is done counts."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from epicrisis.errors import BudgetExceeded, RunStopped
    from epicrisis.evaluation.grading.model_client import open_model_client
    from epicrisis.evaluation.synthesis.solved_examples import SolutionStore, recipe, solve_questions

    columns: tuple[Any, ...] = (
        TextColumn("Solving"),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[so_far]}", markup=False),
    )
    async with open_model_client(settings) as asker:
        file = SolutionStore(output, questions.name, recipe(asker, how, tries))
        made.states = file.states
        done = sum(map(file.has, questions.questions))
        with Progress(*columns, console=open_console(stderr=True), disable=quiet) as bar:
            task = bar.add_task("", total=len(questions.questions), completed=done, so_far="")
            try:
                async for each in solve_questions(questions.questions, asker, file, how, tries):
                    made.usage += each.usage
                    made.failed += each.failure is not None
                    if each.failure is not None:
                        say_above(bar, f"{each.question.id}: {each.failure.message}")
                    bar.update(task, advance=each.failure is None, so_far=_so_far(made))
            except (BudgetExceeded, RunStopped) as error:
                return error
    return None


def _so_far(made: _Made) -> str:
    usage = made.usage
    cost = "" if usage.cost is None else f", ${usage.cost:,.2f}"
    tokens = f"{usage.prompt_tokens + usage.completion_tokens:,} tokens{cost}"
    return f"{made.states.get('kept', 0)} kept, {made.states.get('wrong', 0)} wrong  {tokens}"


def _lines(questions: SelectedQuestions, made: _Made, output: Path) -> list[str]:
    from epicrisis.cli.screen import usage_line

    states = {name: made.states.get(name, 0) for name in ("kept", "wrong", "abstained", "unparsed")}
    counts = f"{states['kept']} kept, left out {states['wrong']} wrong, {states['abstained']} without an answer"
    lines = [
        f"{questions.name}: {len(questions.questions)} questions; in {output}: {counts}, "
        f"{states['unparsed']} that could not be read"
    ]
    lines += [f"not asked: {count} questions ({reason})" for reason, count in questions.left_aside.items()]
    return [*lines, usage_line(made.usage)]


# -- ready-made -------------------------------------------------------------------------------------------------------


@group.command(epilog="Example: epicrisis examples add ~/solved solved.jsonl more.jsonl.gz")
@translated
def add(
    path: LibraryPath,
    files: Annotated[list[Path], typer.Argument(help="Solved questions, one JSON object a line.")],
    encoder: EncoderName = None,
    config: Config = None,
    local_only: LocalOnly = False,
    json: Json = False,
) -> None:
    """Add ready-made solved questions: id, question, options, choice, reasoning and answer of each.

    Unchanged ones cost nothing, changed ones are replaced; a new library is made where there is none.
    """
    from epicrisis.configuration import load_settings
    from epicrisis.evaluation.synthesis.example_documents import read_examples

    settings = load_settings({"encoder": encoder, "local_only": local_only or None}, config)
    path, used, name = _encoder(settings, path)
    items = [read_examples(file) for file in files]
    report = _added(path, chain.from_iterable(items), used, name, json)
    if json:
        show_json(report)
    else:
        say(f"{path}: {_told(report)}")
    _fail_for_skipped(report)


def _encoder(settings: Settings, path: Path) -> tuple[Path, Encoder, str]:
    """The library's folder, the encoder that additions to it need, and its name; told before anything is paid for.

    A new library is made with the encoder of the settings, else with that of their examples. Raises InputError where
    the folder is a library of something else.
    """
    from epicrisis.components import load_ingest_encoder
    from epicrisis.evaluation.synthesis.example_documents import library_examples
    from epicrisis.library.library import Library
    from epicrisis.library.manifest import NAME
    from epicrisis.privacy import local_path, set_local_only

    if settings.local_only:
        set_local_only(True)
    path = local_path(path)
    there_is = (path / NAME).is_file()
    if not there_is:
        settings = settings.model_copy(update={"encoder": settings.encoder or settings.examples.encoder})
    used, name = load_ingest_encoder(settings, path, precomputed=False)
    if there_is:
        with Library.open(path, encoder_fingerprint=used.fingerprint) as there:
            next(library_examples(there), None)
    return path, used, name


def _added(path: Path, items: Iterable[ReaderItem], encoder: Encoder, name: str, quiet: bool) -> IngestReport:
    from rich.status import Status

    from epicrisis.library.ingest import add_documents, open_or_create

    console = open_console(stderr=True, quiet=quiet)
    with open_or_create(path, encoder, name) as library, Status("", console=console) as status:
        return add_documents(
            library,
            items,
            encoder,
            on_progress=lambda now: status.update(f"Adding: {now.documents} read, {now.saved} saved"),
        )


def _told(report: IngestReport) -> str:
    return (
        f"{report.added} solved questions added, {report.replaced} replaced, {report.unchanged} unchanged, "
        f"{report.skipped} skipped"
    )


def _fail_for_skipped(report: IngestReport | None) -> None:
    if report is not None and report.skipped:
        for item in report.first_skipped:
            say(f"epicrisis: {', '.join(filter(None, (item.path, item.where)))}: {item.reason}", err=True)
        fail(f"{report.skipped} items were skipped, the first ones named above; all others are saved", INCOMPLETE)


# -- looking ----------------------------------------------------------------------------------------------------------


@group.command(epilog="Example: epicrisis examples info ~/solved --against mirage/medqa --json")
@translated
def info(
    path: LibraryPath,
    against: Annotated[
        str | None, typer.Option("--against", help="Which of them are questions of this set, or of this file.")
    ] = None,
    data: Data = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """How many solved questions a library has and how they were made, and which of them are questions of a set.

    These are found by their id and by their text, and left out wherever examples are shown.
    """
    from epicrisis.configuration import load_settings
    from epicrisis.evaluation.datasets.load import load_dataset as load_set
    from epicrisis.evaluation.synthesis.example_documents import count_examples
    from epicrisis.evaluation.synthesis.leaks import find_leaks
    from epicrisis.library.library import Library

    settings = load_settings({}, config)
    dataset = None if against is None else load_set(against, settings.home, data)
    with Library.open(path) as library:
        counts, encoder = count_examples(library), library.manifest.encoder_name
        alike = settings.examples.leak_similarity
        found = None if dataset is None else find_leaks(library, dataset.questions, alike)
    total = sum(each.count for each in counts)
    if json:
        show_json({"examples": total, "held": counts, "encoder": encoder, "against": against, "leaks": found})
        return
    say(f"{path}: {total} solved questions, encoder {encoder}")
    for each in counts:
        say(f"{each.count:>8}  {each.set}, {each.how}, {each.model or 'model not said'}, {each.form}")
    if found is not None:
        say(_leaks(found, str(against), alike))


def _leaks(found: tuple[Leak, ...], against: str, alike: float) -> str:
    if not found:
        return f"none of them is a question of {against}, by id or by a text of similarity {alike} or more"
    examples = dict.fromkeys(leak.example for leak in found)
    by_id = len({leak.example for leak in found if leak.same_id})
    by_text = len({leak.example for leak in found if leak.similarity >= alike})
    more = ", ..." if len(examples) > NAMED else ""
    return (
        f"{len(examples)} of them are questions of {against} ({by_id} by id, {by_text} by a text of similarity {alike} "
        f"or more), left out where these are asked: {', '.join(list(examples)[:NAMED])}{more}"
    )
