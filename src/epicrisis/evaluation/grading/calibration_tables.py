"""A judge beside people: what its calibration came to, as tables. Computes nothing."""

from __future__ import annotations

from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.grading.calibration import GraderCalibration


def calibration_tables(calibration: GraderCalibration) -> tuple[Table, ...]:
    """Its grades beside what people counted, and its choices beside theirs; a table without a row is left out."""
    return tuple(each for each in (_with_people(calibration), _choices(calibration)) if each.rows)


def _with_people(calibration: GraderCalibration) -> Table:
    columns = (
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
    rows = tuple(
        (
            each.aspect,
            each.counted,
            each.n,
            each.unscored,
            each.spearman,
            each.interval,
            each.kappa,
            each.kappa_interval,
            each.same,
        )
        for each in calibration.with_people
    )
    notes = (
        "MTS-Dialog's summaries (four systems, 100 conversations): the grades by the rubric, the conversation's note "
        "as reference. Rates of hallucination and omission are turned round, so that more is better. Kappa is of the "
        "grade and the share on the same five steps. Intervals are 95 %, conversations drawn whole.",
        "People give one figure: the share of summaries with the most frequent figure. Where it is high, as with "
        "hallucinations, few summaries can show whether the judge goes with people.",
    )
    return Table(f"{calibration.model} and people: grades", columns, rows, notes)


def _choices(calibration: GraderCalibration) -> Table:
    columns = (
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
    rows = tuple(
        (
            each.subset,
            each.pairs,
            each.judged,
            each.accuracy,
            each.right,
            each.wrong,
            each.changed,
            each.tied,
            each.first / (2 * each.judged) if each.judged else None,
        )
        for each in calibration.choices
    )
    notes = (
        "LLMBar: which of two answers follows the instruction, each pair in both orders. Accuracy is the mean of both "
        "orders, a tie counting half: chance is 50 %, whichever place a guesser likes. Its instructions are general; "
        "the prompt is that of blind pairs, which calls the question medical.",
        "Verdicts for the first place: 50 % where the place decides nothing, ties aside.",
    )
    return Table(f"{calibration.model} and people: choices", columns, rows, notes)
