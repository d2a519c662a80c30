"""Is the middle lost because of the place, or because of what stands around it? (BriefContext, Figure 6.)

The same questions with the key document in the middle of k, once among the documents that were retrieved, once among
documents drawn at random from the library; the key alone and reasoning without documents are the lines beside them.
The figure prints no numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.grouping import AccuracyMeasure, Group, spread, table
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.arms import UNPLACED, Study
from epicrisis.evaluation.experiments.placement import shuffle_pool
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.types import Question

NAME = "attention-bias"
K = 16
MIDDLE = 50
ARMS = ("rag", "oracle", "chain-of-thought")
RETRIEVED, RANDOM = "retrieved", "random"

_REMARK = (
    "Random documents are drawn from the whole library, without the question's own; nothing keeps one that was "
    "retrieved from being among them."
)


def cases(questions: Sequence[Question], study: Study, *, k: int = K, arms: Sequence[str] = ARMS) -> tuple[Case, ...]:
    """Conditions `arm`, `k`, `place` (50), `distractors` and `repeat`; arms that read no ranking have arm and repeat.

    The random documents of a question are the same in every repeat. Raises InputError as `positions.cases` does, and
    where there is no pool to draw from.
    """
    study.check(arms)
    if study.evidence.pool is None:
        raise InputError("random documents need a library to be drawn from: give the evidence a pool")
    pool = study.evidence.pool()
    placed_arms = [arm for arm in arms if arm not in UNPLACED]
    made: list[Case] = []
    for material in study.gather(questions, k):
        made += study.bounds(material, arms)
        random = shuffle_pool(pool, study.seed, material.question.id, study.evidence.count)
        rankings = {RETRIEVED: material.placed(k, MIDDLE), RANDOM: material.placed(k, MIDDLE, random)}
        for arm, (distractors, ranking) in product(placed_arms, rankings.items()):
            made += study.cases(material, {"arm": arm, "k": k, "place": MIDDLE, "distractors": distractors}, ranking)
    return tuple(made)


def tables(
    runs: Mapping[str, Sequence[Outcome]],
    *,
    measure: AccuracyMeasure = "right",
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> tuple[Table, ...]:
    """Of finished runs, by the name of their model: among random against among retrieved documents, and the lines."""
    groups = [group for model, outcomes in runs.items() for group in _groups(model, outcomes, measure)]
    return (
        table(
            "Accuracy with the key document in the middle",
            ("model", "arm", "k", "distractors"),
            groups,
            baseline="the same arm among retrieved documents",
            measure=measure,
            more=("SD over repeats",),
            remarks=(_REMARK, *remarks),
            seed=seed,
        ),
    )


def _groups(model: str, outcomes: Sequence[Outcome], measure: AccuracyMeasure) -> list[Group]:
    parts: dict[tuple[str, int | None, str | None], list[Outcome]] = {}
    for each in outcomes:
        said = each.condition
        k = None if "k" not in said else int(said["k"])
        distractors = None if "distractors" not in said else str(said["distractors"])
        parts.setdefault((str(said["arm"]), k, distractors), []).append(each)
    arms = list(dict.fromkeys(arm for arm, _, _ in parts))
    ordered = sorted(parts, key=lambda part: (part[1] is None, arms.index(part[0]), part[1], part[2] == RANDOM))
    return [
        Group(
            (model, *part),
            parts[part],
            parts.get((part[0], part[1], RETRIEVED), ()) if part[2] == RANDOM else (),
            ("repeat",),
            (spread(parts[part], "repeat", measure),),
        )
        for part in ordered
    ]
