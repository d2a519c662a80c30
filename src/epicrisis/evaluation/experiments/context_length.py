"""Is a short context read better than a long one with the same key document? (BriefContext, Figure 5.)

The number of documents grows, and the key document stands at each of the places in turn. The key alone and no document
at all are the bounds. The figure prints no numbers and the text no grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean

from epicrisis.evaluation.analysis.grouping import (
    P_COLUMN,
    SHARE_COLUMN,
    Group,
    PairingKey,
    correct_p_values,
    describe_chance,
    group_by,
    make_accuracy_table,
    make_notes,
    mean_by_pair,
    spread_over,
)
from epicrisis.evaluation.analysis.plot_spec import PlotSpec
from epicrisis.evaluation.analysis.statistics import Difference, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments import positions
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.experiment import CaseInputs, Experiment, Grid
from epicrisis.evaluation.experiments.outcome_groups import (
    OutcomesByModel,
    all_outcomes,
    count_questions,
    select,
    values_of,
)
from epicrisis.evaluation.experiments.placement import PLACES
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.types import Question

NAME = "context-length"
KS = (1, 2, 4, 8, 16, 32)
ARMS = ("rag", "oracle", "closed-book")

_NOTES = (
    "Each k: the mean over the places with distinct ranks among k, so one place at k = 1 and two at k = 2.",
    f"{positions.PASSAGES} Where it has more than k, they are read alone.",
)


def cases(
    questions: Sequence[Question],
    study: Study,
    *,
    ks: Sequence[int] = KS,
    places: Sequence[int] = PLACES,
    arms: Sequence[str] = ARMS,
) -> tuple[Case, ...]:
    """Build the cases of `positions.cases`; a key document of more passages than k is read alone."""
    return positions.cases(questions, study, ks=ks, places=places, arms=arms, at_least_keys=True)


def _build_cases(inputs: CaseInputs) -> tuple[Case, ...]:
    grid = inputs.grid
    return cases(inputs.all_questions(), inputs.study, ks=grid.ks, places=grid.places, arms=grid.arms)


def tables(runs: OutcomesByModel, *, remarks: Sequence[str] = ()) -> tuple[Table, ...]:
    """Build the tables of finished runs: each k against the smallest, with the bounds; and the trend."""
    groups: list[Group] = []
    for model, outcomes in runs.items():
        groups += _groups(model, outcomes)
    return (
        make_accuracy_table(
            "Accuracy by the number of documents",
            ("model", "arm", "k"),
            groups,
            baseline="the same arm at its smallest k",
            more=("SD over places", "SD over repeats"),
            remarks=(*_NOTES, *remarks),
        ),
        trend_table(runs, remarks=remarks),
    )


def _k_of(outcome: Outcome) -> int | None:
    """Return the number of documents; None for arms without a ranking."""
    k = outcome.condition.get("k")
    return None if k is None else int(k)


def _groups(model: str, outcomes: Sequence[Outcome]) -> Iterator[Group]:
    for arm in values_of(outcomes, "arm"):
        by_k = group_by(select(outcomes, arm=arm), _k_of)
        ks: list[int | None] = [*sorted(k for k in by_k if k is not None)]
        if None in by_k:
            ks.append(None)
        for k in ks:
            here = by_k[k]
            spreads = (spread_over(here, "place") if k else None), spread_over(here, "repeat")
            against = by_k[ks[0]] if k != ks[0] else ()
            yield Group((model, str(arm), k), here, against, ("repeat",), spreads)


def trend_table(runs: OutcomesByModel, *, remarks: Sequence[str] = ()) -> Table:
    """Build the table of what each doubling of the documents changes.

    The change is the slope over log2 k of each question's share right, by least squares, of the questions with a score
    at every k.
    """
    everyone = all_outcomes(runs, "k")
    labels: list[tuple[Cell, ...]] = []
    changes: list[Difference | None] = []
    counts: list[tuple[int, int]] = []
    for (model, outcomes), arm in product(runs.items(), values_of(everyone, "arm")):
        cases_of_arm = select(outcomes, arm=arm)
        slopes = _slopes(group_by(cases_of_arm, _k_of))
        labels.append((model, str(arm)))
        counts.append((len(slopes), count_questions(cases_of_arm) - len(slopes)))
        changes.append(paired_difference(slopes, dict.fromkeys(slopes, 0.0)) if slopes else None)
    corrected = correct_p_values(changes)
    cells = zip(labels, changes, corrected, counts, strict=True)
    about = (
        "A doubling: k to 2 k; a negative change means that the longer context is read worse. Of the questions with a "
        "score at every k."
    )
    compared = len(corrected) - corrected.count(None)
    return Table(
        "What a doubling of the documents changes",
        ("model", "arm", "change a doubling", P_COLUMN, "questions", "not scored"),
        tuple((*label, change, p, *n) for label, change, p, n in cells),
        make_notes(compared, (*describe_chance(everyone), about, *remarks)),
    )


def _slopes(by_k: Mapping[int | None, Sequence[Outcome]]) -> dict[PairingKey, float]:
    """Return each question's slope over log2 k, of the questions with a score at every k; empty for a single k."""
    shares = {math.log2(k): mean_by_pair(outcomes, ()) for k, outcomes in by_k.items() if k is not None}
    if len(shares) < 2:
        return {}
    centre = fmean(shares)
    weights = {length: length - centre for length in shares}
    total = sum(weight * weight for weight in weights.values())

    def slope(question: PairingKey) -> float:
        return sum(weights[length] * share[question] for length, share in shares.items()) / total

    questions = set.intersection(*map(set, shares.values()))
    return {question: slope(question) for question in questions}


EXPERIMENT = Experiment(
    NAME,
    "Is a short context read better than a long one with the same key document? (BriefContext, Figure 5)",
    _build_cases,
    positions.outcome_tables(tables),
    sets=(positions.PUBMEDQA,),
    grid=Grid(ARMS, KS, PLACES),
    plots=(
        (
            PlotSpec(
                "Share right by the number of documents",
                "line",
                (SHARE_COLUMN,),
                ("k",),
                ("arm",),
                ("model",),
                axis_title="documents (k)",
                log2=True,
            ),
        ),
        (PlotSpec("What a doubling of the documents changes", "points", ("change a doubling",), ("arm",), ("arm",)),),
    ),
)
