"""`epicrisis plan`: what answers would take, each strategy side by side, before anything is spent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epicrisis.cli.common import fail, show_json, translated
from epicrisis.cli.options import (
    AllowRemote,
    AsOf,
    AtOnce,
    ByName,
    Config,
    CountName,
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
    LongQuestions,
    ModelName,
    Options,
    Partition,
    Preflight,
    Preset,
    Rerank,
    RerankDepth,
    RrfK,
    Seed,
    Setting,
    Since,
    Types,
    Votes,
    Without,
    said,
)
from epicrisis.cli.questions import many, one
from epicrisis.cli.terminal import open_console

if TYPE_CHECKING:
    from epicrisis.plan.cost_plan import CostPlan, CostRange, StrategyPlan
    from epicrisis.settings import Settings
    from epicrisis.types import Question

SKIPPED = 2
NOT_PLANNED = "Not planned for: retries, second tries after replies that cannot be read, kept replies, prefix caches."


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog='Examples: epicrisis plan ~/lib "Is anorectal endosonography valuable in dyschesia?" '
        "--options yes,no,maybe   |   epicrisis plan ~/lib --file questions.jsonl --strategy rag "
        "--strategy brief-context --model https://api.openai.com/v1#gpt-4o-mini"
    )(plan)


@translated
def plan(
    context: typer.Context,
    library: Annotated[Path, typer.Argument(help="The library's folder.")],
    question: Annotated[str | None, typer.Argument(help="What is asked.")] = None,
    options: Options = None,
    file: File = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="Plan this strategy (repeat for more); else those without votes."),
    ] = None,
    sample: Annotated[int | None, typer.Option(help="Questions that stand for all; 200 where there are more.")] = None,
    time: Annotated[bool, typer.Option("--time", help="Measure the model's speed by two short calls.")] = False,
    model: ModelName = None,
    by: ByName = None,
    k: K = None,
    count: CountName = None,
    partition: Partition = None,
    preflight: Preflight = None,
    depth: Depth = None,
    votes: Votes = None,
    examples: ExampleLibrary = None,
    preset: Preset = None,
    setting: Setting = None,
    seed: Seed = None,
    at_once: AtOnce = None,
    since: Since = None,
    as_of: AsOf = None,
    types: Types = None,
    journals: Journals = None,
    without: Without = None,
    hide: Hide = None,
    hide_gold: HideGold = False,
    rerank: Rerank = None,
    rerank_depth: RerankDepth = None,
    long_questions: LongQuestions = None,
    fuse: Fuse = None,
    rrf_k: RrfK = None,
    encoder: EncoderName = None,
    config: Config = None,
    local_only: LocalOnly = False,
    allow_remote: AllowRemote = False,
    json: Json = False,
) -> None:
    """Plan answers before they are made: calls, tokens, money and time of each strategy.

    Searches the library and counts the prompts; but for --time no model is asked anything.
    """
    from epicrisis.configuration import load_settings

    settings = load_settings({**said(context), "strategy": None}, config)
    questions, skipped = _asked(question, options, file)
    made = asyncio.run(_planned(settings, library, questions, strategy, sample, time, json))
    if json:
        show_json(made)
    else:
        _show(made)
    if skipped:
        fail(f"{skipped} lines of {file} were skipped, named above", SKIPPED)


def _asked(question: str | None, options: str | None, file: Path | None) -> tuple[list[Question], int]:
    """The questions, and how many lines of the file are none."""
    from epicrisis.errors import InputError

    if file is None and question is not None:
        return [one(question, options)], 0
    if file is None or question is not None:
        raise InputError("give a question, or --file questions.jsonl (not both)")
    if options is not None:
        raise InputError("--options go with a question; in a file each question has its own")
    return many(file)


async def _planned(
    settings: Settings,
    library: Path,
    questions: list[Question],
    strategies: list[str] | None,
    sample: int | None,
    timed: bool,
    quiet: bool,
) -> CostPlan:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from epicrisis.errors import SettingsError
    from epicrisis.pipeline import STRATEGIES
    from epicrisis.plan.planning import DEFAULT_STRATEGIES
    from epicrisis.plan.planning import estimate_costs as planned

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=open_console(stderr=True), disable=quiet, transient=True) as progress:
        task = progress.add_task("Planning", total=None)

        def advance(total: int) -> None:
            progress.update(task, advance=1, total=total)

        wanted = list(dict.fromkeys(strategies or DEFAULT_STRATEGIES))
        if unknown := [name for name in wanted if name not in STRATEGIES]:
            raise SettingsError(f"there is no strategy {unknown[0]!r}: known are {', '.join(STRATEGIES)}")
        return await planned(settings, library, questions, wanted, sample=sample, timed=timed, advance=advance)


# -- on the screen --------------------------------------------------------------------------------------------------


def _show(plan: CostPlan) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("strategy", ""):
        table.add_column(heading, no_wrap=True)
    for heading in ("calls", "prompt\ntokens", "reply\ntokens", "US $", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in plan.strategies:
        for row in _rows(each):
            table.add_row(*row)
    console = open_console()
    console.print(f"{_number(plan.questions, 'question')} on {' and '.join(plan.models)}", markup=False)
    console.print(table)
    for note in _notes(plan):
        console.print(note, markup=False)


def _rows(plan: StrategyPlan) -> Iterator[tuple[str, ...]]:
    """Three lines: least, expected, most."""
    columns = (
        _column(plan.calls, _count),
        _column(plan.prompt_tokens, _count),
        _column(plan.completion_tokens, _count),
        ["unknown"] * 3 if plan.usd is None else ["none"] * 3 if plan.usd.most == 0 else _column(plan.usd, _dollars),
        ["not measured", "(--time)", ""] if plan.seconds is None else _column(plan.seconds, _time),
    )
    names = (plan.strategy, "", "")
    yield from zip(names, ("least", "expected", "most"), *columns, strict=True)


def _column(figure: CostRange, shown: Callable[[float], str]) -> list[str]:
    return [shown(figure.least), shown(figure.expected), shown(figure.most)]


def _notes(plan: CostPlan) -> Iterator[str]:
    yield ""
    if plan.planned < plan.questions:
        tokens = ", ".join(f"{each.strategy} {_percent(each.prompt_tokens)}" for each in plan.strategies)
        yield (
            f"A random sample of {plan.planned:,} questions stands for all {plan.questions:,}; the expected prompt "
            f"tokens may be off by (95 %): {tokens}."
        )
    exact = [each.strategy for each in plan.strategies if each.exact]
    if not plan.exact_counts:
        yield "Tokens are estimated from above: the endpoint counts none, so no figure is exact."
    elif exact:
        yield f"Prompt tokens are exact for {', '.join(exact)}."
    for each in plan.strategies:
        for state, count in each.states.items():
            yield f"{each.strategy}: {count:,} of {_number(plan.planned, 'question')} {state}."
    yield (
        "Replies: least, they find nothing; expected, every text is half as long as its form allows; most, as long as "
        "it allows."
    )
    yield NOT_PLANNED
    for name, speed in plan.speeds.items():
        yield (
            f"Times: {name} read {speed.prompt:,.0f} and wrote {speed.completion:,.1f} tokens a second in two short "
            f"calls; {_number(plan.at_once[name], 'call')} at once, each taken to be as fast as one alone."
        )


def _number(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value < 10_000_000 else f"{value / 1e6:,.1f} M"


def _dollars(value: float) -> str:
    from epicrisis.plan.cost_plan import format_dollars

    return format_dollars(value)


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"


def _percent(figure: CostRange) -> str:
    return f"{100 * figure.margin / figure.expected:.1f} %" if figure.expected else "0 %"
