"""Is the middle lost because of the place, or because of the documents around it? (BriefContext, Figure 6.)

The same questions with the key document in the middle of k, once among the retrieved documents, once among documents
drawn at random from the library. The key alone and reasoning without documents are the bounds. The figure prints no
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from epicrisis.core.types import Ranking
from epicrisis.evaluation.analysis.grouping import Group, make_accuracy_table, spread_over
from epicrisis.evaluation.analysis.table import DIFFERENCES, SHARES, Table
from epicrisis.evaluation.experiments.arms import unique_cases
from epicrisis.evaluation.experiments.definition import CaseInputs, Experiment, Grid
from epicrisis.evaluation.experiments.outcome_groups import (
    OutcomesByModel,
    collect_groups,
    group_conditions,
    outcome_tables,
    values_of,
)
from epicrisis.evaluation.experiments.placement import shuffle_pool
from epicrisis.evaluation.experiments.positions import PUBMEDQA
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.pipeline.recording.case import Case, Condition

NAME = "attention-bias"
K = 16
MIDDLE = 50
ARMS = ("rag", "oracle", "chain-of-thought")
RETRIEVED, RANDOM = "retrieved", "random"

_REMARK = (
    "Random documents are drawn from the whole library, except the question's own; they may include retrieved "
    "documents."
)


def build_cases(inputs: CaseInputs) -> tuple[Case, ...]:
    """Build the cases. Conditions: `arm`, `k`, `place` (50), `distractors` and `repeat`; bounds have arm and repeat.

    The random documents of a question are the same in every repeat. Raises InputError as `positions.build_cases`
    does.
    """
    study, arms = inputs.study, inputs.grid.arms
    study.check(arms)
    pool = study.source.pool()
    built: list[Case] = []
    for k in inputs.grid.ks:
        for passages in study.gather(inputs.all_questions(), k):
            built += study.bound_cases(passages, arms)
            random = shuffle_pool(pool, study.seed, passages.question.id, study.source.count)
            rankings: list[tuple[Condition, Ranking]] = []
            for distractors, others in ((RETRIEVED, None), (RANDOM, random)):
                condition: Condition = {"k": k, "place": MIDDLE, "distractors": distractors}
                rankings.append((condition, passages.place(k, MIDDLE, others)))
            built += study.placed_cases(passages, arms, rankings)
    return unique_cases(built)


def tables(runs: OutcomesByModel, *, remarks: Sequence[str] = ()) -> tuple[Table, ...]:
    """Build the table of finished runs: random against retrieved distractors, and the bounds."""
    accuracy = make_accuracy_table(
        "Accuracy with the key document in the middle",
        ("model", "arm", "k", "distractors"),
        collect_groups(runs, _groups),
        baseline="the same arm among retrieved documents",
        extra_columns=("SD over repeats",),
        remarks=(_REMARK, *remarks),
    )
    return (accuracy,)


def _groups(model: str, outcomes: Sequence[Outcome]) -> Iterator[Group]:
    groups = group_conditions(outcomes, "arm", "k", "distractors")
    arms = values_of(outcomes, "arm")

    def place(condition: tuple[Any, ...]) -> tuple[bool, int, int, bool]:
        arm, k, distractors = condition
        return k is None, arms.index(arm), k or 0, distractors == RANDOM

    for condition in sorted(groups, key=place):
        arm, k, distractors = condition
        here = groups[condition]
        against = groups.get((arm, k, RETRIEVED), []) if distractors == RANDOM else []
        yield Group((model, *condition), here, against, ("repeat",), (spread_over(here, "repeat"),))


EXPERIMENT = Experiment(
    name=NAME,
    question="Is the middle lost because of the place, or because of the documents around it? (BriefContext, Figure 6)",
    cases=build_cases,
    tables=outcome_tables(tables),
    sets=(PUBMEDQA,),
    grid=Grid(ARMS, (K,)),
    plots=((SHARES, DIFFERENCES),),
)
