"""`epicrisis plan`: what answers would cost, strategy by strategy, before anything is spent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.ask import parse_question, read_question_file
from epicrisis.cli.command import Flags, command
from epicrisis.cli.options import MODEL, SEARCH, SEED, Choices, Json, LibraryPath, QuestionFile
from epicrisis.cli.progress import open_progress
from epicrisis.cli.terminal import counted, open_console, show_json
from epicrisis.core.errors import InputError

if TYPE_CHECKING:
    from epicrisis.pipeline.plan.cost_plan import CostPlan, CostRange


@command(
    MODEL,
    SEED,
    *SEARCH,
    examples=[
        'epicrisis plan ~/lib "Is anorectal endosonography valuable in dyschesia?" --options yes,no,maybe',
        "epicrisis plan ~/lib --file questions.jsonl --strategy rag --strategy brief-context "
        "--model https://api.openai.com/v1#gpt-4o-mini",
    ],
)
def plan(
    library: LibraryPath,
    question: Annotated[str | None, Argument(help="The question.")] = None,
    options: Choices = None,
    file: QuestionFile = None,
    strategy: Annotated[
        list[str] | None, Option(help="Strategy to plan (repeatable). Default: all strategies without votes.")
    ] = None,
    sample: Annotated[
        int | None, Option(help="Plan a random sample of this many questions. Default: 200 of a larger file.")
    ] = None,
    time: Annotated[bool, Option("--time", help="Measure the speed of the model with two short calls.")] = False,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Estimate calls, tokens, cost and time of answers, for each strategy.

    Searches the library and counts the tokens of the prompts. No model is called, except with --time.
    """
    from epicrisis.pipeline.plan import strategy_plans as planning

    settings = flags.settings({"strategy": None})
    if question is not None and file is None:
        questions = [parse_question(question, options)]
    elif question is not None or file is None:
        raise InputError("give either a question, or --file questions.jsonl")
    elif options is not None:
        raise InputError("--options belongs to a question; in a file each question has its own options")
    else:
        questions, _ = read_question_file(file)
    strategies = list(dict.fromkeys(strategy or planning.DEFAULT_STRATEGIES))
    with open_progress(quiet=json, transient=True) as progress:
        task = progress.add_task("Planning", total=None)
        estimate = planning.estimate_costs(
            settings,
            library,
            questions,
            strategies,
            sample=sample,
            timed=time,
            advance=lambda total: progress.update(task, advance=1, total=total),
        )
        cost_plan = asyncio.run(estimate)
    if json:
        show_json(cost_plan)
    else:
        _show(cost_plan)


def _show(plan: CostPlan) -> None:
    from rich.table import Table

    from epicrisis.pipeline.plan.cost_plan import format_dollars

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("strategy", ""):
        table.add_column(heading, no_wrap=True)
    for heading in ("calls", "prompt\ntokens", "reply\ntokens", "US $", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for strategy in plan.strategies:
        dollars = ["unknown"] * 3
        if strategy.usd is not None:
            dollars = ["none"] * 3 if strategy.usd.most == 0 else _column(strategy.usd, format_dollars)
        times = ["not", "measured", "(--time)"]
        if strategy.seconds is not None:
            times = _column(strategy.seconds, _duration)
        counts = (strategy.calls, strategy.prompt_tokens, strategy.completion_tokens)
        columns = (*(_column(figure, _count) for figure in counts), dollars, times)
        names = (strategy.strategy, "", "")
        for row in zip(names, ("least", "expected", "most"), *columns, strict=True):
            table.add_row(*row)
    console = open_console()
    models = " and ".join(plan.models) or "no chat model"
    console.print(f"{counted(plan.questions, 'question')} on {models}", markup=False)
    console.print(table)
    for note in _notes(plan):
        console.print(note, markup=False)


def _column(figure: CostRange, text: Callable[[float], str]) -> list[str]:
    return [text(figure.least), text(figure.expected), text(figure.most)]


def _notes(plan: CostPlan) -> Iterator[str]:
    yield ""
    if plan.planned < plan.questions:
        margins = ", ".join(f"{strategy.strategy} {_margin(strategy.prompt_tokens)}" for strategy in plan.strategies)
        yield (
            f"Planned from a random sample of {plan.planned:,} of {plan.questions:,} questions. Margin of the expected "
            f"prompt tokens (95 %): {margins}."
        )
    exact = [strategy.strategy for strategy in plan.strategies if strategy.exact]
    if not plan.exact_counts:
        yield "Token counts are upper estimates, because the endpoint counts no tokens."
    elif exact:
        yield f"Prompt tokens are exact for {', '.join(exact)}."
    for strategy in plan.strategies:
        for state, count in strategy.states.items():
            yield f"{strategy.strategy}: {count:,} of {counted(plan.planned, 'question')} {state}."
    yield (
        "Replies: `least` assumes that nothing relevant is found, `expected` that every text is half as long as "
        "allowed, `most` that every text has its full length."
    )
    yield "Not included: retries, second attempts after unreadable replies, cached replies, prefix caches."
    for name, speed in plan.speeds.items():
        yield (
            f"Times: {name} read {speed.prompt:,.0f} and wrote {speed.completion:,.1f} tokens per second in two short "
            f"calls; {counted(plan.at_once[name], 'call')} in parallel, each assumed to be as fast as a single one."
        )


def _count(value: float) -> str:
    return f"{value:,.0f}" if value < 10_000_000 else f"{value / 1e6:,.1f} M"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"


def _margin(figure: CostRange) -> str:
    return f"{100 * figure.margin / figure.expected:.1f} %" if figure.expected else "0 %"
