"""Calibration of the confidence: a mapping to the probability of being right, fitted to recorded answers.

Platt scaling (Platt, Advances in Large Margin Classifiers 1999): a logistic curve with two parameters, fitted to
targets that are kept away from 0 and 1. Its error is measured on answers of questions that the fit has not seen, by
cross-validation over questions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from epicrisis.answering.confidence import ConfidenceCalibration, estimate_confidence
from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.types import CitingMode
from epicrisis.evaluation.analysis.grouping import add_differences
from epicrisis.evaluation.analysis.selective_prediction import RatedAnswer, rate_record
from epicrisis.evaluation.analysis.statistics import Difference, Floats, estimate_mean, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.runs.recorded_run import RecordedRun

FOLDS, BINS = 5, 10
MIN_ANSWERS, MIN_OF_A_KIND = 50, 10
"""The fewest answers, and the fewest right ones and wrong ones, for a fit."""
_RIDGE = 1e-6
"""Keeps the fit finite where all answers of a fold have the same confidence."""


@dataclass(frozen=True, slots=True)
class CalibrationFit:
    """A fitted calibration, and the answers with their probabilities by fits to the other folds."""

    calibration: ConfidenceCalibration
    answers: tuple[RatedAnswer, ...]
    held_out: tuple[float, ...]
    base_rates: tuple[float, ...]
    """The share right of the other folds: what is known without a confidence."""


def calibrate_confidence(run: RecordedRun) -> CalibrationFit:
    """Fit the calibration to the scored choices of a run that have a confidence.

    Raises InputError for answers of several strategies or models, for too few answers, right ones or wrong ones, and
    where all have the same confidence.
    """
    answers: list[RatedAnswer] = []
    kinds: set[tuple[str, tuple[str, ...], CitingMode]] = set()
    components: set[str] = set()
    scored = 0
    for record in run.records():
        rated, confidence = rate_record(record), estimate_confidence(record.answer)
        scored += record.answer.choice is not None and record.answer.question.gold is not None
        if rated is not None and confidence is not None:
            answers.append(rated)
            components |= confidence.components.keys()
            kinds.add((record.answer.strategy, list_models(record.recipe), find_citing(record.recipe)))
    check_enough(answers, scored, str(run.path))
    if len(kinds) > 1:
        raise InputError(
            f"{run.path} holds answers of several strategies, models or ways of citing, and a calibration belongs to "
            "one: name a file of answers of one"
        )
    slope, intercept = fit_platt(answers)
    ((strategy, models, citing),) = kinds
    names = tuple(sorted(components))
    calibration = ConfidenceCalibration(
        slope=slope,
        intercept=intercept,
        strategy=strategy,
        models=models,
        components=names,
        n=len(answers),
        citing=citing,
    )
    return CalibrationFit(calibration, tuple(answers), *cross_validate(answers))


def list_models(recipe: object) -> tuple[str, ...]:
    """Return the distinct names of the models of a recipe, sorted."""
    models = recipe.get("models", {}) if isinstance(recipe, dict) else {}
    return tuple(sorted({str(model["name"]) for model in models.values()}))


def find_citing(recipe: object) -> CitingMode:
    """Return how answers of a recipe cite. Recipes name numbers and leave quotes out."""
    settings = recipe.get("settings", {}) if isinstance(recipe, dict) else {}
    return "numbers" if settings.get("citing") == "numbers" else "quotes"


def check_enough(answers: Sequence[RatedAnswer], scored: int, name: str) -> None:
    """Raise InputError for too few answers, or if all have the same confidence."""
    wrong = sum(answer.wrong for answer in answers)
    right = len(answers) - wrong
    if len(answers) < MIN_ANSWERS or min(right, wrong) < MIN_OF_A_KIND:
        remark = ""
        if scored > len(answers):
            remark = (
                f"; of {scored - len(answers)} further ones nothing is known: confidence comes from brief-context, "
                "votes (self-consistency, medprompt), zero-shot, or checked claims"
            )
        raise InputError(
            f"{name}: {count_noun(len(answers), 'answer')} with a gold letter and a confidence ({right} right, {wrong} "
            f"wrong) {agree(len(answers), 'is', 'are')} "
            f"too few to calibrate{remark}. At least {MIN_ANSWERS} are needed, with {MIN_OF_A_KIND} right and "
            f"{MIN_OF_A_KIND} wrong: answer more questions with `epicrisis ask --file`"
        )
    if len({answer.confidence for answer in answers}) == 1:
        raise InputError(
            f"{name}: all {len(answers)} answers have the same confidence, which cannot tell right from wrong ones: "
            "use more parts or votes"
        )


def fit_platt(answers: Sequence[RatedAnswer]) -> tuple[float, float]:
    """Return slope and intercept of the logistic curve with the highest likelihood, by Newton's method."""
    values = np.array([answer.confidence for answer in answers])
    right = np.array([not answer.wrong for answer in answers])
    counts = int(right.sum()), int((~right).sum())
    targets = np.where(right, (counts[0] + 1) / (counts[0] + 2), 1 / (counts[1] + 2))
    design = np.column_stack([values, np.ones(len(values))])
    weights: Floats = np.array([0.0, np.log((counts[0] + 1) / (counts[1] + 1))])
    loss = _loss(design, targets, weights)
    for _ in range(100):
        probabilities = 1 / (1 + np.exp(-(design @ weights)))
        gradient = design.T @ (probabilities - targets) + _RIDGE * weights
        curvature = (design.T * (probabilities * (1 - probabilities))) @ design + _RIDGE * np.eye(2)
        step, scale = np.linalg.solve(curvature, gradient), 1.0
        while _loss(design, targets, weights - scale * step) > loss and scale > 1e-10:
            scale /= 2
        weights = weights - scale * step
        loss = _loss(design, targets, weights)
        if np.abs(scale * step).max() < 1e-10:
            break
    return float(weights[0]), float(weights[1])


def cross_validate(answers: Sequence[RatedAnswer]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return for each answer its probability by a fit to the other folds, and the share right of these.

    All answers to a question are in one fold, which depends on the question's key alone.
    """
    folds = [int(hashlib.sha256(answer.question.encode()).hexdigest(), 16) % FOLDS for answer in answers]
    probabilities, base_rates = [0.0] * len(answers), [0.0] * len(answers)
    for fold in set(folds):
        others = [answer for answer, number in zip(answers, folds, strict=True) if number != fold]
        slope, intercept = fit_platt(others)
        share = fmean(not answer.wrong for answer in others) if others else 0.5
        for index, answer in enumerate(answers):
            if folds[index] == fold:
                probabilities[index] = float(1 / (1 + np.exp(-(intercept + slope * answer.confidence))))
                base_rates[index] = share
    return tuple(probabilities), tuple(base_rates)


def squared_errors(answers: Sequence[RatedAnswer], probabilities: Sequence[float]) -> list[float]:
    """Return the squared difference of each probability to 1 for right and 0 for wrong. Their mean is Brier's score."""
    pairs = zip(answers, probabilities, strict=True)
    return [(probability - (not answer.wrong)) ** 2 for answer, probability in pairs]


def expected_calibration_error(answers: Sequence[RatedAnswer], probabilities: Sequence[float]) -> float:
    """Return the mean distance of probability and share right over BINS bins of equal width, weighted by their size.

    (Guo et al., ICML 2017.) A probability of 1 belongs to the last bin.
    """
    values = np.array(probabilities)
    right = np.array([not answer.wrong for answer in answers], dtype=np.float64)
    bins = np.minimum((values * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=values - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(values))


def make_calibration_table(fit: CalibrationFit, source: str) -> Table:
    """Return the table of Brier's score and expected calibration error before and after."""
    answers, questions = fit.answers, [answer.question for answer in fit.answers]
    before = [answer.confidence for answer in answers]
    clusters = questions if len(set(questions)) < len(questions) else list(range(len(questions)))
    baseline = dict(enumerate(squared_errors(answers, before)))
    rows: list[tuple[Cell, ...]] = []
    differences: list[Difference | None] = []
    for name, probabilities in (
        ("before", before),
        ("after, held out", fit.held_out),
        ("share right alone, held out", fit.base_rates),
    ):
        errors = squared_errors(answers, probabilities)
        score = estimate_mean(errors, clusters)
        rows.append((name, len(answers), score, expected_calibration_error(answers, probabilities)))
        difference = None
        if name != "before":
            difference = paired_difference(dict(enumerate(errors)), baseline, dict(enumerate(clusters)))
        differences.append(difference)
    notes = (
        f"Brier score: the mean squared error of the confidence as a probability of being right; lower is better. "
        f"ECE: expected calibration error, {BINS} bins of equal width.",
        f"Held out: each answer by a fit to the other {FOLDS - 1} of {FOLDS} parts of the questions. Share right "
        "alone: the same probability for all, so a confidence is worth something only if it is better than this.",
        "Intervals are 95 %, by a bootstrap of questions; p by flipping the signs of questions, corrected by Holm.",
    )
    columns = ("confidence", "answers", "Brier score", "ECE", "difference to before", "p (Holm)")
    return Table("Calibration of the confidence", columns, add_differences(rows, differences), notes, source)


def _loss(design: Floats, targets: Floats, weights: Floats) -> float:
    logits = design @ weights
    return float((np.logaddexp(0, logits) - targets * logits).sum() + _RIDGE / 2 * (weights @ weights))
