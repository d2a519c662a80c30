"""`epicrisis questions` and `synthesize-record`: question sets listed, downloaded and made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.options import CONFIG, GRADER, LOCAL_ONLY, SETTING, Json, output_option
from epicrisis.cli.progress import open_download_progress, open_progress, say_above
from epicrisis.cli.run_progress import say_skipped, usage_line, warn_about_demo_models
from epicrisis.cli.terminal import say, say_lines, show_json
from epicrisis.core.answers import Usage
from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun

if TYPE_CHECKING:
    from rich.progress import TaskID


_EXAMPLE_PAIRS = 3
"""Near-duplicates shown on the screen; --json shows all."""


@command(SETTING, CONFIG, examples=["epicrisis questions list --json"])
def list_sets(*, flags: Flags, json: Json = False) -> None:
    """List the known question sets: size, licence, source, and whether they are installed."""
    from epicrisis.evaluation.datasets.download import is_downloaded
    from epicrisis.evaluation.datasets.load import load_catalogue

    home, sets = flags.settings().home, load_catalogue()
    rows: list[dict[str, Any]] = []
    for question_set in sets.values():
        row: dict[str, Any] = {"name": question_set.name, "questions": question_set.count, "split": question_set.split}
        row |= {"here": is_downloaded(question_set.name, home, sets=sets), "licence": question_set.licence}
        row |= {
            "sources": [file.url or file.built_from for file in question_set.files],
            "description": question_set.description,
        }
        rows.append(row)
    if json:
        show_json(rows)
        return
    width = max(map(len, sets))
    for row in rows:
        state = "installed" if row["here"] else "not pulled"
        say(f"{row['name']:<{width}} {row['questions']:>6,} questions  {state:<11} {row['licence']}")
        say_lines(f"    {line}" for line in (row["description"], *row["sources"]))


@command(SETTING, CONFIG, LOCAL_ONLY, examples=["epicrisis questions pull mirage/pubmedqa medq"])
def pull(
    names: Annotated[list[str], Argument(help="Names from `epicrisis questions list`.")],
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Download question sets and check that they contain the expected questions.

    Installed sets are not downloaded again.
    """
    from epicrisis.evaluation.datasets import download
    from epicrisis.evaluation.datasets.load import FOLDER, find_pinned_set, load_catalogue

    settings, sets = flags.settings(), load_catalogue()
    chosen = [find_pinned_set(name, sets) for name in dict.fromkeys(names)]
    with open_download_progress(quiet=json) as progress:
        tasks: dict[str, TaskID] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(file)
            progress.update(tasks[file], completed=done, total=total)

        for question_set in chosen:
            download.download_dataset(question_set.name, settings.home, show, local_only=settings.local_only, sets=sets)
    rows = {}
    for question_set in chosen:
        files = [str(settings.home / FOLDER / file.path) for file in question_set.files]
        rows[question_set.name] = {"questions": question_set.count, "files": files}
        if not json:
            say(f"{question_set.name}: {question_set.count:,} questions in {', '.join(files)} ({question_set.licence})")
    if json:
        show_json(rows)


@command(
    *GRADER,
    examples=[
        "epicrisis questions generate ~/lib -n 50 --model URL -o questions.jsonl",
        "epicrisis questions generate papers/ notes.pdf --model URL -o questions.jsonl",
    ],
)
def generate(
    sources: Annotated[list[Path], Argument(help="A library, or files and folders of documents.")],
    output: Annotated[Path, output_option(help="File for the questions (JSONL).")],
    n: Annotated[int, Option("-n", min=1, help="Passages to draw; each gives one question or none.")] = 50,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Generate PICO questions with answers. Each quotes one passage literally.

    Review the file and set the "state" of each line to "accepted" or "rejected": only accepted questions are used.
    After an interruption, the same command continues; with a larger -n it adds questions.
    """
    from epicrisis.evaluation.grading.model_client import open_model_client
    from epicrisis.evaluation.synthesis.generated_questions import (
        QuestionStore,
        draw_passages,
        generate_questions,
        recipe,
    )
    from epicrisis.library.base.skipped_items import group_by_reason
    from epicrisis.pipeline.components import build_scope
    from epicrisis.privacy.patient_data_policy import protect_patient_data

    settings = protect_patient_data(flags.settings(), *sources)
    warn_about_demo_models(settings, ["writer"])
    scope = build_scope(settings.scope)
    sample = draw_passages(sources, n, settings.seed, scope)

    async def ask_model() -> tuple[QuestionStore, Usage, int]:
        usage, failed = Usage(), 0
        async with open_model_client(settings) as client:
            file = QuestionStore(output, recipe(client))
            done = sum(passage.id in file.passages for passage in sample.passages)
            with open_progress(quiet=json) as progress:
                task = progress.add_task("Asking", total=len(sample.passages), completed=done)
                async for question in generate_questions(sample.passages, client, file, scope):
                    usage += question.usage
                    if question.failure is not None:
                        failed += 1
                        say_above(progress, f"{question.passage.id}: {question.failure.message}")
                    progress.advance(task)
        return file, usage, failed

    file, usage, failed = asyncio.run(ask_model())
    near_duplicates = file.near_duplicates()
    if json:
        row = {"drawn": len(sample.passages), "lines": file.states, "failed": failed}
        row |= {"near_duplicates": near_duplicates, "skipped": len(sample.skipped), "usage": usage}
        show_json({**row, "output": str(output)})
    else:
        states = file.states
        few = f" (all there are; {n} were requested)" if len(sample.passages) < n else ""
        say(
            f"{len(sample.passages)} passages{few}; in {output}: {states['proposed']} questions proposed, "
            f"{states['accepted']} accepted, {states['rejected']} rejected"
        )
        say(
            f"left out: {states['nothing']} passages without a suitable question, {states['unparsed']} unreadable "
            f"replies, {states['not-verbatim']} whose quotation is not in the passage, {states['names-nothing']} whose "
            "question names nothing in the passage"
        )
        if near_duplicates:
            pairs = ", ".join(f"{first} and {second}" for first, second in near_duplicates[:_EXAMPLE_PAIRS])
            say(f"{len(near_duplicates)} near-duplicates, such as {pairs}")
        say(usage_line(usage))
    say_skipped(group_by_reason(sample.skipped))
    if failed:
        fail(f"{count_noun(failed, 'call')} failed; the same command repeats them")


@command(
    examples=[
        "epicrisis synthesize-record -o records/ --patients 10 --tokens 128000",
        "epicrisis synthesize-record -o records/ --patients 25 --tokens 4000,8000,16000,32000,128000",
        "epicrisis synthesize-record -o records/ --structured fhir,omop,ccda",
    ]
)
def synthesize_record(
    output: Annotated[Path, output_option(help="New folder for record/notes.csv and questions.jsonl.")],
    patients: Annotated[int, Option("--patients", min=1, max=999, help="Number of patients.")] = 10,
    tokens: Annotated[
        str,
        Option(
            "--tokens",
            help="Approximate length of a record, from 4,000 tokens; several lengths, with commas, are used in turn.",
        ),
    ] = "128000",
    stays: Annotated[
        int | None, Option("--stays", min=1, help="Hospital stays per patient. Default: by length.")
    ] = None,
    questions_each: Annotated[
        int, Option("--questions-each", min=0, help="Questions per patient; kinds and forms alternate.")
    ] = 21,
    structured: Annotated[
        str,
        Option(
            "--structured",
            help="Formats of structured entries, with commas: fhir, omop, ccda. Adds facts.jsonl and questions.",
        ),
    ] = "",
    seed: Annotated[int, Option("--seed", help="Seed of the records.")] = 0,
    json: Json = False,
) -> None:
    """Write fictional patient records of any length, and questions with known answers and evidence.

    Nothing in them concerns a real person, and every note says so. The same options write the same files. Lengths are
    estimated without a model: the count of a tokenizer that reads numbers digit by digit is within a tenth.
    """
    from epicrisis.evaluation.synthesis.patient_records.record_folder import write_records

    try:
        lengths = list(map(int, tokens.split(",")))
    except ValueError:
        raise InputError(f"--tokens {tokens}: write numbers separated by commas, such as 4000,8000,16000") from None
    formats = structured.split(",") if structured else []
    records = write_records(output, patients, lengths, stays, seed, questions_each, formats)
    if json:
        show_json({"output": str(output), "seed": seed, "records": records})
        return
    for record in records:
        say(
            f"{record.patient}: {count_noun(record.stays, 'stay')}, {count_noun(record.notes, 'note')}, "
            f"{record.characters:,} characters, about {count_noun(record.tokens, 'token')}, "
            f"{count_noun(record.questions, 'question')}"
            + (f", {record.entries:,} structured entries" if formats else "")
        )
    short = sum(record.questions < questions_each for record in records)
    if short:
        have = agree(short, "has", "have")
        say(
            f"{count_noun(short, 'record')} {have} fewer than {questions_each} questions with a known answer; "
            "longer ones have more"
        )
    extra_files = ", facts.jsonl, fact_questions.jsonl" if formats else ""
    say(f"in {output}: record (to add to a library), questions.jsonl, README.md{extra_files} (all fictional)")
