"""`epicrisis preflight calibrate`: the check fitted to one's own library, with what it misses and what it saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, get_args

import typer

from epicrisis.cli.common import translated
from epicrisis.cli.options import (
    AllowRemote,
    ByName,
    Config,
    CountName,
    Depth,
    EncoderName,
    Fuse,
    Json,
    K,
    LocalOnly,
    LongQuestions,
    Partition,
    Rerank,
    RrfK,
    said,
)
from epicrisis.cli.tables import say_sentence, show_data, show_findings, show_table
from epicrisis.cli.terminal import open_console, say, say_text
from epicrisis.printable import quote_for_shell

if TYPE_CHECKING:
    from epicrisis.answers import Usage
    from epicrisis.evaluation.analysis.table import Table
    from epicrisis.evaluation.experiments.preflight_calibration import PreflightCalibration
    from epicrisis.evaluation.experiments.recorded_rankings import Guard, QuestionRankings
    from epicrisis.evaluation.experiments.token_costs import PromptShape
    from epicrisis.settings import Settings
    from epicrisis.types import Question, Scope

SETS = ("mirage/pubmedqa", "mirage/bioasq")
PAPER = "paper"
Issue: TypeAlias = Literal["published", "beyond-3", "middle", "not-retrieved", "several-published", "several-beyond-3"]
"""Names of `experiments.preflight.definitions`, in their order."""

Library = Annotated[Path, typer.Option("--library", help="The library's folder.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", help=f"Question set with gold documents (repeat for more); else {' and '.join(SETS)}."),
]
Own = Annotated[
    Path | None, typer.Option("--file", help="Your own questions with gold_documents, one JSON object a line.")
]
Data = Annotated[
    Path | None,
    typer.Option("--data", envvar="EPICRISIS_DATA", help="Where the sets' files are, if not where they are pulled to."),
]
Recall = Annotated[
    str, typer.Option("--recall", help="Share of the issue to be caught; `paper`: as much as the papers' rule.")
]
Definition = Annotated[
    Issue, typer.Option("--definition", help="When a question has the issue, by where its key document stands.")
]
GuardName = Annotated[
    Literal["none", "source-hidden", "before-source"],
    typer.Option("--guard", help="Also tell what the rules say where a question cannot find its own documents."),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Where the rankings are kept (JSONL), to go on from; else in `runs/`."),
]
Stated = Annotated[
    tuple[float, float] | None,
    typer.Option("--usd-per-million-tokens", help="Price of input and of output; else that of the model."),
]
Priced = Annotated[str | None, typer.Option("--model", help="Whose price counts; it is not asked.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(no_args_is_help=True, help="The check before map-reduce: is one prompt enough?")
    group.command(
        epilog="Examples: epicrisis preflight calibrate --library ~/lib   |   "
        "epicrisis preflight calibrate --library ~/lib --file own.jsonl --recall 0.9 --model URL"
    )(calibrate)
    app.add_typer(group, name="preflight")


@translated
def calibrate(
    context: typer.Context,
    library: Library,
    sets: Sets = None,
    file: Own = None,
    data: Data = None,
    recall: Recall = PAPER,
    definition: Definition = "beyond-3",
    guard: GuardName = "none",
    output: Output = None,
    price: Stated = None,
    model: Priced = None,
    by: ByName = None,
    k: K = None,
    count: CountName = None,
    partition: Partition = None,
    depth: Depth = None,
    rerank: Rerank = None,
    long_questions: LongQuestions = None,
    fuse: Fuse = None,
    rrf_k: RrfK = None,
    encoder: EncoderName = None,
    config: Config = None,
    local_only: LocalOnly = False,
    allow_remote: AllowRemote = False,
    json: Json = False,
) -> None:
    """Fit the preflight check to a library: which signal, how deep, which threshold. No chat model is asked.

    The issue: the key document is found beyond place 3 (beyond-3); also where it is not found (published); neither
    among the first 3 nor the last 3 (middle); not found (not-retrieved); one of several is (several-...). Ends with the
    lines for the settings file.
    """
    from epicrisis.configuration import load_settings
    from epicrisis.evaluation.experiments import preflight_calibration
    from epicrisis.evaluation.experiments.preflight import guards_table
    from epicrisis.evaluation.experiments.preflight_rules import PAPERS_RULE, definitions
    from epicrisis.evaluation.experiments.preflight_savings import errors_table, estimate_savings, savings_table
    from epicrisis.privacy import set_local_only

    settings = load_settings(said(context), config)
    if settings.local_only:
        set_local_only(True)
    target, (charged, told) = _target(recall), _price(settings, price)
    issue = dict(zip(get_args(Issue), definitions(settings.k), strict=True))[definition]
    asked = questions_of(settings, [*(sets or ()), *([str(file)] if file else ())] or SETS, data)
    path = output or Path("runs") / f"preflight-{library.resolve().name}.jsonl"
    recorded, shape = rankings(settings, library, asked, path, "none", json)
    fitted = preflight_calibration.calibrate(recorded, issue, target, depth=settings.preflight.depth)
    skipped = {"papers' rule": fitted.papers.skipped.value, "fitted, held out": fitted.held_out.skipped.value}
    source = f"{library}, {len(recorded):,} questions; rankings in {path}"
    tables = [errors_table(fitted, source), savings_table(estimate_savings(shape, skipped, charged), shape, told)]
    if guard != "none":
        hidden, _ = rankings(settings, library, asked, path.with_stem(f"{path.stem}-{guard}"), guard, json)
        tables.append(guards_table({"none": recorded, guard: hidden}, (PAPERS_RULE, fitted.rule), settings.k))
    _show(fitted, tables, settings, json)


def study(settings: Settings, library: Path, sets: Sequence[str], data: Path | None, folder: Path, json: bool) -> None:
    """`epicrisis experiment preflight`: rankings with and without each question's own documents, and all tables."""
    from epicrisis.errors import InputError
    from epicrisis.evaluation.experiments.preflight import rankings_path
    from epicrisis.evaluation.experiments.run_findings import read_findings
    from epicrisis.privacy import set_local_only

    if settings.local_only:
        set_local_only(True)
    kept = folder.iterdir() if folder.is_dir() else ()
    if others := sorted(each.name for each in kept if not each.name.lstrip(".").startswith("rankings-")):
        raise InputError(f"{folder} holds something else ({others[0]}...): name a folder that is empty or not there")
    asked = questions_of(settings, sets or SETS, data)
    for guard in ("none", "source-hidden"):
        rankings(settings, library, asked, rankings_path(folder, guard), guard, json)
    (found,) = read_findings([folder])
    if json:
        show_data({"folder": str(folder), "findings": found})
        return
    show_findings(found)
    say()
    say(f"kept in {folder} (epicrisis report {quote_for_shell(folder)} -o report.html)")


def _target(recall: str) -> float | None:
    """`None` for the papers' rule's."""
    from epicrisis.errors import InputError

    if recall == PAPER:
        return None
    try:
        share = float(recall)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise InputError(f"--recall {recall}: give a share above 0 and up to 1, such as 0.9, or `{PAPER}`")
    return share


def _price(settings: Settings, stated: tuple[float, float] | None) -> tuple[Callable[[Usage], float | None], str]:
    """What a usage costs, and whose price that is."""
    from math import inf

    from epicrisis.answers import Usage
    from epicrisis.errors import InputError
    from epicrisis.models.chat.prices import build_cost_function, compute_cost
    from epicrisis.privacy import strip_secrets
    from epicrisis.settings import Price

    if stated is not None:
        if not all(0 <= each < inf for each in stated):
            raise InputError("--usd-per-million-tokens takes two prices of 0 or more: of input and of output")
        price = Price(input=stated[0], output=stated[1])
        told = f"{price.input:g} and {price.output:g} US dollars for a million tokens of input and of output, as given"
        return lambda usage: compute_cost(usage, price), told
    writer = settings.model_for("writer")
    charged, name = build_cost_function(writer), strip_secrets(writer.name)
    if charged(Usage()) is None:
        return charged, f"not known for {name}; give it with --usd-per-million-tokens INPUT OUTPUT"
    return charged, f"that of {name}, for every call; --usd-per-million-tokens INPUT OUTPUT tells another"


def questions_of(settings: Settings, names: Sequence[str], data: Path | None) -> list[tuple[str, tuple[Question, ...]]]:
    """The question sets with their names."""
    from epicrisis.errors import InputError
    from epicrisis.evaluation.datasets.load import load_dataset
    from epicrisis.evaluation.experiments import cloze

    if cloze.NAME in names:
        raise InputError(
            f"{cloze.NAME} is for probe and experiments: a check of rankings needs questions that were not made from "
            "the library's own sentences; name a set or a file"
        )
    asked = [(name, load_dataset(name, settings.home, data).questions) for name in names]
    for name, questions in asked:
        if not any(question.gold_documents for question in questions):
            raise InputError(
                f"{name} names no gold documents, so nobody can say which of its questions have the issue: give each "
                "question gold_documents (ids of documents in the library)"
            )
    return asked


def rankings(
    settings: Settings,
    library: Path,
    asked: Sequence[tuple[str, tuple[Question, ...]]],
    path: Path,
    guard: Guard,
    quiet: bool,
) -> tuple[list[QuestionRankings], PromptShape]:
    """The rankings of all questions, those that are in the file already not made again, and what their prompts take."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from epicrisis.components import build_scope
    from epicrisis.evaluation.experiments.preflight_savings import estimated_shape
    from epicrisis.evaluation.experiments.recorded_rankings import DEPTH, RankingStore, open_rankers, record_rankings

    def scope(question: Question) -> Scope:
        return build_scope(settings.scope, question=question)

    found: list[tuple[Question, QuestionRankings]] = []
    total = sum(len(questions) for _, questions in asked)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        open_rankers(settings, library, guard, max(DEPTH, settings.k, settings.preflight.depth)) as (rankers, recipe),
        Progress(*columns, console=open_console(stderr=True), disable=quiet) as progress,
    ):
        file = RankingStore(path, recipe)
        task = progress.add_task("Ranking" if guard == "none" else f"Ranking, {guard}", total=total)
        for name, questions in asked:
            for question, each in record_rankings(questions, name, rankers, file, guard, scope):
                found += [] if each is None else [(question, each)]
                progress.advance(task)
        shape = estimated_shape(found, rankers.store, scope, k=settings.k, partition=settings.partition)
    if len(found) < total:
        say(f"{total - len(found)} questions have no document with a date and are left out", err=True)
    return [each for _, each in found], shape


def _show(fitted: PreflightCalibration, tables: Sequence[Table], settings: Settings, json: bool) -> None:
    """The tables, and last the lines for the settings file."""
    lines, why = _lines(fitted, settings)
    if json:
        show_data({"rule": fitted.rule, "folds": fitted.folds, "settings": lines, "tables": tables})
        return
    for table in tables:
        show_table(table)
    say_sentence(why)
    say()
    say_text(lines)


def _lines(fitted: PreflightCalibration, settings: Settings) -> tuple[str, str]:
    """The lines for the settings file, and what they are."""
    from math import isinf

    from epicrisis.evaluation.experiments.preflight_calibration import settings_text
    from epicrisis.privacy import strip_secrets

    rule = fitted.rule
    if isinf(rule.threshold):
        return 'strategy = "rag"\n', "No question with the issue has to be caught, so one prompt will always do:"
    if rule.threshold >= 1 and not rule.signal.kind.endswith("gap"):
        return (
            "[preflight]\nenabled = false\n",
            "Nothing can be skipped at that recall, so every question is read in parts:",
        )
    counted = "" if settings.count is None else f'count = "{settings.count}"\n'
    lines = counted + settings_text(fitted)
    if rule.signal.kind == "reranker-overlap" and settings.rerank.name is not None:
        lines += f'[rerank]\nname = "{strip_secrets(settings.rerank.name)}"\n'
    return lines, "For the settings file (epicrisis.toml, or the one named with --config):"
