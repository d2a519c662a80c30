"""`epicrisis ask`: one question answered on the screen, or a file of questions answered into a file."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.exit_codes import ERROR
from epicrisis.cli.options import ANSWER, Choices, Json, LibraryPath, Patient, QuestionFile, Yes
from epicrisis.cli.question_input import parse_question, read_question_file
from epicrisis.cli.run_progress import confirm
from epicrisis.cli.terminal import open_progress, say, say_above, show_json

if TYPE_CHECKING:
    from epicrisis.answers import Answer
    from epicrisis.evaluation.runs.runner import RecordStore
    from epicrisis.settings import Settings
    from epicrisis.types import Question

Output = Annotated[Path | None, typer.Option("-o", "--output", help="Also write answers to this file (JSONL).")]


def register(app: typer.Typer, panel: str) -> None:
    """Add the command."""
    command(
        app,
        *ANSWER,
        panel=panel,
        examples=[
            'epicrisis ask ~/lib "Is anorectal endosonography valuable in dyschesia?" --options yes,no,maybe',
            "epicrisis ask ~/lib --file questions.jsonl -o answers.jsonl --model http://127.0.0.1:8000/v1#qwen",
            'epicrisis ask ~/ward --patient 10083814 "What were the final diagnoses?" --setting unit=note',
        ],
    )(ask)


def ask(
    library: LibraryPath,
    question: Annotated[str | None, typer.Argument(help="The question; `-` reads it from standard input.")] = None,
    patient: Patient = None,
    options: Choices = None,
    file: QuestionFile = None,
    output: Output = None,
    yes: Yes = False,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Answer a question from the documents of a library, and show the evidence."""
    from epicrisis.api import check_settings

    settings = check_settings(flags.settings())
    if question is not None and file is None:
        _answer_one(settings, library, parse_question(question, options, patient), output, json)
    elif file is not None and question is None:
        if output is None:
            fail("--file needs an output file for the answers: add -o answers.jsonl", ERROR)
        questions, skipped = read_question_file(file, patient)
        _answer_file(settings, library, questions, skipped, output, yes, json)
    else:
        fail("give either a question, or --file questions.jsonl -o answers.jsonl", ERROR)


def _answer_one(settings: Settings, library: Path, question: Question, output: Path | None, json: bool) -> None:
    answer = asyncio.run(_answer_on_screen(settings, library, question, output, json))
    if json:
        show_json(answer)
    if answer.state in ("failed", "unparsed", "over-window"):
        fail(answer.failure.message if answer.failure else "no answer", ERROR)


async def _answer_on_screen(
    settings: Settings, library: Path, question: Question, output: Path | None, json: bool
) -> Answer:
    """Return the answer. Show each event unless `json` is set, and record the answer in `output`, if any."""
    from epicrisis.answers import Answered
    from epicrisis.cli.event_display import EventDisplay
    from epicrisis.evaluation.runs.runner import RecordStore
    from epicrisis.pipeline import Pipeline

    display = EventDisplay()
    async with Pipeline.open(settings, library) as pipeline:
        records = None if output is None else RecordStore(output, pipeline.recipe())
        async for event in pipeline.events(question):
            if isinstance(event, Answered) and records is not None:
                records.append_answer(event.answer)
            if not json:
                display.show(event)
            if isinstance(event, Answered):
                return event.answer
    raise RuntimeError("a pipeline's last event is its answer")


def _answer_file(
    settings: Settings, library: Path, questions: list[Question], skipped: int, output: Path, yes: bool, json: bool
) -> None:
    from epicrisis.cli.run_progress import usage_line

    records = asyncio.run(_record_answers(settings, library, questions, output, yes, json))
    keys = {question.key for question in questions}
    states = Counter(records.states.get(question.key, "failed") for question in questions)
    long_questions = len(records.long_questions & keys)
    if json:
        totals = {"long_questions": long_questions, "skipped_lines": skipped}
        show_json({**states, **totals, "output": str(output), "usage": records.usage})
    else:
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        say(f"{counts}; written to {output}")
        say(usage_line(records.usage))
        if long_questions:
            say(
                f"{long_questions} of {len(questions)} questions are longer than the encoder can read "
                f"(long_questions = {settings.long_questions})"
            )
    if states["failed"]:
        fail(f"{states['failed']} questions failed; the same command asks them again", ERROR)


async def _record_answers(
    settings: Settings, library: Path, questions: list[Question], output: Path, yes: bool, json: bool
) -> RecordStore:
    """Answer the questions that have no record yet. Return the file of records, in the order of the questions."""
    from epicrisis.evaluation.runs.runner import RecordStore, answer_questions
    from epicrisis.pipeline import Pipeline
    from epicrisis.plan.planning import confirmation_question

    async with Pipeline.open(settings, library) as pipeline:
        await pipeline.check_questions(questions, by_number=True)
        records = RecordStore(output, pipeline.recipe())
        remaining = [question for question in questions if not records.is_done(question.key)]
        if not yes:
            confirm(await confirmation_question(pipeline, settings, remaining))
        with open_progress(quiet=json) as progress:
            task = progress.add_task("Answering", total=len(questions))
            async for question, answer in answer_questions(pipeline, questions, records, pipeline.concurrency):
                if answer is not None and answer.state == "failed" and answer.failure is not None:
                    say_above(progress, f"{question.id}: {answer.failure.message}")
                progress.advance(task)
        records.sort([question.key for question in questions])
    return records
