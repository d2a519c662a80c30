"""Does the place of the key document matter? (BriefContext, Figure 2 and Supplementary Table 1.)

The same questions with the key document at five places among k documents, read by RAG, by BriefContext and by cheap
rivals. The bounds are the key alone and no document at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from epicrisis.core.partitioning import group_passages
from epicrisis.core.types import Ranking
from epicrisis.evaluation.analysis import grouping
from epicrisis.evaluation.analysis.table import Table, line_plot, points_plot
from epicrisis.evaluation.experiments import outcome_groups
from epicrisis.evaluation.experiments.definition import CaseInputs, Experiment, Grid
from epicrisis.evaluation.experiments.placement import PLACES, distinct_places
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.pipeline.recording.case import Case, Condition

NAME = "positions"
KS = (8, 16)
BASELINE = "rag"
ARMS = (BASELINE, "brief-context", "ends", "fused", "oracle", "closed-book")
"""All but `reranked`, which needs a reranker."""
AVERAGED_BASELINE = f"{BASELINE} at that k, averaged over the places"
PUBMEDQA = "mirage/pubmedqa"
"""Default question set of the experiments that place documents."""

PASSAGES = (
    "k counts documents, each with its retrieved passages (passages in a run with count = passages, and in runs made "
    "before documents were counted); those of the key document are together: before all others at 0, and after all "
    "others at 100."
)
_NOTES = (
    "SD over places, SD over repeats: of the means at each place and of each repeat. Both include the chance of so "
    "many questions; repeats ask the same sample.",
    "The preflight check is not used: map-reduce itself is studied.",
    "Differences of the bounds (the key document alone, no document) are shown, but not tested.",
    PASSAGES,
)


def build_cases(inputs: CaseInputs, *, at_least_keys: bool = False) -> tuple[Case, ...]:
    """Build the cases. Conditions: `arm`, `k`, `place` (percentile) and `repeat`; bounds have neither k nor place.

    The cases of a question are adjacent, so that the beginning of a prompt is still in the model's cache. With
    `at_least_keys` keys of more than k passages stand alone. Raises InputError where a question or document is missing,
    an arm lacks what it needs, or a key document has more passages than k documents may have.
    """
    study, grid = inputs.study, inputs.grid
    study.check(grid.arms)
    built: list[Case] = []
    for passages in study.gather(inputs.all_questions(), max(grid.ks)):
        built += study.bound_cases(passages, grid.arms)
        keys = len(group_passages(passages.keys, study.source.count))
        for k in grid.ks:
            size = max(k, keys) if at_least_keys else k
            rankings: list[tuple[Condition, Ranking]] = []
            for place in distinct_places(grid.places, size, keys):
                rankings.append(({"k": k, "place": place}, passages.place(size, place)))
            built += study.placed_cases(passages, grid.arms, rankings)
    return tuple(built)


def tables(runs: outcome_groups.OutcomesByModel, *, remarks: Sequence[str] = ()) -> tuple[Table, ...]:
    """Build the tables of finished runs: the averages over places with both spreads (the paper's comparison), each
    place, and what the middle loses against the ends. `remarks` (the notes of the protocol) are printed under each."""
    remarks = (*remarks, *_NOTES)
    return (
        grouping.make_accuracy_table(
            "Accuracy averaged over the places",
            ("model", "k", "arm"),
            outcome_groups.collect_groups(runs, _average_groups),
            baseline=AVERAGED_BASELINE,
            extra_columns=("SD over places", "SD over repeats"),
            remarks=remarks,
        ),
        grouping.make_accuracy_table(
            "Accuracy by the place of the key document (percentile)",
            ("model", "k", "arm", "place"),
            outcome_groups.collect_groups(runs, _place_groups),
            baseline=BASELINE,
            extra_columns=("SD over repeats",),
            remarks=remarks,
        ),
        _middle_table(runs, remarks),
    )


def _by_k_and_arm(outcomes: Sequence[Outcome]) -> dict[tuple[int, str], list[Outcome]]:
    """Group the outcomes with a placed ranking by (k, arm), ascending by k."""
    groups = outcome_groups.group_conditions(outcome_groups.with_condition(outcomes, "k"), "k", "arm")
    return {(k, arm): groups[k, arm] for k, arm in sorted(groups, key=lambda key: int(str(key[0])))}


def _place_groups(model: str, outcomes: Sequence[Outcome]) -> Iterator[grouping.Group]:
    by_k_and_arm = _by_k_and_arm(outcomes)
    for (k, arm), cases_of_arm in by_k_and_arm.items():
        rivals = by_k_and_arm.get((k, BASELINE), []) if arm != BASELINE else []
        for place in outcome_groups.values_of(cases_of_arm, "place"):
            here = outcome_groups.select(cases_of_arm, place=place)
            spreads = (grouping.spread_over(here, "repeat"),)
            yield grouping.Group(
                (model, k, arm, place), here, outcome_groups.select(rivals, place=place), ("repeat",), spreads
            )


def _average_groups(model: str, outcomes: Sequence[Outcome]) -> Iterator[grouping.Group]:
    """Yield the averages over the places by k; the bounds are repeated at each k, against the same baseline."""
    by_k_and_arm = _by_k_and_arm(outcomes)
    unplaced = outcome_groups.select(outcomes, k=None)
    for k in dict.fromkeys(k for k, _ in by_k_and_arm) or (None,):
        rivals = [] if k is None else by_k_and_arm.get((k, BASELINE), [])
        for (other_k, arm), here in by_k_and_arm.items():
            if other_k == k:
                spreads = grouping.spread_over(here, "place"), grouping.spread_over(here, "repeat")
                against = rivals if arm != BASELINE else ()
                yield grouping.Group((model, k, arm), here, against, ("place", "repeat"), spreads)
        for arm in outcome_groups.values_of(unplaced, "arm"):
            here = outcome_groups.select(unplaced, arm=arm)
            repeats = None, grouping.spread_over(here, "repeat")
            yield grouping.Group((model, k, arm), here, rivals, ("repeat",), repeats, tested=False)


def _middle_table(runs: outcome_groups.OutcomesByModel, remarks: Sequence[str]) -> Table:
    """Build the table of what each arm loses when the key document stands between the ends.

    The loss is a question's mean at the ends (percentiles 0 and 100) less its mean between them; the next column shows
    how much less than the baseline the arm loses.
    """
    rows: list[outcome_groups.ChangeRow] = []
    for model, outcomes in runs.items():
        by_k_and_arm = _by_k_and_arm(outcomes)
        loss_of: dict[tuple[int, str], dict[grouping.PairingKey, float]] = {}
        for key, cases_of_arm in by_k_and_arm.items():
            by_end = grouping.group_by(cases_of_arm, lambda outcome: outcome.condition["place"] in (0, 100))
            at_ends, between = (
                grouping.mean_by_pair(by_end.get(True, ()), ()),
                grouping.mean_by_pair(by_end.get(False, ()), ()),
            )
            loss_of[key] = outcome_groups.subtract_scores(at_ends, between)
        for (k, arm), losses in loss_of.items():
            total = len({item.question for item in by_k_and_arm[k, arm]})
            rival = loss_of.get((k, BASELINE)) if arm != BASELINE else None
            changes = (
                outcome_groups.compare_scores(losses),
                outcome_groups.compare_scores(rival, losses) if rival else None,
            )
            rows.append(((model, k, arm), changes, (len(losses), total - len(losses))))
    changed = ("lost in the middle", grouping.P_COLUMN, f"lost less than {BASELINE}", f"{grouping.P_COLUMN} of that")
    about = (
        "Lost in the middle: share right with the key at either end, less the share right with it between them, of the "
        "questions that were asked at both."
    )
    with_k = outcome_groups.with_condition(outcome_groups.all_outcomes(runs), "k")
    return outcome_groups.change_table(
        "What the middle loses", ("model", "k", "arm", *changed), rows, with_k, (about, *remarks)
    )


PLACE_PLOT = line_plot(
    "Share right by the place of the key document",
    grouping.SHARE_COLUMN,
    along=("place",),
    series=("arm",),
    axis_title="place of the key document (percentile)",
)
PLOTS = (
    (PLACE_PLOT,),
    (
        points_plot("Share right by arm", grouping.SHARE_COLUMN, along=("arm",), series=("arm",)),
        points_plot("Differences by arm", "difference to *", along=("arm",), series=("arm",)),
    ),
    (points_plot("What the middle loses", "lost in the middle", along=("arm",), series=("arm",)),),
)
EXPERIMENT = Experiment(
    name=NAME,
    question="Does the position of the key document among k documents matter? (BriefContext, Figure 2)",
    cases=build_cases,
    tables=outcome_groups.outcome_tables(tables),
    sets=(PUBMEDQA,),
    grid=Grid(ARMS, KS, PLACES),
    published=("positions", "positions-averages", "positions-averages-preprint"),
    plots=PLOTS,
)
