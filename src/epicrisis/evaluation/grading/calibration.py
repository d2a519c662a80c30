"""Calibration of a judge: how well it agrees with people.

Its rubric grades of summaries are compared with the facts that people counted, and its choices between two answers with
the preferred ones, each pair in both orders. The prompts are those of grading. Reports show the result next to the
judge's figures, with its part in the answers it judges (errata E4, P11).
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from epicrisis.answering.structured_request import ModelClient
from epicrisis.core.answers import Usage
from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun, printable_json, quote_for_shell
from epicrisis.core.serialization import to_json
from epicrisis.evaluation.analysis.correlation import correlate
from epicrisis.evaluation.analysis.grouping import group_by
from epicrisis.evaluation.analysis.statistics import Interval, Mean, estimate_mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.grading.correctness import JudgeGrades, read_correctness
from epicrisis.evaluation.grading.human_scores import PreferencePair, Summary
from epicrisis.evaluation.grading.human_verdicts import ORDERS, PreferredAnswer
from epicrisis.evaluation.grading.measurements import (
    Measurement,
    measure_answers,
    measures_folder,
    open_measure_store,
    read_measurements,
    read_recipes,
    store_name,
)
from epicrisis.evaluation.grading.measurers import (
    FAITHFUL_TO_NOTES,
    metric_name,
    notes_measurer,
    rubric_grader,
    rubric_measurer,
    short_model_name,
)
from epicrisis.evaluation.grading.preference import (
    PairGrade,
    grade_pairs,
    open_preference_store,
    preference_grader,
)
from epicrisis.evaluation.grading.scored_answers import NoteTexts
from epicrisis.system.local_only import open_private

CALIBRATION = "calibration.json"
FORMAT = 1
_PAIRS = "pairs.jsonl"
CALIBRATIONS_FOLDER = "judges"
"""The folder in the program's home with a folder of calibration per judge."""

_AGREEMENT_COLUMNS = ("Spearman", "interval", "quadratic kappa", "kappa interval", "people give one figure")
_GRADE_COLUMNS = ("aspect", "counted by people", "n", "not scored", *_AGREEMENT_COLUMNS)
_GRADE_NOTES = (
    "MTS-Dialog's summaries (four systems, 100 conversations): grades by the rubric, with the conversation's note as "
    "the reference. Rates of hallucination and omission are reversed, so that more is better. Kappa compares the grade "
    "with the rate on the same five steps. Intervals are 95 %, by a bootstrap of whole conversations.",
    "People give one figure: the share of summaries with the most frequent figure. If it is high, as with "
    "hallucinations, few summaries can show whether the judge agrees with people.",
)
_ORDER_COLUMNS = ("right in both orders", "wrong in both", "changed with the order", "tie in both")
_CHOICE_COLUMNS = ("pairs of", "n", "judged", "accuracy", *_ORDER_COLUMNS, "verdicts for the first place")
_CHOICE_NOTES = (
    "LLMBar: which of two answers follows the instruction, each pair in both orders. Accuracy is the mean of both "
    "orders, a tie counting half: chance is 50 %, whichever place a guesser prefers. Its instructions are general; the "
    "prompt is that of blind pairs, which calls the question medical.",
    "Verdicts for the first place: 50 % if the place has no influence, not counting ties.",
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceAccuracy:
    """A judge's choices in one subset of pairs, or in all, each pair in both orders."""

    subset: str
    pairs: int
    complete_pairs: int
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


async def calibrate_grader(
    client: ModelClient,
    folder: Path,
    summaries: Sequence[Summary],
    pairs: Sequence[PreferencePair],
    *,
    against_talk: bool = False,
    sample: Mapping[str, Any] | None = None,
    on_grade: Callable[[Measurement | PairGrade], None] = lambda _: None,
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
    grades: dict[str, dict[str, float]] = defaultdict(dict)
    for measurer in measurers:
        store = open_measure_store(folder, measurer)
        async for measurement in measure_answers((summary.answer for summary in summaries), measurer, store):
            on_grade(measurement)
        usage += store.usage
        for key, measurement in read_measurements(folder / store_name(measurer.name))[1].items():
            grades[key] |= measurement.values
    preferences = preference_grader(client)
    pair_store = open_preference_store(folder / _PAIRS, preferences)
    async for grade in grade_pairs((pair.pair for pair in pairs), preferences, pair_store):
        on_grade(grade)
    parts = {"all": list(pairs), **group_by(pairs, attrgetter("subset"))} if pairs else {}
    calibration = GraderCalibration(
        preferences.model,
        rubric_grader(client).recipe,
        sample or {},
        compare_grades(grades, summaries, preferences.model),
        tuple(_choice_accuracy(name, part, pair_store.grades) for name, part in parts.items()),
        usage + pair_store.usage,
    )
    text = json.dumps({"format": FORMAT, **to_json(calibration)}, indent=2, ensure_ascii=False)
    partial = folder / f"{CALIBRATION}.partial"
    with os.fdopen(open_private(partial, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(printable_json(text) + "\n")
    partial.replace(folder / CALIBRATION)
    return calibration


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
        same = counts.most_common(1)[0][1] / rank.n if rank.n else None
        agreements.append(
            HumanAgreement(
                aspect=aspect,
                counted=rate_name,
                n=rank.n,
                unscored=rank.unscored,
                spearman=rank.value,
                interval=rank.interval,
                kappa=kappa.value,
                kappa_interval=kappa.interval,
                same=same,
            )
        )
    return tuple(agreements)


def _step(share: float | None) -> float | None:
    """Return the nearest of the five points, 1 to 5; halves are rounded up."""
    return None if share is None else 1.0 + int(4 * share + 0.5)


def _choice_accuracy(name: str, pairs: Sequence[PreferencePair], grades: Mapping[Any, PairGrade]) -> ChoiceAccuracy:
    """Return the accuracy of the choices in these pairs."""
    scores: list[float | None] = []
    kinds: Counter[str] = Counter()
    first = 0
    for pair in pairs:
        points: list[float] = []
        choices: list[PreferredAnswer] = []
        for order in ORDERS:
            grade = grades.get((pair.pair.id, order))
            if grade is not None and grade.choice is not None:
                choices.append(grade.choice)
                right = (grade.choice == pair.right) == (order == "shown")
                points.append(0.5 if grade.choice == "tie" else float(right))
        if len(points) < len(ORDERS):
            scores.append(None)
            continue
        first += choices.count("1")
        scores.append(sum(points) / len(points))
        kinds["changed" if len(set(points)) > 1 else {1.0: "right", 0.0: "wrong", 0.5: "tied"}[points[0]]] += 1
    accuracy = estimate_mean(scores) if kinds else None
    return ChoiceAccuracy(
        subset=name,
        pairs=len(pairs),
        complete_pairs=kinds.total(),
        accuracy=accuracy,
        right=kinds["right"],
        wrong=kinds["wrong"],
        changed=kinds["changed"],
        tied=kinds["tied"],
        first=first,
    )


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


def calibration_tables(calibration: GraderCalibration) -> tuple[Table, ...]:
    """Return the tables of a judge's grades and choices compared with people, without empty tables."""
    grade_rows: list[tuple[Cell, ...]] = []
    for agreement in calibration.with_people:
        figures = agreement.spearman, agreement.interval, agreement.kappa, agreement.kappa_interval, agreement.same
        grade_rows.append((agreement.aspect, agreement.counted, agreement.n, agreement.unscored, *figures))
    choice_rows: list[tuple[Cell, ...]] = []
    for choices in calibration.choices:
        counts = choices.right, choices.wrong, choices.changed, choices.tied
        first_share = choices.first / (2 * choices.complete_pairs) if choices.complete_pairs else None
        choice_rows.append(
            (choices.subset, choices.pairs, choices.complete_pairs, choices.accuracy, *counts, first_share)
        )
    title = f"{calibration.model} and people"
    tables = (
        Table(f"{title}: grades", _GRADE_COLUMNS, tuple(grade_rows), _GRADE_NOTES),
        Table(f"{title}: choices", _CHOICE_COLUMNS, tuple(choice_rows), _CHOICE_NOTES),
    )
    return tuple(table for table in tables if table.rows)


def calibration_folder(home: Path, model: str) -> Path:
    """Return the folder with the calibration of this model."""
    return home / CALIBRATIONS_FOLDER / store_name(short_model_name(model)).removesuffix(".jsonl")


def copy_calibrations(run: Path, home: Path) -> None:
    """Copy the calibration of each judge of the run to its measurements, if the calibration has the same prompt."""
    for recipe in _judge_recipes(run):
        path = calibration_folder(home, recipe["judge"]["name"]) / CALIBRATION
        if path.is_file() and _is_same_judge(read_calibration(path).judge, recipe):
            shutil.copy(path, _run_calibration(run, recipe["judge"]["name"]))


def judge_remarks(run: Path) -> tuple[str, ...]:
    """Return sentences for the tables of a run with judges, or nothing for other runs. Raises InputError."""
    judges: dict[str, JudgeGrades] = {}
    descriptions: dict[str, str] = {}
    for recipe in _judge_recipes(run):
        model = str(recipe["judge"]["name"])
        judges[model] = JudgeGrades(model, {})
        path = _run_calibration(run, model)
        calibration = read_calibration(path) if path.is_file() else None
        if calibration is not None and not _is_same_judge(calibration.judge, recipe):
            calibration = None
        descriptions[model] = _describe_calibration(short_model_name(model), calibration)
    if not judges:
        return ()
    # The judges' names are enough to find what they contributed to the answers; their grades are not needed.
    correctness = replace(read_correctness(run, []), judges=judges)
    remarks = []
    for name in judges:
        for part in correctness.parts_of_judge(name):
            remarks.append(
                f"Warning: {short_model_name(name)} judges answers and {part}: a model may prefer its own words; let "
                "one of another family judge as well (errata E4)."
            )
    remarks += descriptions.values()
    remarks.append(
        "Judged against the reference alone, true details beyond it count as unfaithful (errata E4): "
        "judge-faithful-to-notes is against the notes."
    )
    return tuple(remarks)


def _describe_calibration(name: str, calibration: GraderCalibration | None) -> str:
    parts = []
    if calibration is not None and calibration.with_people:
        agreements: list[str] = []
        for agreement in calibration.with_people:
            rho, interval = agreement.spearman, agreement.interval
            value = "not defined" if rho is None else f"{rho:.2f}"
            bounds = "" if interval is None else f" ({interval.low:.2f} to {interval.high:.2f})"
            agreements.append(f"{agreement.aspect} with {agreement.counted} {value}{bounds} over {agreement.n}")
        parts.append(f"{name} against people, Spearman's rho on MTS-Dialog's summaries: {', '.join(agreements)}")
    if calibration is not None and calibration.choices and calibration.choices[0].accuracy is not None:
        choices, accuracy = calibration.choices[0], calibration.choices[0].accuracy
        low, high = 100 * accuracy.interval.low, 100 * accuracy.interval.high
        parts.append(
            f"{name} chooses right between LLMBar's answers in {100 * accuracy.value:.1f} % of "
            f"{count_noun(choices.complete_pairs, 'pair')} "
            f"(95 % interval {low:.1f} to {high:.1f}; chance 50 %), and changed its choice with the order in "
            f"{choices.changed}"
        )
    if not parts:
        return (
            f"The agreement of {name} with people is not known: epicrisis grade calibrate --model "
            f"{quote_for_shell(name)}."
        )
    return "; ".join(parts) + "."


def _judge_recipes(run: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the recipes of the judges that grade against the reference."""
    for recipe in read_recipes(run):
        if "judge" in recipe and "library" not in recipe:
            yield recipe


def _run_calibration(run: Path, model: str) -> Path:
    return measures_folder(run) / f"{store_name(short_model_name(model)).removesuffix('.jsonl')}-{CALIBRATION}"


def _is_same_judge(calibration: Mapping[str, Any], recipe: Mapping[str, Any]) -> bool:
    return calibration.get("judge") == recipe.get("judge") and calibration.get("prompt") == recipe.get("prompt")
