"""Calibration of a judge: how well it agrees with people.

Its rubric grades of summaries are compared with the facts that people counted, and its choices between two answers with
the preferred ones, each pair in both orders. The prompts are those of grading. Reports show the result next to the
judge's figures.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from epicrisis.answering.structured_request import ModelClient
from epicrisis.answers import Usage
from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.correlation import correlate
from epicrisis.evaluation.analysis.statistics import Interval, Mean, estimate_mean
from epicrisis.evaluation.grading.grader import GradeStore
from epicrisis.evaluation.grading.human_scores import PreferencePair, Summary
from epicrisis.evaluation.grading.human_verdicts import PreferredAnswer
from epicrisis.evaluation.grading.measurements import (
    Measurement,
    Measurer,
    measure_answers,
    open_measure_store,
    read_measurements,
    store_name,
)
from epicrisis.evaluation.grading.measurers import FAITHFUL_TO_NOTES, metric_name, notes_measurer, rubric_measurer
from epicrisis.evaluation.grading.preference import (
    ORDERS,
    PairGrade,
    PresentationOrder,
    grade_pairs,
    open_preference_store,
    preference_grader,
)
from epicrisis.evaluation.grading.rubric import rubric_grader
from epicrisis.evaluation.grading.scored_answers import NoteTexts
from epicrisis.printable import printable_json
from epicrisis.privacy import open_private
from epicrisis.serialization import to_json

CALIBRATION = "calibration.json"
FORMAT = 1
_PAIRS = "pairs.jsonl"

# By aspect: the rate that people counted, and whether less of it is better.
_RATES: tuple[tuple[str, str, bool], ...] = (
    ("faithfulness", "FactualPrecision", False),
    ("faithfulness", "HallucinationRate", True),
    ("completeness", "FactualRecall", False),
    ("completeness", "OmissionRate", True),
    ("correctness", "FactualF1", False),
    (FAITHFUL_TO_NOTES, "FactualPrecision", False),
    (FAITHFUL_TO_NOTES, "HallucinationRate", True),
)


@dataclass(frozen=True, slots=True)
class HumanAgreement:
    """The agreement of one aspect of a judge with a rate that people counted. More is better in both."""

    aspect: str
    counted: str
    n: int
    unscored: int
    """Summaries without a grade of the judge or a rate of people."""
    spearman: float | None
    interval: Interval | None
    """95 %, by a bootstrap of whole conversations."""
    kappa: float | None
    """Quadratic, of the grade and the rate on the same five steps."""
    kappa_interval: Interval | None
    same: float | None
    """The share of summaries with the most frequent rate. If it is high, no ranking can agree with it."""


@dataclass(frozen=True, slots=True)
class ChoiceAccuracy:
    """A judge's choices in one subset of pairs, or in all, each pair in both orders."""

    subset: str
    pairs: int
    judged: int
    """Pairs with a verdict in both orders. The other figures are about these."""
    accuracy: Mean | None
    """Mean over the pairs of both orders: 1 for the preferred answer, 1/2 for a tie, 0 for the other. Chance is 1/2,
    whichever place a guesser prefers. None if no pair was judged."""
    right: int
    """Right in both orders."""
    wrong: int
    """Wrong in both orders."""
    changed: int
    """The choice followed the place, or only one order was a tie."""
    tied: int
    """A tie in both orders."""
    first: int
    """Verdicts for the first place; there are twice as many verdicts as pairs."""


@dataclass(frozen=True, slots=True)
class GraderCalibration:
    """The calibration of one judge."""

    model: str
    judge: Mapping[str, Any]
    """The recipe of its rubric grades. Another prompt is another judge."""
    sample: Mapping[str, Any]
    with_people: tuple[HumanAgreement, ...]
    choices: tuple[ChoiceAccuracy, ...]
    """All pairs first, then each subset."""
    usage: Usage = field(default_factory=Usage)


def _ignore(_: Measurement | PairGrade) -> None: ...


async def calibrate_grader(
    client: ModelClient,
    folder: Path,
    summaries: Sequence[Summary],
    pairs: Sequence[PreferencePair],
    *,
    against_talk: bool = False,
    sample: Mapping[str, Any] | None = None,
    on_grade: Callable[[Measurement | PairGrade], None] = _ignore,
) -> GraderCalibration:
    """Request the grades that the folder lacks, and write the calibration to its file CALIBRATION.

    `against_talk` also grades each summary against the conversation, which doubles the requests for summaries.
    `on_grade` receives each grade once it is stored. Raises InputError if the folder holds files of another judge, and
    as `run_concurrently` does.
    """
    measurers = [rubric_measurer(client)]
    if against_talk:
        measurers.append(notes_measurer(client, NoteTexts()))
    usage = Usage()
    for measurer in measurers:
        store = open_measure_store(folder, measurer)
        async for measurement in measure_answers((summary.answer for summary in summaries), measurer, store):
            on_grade(measurement)
        usage += store.usage
    preferences = preference_grader(client)
    pair_store = open_preference_store(folder / _PAIRS, preferences)
    async for grade in grade_pairs([pair.pair for pair in pairs], preferences, pair_store):
        on_grade(grade)
    calibration = GraderCalibration(
        preferences.model,
        rubric_grader(client).recipe,
        sample or {},
        compare_grades(_read_grades(folder, measurers), summaries, preferences.model),
        compare_choices(pair_store, pairs),
        usage + pair_store.usage,
    )
    _write_calibration(folder / CALIBRATION, calibration)
    return calibration


def count_missing(
    client: ModelClient, folder: Path, summaries: Sequence[Summary], pairs: Sequence[PreferencePair]
) -> tuple[int, int]:
    """Return how many summaries, and how many verdicts on pairs, still need a request."""
    store = open_measure_store(folder, rubric_measurer(client))
    pair_store = open_preference_store(folder / _PAIRS, preference_grader(client))
    missing_verdicts = sum(not pair_store.is_done((pair.pair.id, order)) for pair in pairs for order in ORDERS)
    return sum(not store.has_measured(summary.answer) for summary in summaries), missing_verdicts


def _read_grades(folder: Path, measurers: Sequence[Measurer]) -> dict[str, dict[str, float]]:
    grades: dict[str, dict[str, float]] = {}
    for measurer in measurers:
        _, measurements = read_measurements(folder / store_name(measurer.name))
        for key, measurement in measurements.items():
            grades.setdefault(key, {}).update(measurement.values)
    return grades


def compare_grades(
    grades: Mapping[str, Mapping[str, float]], summaries: Sequence[Summary], model: str
) -> tuple[HumanAgreement, ...]:
    """Return the agreement of the judge's grades, by summary and metric, with people, without aspects not graded."""
    metrics = set().union(*grades.values())
    conversations = [summary.conversation for summary in summaries]
    agreements = []
    for aspect, rate_name, less_is_better in _RATES:
        metric = metric_name(f"judge-{aspect}", model)
        if metric not in metrics:
            continue
        shares = [grades.get(summary.answer.key, {}).get(metric) for summary in summaries]
        rates = []
        for summary in summaries:
            rate = summary.scores.get(rate_name)
            rates.append(1 - rate if rate is not None and less_is_better else rate)
        rank = correlate(shares, rates, "spearman", conversations)
        steps = list(map(_step, shares)), list(map(_step, rates))
        kappa = correlate(*steps, "quadratic-kappa", conversations)
        counts = Counter(rate for rate, share in zip(rates, shares, strict=True) if None not in (rate, share))
        same = max(counts.values()) / rank.n if rank.n else None
        values = rank.value, rank.interval, kappa.value, kappa.interval
        agreements.append(HumanAgreement(aspect, rate_name, rank.n, rank.unscored, *values, same))
    return tuple(agreements)


def _step(share: float | None) -> float | None:
    """Return the nearest of the five points, 1 to 5; halves are rounded up."""
    return None if share is None else 1.0 + int(4 * share + 0.5)


def compare_choices(store: GradeStore[PairGrade], pairs: Sequence[PreferencePair]) -> tuple[ChoiceAccuracy, ...]:
    """Return the accuracy of the choices in all pairs, then in each subset."""
    if not pairs:
        return ()
    parts = {"all": list(pairs)}
    for subset in dict.fromkeys(pair.subset for pair in pairs):
        parts[subset] = [pair for pair in pairs if pair.subset == subset]
    return tuple(_choice_accuracy(name, part, store.grades) for name, part in parts.items())


def _choice_accuracy(name: str, pairs: Sequence[PreferencePair], grades: Mapping[Any, PairGrade]) -> ChoiceAccuracy:
    scores: list[float | None] = []
    kinds: Counter[str] = Counter()
    first = 0
    for pair in pairs:
        points = []
        for order in ORDERS:
            grade = grades.get((pair.pair.id, order))
            if grade is not None and grade.choice is not None:
                points.append((grade.choice, _points(grade.choice, pair.right, order)))
        if len(points) < len(ORDERS):
            scores.append(None)
            continue
        first += sum(choice == "1" for choice, _ in points)
        values = [value for _, value in points]
        scores.append(sum(values) / len(values))
        kinds[_kind(values)] += 1
    return ChoiceAccuracy(
        name,
        len(pairs),
        sum(kinds.values()),
        estimate_mean(scores) if kinds else None,
        kinds["right"],
        kinds["wrong"],
        kinds["changed"],
        kinds["tied"],
        first,
    )


def _points(choice: PreferredAnswer, right: PreferredAnswer, order: PresentationOrder) -> float:
    if choice == "tie":
        return 0.5
    return float((choice == right) == (order == "shown"))


def _kind(points: Sequence[float]) -> str:
    if len(set(points)) > 1:
        return "changed"
    return {1.0: "right", 0.0: "wrong", 0.5: "tied"}[points[0]]


def _write_calibration(path: Path, calibration: GraderCalibration) -> None:
    text = json.dumps({"format": FORMAT, **to_json(calibration)}, indent=2, ensure_ascii=False)
    partial = path.with_name(f"{path.name}.partial")
    with os.fdopen(open_private(partial, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(printable_json(text) + "\n")
    partial.replace(path)


def read_calibration(path: Path) -> GraderCalibration:
    """Read a calibration. Raises InputError if the file holds anything else."""
    try:
        value = json.loads(path.read_bytes())
        if value.pop("format") != FORMAT:
            raise ValueError("another format")
        return TypeAdapter(GraderCalibration).validate_python(value)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): calibrate the judge first") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"{path} is not a calibration: calibrate the judge again (epicrisis grade calibrate)"
        ) from None
