"""Is a short context read better than a long one with the same key document? (BriefContext, Figure 5.)

The number of documents grows, and the key document stands at each of the places in turn. The key alone and no document
at all are the bounds. The figure prints no numbers and the text no grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from operator import mul
from statistics import fmean

from epicrisis.evaluation.analysis import grouping
from epicrisis.evaluation.analysis.table import Table, line_plot, points_plot
from epicrisis.evaluation.experiments import outcome_groups, positions
from epicrisis.evaluation.experiments.definition import Experiment, Grid
from epicrisis.evaluation.experiments.placement import PLACES
from epicrisis.evaluation.runs.outcomes import Outcome

NAME = "context-length"
KS = (1, 2, 4, 8, 16, 32)
ARMS = ("rag", "oracle", "closed-book")

_NOTES = (
    "Each k: the mean over the places with distinct ranks among k, so one place at k = 1 and two at k = 2.",
    f"{positions.PASSAGES} Where it has more than k, they are read alone.",
)


def tables(runs: outcome_groups.OutcomesByModel, *, remarks: Sequence[str] = ()) -> tuple[Table, ...]:
    """Build the tables of finished runs: each k against the smallest, with the bounds; and the trend."""
    accuracy = grouping.make_accuracy_table(
        "Accuracy by the number of documents",
        ("model", "arm", "k"),
        outcome_groups.collect_groups(runs, _groups),
        baseline="the same arm at its smallest k",
        extra_columns=("SD over places", "SD over repeats"),
        remarks=(*_NOTES, *remarks),
    )
    return accuracy, _trend_table(runs, remarks)


def _groups(model: str, outcomes: Sequence[Outcome]) -> Iterator[grouping.Group]:
    for arm in outcome_groups.values_of(outcomes, "arm"):
        by_k = outcome_groups.group_conditions(outcome_groups.select(outcomes, arm=arm), "k")
        # The bounds, which have no k, come last.
        ks = sorted(by_k, key=lambda key: (key[0] is None, key[0] or 0))
        for (k,) in ks:
            here = by_k[k,]
            spreads = (grouping.spread_over(here, "place") if k else None), grouping.spread_over(here, "repeat")
            against = by_k[ks[0]] if (k,) != ks[0] else ()
            yield grouping.Group((model, arm, k), here, against, ("repeat",), spreads)


def _trend_table(runs: outcome_groups.OutcomesByModel, remarks: Sequence[str]) -> Table:
    """Build the table of what each doubling of the documents changes: the mean slope over log2 k."""
    with_k = outcome_groups.with_condition(outcome_groups.all_outcomes(runs), "k")
    rows: list[outcome_groups.ChangeRow] = []
    for (model, outcomes), arm in product(runs.items(), outcome_groups.values_of(with_k, "arm")):
        cases_of_arm = outcome_groups.select(outcomes, arm=arm)
        slopes = _slopes(outcome_groups.group_conditions(outcome_groups.with_condition(cases_of_arm, "k"), "k"))
        total = len({item.question for item in cases_of_arm})
        rows.append(((model, arm), (outcome_groups.compare_scores(slopes),), (len(slopes), total - len(slopes))))
    about = (
        "A doubling: k to 2 k; a negative change means that the longer context is read worse. Of the questions "
        "asked at every k."
    )
    columns = ("model", "arm", "change a doubling", grouping.P_COLUMN)
    return outcome_groups.change_table(
        "What a doubling of the documents changes", columns, rows, with_k, (about, *remarks)
    )


def _slopes(by_k: Mapping[tuple[int], Sequence[Outcome]]) -> dict[grouping.PairingKey, float]:
    """Return each question's slope over log2 k by least squares, of the questions asked at every k."""
    if len(by_k) < 2:
        return {}
    shares = [grouping.mean_by_pair(outcomes, ()) for outcomes in by_k.values()]
    lengths = [math.log2(k) for (k,) in by_k]
    centre = fmean(lengths)
    weights = [length - centre for length in lengths]
    total = sum(map(mul, weights, weights))
    slopes: dict[grouping.PairingKey, float] = {}
    for question in set.intersection(*map(set, shares)):
        slopes[question] = sum(map(mul, weights, (share[question] for share in shares))) / total
    return slopes


EXPERIMENT = Experiment(
    name=NAME,
    question="Is a short context read better than a long one with the same key document? (BriefContext, Figure 5)",
    cases=partial(positions.build_cases, at_least_keys=True),
    tables=outcome_groups.outcome_tables(tables),
    sets=(positions.PUBMEDQA,),
    grid=Grid(ARMS, KS, PLACES),
    plots=(
        (
            line_plot(
                "Share right by the number of documents",
                grouping.SHARE_COLUMN,
                along=("k",),
                series=("arm",),
                panel=("model",),
                axis_title="documents (k)",
                log2=True,
            ),
        ),
        (
            points_plot(
                "What a doubling of the documents changes", "change a doubling", along=("arm",), series=("arm",)
            ),
        ),
    ),
)
