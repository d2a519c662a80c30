"""Is a short context read better than a long one that holds the same key document? (BriefContext, Figure 5.)

The number of documents grows, the key document stands at each of the places in turn; the key alone and no document at
all are the bounds. The figure prints no numbers and the text no grid.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean

from epicrisis.evaluation.analysis.grouping import (
    P_COLUMN,
    AccuracyMeasure,
    Group,
    PairingKey,
    correct_p_values,
    describe_chance,
    make_accuracy_table,
    mean_by_pair,
    spread_over,
)
from epicrisis.evaluation.analysis.grouping import make_notes as notes_of
from epicrisis.evaluation.analysis.statistics import Difference, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments import positions
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.placement import PLACES
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.types import Question

NAME = "context-length"
KS = (1, 2, 4, 8, 16, 32)
ARMS = ("rag", "oracle", "closed-book")

_NOTES = (
    "Each k: the mean over the places that have a rank of their own among k, so over one at k = 1 and two at k = 2.",
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
    """Conditions as in `positions.cases`, and raises as it does; the same cases where both ask the same k. A key
    document of more passages than k is read alone: at the shortest it is the context."""
    return positions.cases(questions, study, ks=ks, places=places, arms=arms, at_least_keys=True)


def tables(
    runs: Mapping[str, Sequence[Outcome]],
    *,
    measure: AccuracyMeasure = "right",
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> tuple[Table, ...]:
    """Of finished runs, by the name of their model: each k against the smallest, the bounds; and the trend."""
    groups = [group for model, outcomes in runs.items() for group in _groups(model, outcomes, measure)]
    return (
        make_accuracy_table(
            "Accuracy by the number of documents",
            ("model", "arm", "k"),
            groups,
            baseline="the same arm at its smallest k",
            measure=measure,
            more=("SD over places", "SD over repeats"),
            remarks=(*_NOTES, *remarks),
            seed=seed,
        ),
        trend(runs, measure=measure, remarks=remarks, seed=seed),
    )


def _groups(model: str, outcomes: Sequence[Outcome], measure: AccuracyMeasure) -> list[Group]:
    by_arm = _by_arm_and_k(outcomes)
    groups = []
    for arm, by_k in by_arm.items():
        smallest = min(by_k, default=None, key=lambda k: (k is None, k))
        for k in sorted(by_k, key=lambda k: (k is None, k)):
            here = by_k[k]
            spreads = (spread_over(here, "place", measure) if k else None), spread_over(here, "repeat", measure)
            against = by_k[smallest] if k != smallest else ()
            groups.append(Group((model, arm, k), here, against, ("repeat",), spreads))
    return groups


def _by_arm_and_k(outcomes: Sequence[Outcome]) -> dict[str, dict[int | None, list[Outcome]]]:
    """`None`: arms that read no ranking."""
    found: dict[str, dict[int | None, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for each in outcomes:
        k = each.condition.get("k")
        found[str(each.condition["arm"])][None if k is None else int(k)].append(each)
    return found


def trend(
    runs: Mapping[str, Sequence[Outcome]],
    *,
    measure: AccuracyMeasure = "right",
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> Table:
    """What each doubling of the documents changes: the slope over log2 k of each question's share right, by least
    squares, of the questions that are scored at every k."""
    labels: list[tuple[Cell, ...]] = []
    slopes: list[Difference | None] = []
    scored: list[tuple[int, int]] = []
    for (model, outcomes), arm in product(runs.items(), _placed_arms(runs)):
        found = _slopes(_by_arm_and_k(outcomes)[arm], measure)
        asked = len({each.question for each in outcomes if each.condition["arm"] == arm})
        labels.append((model, arm))
        scored.append((len(found), asked - len(found)))
        slopes.append(paired_difference(found, dict.fromkeys(found, 0.0), seed=seed) if found else None)
    corrected = correct_p_values(slopes)
    rows = tuple((*label, slope, p, *n) for label, slope, p, n in zip(labels, slopes, corrected, scored, strict=True))
    about = (
        "A doubling: k to 2 k; a negative change means that the longer context is read worse. Of the questions "
        "scored at every k."
    )
    compared = sum(p is not None for p in corrected)
    everyone = (each for outcomes in runs.values() for each in outcomes if "k" in each.condition)
    return Table(
        "What a doubling of the documents changes",
        ("model", "arm", "change a doubling", P_COLUMN, "questions", "not scored"),
        rows,
        notes_of(measure, compared, (*describe_chance(everyone), about, *remarks)),
    )


def _placed_arms(runs: Mapping[str, Sequence[Outcome]]) -> list[str]:
    return list(
        dict.fromkeys(
            str(each.condition["arm"]) for outcomes in runs.values() for each in outcomes if "k" in each.condition
        )
    )


def _slopes(by_k: Mapping[int | None, Sequence[Outcome]], measure: AccuracyMeasure) -> dict[PairingKey, float]:
    """By question, where it has a score at each of two k or more."""
    shares = {k: mean_by_pair(outcomes, (), measure) for k, outcomes in by_k.items() if k is not None}
    if len(shares) < 2:
        return {}
    everywhere = set.intersection(*(set(share) for share in shares.values()))
    lengths = {k: math.log2(k) for k in shares}
    middle = fmean(lengths.values())
    weights = {k: length - middle for k, length in lengths.items()}
    total = sum(weight * weight for weight in weights.values())
    return {
        question: sum(weights[k] * share[question] for k, share in shares.items()) / total for question in everywhere
    }
