"""`epicrisis ask`: one question shown as it is worked on, or a file of them, recorded and resumable."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epicrisis.cli.common import (
    AsOf,
    Config,
    EncoderName,
    Fuse,
    Hide,
    Journals,
    Json,
    LocalOnly,
    LongQuestions,
    Rerank,
    RerankDepth,
    RrfK,
    Since,
    Types,
    Without,
    fail,
    scope_flags,
    show_json,
    translated,
)
from epicrisis.types import By, StrategyName

if TYPE_CHECKING:
    from epicrisis.settings import Settings
    from epicrisis.types import Answer, Question

NOT_ANSWERED = 2


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog='Examples: epicrisis ask ~/lib "Is anorectal endosonography valuable in dyschesia?" '
        "--options yes,no,maybe   |   epicrisis ask ~/lib --file questions.jsonl -o answers.jsonl"
    )(ask)  # fmt: skip


@translated
def ask(
    library: Annotated[Path, typer.Argument(help="The library's folder.")],
    question: Annotated[str | None, typer.Argument(help="What is asked.")] = None,
    options: Annotated[str | None, typer.Option(help="Options of a multiple-choice question, with commas.")] = None,
    file: Annotated[Path | None, typer.Option(help="Questions, one JSON object a line (or PubMedQA's file).")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where --file's answers go (JSONL).")] = None,
    strategy: Annotated[StrategyName | None, typer.Option(help="How the question is answered.")] = None,
    model: Annotated[str | None, typer.Option(help="Catalogue name, .gguf file, or endpoint URL[#model].")] = None,
    by: Annotated[By | None, typer.Option(help="How passages are found.")] = None,
    k: Annotated[int | None, typer.Option("-k", help="Passages to read.")] = None,
    partition: Annotated[int | None, typer.Option(help="Documents a map call.")] = None,
    preflight: Annotated[bool | None, typer.Option(help="Check first whether the rankings agree.")] = None,
    depth: Annotated[int | None, typer.Option(help="Dense hits that the preflight ranks anew.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the model's draws.")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds a question may take.")] = None,
    since: Since = None,
    as_of: AsOf = None,
    types: Types = None,
    journals: Journals = None,
    without: Without = None,
    hide: Hide = None,
    hide_gold: Annotated[bool, typer.Option("--hide-gold", help="Hide each question's own documents from it.")] = False,
    rerank: Rerank = None,
    rerank_depth: RerankDepth = None,
    long_questions: LongQuestions = None,
    fuse: Fuse = None,
    rrf_k: RrfK = None,
    encoder: EncoderName = None,
    config: Config = None,
    local_only: LocalOnly = False,
    json: Json = False,
) -> None:
    """Answer a question from a library, every step and its evidence shown."""
    from epicrisis.errors import InputError
    from epicrisis.settings import load

    flags: dict[str, Any] = {
        "strategy": strategy, "by": by, "k": k, "partition": partition, "seed": seed, "encoder": encoder,
        "deadline_seconds": deadline, "local_only": local_only or None,
        "models": {"writer": {"name": model}}, "preflight": {"enabled": preflight, "depth": depth},
        "scope": scope_flags(as_of, since, types, journals, without, hide) | {"hide_gold": hide_gold or None},
        "rerank": {"name": rerank, "depth": rerank_depth}, "long_questions": long_questions,
        "fuse": fuse or None, "rrf_k": rrf_k,
    }  # fmt: skip
    settings = load(flags, config)
    if file is not None:
        if question is not None:
            raise InputError("give a question or --file, not both")
        if output is None:
            raise InputError("--file needs -o: name the file for the answers")
        _many(settings, library, file, output, json)
        return
    if question is None:
        raise InputError("what is asked? Give a question, or --file questions.jsonl -o answers.jsonl")
    _one(settings, library, question, options, json)


def _one(settings: Settings, library: Path, text: str, options: str | None, json: bool) -> None:
    from epicrisis.pipeline import as_question

    letters = [part.strip() for part in options.split(",") if part.strip()] if options else None
    answer = asyncio.run(_shown(settings, library, as_question(text, letters), json))
    if json:
        show_json(answer)
    if answer.state in ("failed", "unparsed"):
        fail(answer.failure.message if answer.failure else "no answer", NOT_ANSWERED)


async def _shown(settings: Settings, library: Path, question: Question, json: bool) -> Answer:
    from epicrisis.cli.screen import Screen
    from epicrisis.pipeline import Pipeline
    from epicrisis.types import Answered

    screen = Screen()
    async with Pipeline.open(settings, library) as pipeline:
        async for event in pipeline.events(question):
            if isinstance(event, Answered):
                if not json:
                    screen.show(event)
                return event.answer
            if not json:
                screen.show(event)
    raise RuntimeError("a pipeline's last event is its answer")


def _many(settings: Settings, library: Path, file: Path, output: Path, json: bool) -> None:
    from epicrisis.corpus.questions import read_questions
    from epicrisis.corpus.reading import Skipped
    from epicrisis.errors import InputError

    read = list(read_questions(file))
    skipped = [item for item in read if isinstance(item, Skipped)]
    questions = [item for item in read if not isinstance(item, Skipped)]
    for item in skipped:
        typer.echo(f"epicrisis: {item.path}, {item.where}: {item.reason}", err=True)
    if not questions:
        raise InputError(f"{file} holds no question that can be read")
    states, long = asyncio.run(_recorded(settings, library, questions, output, json))
    if json:
        show_json({**states, "long_questions": long, "skipped_lines": len(skipped), "output": str(output)})
    else:
        typer.echo(", ".join(f"{count} {state}" for state, count in states.items()) + f"; written to {output}")
        if long:
            done = settings.long_questions
            typer.echo(
                f"{long} of {len(questions)} questions are longer than the encoder reads (done about it: {done})"
            )
    if states.get("failed"):
        fail(f"{states['failed']} questions failed; the same command asks them again", NOT_ANSWERED)
    if skipped:
        fail(f"{len(skipped)} lines of {file} were skipped, named above", NOT_ANSWERED)


async def _recorded(
    settings: Settings, library: Path, questions: list[Question], output: Path, json: bool
) -> tuple[dict[str, int], int]:
    """Answers what has no record yet; over all questions the states, and how many were too long for the encoder."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from epicrisis.evaluation.runs import RecordFile, answer_all, question_key
    from epicrisis.pipeline import Pipeline

    async with Pipeline.open(settings, library) as pipeline:
        records = RecordFile(output, pipeline.recipe())
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), disable=json) as progress:
            task = progress.add_task("Answering", total=len(questions))
            async for question, answer in answer_all(pipeline, questions, records):
                if answer is not None and answer.state == "failed" and answer.failure is not None:
                    progress.console.print(f"{question.id}: {answer.failure.message}", markup=False)
                progress.advance(task)
    keys = [question_key(question) for question in questions]
    return dict(Counter(records.states.get(key, "failed") for key in keys)), len(records.long & set(keys))
