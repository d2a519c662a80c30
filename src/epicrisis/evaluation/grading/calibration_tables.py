"""What a reader must know about the judges of a run: their agreement with people, and their part in the answers they
judge (errata E4, P11)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.grading.calibration import CALIBRATION, GraderCalibration, HumanAgreement, read_calibration
from epicrisis.evaluation.grading.correctness import JudgeGrades, read_correctness
from epicrisis.evaluation.grading.measurements import measures_folder, read_recipes, store_name
from epicrisis.evaluation.grading.measurers import short_model_name
from epicrisis.printable import quote_for_shell

CALIBRATIONS_FOLDER = "judges"
"""The folder in the program's home with a folder of calibration per judge."""

_GRADE_COLUMNS = (
    "aspect",
    "counted by people",
    "n",
    "not scored",
    "Spearman",
    "interval",
    "quadratic kappa",
    "kappa interval",
    "people give one figure",
)
_GRADE_NOTES = (
    "MTS-Dialog's summaries (four systems, 100 conversations): grades by the rubric, with the conversation's note as "
    "the reference. Rates of hallucination and omission are reversed, so that more is better. Kappa compares the grade "
    "with the rate on the same five steps. Intervals are 95 %, by a bootstrap of whole conversations.",
    "People give one figure: the share of summaries with the most frequent figure. If it is high, as with "
    "hallucinations, few summaries can show whether the judge agrees with people.",
)
_CHOICE_COLUMNS = (
    "pairs of",
    "n",
    "judged",
    "accuracy",
    "right in both orders",
    "wrong in both",
    "changed with the order",
    "tie in both",
    "verdicts for the first place",
)
_CHOICE_NOTES = (
    "LLMBar: which of two answers follows the instruction, each pair in both orders. Accuracy is the mean of both "
    "orders, a tie counting half: chance is 50 %, whichever place a guesser prefers. Its instructions are general; the "
    "prompt is that of blind pairs, which calls the question medical.",
    "Verdicts for the first place: 50 % if the place has no influence, not counting ties.",
)


def calibration_tables(calibration: GraderCalibration) -> tuple[Table, ...]:
    """Return the tables of a judge's grades and choices compared with people, without empty tables."""
    grade_rows: list[tuple[Cell, ...]] = []
    for agreement in calibration.with_people:
        figures = agreement.spearman, agreement.interval, agreement.kappa, agreement.kappa_interval, agreement.same
        grade_rows.append((agreement.aspect, agreement.counted, agreement.n, agreement.unscored, *figures))
    choice_rows: list[tuple[Cell, ...]] = []
    for choices in calibration.choices:
        counts = choices.right, choices.wrong, choices.changed, choices.tied
        first_share = choices.first / (2 * choices.judged) if choices.judged else None
        choice_rows.append((choices.subset, choices.pairs, choices.judged, choices.accuracy, *counts, first_share))
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


def read_calibrations(run: Path) -> dict[str, GraderCalibration | None]:
    """Read the calibration of each judge of the run, by model. None for a judge without one. Raises InputError."""
    calibrations: dict[str, GraderCalibration | None] = {}
    for recipe in _judge_recipes(run):
        model = str(recipe["judge"]["name"])
        path = _run_calibration(run, model)
        calibration = read_calibration(path) if path.is_file() else None
        if calibration is not None and not _is_same_judge(calibration.judge, recipe):
            calibration = None
        calibrations[model] = calibration
    return calibrations


def judge_remarks(run: Path) -> tuple[str, ...]:
    """Return sentences for the tables of a run with judges, or nothing for other runs. Raises InputError."""
    judges = [str(recipe["judge"]["name"]) for recipe in _judge_recipes(run)]
    if not judges:
        return ()
    correctness = replace(read_correctness(run, []), judges={name: JudgeGrades(name, {}) for name in judges})
    remarks = []
    for name in judges:
        for part in correctness.parts_of_judge(name):
            remarks.append(
                f"Warning: {short_model_name(name)} judges answers and {part}: a model may prefer its own words; let "
                "one of another family judge as well (errata E4)."
            )
    for name, calibration in read_calibrations(run).items():
        remarks.append(_describe_calibration(short_model_name(name), calibration))
    remarks.append(
        "Judged against the reference alone, true details beyond it count as unfaithful (errata E4): "
        "judge-faithful-to-notes is against the notes."
    )
    return tuple(remarks)


def _describe_calibration(name: str, calibration: GraderCalibration | None) -> str:
    parts = []
    if calibration is not None and calibration.with_people:
        agreements = ", ".join(map(_describe_agreement, calibration.with_people))
        parts.append(f"{name} against people, Spearman's rho on MTS-Dialog's summaries: {agreements}")
    if calibration is not None and calibration.choices and calibration.choices[0].accuracy is not None:
        choices, accuracy = calibration.choices[0], calibration.choices[0].accuracy
        low, high = 100 * accuracy.interval.low, 100 * accuracy.interval.high
        parts.append(
            f"{name} chooses right between LLMBar's answers in {100 * accuracy.value:.1f} % of {choices.judged} pairs "
            f"(95 % interval {low:.1f} to {high:.1f}; chance 50 %), and changed its choice with the order in "
            f"{choices.changed}"
        )
    if not parts:
        return (
            f"The agreement of {name} with people is not known: epicrisis grade calibrate --model "
            f"{quote_for_shell(name)}."
        )
    return "; ".join(parts) + "."


def _describe_agreement(agreement: HumanAgreement) -> str:
    rho = "not defined" if agreement.spearman is None else f"{agreement.spearman:.2f}"
    interval = agreement.interval
    bounds = "" if interval is None else f" ({interval.low:.2f} to {interval.high:.2f})"
    return f"{agreement.aspect} with {agreement.counted} {rho}{bounds} over {agreement.n}"


def _judge_recipes(run: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the recipes of the judges that grade against the reference."""
    for recipe in read_recipes(run):
        if "judge" in recipe and "library" not in recipe:
            yield recipe


def _run_calibration(run: Path, model: str) -> Path:
    return measures_folder(run) / f"{store_name(short_model_name(model)).removesuffix('.jsonl')}-{CALIBRATION}"


def _is_same_judge(calibration: Mapping[str, Any], recipe: Mapping[str, Any]) -> bool:
    return all(calibration.get(name) == recipe.get(name) for name in ("judge", "prompt"))
