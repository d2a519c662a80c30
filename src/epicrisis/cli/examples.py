"""`epicrisis examples`: libraries of solved questions, which prompts show as examples."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.options import CONFIG, ENCODER, GRADER, LOCAL_ONLY, Data, Draw, Json, LibraryPath, output_option
from epicrisis.cli.progress import open_progress, say_above, show_ingest
from epicrisis.cli.run_progress import say_report_skipped, say_skipped, tokens_spent, usage_line, warn_about_demo_models
from epicrisis.cli.terminal import say, show_json, show_report
from epicrisis.core.answers import Usage
from epicrisis.core.errors import BudgetExceeded, EpicrisisError, RunStopped
from epicrisis.core.printable import count_noun
from epicrisis.system.local_only import local_path, set_local_only

if TYPE_CHECKING:
    from epicrisis.core.protocols import Encoder
    from epicrisis.corpus.base.reader_base import ReaderItem
    from epicrisis.evaluation.synthesis.solved_examples import SelectedQuestions, SolvingMethod
    from epicrisis.library.write.ingest_batches import IngestReport
    from epicrisis.settings.settings import Settings

_EXAMPLE_IDS = 5
"""Ids shown on the screen; --json shows all."""


@command(
    ENCODER,
    *GRADER,
    examples=[
        "epicrisis examples build ~/solved --from train.jsonl --how solved --model URL -n 500",
        "epicrisis examples build ~/cot --from mirage/medmcqa --how chain-of-thought --model URL --budget-usd 5",
    ],
)
def build(
    library: LibraryPath,
    source: Annotated[str, Option("--from", help="Question set, by name or file.")],
    how: Annotated[
        Literal["solved", "chain-of-thought", "tree-of-thought"],
        Option(help="Keep correct solutions of the model, or give it the answer and let it explain."),
    ],
    n: Annotated[int | None, Option("--questions", "-n", min=1, help="Size of a random sample. Default: all.")] = None,
    draw: Draw = 0,
    data: Data = None,
    openly: Annotated[bool, Option("--open", help="Ask without options; the correct option is the answer.")] = False,
    tries: Annotated[int, Option(min=1, help="Attempts until an explanation arrives at the answer.")] = 3,
    output: Annotated[
        Path | None, output_option(help="File of all results (JSONL). Default: next to the library.")
    ] = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Build examples from the questions of a set that a chat model answers correctly.

    Every result is saved in a file, and correct solutions are added to the library. After an interruption, the same
    command continues; with a larger -n it adds questions.
    """
    from epicrisis.evaluation.datasets.load import load_dataset
    from epicrisis.evaluation.synthesis.example_documents import read_built_examples
    from epicrisis.evaluation.synthesis.solved_examples import select_questions

    settings = flags.settings()
    warn_about_demo_models(settings, ["writer"])
    path, encoder, encoder_name = _encoder_for(settings, library)
    questions = select_questions(load_dataset(source, settings.home, data), n, draw, openly=openly)
    if output is None:
        output = path.absolute().with_name(f"{path.absolute().name}.{how}{'.open' if openly else ''}.jsonl")
    solved, failed, usage, error = asyncio.run(_solve(settings, questions, how, tries, output, json))
    report = _add(path, read_built_examples(output), encoder, encoder_name, json) if output.exists() else None
    if json:
        row = {"set": questions.name, "questions": len(questions.questions), "left_aside": questions.left_aside}
        row |= {"lines": solved, "failed": failed, "usage": usage, "output": str(output)}
        show_json({**row, "library": str(path), "added": report})
    else:
        states = Counter(solved)
        say(
            f"{questions.name}: {len(questions.questions)} questions; in {output}: {states['kept']} kept; not kept: "
            f"{states['wrong']} wrong, {states['abstained']} without an answer, {states['unparsed']} unreadable"
        )
        for reason, count in questions.left_aside.items():
            say(f"not asked: {count_noun(count, 'question')} ({reason})")
        say(usage_line(usage))
        if report is not None:
            say(_report_line(path, report))
    if report is not None:
        say_skipped(report.reasons)
    if error is not None:
        fail(error.message, error.exit_code)
    if failed:
        fail(f"{count_noun(failed, 'question')} failed; the same command asks them again")


async def _solve(
    settings: Settings, questions: SelectedQuestions, how: SolvingMethod, tries: int, output: Path, quiet: bool
) -> tuple[Mapping[str, int], int, Usage, EpicrisisError | None]:
    """Ask the model for solutions of the questions without a result.

    Return the counts by state, the failed questions, the usage, and the error if a budget or a dead endpoint ended it.
    """
    from epicrisis.evaluation.grading.model_client import open_model_client
    from epicrisis.evaluation.synthesis.solved_examples import SolutionStore, recipe, solve_questions

    async with open_model_client(settings) as client:
        file = SolutionStore(output, questions.name, recipe(client, how, tries))
        failed, usage = 0, Usage()
        stopped: EpicrisisError | None = None
        done = sum(file.has(question) for question in questions.questions)
        with open_progress("so_far", quiet=quiet) as bars:
            task = bars.add_task("Solving", total=len(questions.questions), completed=done, so_far="")
            try:
                async for solved in solve_questions(questions.questions, client, file, how, tries):
                    usage += solved.usage
                    failed += solved.failure is not None
                    if solved.failure is not None:
                        say_above(bars, f"{solved.question.id}: {solved.failure.message}")
                    counts = f"{file.states.get('kept', 0)} kept, {file.states.get('wrong', 0)} wrong"
                    so_far = f"{counts}  {tokens_spent(usage)}"
                    bars.update(task, advance=solved.failure is None, so_far=so_far)
            except (BudgetExceeded, RunStopped) as error:
                stopped = error
        return file.states, failed, usage, stopped


@command(ENCODER, CONFIG, LOCAL_ONLY, examples=["epicrisis examples add ~/solved solved.jsonl more.jsonl.gz"])
def add(
    library: LibraryPath,
    files: Annotated[list[Path], Argument(help="Solved questions, one JSON object per line.")],
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Add solved questions from files: id, question, options, choice, reasoning and answer.

    Unchanged questions cost nothing, changed ones are replaced. The library is created if necessary.
    """
    from epicrisis.evaluation.synthesis.example_documents import read_examples

    path, encoder, encoder_name = _encoder_for(flags.settings(), library)
    items = chain.from_iterable(map(read_examples, files))
    report = _add(path, items, encoder, encoder_name, json)
    show_report(report, [_report_line(path, report)], json=json)
    say_report_skipped(report, path)


def _encoder_for(settings: Settings, library: Path) -> tuple[Path, Encoder, str]:
    """Return the folder, and the encoder for additions with its name. Raises InputError for other documents there."""
    from epicrisis.evaluation.synthesis.example_documents import library_examples
    from epicrisis.library.base.manifest import NAME
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.pipeline.components import load_ingest_encoder

    if settings.local_only:
        set_local_only(True)
    path = local_path(library)
    exists = (path / NAME).is_file()
    if not exists:
        settings = settings.model_copy(update={"encoder": settings.encoder or settings.examples.encoder})
    encoder, name = load_ingest_encoder(settings, path, precomputed=False)
    if exists:
        with LibraryStore.open(path, encoder_fingerprint=encoder.fingerprint) as store:
            next(library_examples(store), None)
    return path, encoder, name


def _add(path: Path, items: Iterable[ReaderItem], encoder: Encoder, name: str, quiet: bool) -> IngestReport:
    from epicrisis.library.write.ingest import add_documents, open_or_create

    with open_or_create(path, encoder, name) as store, show_ingest("Adding", quiet=quiet) as display:
        return add_documents(store, items, encoder, on_progress=display.show)


def _report_line(path: Path, report: IngestReport) -> str:
    return (
        f"{path}: {report.added} solved questions added, {report.replaced} replaced, {report.unchanged} unchanged, "
        f"{report.skipped} skipped"
    )


@command(CONFIG, examples=["epicrisis examples info ~/solved --against mirage/medqa --json"])
def info(
    library: LibraryPath,
    against: Annotated[
        str | None, Option("--against", help="Also find examples that are questions of this set or file.")
    ] = None,
    data: Data = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Show the solved questions of a library by origin, and those from a question set.

    The latter are found by id and by similar text. They are never shown as examples for their set.
    """
    from epicrisis.evaluation.datasets.load import load_dataset
    from epicrisis.evaluation.synthesis.example_documents import count_examples
    from epicrisis.evaluation.synthesis.solved_examples import find_leaks
    from epicrisis.library.core.library_store import LibraryStore

    settings = flags.settings()
    dataset = None if against is None else load_dataset(against, settings.home, data)
    similarity = settings.examples.leak_similarity
    with LibraryStore.open(library) as store:
        groups, encoder = count_examples(store), store.manifest.encoder_name
        leaked = None if dataset is None else find_leaks(store, dataset.questions, similarity)
    total = sum(group.count for group in groups)
    if json:
        show_json({"examples": total, "held": groups, "encoder": encoder, "against": against, "leaks": leaked})
        return
    say(f"{library}: {total} solved questions, encoder {encoder}")
    for group in groups:
        say(f"{group.count:>8}  {group.set}, {group.how}, {group.model or 'unknown model'}, {group.form}")
    if leaked:
        examples = list(dict.fromkeys(leak.example for leak in leaked))
        by_id = {leak.example for leak in leaked if leak.same_id}
        by_text = {leak.example for leak in leaked if leak.similarity >= similarity}
        ids = f"{', '.join(examples[:_EXAMPLE_IDS])}{', ...' if len(examples) > _EXAMPLE_IDS else ''}"
        say(
            f"{len(examples)} of them are questions of {against} ({len(by_id)} by id, {len(by_text)} by a text of "
            f"similarity {similarity} or more); they are not shown where these are asked: {ids}"
        )
    elif leaked is not None:
        say(f"none of them is a question of {against}, by id or by a text of similarity {similarity} or more")
