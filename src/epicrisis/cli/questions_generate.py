"""`epicrisis questions generate`: questions that a model proposes from one's own documents, for people to accept."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epicrisis.cli.common import fail, show_json, translated
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
from epicrisis.cli.terminal import open_console, say, say_above, say_lines

if TYPE_CHECKING:
    from epicrisis.evaluation.synthesis.questions import GeneratedQuestion, PassageSample, QuestionStore
    from epicrisis.settings import Settings

INCOMPLETE = 2
NAMED = 3
"""Near-duplicates that are named on the screen; --json names all."""


def register(group: typer.Typer) -> None:
    """Adds the command."""
    group.command(
        epilog="Examples: epicrisis questions generate ~/lib --n 50 --model URL -o questions.jsonl   |   "
        "epicrisis questions generate papers/ notes.pdf --model URL -o questions.jsonl"
    )(generate)


@translated
def generate(
    context: typer.Context,
    sources: Annotated[list[Path], typer.Argument(help="A library, or files and folders of documents.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the questions go (JSONL).")],
    n: Annotated[int, typer.Option("-n", "--n", min=1, help="Passages to draw; each gives one question or none.")] = 50,
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
    """Let a model propose PICO questions with answers, each from one passage that it quotes word for word.

    Read the file and set "state" of each line to "accepted" or "rejected": only accepted ones are questions then.
    Interrupted, the same command goes on; with a larger --n it adds to what is there.
    """
    from epicrisis.answers import Usage
    from epicrisis.cli.screen import usage_line
    from epicrisis.components import build_scope
    from epicrisis.configuration import load_settings
    from epicrisis.evaluation.synthesis.questions import draw_passages
    from epicrisis.patient_data_policy import protect_patient_data

    settings = protect_patient_data(load_settings(said(context), config), *sources)
    note_demo(settings, ["writer"])
    drawn = draw_passages(sources, n, settings.seed, build_scope(settings.scope))
    for item in drawn.skipped:
        say(f"epicrisis: {', '.join(filter(None, (item.path, item.where)))}: {item.reason}", err=True)
    file, made = asyncio.run(_generated(settings, drawn, output, json))
    usage = sum((each.usage for each in made), Usage())
    failed = sum(each.failure is not None for each in made)
    alike = file.near_duplicates()
    if json:
        told = {"drawn": len(drawn.passages), "lines": file.states, "failed": failed, "near_duplicates": alike}
        show_json({**told, "skipped": len(drawn.skipped), "usage": usage, "output": str(output)})
    else:
        say_lines(_lines(drawn, n, file.states, alike, output))
        say(usage_line(usage))
    if failed:
        fail(f"{failed} calls failed; the same command asks them again", INCOMPLETE)
    if drawn.skipped:
        fail(f"{len(drawn.skipped)} items could not be read, named above", INCOMPLETE)


def _lines(drawn: PassageSample, n: int, states: Counter[str], alike: list[tuple[str, str]], output: Path) -> list[str]:
    short = f" (all there are; {n} were asked for)" if len(drawn.passages) < n else ""
    lines = [
        f"{len(drawn.passages)} passages{short}; in {output}: {states['proposed']} questions proposed, "
        f"{states['accepted']} accepted, {states['rejected']} rejected",
        f"left out: {states['nothing']} passages without such a question, {states['unparsed']} replies that could not "
        f"be read, {states['not-verbatim']} whose quotation does not stand in the passage, {states['names-nothing']} "
        "whose question names nothing of it",
    ]
    if alike:
        named = ", ".join(f"{one} and {other}" for one, other in alike[:NAMED])
        lines.append(f"{len(alike)} near-duplicates, such as {named}")
    return lines


async def _generated(
    settings: Settings, drawn: PassageSample, output: Path, json: bool
) -> tuple[QuestionStore, list[GeneratedQuestion]]:
    from rich.progress import Progress

    from epicrisis.components import build_scope
    from epicrisis.evaluation.grading.model_client import open_model_client
    from epicrisis.evaluation.synthesis.questions import QuestionStore, generate_questions, recipe

    made = []
    async with open_model_client(settings) as asker:
        file = QuestionStore(output, recipe(asker))
        done = sum(passage.id in file.passages for passage in drawn.passages)
        with Progress(console=open_console(stderr=True), disable=json) as bar:
            task = bar.add_task("Asking", total=len(drawn.passages), completed=done)
            async for each in generate_questions(drawn.passages, asker, file, build_scope(settings.scope)):
                made.append(each)
                if each.failure is not None:
                    say_above(bar, f"{each.passage.id}: {each.failure.message}")
                bar.advance(task)
    return file, made
