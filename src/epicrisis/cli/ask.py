"""`epicrisis ask` and `search`: a question or a file of questions answered, and the ranking of passages alone."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from typer import Argument, Option

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.options import (
    ANSWER,
    SEARCH,
    Choices,
    CiteStyle,
    Json,
    LibraryPath,
    Patient,
    QuestionFile,
    SearchCluster,
    Yes,
    output_option,
)
from epicrisis.cli.progress import open_progress, say_above
from epicrisis.cli.run_progress import confirm, usage_line
from epicrisis.cli.terminal import say, show_json
from epicrisis.core.answers import Answer, Answered, AnswerStarted, Event, Notice, TextDelta
from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun, printable
from epicrisis.core.types import CitationStyle, Question
from epicrisis.report.saved_answers import READABLE_SUFFIXES

if TYPE_CHECKING:
    from epicrisis.models.cluster import ClusterAddress
    from epicrisis.pipeline.pipeline import Pipeline
    from epicrisis.pipeline.recording.runner import RecordStore
    from epicrisis.settings.settings import Settings

AnswerView: TypeAlias = Literal["answer", "verbose", "quiet", "json"]
"""What is printed of an answer."""
Output = Annotated[
    Path | None,
    output_option(
        help="Also write the answer to this file: .md, .docx, .html or .json to read, .jsonl as a record; its sources "
        "as .bib, .ris or .csl.json."
    ),
]
SearchOutput = Annotated[
    Path | None,
    output_option(help="Also write the documents found to this file: .md, .docx or .html, or .bib, .ris or .csl.json."),
]
Verbose = Annotated[
    bool, Option("-v", "--verbose", help="Also print the path to the answer: ranking, calls, notices and tokens.")
]
Quiet = Annotated[bool, Option("-q", "--quiet", help="Print the verdict and the claims only.")]


@command(
    *ANSWER,
    examples=[
        'epicrisis ask ~/lib "Does aspirin prevent pre-eclampsia?"',
        'epicrisis ask ~/lib "Does aspirin prevent pre-eclampsia?" --cite vancouver -o answer.docx',
        'epicrisis ask ~/lib "Is endosonography valuable in dyschesia?" --options yes,no,maybe --model ./model.gguf',
        "epicrisis ask ~/lib --file questions.jsonl -o answers.jsonl --model http://127.0.0.1:8000/v1#qwen",
        "epicrisis ask ~/lib --file questions.jsonl -o answers.jsonl --on ray://head.example.org:10001",
        'epicrisis ask ~/ward --patient 10083814 "What were the final diagnoses?" --strategy rag --setting unit=note',
        'epicrisis ask ~/ward --patient 10083814 "highest creatinine during the last admission"',
    ],
)
def ask(
    library: LibraryPath,
    question: Annotated[str | None, Argument(help="The question; `-` reads it from standard input.")] = None,
    patient: Patient = None,
    options: Choices = None,
    file: QuestionFile = None,
    output: Output = None,
    cite: CiteStyle = None,
    yes: Yes = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    on: SearchCluster = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Answer a question from the documents of a library, and show the evidence.

    Without --model and --strategy, show the sentences of the library that bear on the question (strategy evidence).
    """
    from epicrisis.settings.configuration import check_settings, choose_strategy

    if verbose + quiet + json > 1:
        fail("--verbose, --quiet and --json are different outputs: give one of them")
    if cite is not None:
        _check_citing(json=json, quiet=quiet, file=file)
    if on is not None and file is None:
        fail("--on is for a file of questions: add --file, or leave it out")
    settings, notices = choose_strategy(check_settings(flags.settings()))
    if question is not None and file is None:
        parsed_question = parse_question(question, options, patient)
        view: AnswerView = "json" if json else "verbose" if verbose else "quiet" if quiet else "answer"
        _answer_one(settings, notices, library, parsed_question, output, view, cite)
    elif file is not None and question is None:
        if output is None:
            fail("--file needs an output file for the answers: add -o answers.jsonl")
        if output.suffix.lower() in READABLE_SUFFIXES:
            fail(f"{output}: the answers to a file of questions are records: name a file like answers.jsonl")
        questions, skipped = read_question_file(file, patient)
        for notice in notices:
            say(f"note: {notice.message}", err=True)
        _answer_file(settings, library, questions, skipped, output, yes, json, on)
    else:
        if question is None and not library.exists() and " " in str(library).strip():
            fail(f'the library is missing: epicrisis ask LIBRARY "{printable(str(library))}"')
        fail("give either a question, or --file questions.jsonl -o answers.jsonl")


def _check_citing(*, json: bool, quiet: bool, file: Path | None) -> None:
    """Raise InputError if no reference would be listed, or without the extra `citations`."""
    from epicrisis.report.citation_styles import check_citation_styles

    if json or quiet or file is not None:
        raise InputError("--cite is for one question whose sources are shown: leave out --json, --quiet or --file")
    check_citation_styles()


def _answer_one(
    settings: Settings,
    notices: Sequence[Notice],
    library: Path,
    question: Question,
    output: Path | None,
    view: AnswerView,
    style: CitationStyle | None,
) -> None:
    """Answer a question, print the answer as `view` says, and write it to `output`, if any."""
    import asyncio

    from epicrisis.cli.event_display import EventDisplay, describe_path
    from epicrisis.report.saved_answers import check_answer_file, write_answer_file

    is_record = output is not None and check_answer_file(output)
    display = EventDisplay(style=style)
    show_step = display.show if view == "verbose" else None
    answer = asyncio.run(
        _follow_question(settings, notices, library, question, output if is_record else None, show_step)
    )
    if view == "json":
        show_json(answer)
    elif view == "verbose":
        display.show(Answered(answer))
    else:
        display.show_answer(answer, quiet=view == "quiet")
    if output is not None and not is_record:
        write_answer_file(output, answer, steps=describe_path(answer) if view == "verbose" else (), style=style)
    if answer.state in ("failed", "unparsed", "over-window"):
        fail(answer.failure.message if answer.failure else "no answer")


async def _follow_question(
    settings: Settings,
    notices: Sequence[Notice],
    library: Path,
    question: Question,
    record: Path | None,
    show_step: Callable[[Event], None] | None,
) -> Answer:
    """Return the answer. Add it to the file `record`, if any, and call `show_step` for each event before it."""
    from epicrisis.cli.progress import ProgressLine
    from epicrisis.pipeline.pipeline import Pipeline

    progress = ProgressLine()
    with progress.running():
        async with Pipeline.open(settings, library, notices=notices) as pipeline:
            records = None if record is None else _open_records(record, pipeline)
            async for event in pipeline.events(question):
                progress.follow(event)
                if isinstance(event, Answered):
                    if records is not None:
                        records.append_answer(event.answer)
                    return event.answer
                if show_step is not None:
                    progress.hide()
                    show_step(event)
                    if not isinstance(event, TextDelta | AnswerStarted):
                        progress.show()
    raise RuntimeError("a pipeline's last event is its answer")


def _open_records(file: Path, pipeline: Pipeline) -> RecordStore:
    from epicrisis.pipeline.recording.runner import RecordStore

    return RecordStore(file, pipeline.recipe())


def _answer_file(
    settings: Settings,
    library: Path,
    questions: list[Question],
    skipped: int,
    output: Path,
    yes: bool,
    json: bool,
    cluster: ClusterAddress | None,
) -> None:
    import asyncio

    from epicrisis.pipeline.cluster_search import search_on_cluster
    from epicrisis.pipeline.pipeline import Pipeline
    from epicrisis.pipeline.plan.strategy_plans import confirmation_question
    from epicrisis.pipeline.recording.runner import RecordStore, answer_questions, check_strategies

    async def record_answers() -> RecordStore:
        """Answer the questions that have no record yet. Return the records, in the order of the questions."""
        async with Pipeline.open(settings, library) as pipeline:
            await pipeline.check_questions(questions, by_number=True)
            records = RecordStore(output, pipeline.recipe())
            remaining = [question for question in questions if not records.is_done(question.key)]
            if not yes:
                confirm(await confirmation_question(pipeline, settings, remaining))
            await check_strategies(pipeline, [settings.strategy] if remaining else [])
            with (
                search_on_cluster(pipeline, settings, library, cluster if remaining else None) as pool,
                open_progress(quiet=json) as progress,
            ):
                task = progress.add_task("Answering", total=len(questions))
                async for question, answer in answer_questions(pool, questions, records, pool.concurrency):
                    if answer is not None and answer.state == "failed" and answer.failure is not None:
                        say_above(progress, f"{question.id}: {answer.failure.message}")
                    progress.advance(task)
            records.sort([question.key for question in questions])
        return records

    records = asyncio.run(record_answers())
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
                f"{long_questions} of {count_noun(len(questions), 'question')} "
                f"{agree(long_questions, 'is', 'are')} longer than the encoder can read "
                f"(long_questions = {settings.long_questions})"
            )
    if states["failed"]:
        fail(f"{count_noun(states['failed'], 'question')} failed; the same command asks them again")


def parse_question(text: str, options: str | None, patient: str | None = None) -> Question:
    """Return the question about `patient`, with `options` split at commas.

    The text `-` reads the question from standard input. Raises InputError for an empty question, and for standard
    input that is not UTF-8.
    """
    from epicrisis.api import build_question

    if text == "-":
        text = read_standard_input()
    return replace(build_question(text, options or None), patient=patient)


def read_standard_input() -> str:
    """Return standard input without surrounding blanks. Raises InputError if it is not UTF-8."""
    try:
        return sys.stdin.read().strip()
    except UnicodeDecodeError:
        raise InputError("standard input is not UTF-8: convert it, or type the question as an argument") from None


def read_question_file(file: Path, patient: str | None = None) -> tuple[list[Question], int]:
    """Return the questions of a file, and the number of its skipped lines.

    Questions without a patient are about `patient`. Warnings on standard error name unreadable lines. Raises InputError
    for a file without a readable question, and for a question about another patient.
    """
    from epicrisis.corpus.base.reader_base import Skipped
    from epicrisis.corpus.readers.question_files import read_questions

    questions = []
    skipped = 0
    for item in read_questions(file):
        if isinstance(item, Skipped):
            skipped += 1
            say(f"warning: {item.path}, {item.where}: {item.reason}", err=True)
        elif patient is not None and item.patient not in (None, patient):
            raise InputError(
                f"{file}: question {item.id} is about another patient than --patient. Leave --patient out; each "
                "question is then asked about its own patient"
            )
        else:
            questions.append(item if patient is None else replace(item, patient=patient))
    if not questions:
        raise InputError(f"{file} contains no readable question")
    if skipped:
        lines = f"{count_noun(skipped, 'line')} of {file} {agree(skipped, 'was', 'were')}"
        say(f"warning: {lines} skipped, as listed above", err=True)
    return questions, skipped


@command(
    *SEARCH,
    examples=[
        'epicrisis search ~/lib "anal sphincter imaging in dyschesia" --by hybrid -k 16',
        'epicrisis search ~/pubmed "statins in dementia" --setting scope.since=2015 --setting rerank.name=medcpt',
        'epicrisis search ~/lib "aspirin in pregnancy" -k 30 -o aspirin.ris',
        'epicrisis search ~/ward --patient 10083814 "chest pain" -k 3 --setting unit=note',
    ],
)
def search(
    library: LibraryPath,
    query: Annotated[str, Argument(help="Words or a question; `-` reads them from standard input.")],
    patient: Patient = None,
    output: SearchOutput = None,
    cite: CiteStyle = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Find the passages nearest to a query: dense, by words (BM25), or both combined (hybrid).

    In a patient's record, time expressions in the query ("the last admission") select the notes to search. If nothing
    is found in them, all notes are searched; `--setting timeline=false` always searches all.
    """
    from epicrisis.cli.search_output import check_search_file, describe_search, show_search, write_search_file
    from epicrisis.pipeline.components import open_library_search
    from epicrisis.pipeline.passage_search import search_passages
    from epicrisis.privacy.record_access import open_access

    if query == "-":
        query = read_standard_input()
    if not query.strip():
        raise InputError("the query is empty: give the words to look for")
    if output is not None:
        check_search_file(output)
    if cite is not None:
        _check_citing(json=json, quiet=False, file=None)
    settings = flags.settings({"strategy": "rag"})
    with open_library_search(settings, library, compares_texts=False) as evidence:
        ranking = search_passages(settings, evidence, query, patient, open_access(settings, library))
    if json:
        show_json(describe_search(ranking, query))
    else:
        show_search(ranking, query, cite)
    if output is not None:
        write_search_file(output, ranking, query, cite)
