"""Measurements of a run's answers: one file per measurer, one line per case, and their values by case for tables.

    RUN/measures/<measurer>.jsonl

An interrupted run continues with the same call. A changed answer is measured again: a measurement belongs to the key of
its case and to the digest of the answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field, model_validator

from epicrisis.core.answers import Failure, Usage
from epicrisis.core.errors import InputError
from epicrisis.core.types import EvidenceSpan, QuestionForm
from epicrisis.evaluation.datasets.patient_records.populations import GENERATED_FACTS
from epicrisis.evaluation.grading.computed_answers import WITH_FACTS, ComputedGrade, grade_computed, read_parts
from epicrisis.evaluation.grading.grader import GradeLine, GradeState, GradeStore
from epicrisis.evaluation.grading.scored_answers import Ending, ScoredAnswer, read_answers
from epicrisis.pipeline.recording.case import Condition
from epicrisis.system.concurrency import store_results
from epicrisis.system.jsonl_store import read_stored_lines

MEASURES = "measures"
"""The folder next to a run's records with a file per measurer."""
_CONTENT = "measurements"
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The values of one measurer for one answer."""

    key: str
    """Key of the case."""
    digest: Annotated[str, Field(alias="of")] = field(metadata={"json": "of"})
    """`ScoredAnswer.digest`."""
    state: GradeState
    values: Mapping[str, float] = field(default_factory=dict)
    """By metric, 0 to 1, higher is better. Empty unless the state is `judged`."""
    reason: str = ""
    """The judge's reason, or why its reply could not be read."""
    shown: str = ""
    """Which passages a judge saw: `cited` or `given`; empty for none."""
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)


MeasureFunction: TypeAlias = Callable[[ScoredAnswer], Coroutine[Any, Any, Measurement]]


@dataclass(frozen=True, slots=True)
class Measurer:
    """A measure of answers, with the settings behind its values."""

    name: str
    """Names its file."""
    metrics: tuple[str, ...]
    """The names of its values, in order."""
    measure: MeasureFunction
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that decide the values, apart from the answer."""
    concurrency: int = 1
    """Answers measured at the same time."""

    @property
    def model(self) -> str | None:
        """The whole name of the model, with its address. None for a measurer without a model."""
        return recipe_model(self.settings)

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe in its file."""
        return {"measurer": self.name, "metrics": list(self.metrics), **self.settings}


def recipe_model(recipe: Mapping[str, Any]) -> str | None:
    """Return the whole name of the model in a recipe, or None."""
    judge = recipe.get("judge")
    name = judge.get("name") if isinstance(judge, Mapping) else recipe.get("model")
    return None if name is None else str(name)


class _MeasureLine(GradeLine[Measurement]):
    grade: Measurement = Field(alias="measure")

    @model_validator(mode="after")
    def _check(self) -> _MeasureLine:
        metrics, judge = self.recipe.get("metrics", [None]), self.recipe.get("judge")
        if not all(isinstance(name, str) for name in metrics):
            raise ValueError("the recipe does not name its metrics")
        if judge is not None and not isinstance(judge.get("name"), str):
            raise ValueError("the recipe does not name its judge")
        if (self.grade.state == "judged") != bool(self.grade.values):
            raise ValueError("values without a judgement, or the reverse")
        if not all(0 <= value <= 1 + _ROUNDING for value in self.grade.values.values()):
            raise ValueError("a value outside 0 and 1")
        return self


class MeasureStore(GradeStore[Measurement]):
    """The file of one measurer. Lines of another recipe stay in the file and are ignored."""

    def __init__(self, path: Path, recipe: Mapping[str, Any]) -> None:
        super().__init__(path, _MeasureLine, recipe, content=_CONTENT, other_recipes="skip")

    def has_measured(self, answer: ScoredAnswer) -> bool:
        """Return whether this answer, word for word, has a measurement that is not to be repeated."""
        line = self.lines.get(answer.key)
        return self.is_done(answer.key) and line is not None and line.grade.digest == answer.digest


def read_measurements(path: Path) -> tuple[dict[str, Any], dict[str, Measurement]]:
    """Read the recipe of the last line, and its last measurement of each case. Raises InputError."""
    lines = list(read_stored_lines(path, _MeasureLine, _CONTENT))
    if not lines:
        return {}, {}
    recipe = lines[-1].recipe
    return recipe, {line.grade.key: line.grade for line in lines if line.recipe == recipe}


def store_name(name: str) -> str:
    """Return the file name of a measurer."""
    return re.sub(r"[^A-Za-z0-9.+]+", "-", name).strip("-") + ".jsonl"


def check_shares(values: Mapping[str, float]) -> dict[str, float]:
    """Return the values without rounding errors. Raise ValueError for a value outside 0 and 1."""
    shares, wrong = {}, []
    for name, value in values.items():
        if not math.isfinite(value) or not -_ROUNDING <= value <= 1 + _ROUNDING:
            wrong.append(name)
        shares[name] = min(1.0, max(0.0, float(value)))
    if wrong:
        raise ValueError(f"{', '.join(wrong)} lie outside 0 and 1")
    return shares


def measures_folder(run: Path) -> Path:
    """Return the folder with the measurements of a run's folder, or of its records."""
    return (run if run.is_dir() else run.parent) / MEASURES


def open_measure_store(folder: Path, measurer: Measurer) -> MeasureStore:
    """Open this measurer's file to add to it.

    Raises InputError as MeasureStore does, and if the file holds measurements of another model with the same name.
    """
    path = folder / store_name(measurer.name)
    previous = recipe_model(read_measurements(path)[0])
    if None not in (previous, measurer.model) and previous != measurer.model:
        raise InputError(
            f"{path} holds measurements of {previous}, and {measurer.model} has the same short name: give one of them "
            "another name (URL#NAME), or move the file away"
        )
    return MeasureStore(path, measurer.recipe)


def measure_answers(
    answers: Iterable[ScoredAnswer], measurer: Measurer, store: MeasureStore
) -> AsyncGenerator[Measurement, None]:
    """Measure the answers, and yield the measurements that were missing. Raises as `run_concurrently` does."""
    missing = (answer for answer in answers if answer.measurable and not store.has_measured(answer))
    return store_results(missing, measurer.measure, store.add, measurer.concurrency)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """One case with the values of all measurers: a row of data for tables."""

    key: str
    question: str
    """`Question.key`."""
    condition: Condition
    ending: Ending
    values: Mapping[str, float] = field(default_factory=dict)
    """By metric, 0 to 1, higher is better. A missing value was not measured; it does not count as 0."""
    states: Mapping[str, GradeState] = field(default_factory=dict)
    """By metric without a value: `unparsed` or `failed`, if the measurer reported it."""
    form: QuestionForm = "open"
    category: str = ""
    patient: str | None = None
    unanswerable: bool = False
    """Whether abstaining is right."""
    computed: ComputedGrade | None = None
    """How the answer that was computed from structured entries compares with the right one. None without facts, and
    for a set whose right answers are no parts."""

    @property
    def cluster(self) -> str:
        """The patient, because all questions about a patient read the same record, or else the question."""
        return self.patient or self.question


def read_measured_cases(run: Path) -> tuple[MeasuredCase, ...]:
    """Read every case of a run with its current measurements, in the order of the records.

    These values come from the record itself: `accuracy` (of questions with options, if the notes hold the answer),
    `abstained-rightly` (if they do not: whether the case abstained or chose the option that says so), `evidence-recall`
    (share of the answer's facts with a place inside a passage of the prompt; 0 if a search found nothing; none if no
    request was sent), `evidence` (whether a verified citation lies at such a place) and `citations-verified` (share of
    the citations with verified words). Raises InputError.
    """
    files = list(map(read_measurements, sorted(measures_folder(run).glob("*.jsonl"))))
    cases: list[MeasuredCase] = []
    for answer in read_answers(run):
        values = _record_values(answer)
        states: dict[str, GradeState] = {}
        for recipe, measurements in files:
            measurement = measurements.get(answer.key)
            if measurement is None or measurement.digest != answer.digest or not answer.measurable:
                continue
            values |= measurement.values
            if measurement.state != "judged":
                states |= dict.fromkeys(recipe["metrics"], measurement.state)
        case = MeasuredCase(
            key=answer.key,
            question=answer.question_key,
            condition=answer.condition,
            ending=answer.ending,
            values=values,
            states=states,
            form=answer.form,
            category=answer.category,
            patient=answer.patient,
            unanswerable=answer.unanswerable,
            computed=_grade_computed(answer),
        )
        cases.append(case)
    return tuple(cases)


def read_recipes(run: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the recipe of each measurer of a run: `measurer`, `metrics`, `judge` and others. Raises InputError."""
    for path in sorted(measures_folder(run).glob("*.jsonl")):
        if recipe := read_measurements(path)[0]:
            yield recipe


def _grade_computed(answer: ScoredAnswer) -> ComputedGrade | None:
    """Return the grade of the computed answer in an arm with facts of the set of fact questions."""
    arm = str(answer.condition.get("arm", ""))
    if answer.condition.get("set") != GENERATED_FACTS or not arm.endswith(WITH_FACTS) or answer.ending == "failed":
        return None
    return grade_computed(answer.computed, read_parts(next(iter(answer.references), "")))


def _record_values(answer: ScoredAnswer) -> dict[str, float]:
    values: dict[str, float] = {}
    if answer.unanswerable:
        values["abstained-rightly"] = float(answer.ending == "abstained" or answer.right is True)
    elif answer.right is not None:
        values["accuracy"] = float(answer.right)
    if answer.searched and answer.ending not in ("over-window", "failed"):
        places = [(item.document_id, item.start, item.end) for item in answer.given]
        recall = evidence_recall(places, answer.evidence, len(places))
        if recall is not None:
            values["evidence-recall"] = recall
    if answer.cites_evidence is not None:
        values["evidence"] = float(answer.cites_evidence)
    if answer.ending == "answered" and answer.citations:
        verified = sum(citation.verified for citation in answer.citations)
        values["citations-verified"] = verified / len(answer.citations)
    return values


def evidence_recall(passages: Sequence[tuple[str, int, int]], evidence: Sequence[EvidenceSpan], k: int) -> float | None:
    """Return the share of the facts with a span inside one of the first k passages (document id, start, end).

    One span of a fact is enough. A span across the border of two chunks is in neither.
    """
    facts: set[str | EvidenceSpan] = set()
    covered: set[str | EvidenceSpan] = set()
    for span in evidence:
        fact = span.fact or span
        facts.add(fact)
        for document_id, start, end in passages[:k]:
            if document_id == span.document_id and start <= span.start and span.end <= end:
                covered.add(fact)
    return len(covered) / len(facts) if facts else None
