"""`epicrisis ask`: one question shown as it is worked on, or a file of them, recorded and resumable."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epicrisis.cli.common import fail, show_json, translated
from epicrisis.cli.options import (
    AllowRemote,
    AsOf,
    AtOnce,
    Beside,
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
    File,
    Fuse,
    Hide,
    HideGold,
    Journals,
    Json,
    K,
    LocalOnly,
    Log,
    LogText,
    LongQuestions,
    ModelName,
    NoteTokens,
    Options,
    OrderName,
    Partition,
    Patient,
    Preflight,
    Preset,
    Record,
    Rerank,
    RerankDepth,
    RrfK,
    Seed,
    Setting,
    Since,
    Strategy,
    Types,
    UnitName,
    Votes,
    With,
    Without,
    said,
)
from epicrisis.cli.questions import many, one
from epicrisis.cli.running import confirm
from epicrisis.cli.terminal import open_console, say, say_above

if TYPE_CHECKING:
    from epicrisis.answers import Answer
    from epicrisis.evaluation.runs.runner import RecordStore
    from epicrisis.settings import Settings
    from epicrisis.types import Question

NOT_ANSWERED = 2


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog='Examples: epicrisis ask ~/lib "Is anorectal endosonography valuable in dyschesia?" '
        "--options yes,no,maybe   |   epicrisis ask ~/lib --file questions.jsonl -o answers.jsonl   |   "
        'epicrisis ask ~/ward --patient 10083814 "What were the final diagnoses?" --unit note --beside ~/pubmed'
    )(ask)


@translated
def ask(
    context: typer.Context,
    library: Annotated[Path, typer.Argument(help="The library's folder.")],
    question: Annotated[str | None, typer.Argument(help="What is asked; `-` reads it from standard input.")] = None,
    patient: Patient = None,
    options: Options = None,
    file: File = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where answers go (JSONL).")] = None,
    strategy: Strategy = None,
    model: ModelName = None,
    by: ByName = None,
    k: K = None,
    count: CountName = None,
    unit: UnitName = None,
    note_tokens: NoteTokens = None,
    order: OrderName = None,
    beside: Beside = None,
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
    hide_gold: HideGold = False,
    rerank: Rerank = None,
    rerank_depth: RerankDepth = None,
    long_questions: LongQuestions = None,
    fuse: Fuse = None,
    rrf_k: RrfK = None,
    encoder: EncoderName = None,
    at_once: AtOnce = None,
    cache: Cache = None,
    record: Record = None,
    budget_tokens: BudgetTokens = None,
    budget_usd: BudgetUsd = None,
    budget_minutes: BudgetMinutes = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a large run (see epicrisis plan).")] = False,
    log: Log = None,
    log_text: LogText = False,
    config: Config = None,
    local_only: LocalOnly = False,
    allow_remote: AllowRemote = False,
    json: Json = False,
) -> None:
    """Answer a question from a library, every step and its evidence shown."""
    settings = _settings(context, config)
    if question is not None and file is None:
        _one(settings, library, one(question, options, patient), output, json)
    elif file is not None and question is None:
        _many(settings, library, file, patient, output, yes, json)
    else:
        fail("what is asked? Give a question, or --file questions.jsonl -o answers.jsonl (not both)", NOT_ANSWERED)


def _settings(context: typer.Context, config: Path | None) -> Settings:
    from epicrisis.api import check_settings
    from epicrisis.configuration import load_settings

    return check_settings(load_settings(said(context), config))


def _one(settings: Settings, library: Path, question: Question, output: Path | None, json: bool) -> None:
    answer = asyncio.run(_shown(settings, library, question, output, json))
    if json:
        show_json(answer)
    if answer.state in ("failed", "unparsed", "over-window"):
        fail(answer.failure.message if answer.failure else "no answer", NOT_ANSWERED)


async def _shown(settings: Settings, library: Path, question: Question, output: Path | None, json: bool) -> Answer:
    """Return the answer, shown as it is worked on; with an output it is recorded there as those of a file are."""
    from epicrisis.answers import Answered
    from epicrisis.cli.screen import Screen
    from epicrisis.evaluation.runs.runner import RecordStore
    from epicrisis.pipeline import Pipeline

    screen = Screen()
    async with Pipeline.open(settings, library) as pipeline:
        records = None if output is None else RecordStore(output, pipeline.recipe())
        async for event in pipeline.events(question):
            if isinstance(event, Answered):
                if records is not None:
                    records.append_answer(event.answer)
                if not json:
                    screen.show(event)
                return event.answer
            if not json:
                screen.show(event)
    raise RuntimeError("a pipeline's last event is its answer")


def _many(
    settings: Settings, library: Path, file: Path, patient: str | None, output: Path | None, yes: bool, json: bool
) -> None:
    from epicrisis.cli.screen import usage_line
    from epicrisis.errors import InputError

    if output is None:
        raise InputError("--file needs -o: name the file for the answers")
    questions, skipped = many(file, patient)
    records = asyncio.run(_recorded(settings, library, questions, output, yes, json))
    keys = [question.key for question in questions]
    states = Counter(records.states.get(key, "failed") for key in keys)
    long = len(records.long_questions & set(keys))
    if json:
        told = {"long_questions": long, "skipped_lines": skipped, "output": str(output)}
        show_json({**states, **told, "usage": records.usage})
    else:
        say(", ".join(f"{count} {state}" for state, count in states.items()) + f"; written to {output}")
        say(usage_line(records.usage))
        if long:
            done = settings.long_questions
            say(f"{long} of {len(questions)} questions are longer than the encoder reads (done about it: {done})")
    if states.get("failed"):
        fail(f"{states['failed']} questions failed; the same command asks them again", NOT_ANSWERED)
    if skipped:
        fail(f"{skipped} lines of {file} were skipped, named above", NOT_ANSWERED)


async def _recorded(
    settings: Settings, library: Path, questions: list[Question], output: Path, yes: bool, json: bool
) -> RecordStore:
    """Answers what has no record yet."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from epicrisis.evaluation.runs.runner import RecordStore, answer_questions
    from epicrisis.pipeline import Pipeline
    from epicrisis.plan.confirmation import confirmation_question

    async with Pipeline.open(settings, library) as pipeline:
        await pipeline.check_questions(questions, by_number=True)
        records = RecordStore(output, pipeline.recipe())
        left = [question for question in questions if not records.is_done(question.key)]
        if not yes and (asked := await confirmation_question(pipeline, settings, left)) is not None:
            confirm(asked)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=open_console(stderr=True), disable=json) as progress:
            task = progress.add_task("Answering", total=len(questions))
            async for question, answer in answer_questions(pipeline, questions, records, pipeline.concurrency):
                if answer is not None and answer.state == "failed" and answer.failure is not None:
                    say_above(progress, f"{question.id}: {answer.failure.message}")
                progress.advance(task)
        # Answers end in any order; the file that a reader gets is in the order of the questions.
        records.sort([question.key for question in questions])
    return records
