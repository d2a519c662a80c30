"""A run measured: every answer by every measurer, kept as it comes, and read back for tables.

    RUN/measures/<measurer>.jsonl       a line a case

Interrupted, the same call goes on; an answer that changed is measured anew. Knows no metric.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from epicrisis.errors import InputError
from epicrisis.evaluation.grading.case_outcomes import Ending
from epicrisis.evaluation.grading.grader import GradeState
from epicrisis.evaluation.grading.measurements import MEASURES, Measurement, MeasureStore, read_measurements, store_name
from epicrisis.evaluation.grading.measurers import Measurer, recipe_model
from epicrisis.evaluation.grading.scored_answers import ScoredAnswer, read_answers
from epicrisis.evaluation.metrics.ranking import evidence_recall
from epicrisis.evaluation.runs.case import Condition
from epicrisis.evaluation.runs.concurrency import run_concurrently
from epicrisis.types import QuestionForm


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """One case and all that its measurers say of it: what tables are made from."""

    key: str
    question: str
    """`Question.key`."""
    condition: Condition
    ending: Ending
    values: Mapping[str, float] = field(default_factory=dict)
    """By metric, 0 to 1, higher is better; what is not there was not measured, which is no 0."""
    states: Mapping[str, GradeState] = field(default_factory=dict)
    """By metric: why it has no value, where a measurer said so (`unparsed`, `failed`)."""
    form: QuestionForm = "open"
    category: str = ""
    patient: str | None = None
    unanswerable: bool = False
    """Whether it was right to abstain."""

    @property
    def cluster(self) -> str:
        """What cases have in common that are no independent ones: the patient, whose questions all read the same
        record, else the question."""
        return self.patient or self.question


def measures_folder(run: Path) -> Path:
    """Where the measures of a run's folder, or of its records, lie."""
    return (run if run.is_dir() else run.parent) / MEASURES


def open_measure_store(folder: Path, measurer: Measurer) -> MeasureStore:
    """Return this measurer's file, to be added to.

    Raises InputError as MeasureFile does, and where the file holds what another model of the same name has measured.
    """
    path = folder / store_name(measurer.name)
    before = recipe_model(read_measurements(path)[0])
    if None not in (before, measurer.model) and before != measurer.model:
        raise InputError(
            f"{path} holds what {before} has measured, and {measurer.model} goes by the same name: give one of them "
            "another name (URL#NAME), or move the file away"
        )
    return MeasureStore(path, measurer.told)


async def measure_answers(
    answers: Iterable[ScoredAnswer], measurer: Measurer, file: MeasureStore
) -> AsyncGenerator[Measurement, None]:
    """The measures that were not there yet, as they come. Raises as `run_concurrently` does."""
    left = (each for each in answers if each.measurable and not file.is_done(each.key, each.of))
    # Left half-way it must end what it works on now, not when it is collected.
    async with aclosing(
        run_concurrently(left, measurer.measure, file.append, lambda made: made.failure, measurer.at_once)
    ) as made:
        async for each in made:
            yield each


async def measure_run(
    run: Path, measurers: Sequence[Measurer], tell: Callable[[Measurement], None] = lambda _: None
) -> dict[str, MeasureStore]:
    """Measures every answer of a run's folder, or of its records, that has no measure yet; the files by measurer.

    `tell` hears of each measure when it is kept. Raises InputError, and as `worked_off` does.
    """
    files = {}
    for measurer in measurers:
        file = files[measurer.name] = open_measure_store(measures_folder(run), measurer)
        async for made in measure_answers(read_answers(run), measurer, file):
            tell(made)
    return files


def read_measured_cases(run: Path) -> tuple[MeasuredCase, ...]:
    """Every case of a run with what its measurers said of it as it stands now, in the order of the records.

    Of the record itself are `accuracy` (of questions with options, where the record holds the answer),
    `abstained-rightly` (where it does not: did the case abstain, or choose the option that says so), `evidence-recall`
    (the share of the right answer's facts of which a passage it was given holds a place whole; 0 where a search found
    nothing; of what was asked alone: a record over the window was given to nobody),
    `evidence` (does a verified citation lie at such a place) and `citations-verified` (the share of the citations whose
    words were found). Raises InputError.
    """
    files = [read_measurements(path) for path in sorted(measures_folder(run).glob("*.jsonl"))]
    return tuple(_measured(response, files) for response in read_answers(run))


def read_recipes(run: Path) -> Iterator[Mapping[str, Any]]:
    """What made the measures of a run, a measurer each: `measurer`, `metrics`, `judge`... Raises InputError."""
    for path in sorted(measures_folder(run).glob("*.jsonl")):
        if recipe := read_measurements(path)[0]:
            yield recipe


def _measured(
    response: ScoredAnswer, files: Sequence[tuple[Mapping[str, Any], Mapping[str, Measurement]]]
) -> MeasuredCase:
    values = _of_record(response)
    states: dict[str, GradeState] = {}
    for recipe, made in files:
        each = made.get(response.key)
        if each is None or each.of != response.of or not response.measurable:
            continue
        values |= each.values
        if each.state != "judged":
            states |= dict.fromkeys(recipe["metrics"], each.state)
    return MeasuredCase(
        response.key,
        response.question_key,
        response.condition,
        response.ending,
        values,
        states,
        response.form,
        response.category,
        response.patient,
        response.unanswerable,
    )


def _of_record(response: ScoredAnswer) -> dict[str, float]:
    values: dict[str, float] = {}
    if not response.unanswerable:
        values |= {} if response.right is None else {"accuracy": float(response.right)}
    elif response.ending in ("answered", "abstained", "unparsed"):
        values["abstained-rightly"] = float(response.ending == "abstained" or response.right is True)
    given = [(each.document_id, each.start, each.end) for each in response.given]
    asked = response.ending not in ("over-window", "failed")
    if asked and response.searched and (recall := evidence_recall(given, response.evidence, len(given))) is not None:
        values["evidence-recall"] = recall
    if (cites := response.cites_evidence) is not None:
        values["evidence"] = float(cites)
    if response.ending == "answered" and response.citations:
        verified = sum(citation.verified for citation in response.citations)
        values["citations-verified"] = verified / len(response.citations)
    return values
