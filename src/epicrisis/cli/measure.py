"""`epicrisis measure`: the open answers of runs by metrics and judges. `epicrisis judge calibrate`: how far a judge
goes with people."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epicrisis.cli.common import fail, translated
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
from epicrisis.cli.running import confirm, note_demo
from epicrisis.cli.tables import say_sentence, show_data, show_table
from epicrisis.cli.terminal import open_console, say, say_above

if TYPE_CHECKING:
    from epicrisis.evaluation.grading.calibration import GraderCalibration
    from epicrisis.evaluation.grading.human_scores import PreferencePair, Summary
    from epicrisis.evaluation.grading.measurements import Measurement, Measurer, MeasureStore
    from epicrisis.evaluation.grading.scored_answers import ScoredAnswer
    from epicrisis.settings import Settings

NOT_MEASURED = 2

Names = list[str] | None
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before a dear judging.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(
        "measure",
        epilog="Examples: epicrisis measure runs/ehr   |   epicrisis measure runs/ehr --judge URL#one --judge URL#two "
        "--nli FOLDER --bertscore minilm   |   epicrisis measure runs/ehr --judge URL --against-notes ~/ward",
    )(measure)
    group = typer.Typer(no_args_is_help=True, help="Judges of open answers: how far they go with people.")
    group.callback()(_judges)
    group.command(epilog="Example: epicrisis judge calibrate --model URL#judge -n 100")(calibrate)
    app.add_typer(group, name="judge")


def _judges() -> None:
    """Keeps the group a group: with one command alone typer would leave its name out."""


@translated
def measure(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="A run's folder, or its records (several).")],
    judge: Annotated[Names, typer.Option("--judge", help="Let this model grade each answer (repeat for more).")] = None,
    nli: Annotated[Names, typer.Option("--nli", help="Entailment by this NLI model (repeat for more).")] = None,
    bertscore: Annotated[
        Names, typer.Option("--bertscore", help="BERTScore by this encoder (repeat for more).")
    ] = None,
    no_meteor: Annotated[bool, typer.Option("--no-meteor", help="Leave METEOR out.")] = False,
    against_notes: Annotated[
        Path | None,
        typer.Option("--against-notes", help="Judge faithfulness to the notes too: the library that the runs read."),
    ] = None,
    yes: Yes = False,
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
    """Measure the open answers of runs: exact match, token F1, METEOR and numbers, and what else is named.

    A judge sees question, reference and answer, and not who wrote it; it grades correctness, completeness and
    faithfulness from 1 to 5. Measures lie in RUN/measures; interrupted, the same command goes on. Empty, refused and
    failed answers are counted and have no value.
    """
    from epicrisis.configuration import load_settings
    from epicrisis.errors import InputError

    if against_notes is not None and not judge:
        raise InputError("--against-notes needs a judge: name one with --judge")
    settings, failed = load_settings(said(context), config), 0
    for run in runs:
        failed += measure_run(
            run,
            judge or (),
            nli or (),
            bertscore or (),
            settings,
            against_notes,
            meteor=not no_meteor,
            yes=yes,
            quiet=json,
        )
    _show(runs, json)
    if failed:
        fail(f"{failed} measures failed; the same command makes them again", NOT_MEASURED)


def measure_run(
    run: Path,
    judges: Sequence[str],
    nli: Sequence[str],
    bertscore: Sequence[str],
    settings: Settings,
    library: Path | None = None,
    *,
    meteor: bool = True,
    yes: bool = False,
    quiet: bool = False,
) -> int:
    """Measures what has no measure yet, and says how many failed. Judges draw as the table `models.judge` says.

    With a library judges look at its notes as well. Raises UserError with the cure.
    """
    from epicrisis.errors import InputError
    from epicrisis.evaluation.grading.calibration_tables import copy_calibrations
    from epicrisis.evaluation.grading.measurers import check_model_names
    from epicrisis.evaluation.grading.scored_answers import read_answers

    if not any(each.measurable for each in read_answers(run)):
        raise InputError(f"{run} has no answer to measure: name a run of open questions that have a reference")
    for which, names in (("judges", judges), ("NLI models", nli)):
        check_model_names(which, names)
    asked = [_settings(settings, run, name) for name in judges]
    measurers = _metrics(settings, nli, bertscore, meteor=meteor)
    with _bars(quiet) as bars:
        files = asyncio.run(_measured(run, measurers, bars))
    for each in asked:
        files |= asyncio.run(_judged(run, each, library, yes, quiet))
    copy_calibrations(run, settings.home)
    return sum(file.failed for file in files.values())


def _settings(settings: Settings, run: Path, judge: str) -> Settings:
    """The same with this judge, as far as the run's patients allow."""
    from epicrisis.evaluation.grading.scored_answers import read_answers
    from epicrisis.patient_data_policy import protect_run_folder

    patients = any(each.patient is not None for each in read_answers(run))
    made = protect_run_folder(_with_judge(settings, judge), run if run.is_dir() else run.parent, patients)
    if patients and made.cache.path is None:
        # What quotes patients' records is not kept among the models.
        made = made.model_copy(update={"cache": made.cache.model_copy(update={"mode": "off"})})
    return made


def _with_judge(settings: Settings, name: str | None) -> Settings:
    """This model alone, in the writer's place, as the table `models.judge` has it draw: who wrote the answers may have
    had another temperature, price or key. Raises SettingsError."""
    from pydantic import ValidationError

    from epicrisis.errors import SettingsError
    from epicrisis.settings import Settings

    table = settings.models.judge
    own = {} if table is None else table.model_dump(exclude_unset=True)
    own["name"] = name or own.get("name", settings.models.writer.name)
    try:
        return Settings.model_validate({**settings.model_dump(), "models": {"writer": own}})
    except ValidationError as error:
        raise SettingsError(error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")) from None


def _metrics(settings: Settings, nli: Sequence[str], bertscore: Sequence[str], *, meteor: bool) -> list[Measurer]:
    """Those that need no judge, loaded; METEOR where it is installed. Raises ModelMissing with the cure."""
    from epicrisis.errors import ModelMissing
    from epicrisis.evaluation.grading import measurers

    made = [measurers.word_measurer(), measurers.number_measurer()]
    try:
        made += [measurers.meteor_measurer()] if meteor else []
    except ModelMissing as error:
        say(f"note: METEOR is left out: {error}", err=True)
    made += [measurers.bertscore_measurer(name, settings.home, settings.threads) for name in bertscore]
    return made + [measurers.entailment_measurer(name, settings.home, settings.threads) for name in nli]


async def _measured(run: Path, measurers: Sequence[Measurer], bars: _Show) -> dict[str, MeasureStore]:
    from epicrisis.evaluation.grading.measurements import measure_answers, measures_folder, open_measure_store
    from epicrisis.evaluation.grading.scored_answers import read_answers

    files = {}
    for measurer in measurers:
        file = files[measurer.name] = open_measure_store(measures_folder(run), measurer)
        total = [each for each in read_answers(run) if each.measurable]
        bar = bars(measurer.name, len(total), sum(file.has_measured(each) for each in total))
        async for made in measure_answers(read_answers(run), measurer, file):
            bar(made)
    return files


async def _judged(
    run: Path, settings: Settings, library: Path | None, yes: bool, quiet: bool
) -> dict[str, MeasureStore]:
    from epicrisis.components import describe_library
    from epicrisis.evaluation.grading.cost_estimate import cost_question
    from epicrisis.evaluation.grading.measurers import notes_measurer, rubric_measurer
    from epicrisis.evaluation.grading.model_client import open_model_client
    from epicrisis.evaluation.grading.scored_answers import NoteTexts
    from epicrisis.library.library import Library
    from epicrisis.patient_data_policy import protect_patient_data
    from epicrisis.privacy import local_path

    settings = protect_patient_data(settings, library)
    note_demo(settings, ["writer"])
    async with AsyncExitStack() as held:
        store = None if library is None else held.enter_context(Library.open(local_path(library)))
        asker = await held.enter_async_context(open_model_client(settings))
        measurers = [rubric_measurer(asker)]
        if store is not None:
            measurers.append(notes_measurer(asker, NoteTexts(store, describe_library(store))))
        left = [_left(run, each) for each in measurers]
        if not yes and (asked := await cost_question(asker, settings, settings.model_for("writer"), *left)) is not None:
            confirm(asked)
        with _bars(quiet) as bars:
            return await _measured(run, measurers, bars)


def _left(run: Path, measurer: Measurer) -> list[ScoredAnswer]:
    """What this measurer has not measured yet."""
    from epicrisis.evaluation.grading.measurements import measures_folder, open_measure_store
    from epicrisis.evaluation.grading.scored_answers import read_answers

    file = open_measure_store(measures_folder(run), measurer)
    return [each for each in read_answers(run) if each.measurable and not file.has_measured(each)]


_Show = Callable[[str, int, int], Callable[[Any], None]]


@contextmanager
def _bars(quiet: bool) -> Iterator[_Show]:
    """A bar for each measurer, and a line for each call that failed."""
    from rich.progress import Progress

    with Progress(console=open_console(stderr=True), disable=quiet) as progress:

        def begin(name: str, total: int, done: int) -> Callable[[Any], None]:
            task = progress.add_task(name.replace("[", r"\["), total=total, completed=done)

            def advance(made: Measurement) -> None:
                if made.failure is not None:
                    say_above(progress, f"{name}: {made.failure.message}")
                progress.advance(task)

            return advance

        yield begin


def _show(runs: Sequence[Path], json: bool) -> None:
    from epicrisis.evaluation.grading.calibration_tables import judge_remarks
    from epicrisis.evaluation.grading.measurements import measures_folder, read_measured_cases
    from epicrisis.evaluation.grading.metric_tables import count_endings, overview_table
    from epicrisis.evaluation.runs.recorded_run import refuse_mismatched_records

    told = []
    for run in runs:
        with refuse_mismatched_records([run]):
            cases = read_measured_cases(run)
            table, said_of_judges, ended = overview_table(cases), judge_remarks(run), dict(count_endings(cases))
        if json:
            told.append({"run": str(run), "endings": ended, "table": table, "remarks": said_of_judges})
            continue
        show_table(table)
        for sentence in said_of_judges:
            say_sentence(sentence)
        say(f"{', '.join(f'{n} {ending}' for ending, n in ended.items())}; kept in {measures_folder(run)}")
    if json:
        show_data({"runs": told})


# -- calibration ------------------------------------------------------------------------------------------------------


@translated
def calibrate(
    context: typer.Context,
    model: ModelName = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", envvar="EPICRISIS_DATA", help="A folder whose `judge` holds what people have scored."),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option("--questions", "-n", min=1, help="So many summaries, and so many pairs, drawn by --draw."),
    ] = None,
    draw: Annotated[int, typer.Option("--draw", help="Seed by which they are drawn.")] = 0,
    against_talk: Annotated[
        bool, typer.Option("--against-talk", help="Grade faithfulness to the conversation too: as many calls again.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The folder to write; else among the program's own.")
    ] = None,
    yes: Yes = False,
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
    json: Json = False,
) -> None:
    """How far a judge goes with people: 400 summaries whose facts people counted (MTS-Dialog), and 419 pairs of answers
    of which people prefer one (LLMBar), each pair in both orders.

    `epicrisis measure` and reports show what it came to beside that judge's figures. Interrupted, the same command goes
    on.
    """
    from epicrisis.configuration import load_settings
    from epicrisis.errors import InputError
    from epicrisis.evaluation.grading.calibration_tables import calibration_folder
    from epicrisis.evaluation.grading.human_scores import read_preference_pairs, read_summaries, sample_items

    if data is None:
        raise InputError("name the folder that holds `judge` (MTS-Dialog's and LLMBar's files) with --data")
    summaries = sample_items(read_summaries(data / "judge"), n, draw)
    pairs = sample_items(read_preference_pairs(data / "judge"), n, draw)
    settings = _with_judge(load_settings({**said(context), "models": {}}, config), model)
    folder = output or calibration_folder(settings.home, settings.models.writer.name)
    sample = {"n": n, "seed": draw, "against_talk": against_talk}
    _tell(asyncio.run(_calibrated(settings, folder, summaries, pairs, sample, yes=yes, quiet=json)), folder, json)


def _tell(found: GraderCalibration, folder: Path, json: bool) -> None:
    from epicrisis.cli.screen import usage_line
    from epicrisis.evaluation.grading.calibration import CALIBRATION
    from epicrisis.evaluation.grading.calibration_tables import calibration_tables

    if json:
        show_data({"calibration": found, "tables": calibration_tables(found), "output": str(folder / CALIBRATION)})
        return
    for table in calibration_tables(found):
        show_table(table)
    say(f"kept in {folder / CALIBRATION}")
    say(usage_line(found.usage))


async def _calibrated(
    settings: Settings,
    folder: Path,
    summaries: Sequence[Summary],
    pairs: Sequence[PreferencePair],
    sample: dict[str, Any],
    *,
    yes: bool,
    quiet: bool,
) -> GraderCalibration:
    from epicrisis.evaluation.grading.calibration import calibrate_grader as run
    from epicrisis.evaluation.grading.cost_estimate import cost_question
    from epicrisis.evaluation.grading.model_client import open_model_client

    note_demo(settings, ["writer"])
    async with open_model_client(settings) as asker:
        answers: list[ScoredAnswer] = [each.answer for each in summaries]
        talks = answers if sample["against_talk"] else []
        # A pair is two calls of about the same length.
        asked = await cost_question(
            asker, settings, settings.model_for("writer"), [*answers, *answers, *answers], talks
        )
        if asked is not None and not yes:
            confirm(asked)
        calls = (2 if sample["against_talk"] else 1) * len(summaries) + 2 * len(pairs)
        with _bars(quiet) as bars:
            bar = bars("calibrating", calls, 0)
            return await run(
                asker, folder, summaries, pairs, against_talk=sample["against_talk"], sample=sample, on_grade=bar
            )
