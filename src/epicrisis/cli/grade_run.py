"""`epicrisis grade run`: open answers measured by metrics and, if wanted, by judge models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

from typer import Argument, Option

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.options import BUDGET, COMMON, SEED, Json, Yes
from epicrisis.cli.progress import open_progress, say_above
from epicrisis.cli.run_progress import confirm, warn_about_demo_models
from epicrisis.cli.terminal import say, show_data, show_tables
from epicrisis.core.answers import Failure
from epicrisis.core.errors import InputError, ModelMissing, SettingsError
from epicrisis.system.local_only import local_path

if TYPE_CHECKING:
    from epicrisis.evaluation.grading.measurements import Measurer, MeasureStore
    from epicrisis.evaluation.grading.scored_answers import ScoredAnswer
    from epicrisis.settings.settings import Settings

    class Graded(Protocol):
        """A grade, or the failure of the call."""

        @property
        def failure(self) -> Failure | None: ...


Names = list[str] | None


@command(
    SEED,
    *BUDGET,
    *COMMON,
    examples=[
        "epicrisis grade run runs/ehr",
        "epicrisis grade run runs/ehr --judge URL#one --judge URL#two --nli FOLDER --bertscore minilm",
        "epicrisis grade run runs/ehr --judge URL --against-notes ~/ward",
    ],
)
def grade_runs(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="Folders of runs, or their files of records.")],
    judge: Annotated[Names, Option("--judge", help="Model that grades each answer (repeatable).")] = None,
    nli: Annotated[Names, Option("--nli", help="Entailment model: name or folder (repeatable).")] = None,
    bertscore: Annotated[Names, Option("--bertscore", help="Encoder for BERTScore (repeatable).")] = None,
    no_meteor: Annotated[bool, Option("--no-meteor", help="Leave METEOR out.")] = False,
    against_notes: Annotated[
        Path | None, Option("--against-notes", help="Also grade faithfulness to the notes of this library.")
    ] = None,
    yes: Yes = False,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Measure open answers: exact match, token F1, METEOR, numbers, and optional judges, entailment and BERTScore.

    A judge sees question, reference and answer, but not who wrote it. It grades correctness, completeness and
    faithfulness from 1 to 5. Results are saved in RUN/measures; after an interruption, the same command continues.
    Empty, refused and failed answers are counted and have no value.
    """
    if against_notes is not None and not judge:
        raise InputError("--against-notes needs a judge: add --judge URL")
    settings = flags.settings()
    measures = Measures(tuple(judge or ()), tuple(nli or ()), tuple(bertscore or ()), meteor=not no_meteor)
    failed = sum(measure_run(run, measures, settings, against_notes, yes=yes, quiet=json) for run in runs)
    _show_measures(runs, json)
    if failed:
        fail(f"{failed} measures failed; the same command computes them again")


@dataclass(frozen=True, slots=True)
class Measures:
    """Models that measure open answers, in addition to the metrics without a model, and whether METEOR does."""

    judges: tuple[str, ...] = ()
    nli: tuple[str, ...] = ()
    bertscore: tuple[str, ...] = ()
    meteor: bool = True


def measure_run(
    run: Path, measures: Measures, settings: Settings, library: Path | None, *, yes: bool, quiet: bool
) -> int:
    """Compute the measures a run does not have yet, and return how many failed.

    With a library, judges also read its notes. METEOR is left out if it is not installed. Raises UserError.
    """
    from epicrisis.evaluation.grading import measurers
    from epicrisis.evaluation.grading.calibration import copy_calibrations
    from epicrisis.evaluation.grading.scored_answers import read_answers

    if not any(answer.measurable for answer in read_answers(run)):
        raise InputError(f"{run} has no answer to measure: choose a run of open questions with a reference")
    for kind, names in (("judges", measures.judges), ("NLI models", measures.nli)):
        measurers.check_model_names(kind, names)
    judge_settings = []
    for name in measures.judges:
        patients = any(answer.patient is not None for answer in read_answers(run))
        judge_settings.append(settings_for_run(with_judge(settings, name), run, patients))
    metrics = [measurers.word_measurer(), measurers.number_measurer()]
    if measures.meteor:
        try:
            metrics.append(measurers.meteor_measurer(settings.home))
        except ModelMissing as error:
            say(f"note: METEOR is left out: {error}", err=True)
    for name in measures.bertscore:
        metrics.append(measurers.bertscore_measurer(name, settings.home, settings.threads))
    for name in measures.nli:
        metrics.append(measurers.entailment_measurer(name, settings.home, settings.threads))
    with grading_progress(quiet) as start:
        stores = asyncio.run(_measure(run, metrics, start))
    for judge in judge_settings:
        stores |= asyncio.run(_measure_by_judge(run, judge, library, yes, quiet))
    copy_calibrations(run, settings.home)
    return sum(store.failed for store in stores.values())


def settings_for_run(settings: Settings, run: Path, patients: bool) -> Settings:
    """Return the settings allowed for a run. Raises SettingsError for a machine without permission to see its
    patients.

    Prompts with text of patient records are not cached outside the run's folder.
    """
    from epicrisis.privacy.patient_data_policy import protect_run_folder

    settings = protect_run_folder(settings, run if run.is_dir() else run.parent, patients)
    if patients and settings.cache.path is None:
        settings = settings.model_copy(update={"cache": settings.cache.model_copy(update={"mode": "off"})})
    return settings


def with_judge(settings: Settings, name: str | None) -> Settings:
    """Return settings whose only model is this judge, with the options of `models.judge`. Raises SettingsError."""
    from pydantic import ValidationError

    from epicrisis.settings.settings import Settings

    table = settings.models.judge
    options = {} if table is None else table.model_dump(exclude_unset=True)
    options["name"] = name or options.get("name", settings.models.writer.name)
    try:
        return Settings.model_validate({**settings.model_dump(), "models": {"writer": options}})
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise SettingsError(message.removeprefix("Value error, ")) from None


async def _measure(run: Path, measurers: Sequence[Measurer], start: _Start) -> dict[str, MeasureStore]:
    from epicrisis.evaluation.grading.measurements import measure_answers, measures_folder, open_measure_store
    from epicrisis.evaluation.grading.scored_answers import read_answers

    stores = {}
    for measurer in measurers:
        store = stores[measurer.name] = open_measure_store(measures_folder(run), measurer)
        measurable = [answer for answer in read_answers(run) if answer.measurable]
        advance = start(measurer.name, len(measurable), sum(store.has_measured(item) for item in measurable))
        async for measurement in measure_answers(read_answers(run), measurer, store):
            advance(measurement)
    return stores


async def _measure_by_judge(
    run: Path, settings: Settings, library: Path | None, yes: bool, quiet: bool
) -> dict[str, MeasureStore]:
    from epicrisis.evaluation.grading.measurements import measures_folder, open_measure_store
    from epicrisis.evaluation.grading.measurers import notes_measurer, rubric_measurer
    from epicrisis.evaluation.grading.model_client import cost_question, open_model_client
    from epicrisis.evaluation.grading.scored_answers import NoteTexts, read_answers
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.pipeline.components import describe_library
    from epicrisis.privacy.patient_data_policy import protect_patient_data

    settings = protect_patient_data(settings, library)
    warn_about_demo_models(settings, ["writer"])
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_model_client(settings))
        measurers = [rubric_measurer(client)]
        if library is not None:
            _record_grading(library, read_answers(run))
            store = stack.enter_context(LibraryStore.open(local_path(library)))
            measurers.append(notes_measurer(client, NoteTexts(store, describe_library(store))))
        if not yes:
            remaining = []
            for measurer in measurers:
                has_measured = open_measure_store(measures_folder(run), measurer).has_measured
                measurable = (answer for answer in read_answers(run) if answer.measurable)
                remaining.append(list(filterfalse(has_measured, measurable)))
            confirm(await cost_question(client, settings, settings.model_for("writer"), *remaining))
        with grading_progress(quiet) as start:
            return await _measure(run, measurers, start)


def _record_grading(library: Path, answers: Iterable[ScoredAnswer]) -> None:
    """Write to the access log of the library whose notes a judge reads. Raises StorageError."""
    from epicrisis.cli.library_documents import record_reading

    patients = {answer.patient for answer in answers if answer.measurable and answer.patient is not None}
    for patient in sorted(patients):
        record_reading(library, "grade", patient)


_Start = Callable[[str, int, int], Callable[..., None]]
"""Starts a bar from name, total and number of finished items. Returns the function that advances it: its arguments are
the grade, and the name of its subject in the line about a failed call."""


@contextmanager
def grading_progress(quiet: bool) -> Iterator[_Start]:
    """Show a bar for each kind of grade, and a line for each call that failed."""
    with open_progress(quiet=quiet) as progress:

        def start(name: str, total: int, done: int) -> Callable[..., None]:
            task = progress.add_task(name, total=total, completed=done)

            def advance(grade: Graded, subject: str = name) -> None:
                if grade.failure is not None:
                    say_above(progress, f"{subject}: {grade.failure.message}")
                progress.advance(task)

            return advance

        yield start


def _show_measures(runs: Sequence[Path], json: bool) -> None:
    from epicrisis.evaluation.grading.calibration import judge_remarks
    from epicrisis.evaluation.grading.measurements import measures_folder, read_measured_cases
    from epicrisis.evaluation.grading.metric_tables import count_endings, overview_table
    from epicrisis.evaluation.runs.recorded_run import refuse_mismatched_records

    rows = []
    for run in runs:
        with refuse_mismatched_records([run]):
            cases = read_measured_cases(run)
            table, remarks, endings = overview_table(cases), judge_remarks(run), dict(count_endings(cases))
        if json:
            rows.append({"run": str(run), "endings": endings, "table": table, "remarks": remarks})
            continue
        show_tables([table], remarks)
        counts = ", ".join(f"{count} {ending}" for ending, count in endings.items())
        say(f"{counts}; saved in {measures_folder(run)}")
    if json:
        show_data({"runs": rows})
