"""`epicrisis preflight calibrate` and `calibrate confidence`: what is fitted to a library, and to answers."""

from __future__ import annotations

import json as json_format
from collections.abc import Callable, Sequence
from math import inf, isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, get_args

from typer import Option

from epicrisis.cli.command import Flags, command
from epicrisis.cli.options import COMMON, ENCODER, MODEL, Data, Json, K, output_option, parse_library
from epicrisis.cli.progress import open_progress
from epicrisis.cli.terminal import say, say_text, show_data, show_findings, show_tables
from epicrisis.core.answers import Usage
from epicrisis.core.errors import InputError, StorageError
from epicrisis.core.printable import quote_for_shell
from epicrisis.core.types import Question, Scope
from epicrisis.system.local_only import set_local_only, strip_secrets

if TYPE_CHECKING:
    from epicrisis.answering.confidence import ConfidenceCalibration
    from epicrisis.evaluation.analysis.confidence_calibration import CalibrationFit
    from epicrisis.evaluation.analysis.table import Table
    from epicrisis.evaluation.experiments.preflight_calibration import PreflightCalibration
    from epicrisis.evaluation.experiments.recorded_rankings import Guard, QuestionRankings
    from epicrisis.evaluation.experiments.token_costs import PromptShape
    from epicrisis.settings.settings import Settings

SETS = ("mirage/pubmedqa", "mirage/bioasq")
PAPER = "paper"
Issue: TypeAlias = Literal["published", "beyond-3", "middle", "not-retrieved", "several-published", "several-beyond-3"]
"""Names of the definitions in `experiments.preflight`, in their order."""


@command(
    MODEL,
    K,
    ENCODER,
    *COMMON,
    examples=[
        "epicrisis preflight calibrate --library ~/lib",
        "epicrisis preflight calibrate --library ~/lib --file own.jsonl --recall 0.9 --model URL",
    ],
)
def calibrate(
    library: Annotated[
        Path, Option("--library", metavar="FOLDER", parser=parse_library, help="Folder of the library.")
    ],
    sets: Annotated[
        list[str] | None,
        Option("--set", help=f"Question set with gold documents (repeatable). Default: {' and '.join(SETS)}."),
    ] = None,
    file: Annotated[Path | None, Option("--file", help="Your own questions with gold_documents (JSON lines).")] = None,
    recall: Annotated[
        str, Option("--recall", help="Share of questions with the issue to catch; `paper`: as the papers' rule.")
    ] = PAPER,
    definition: Annotated[
        Issue, Option("--definition", help="When a question has the issue, by the rank of its key document.")
    ] = "beyond-3",
    guard: Annotated[
        Literal["none", "source-hidden", "before-source"],
        Option("--guard", help="Also apply the rules where a question cannot find its own documents."),
    ] = "none",
    price: Annotated[
        tuple[float, float] | None,
        Option("--usd-per-million-tokens", help="Price of input and output tokens. Default: that of --model."),
    ] = None,
    output: Annotated[
        Path | None, output_option(help="File of rankings (JSONL), new or to continue. Default: runs/.")
    ] = None,
    data: Data = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Fit the preflight rule to a library: signal, depth and threshold. No chat model is called.

    The rule predicts an issue with the key document: it ranks beyond 3 (beyond-3); it ranks beyond 3 or is not found
    (published); it ranks neither in the first nor in the last 3 (middle); it is not found (not-retrieved). With
    several-..., one of several key documents is enough. The output ends with lines for the settings file.
    """
    from epicrisis.evaluation.experiments import preflight_calibration
    from epicrisis.evaluation.experiments.preflight import guards_table
    from epicrisis.evaluation.experiments.preflight_calibration import errors_table, savings_table
    from epicrisis.evaluation.experiments.preflight_rules import PAPERS_RULE, definitions

    settings = flags.settings()
    if settings.local_only:
        set_local_only(True)
    target = _target_recall(recall)
    cost, price_text = _price(settings, price)
    issue = dict(zip(get_args(Issue), definitions(settings.k), strict=True))[definition]
    names = [*(sets or ()), *([] if file is None else [str(file)])]
    questions = _load_questions(settings, names or SETS, data)
    path = output or Path("runs") / f"preflight-{library.resolve().name}.jsonl"
    recorded, shape = _rank(settings, library, questions, path, "none", json)
    fitted = preflight_calibration.calibrate(recorded, issue, target, depth=settings.preflight.depth)
    skipped = {"papers' rule": fitted.papers.skipped.value, "fitted, held out": fitted.held_out.skipped.value}
    source = f"{library}, {len(recorded):,} questions; rankings in {path}"
    tables = [errors_table(fitted, source), savings_table(shape, skipped, cost, price_text)]
    if guard != "none":
        hidden, _ = _rank(settings, library, questions, path.with_stem(f"{path.stem}-{guard}"), guard, json)
        tables.append(guards_table({"none": recorded, guard: hidden}, (PAPERS_RULE, fitted.rule), settings.k))
    _show(fitted, tables, settings, json)


def run_study(
    settings: Settings, library: Path, sets: Sequence[str], data: Path | None, folder: Path, json: bool
) -> None:
    """Run `epicrisis experiment preflight`: rankings with and without each question's own documents, and all tables."""
    from epicrisis.evaluation.experiments.preflight import rankings_path
    from epicrisis.evaluation.experiments.run_findings import read_findings

    if settings.local_only:
        set_local_only(True)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not path.name.lstrip(".").startswith("rankings-"):
            raise InputError(f"{folder} contains other files ({path.name}): choose an empty or new folder")
    questions = _load_questions(settings, sets or SETS, data)
    guards: tuple[Guard, ...] = ("none", "source-hidden")
    for guard in guards:
        _rank(settings, library, questions, rankings_path(folder, guard), guard, json)
    (findings,) = read_findings([folder])
    if json:
        show_data({"folder": str(folder), "findings": findings})
        return
    show_findings(findings)
    say()
    say(f"saved in {folder} (epicrisis report {quote_for_shell(folder)} -o report.html)")


def _target_recall(recall: str) -> float | None:
    """Return the recall to reach, or None for that of the papers' rule. Raises InputError."""
    if recall == PAPER:
        return None
    try:
        share = float(recall)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise InputError(f"--recall {recall}: give a share above 0 and up to 1, such as 0.9, or `{PAPER}`")
    return share


def _price(settings: Settings, price: tuple[float, float] | None) -> tuple[Callable[[Usage], float | None], str]:
    """Return a function from usage to US dollars, and a sentence on the source of the price."""
    from epicrisis.models.chat.prices import build_cost_function, compute_cost
    from epicrisis.settings.settings import Price

    if price is not None:
        if not all(0 <= dollars < inf for dollars in price):
            raise InputError("--usd-per-million-tokens needs two prices of 0 or more: of input and of output tokens")
        per_million = Price(input=price[0], output=price[1])
        text = f"{price[0]:g} and {price[1]:g} US dollars per million input and output tokens, as given"
        return lambda usage: compute_cost(usage, per_million), text
    writer = settings.model_for("writer")
    cost, name = build_cost_function(writer), strip_secrets(writer.name)
    if cost(Usage()) is None:
        return cost, f"unknown for {name}; give it with --usd-per-million-tokens INPUT OUTPUT"
    return cost, f"that of {name}, for every call; --usd-per-million-tokens INPUT OUTPUT changes it"


def _load_questions(
    settings: Settings, names: Sequence[str], data: Path | None
) -> list[tuple[str, tuple[Question, ...]]]:
    """Return the question sets by name. Raises InputError for a set without gold documents."""
    from epicrisis.evaluation.datasets.load import load_dataset
    from epicrisis.evaluation.experiments import cloze

    if cloze.NAME in names:
        raise InputError(
            f"{cloze.NAME} makes questions from sentences of the library, which its rankings find too easily: choose "
            "another set, or a file"
        )
    sets = []
    for name in names:
        questions = load_dataset(name, settings.home, data).questions
        if not any(question.gold_documents for question in questions):
            raise InputError(
                f"{name} names no gold documents, so it is unknown which questions have the issue: give each question "
                "gold_documents (ids of documents in the library)"
            )
        sets.append((name, questions))
    return sets


def _rank(
    settings: Settings,
    library: Path,
    sets: Sequence[tuple[str, tuple[Question, ...]]],
    path: Path,
    guard: Guard,
    quiet: bool,
) -> tuple[list[QuestionRankings], PromptShape]:
    """Return the rankings of all questions, and the tokens of their prompts. Rankings saved in `path` are reused."""
    from epicrisis.evaluation.experiments.preflight_calibration import estimated_shape
    from epicrisis.evaluation.experiments.recorded_rankings import DEPTH, RankingStore, open_rankers, record_rankings
    from epicrisis.pipeline.components import build_scope

    def scope(question: Question) -> Scope:
        return build_scope(settings.scope, question=question)

    ranked: list[tuple[Question, QuestionRankings]] = []
    total = sum(len(questions) for _, questions in sets)
    depth = max(DEPTH, settings.k, settings.preflight.depth)
    with open_rankers(settings, library, guard, depth) as (rankers, recipe), open_progress(quiet=quiet) as progress:
        file = RankingStore(path, recipe)
        task = progress.add_task("Ranking" if guard == "none" else f"Ranking, {guard}", total=total)
        for name, questions in sets:
            for question, rankings in record_rankings(questions, name, rankers, file, guard, scope):
                if rankings is not None:
                    ranked.append((question, rankings))
                progress.advance(task)
        shape = estimated_shape(ranked, rankers.store, scope, k=settings.k, partition=settings.partition)
    if len(ranked) < total:
        say(f"{total - len(ranked)} questions have no document with a date and are left out", err=True)
    return [rankings for _, rankings in ranked], shape


def _show(fitted: PreflightCalibration, tables: Sequence[Table], settings: Settings, json: bool) -> None:
    """Show the tables, then the lines for the settings file."""
    from epicrisis.evaluation.experiments.preflight_calibration import settings_text

    rule = fitted.rule
    if isinf(rule.threshold):
        lines = 'strategy = "rag"\n'
        explanation = "No question with the issue has to be caught, so one prompt is always enough:"
    elif rule.threshold >= 1 and not rule.signal.kind.endswith("gap"):
        lines = "[preflight]\nenabled = false\n"
        explanation = "At that recall no question can be skipped, so all are read in parts:"
    else:
        lines = settings_text(fitted)
        explanation = "For the settings file (epicrisis.toml, or the file of --config):"
        if settings.count is not None:
            lines = f'count = "{settings.count}"\n{lines}'
        if rule.signal.kind == "reranker-overlap" and settings.rerank.name is not None:
            lines += f'[rerank]\nname = "{strip_secrets(settings.rerank.name)}"\n'
    if json:
        show_data({"rule": rule, "folds": fitted.folds, "settings": lines, "tables": tables})
        return
    show_tables(tables, [explanation])
    say()
    say_text(lines)


@command(
    examples=[
        "epicrisis calibrate confidence --file runs/bc",
        "epicrisis calibrate confidence --file answers.jsonl -o ~/lib-confidence.json",
    ]
)
def confidence(
    file: Annotated[
        Path,
        Option("--file", help="Answers to questions with a gold letter: a file of `epicrisis ask --file`, or a run."),
    ],
    output: Annotated[
        Path | None, output_option(help="File of the calibration. Default: confidence.json beside the answers.")
    ] = None,
    json: Json = False,
) -> None:
    """Fit the confidence of answers to how often they are right. No chat model is called.

    Compares the error of the confidence as a probability before and after the fit, on questions that it has not seen.
    Answers by the same strategy and models show the fitted value if the setting `calibration` names the file.
    """
    from epicrisis.evaluation.analysis.confidence_calibration import calibrate_confidence, make_calibration_table
    from epicrisis.evaluation.runs.recorded_run import open_runs, refuse_mismatched_records

    _refuse_questions(file)
    path = output or (file if file.is_dir() else file.parent) / "confidence.json"
    with refuse_mismatched_records([file]):
        (run,) = open_runs([file])
        fit = calibrate_confidence(run)
        table = make_calibration_table(fit, str(file))
    _write(path, fit.calibration)
    if json:
        show_data({"calibration": fit.calibration, "output": str(path), "tables": [table]})
        return
    show_tables([table], _conclude(fit))
    say()
    say(f"written to {path}; answers show it with --setting {quote_for_shell(f'calibration={path}')}")


def _refuse_questions(file: Path) -> None:
    """Raise InputError, with the command to run first, for a file of questions without answers."""
    if not file.is_file():
        return
    try:
        with file.open(encoding="utf-8") as lines:
            first = json_format.loads(next(lines, "null"))
    except (OSError, ValueError, RecursionError):
        return  # The reader of records says what is wrong.
    if isinstance(first, dict) and "text" in first and "answer" not in first:
        raise InputError(
            f"{file} holds questions without answers: answer them first with `epicrisis ask LIBRARY --file {file} "
            "-o answers.jsonl`, then name answers.jsonl here"
        )


def _conclude(fit: CalibrationFit) -> list[str]:
    from epicrisis.evaluation.analysis.confidence_calibration import squared_errors

    sentences: list[str] = []
    if fit.calibration.slope < 0:
        sentences.append("The more confident answers were less often right: do not rely on this confidence.")
    after, alone = (sum(squared_errors(fit.answers, values)) for values in (fit.held_out, fit.base_rates))
    if after >= alone:
        sentences.append(
            "Held out, the calibrated confidence predicts no better than the share right alone: it does not tell right "
            "from wrong answers here."
        )
    return sentences


def _write(path: Path, calibration: ConfidenceCalibration) -> None:
    from epicrisis.core.serialization import to_json

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_format.dumps(to_json(calibration), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}): name another file with -o") from error
