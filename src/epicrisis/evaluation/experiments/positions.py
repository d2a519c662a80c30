"""Does the place of the key document matter? (BriefContext, Figure 2 and Supplementary Table 1.)

The same questions with the key document at five places among k documents, read by RAG, by BriefContext and by cheap
rivals. The bounds are the key alone and no document at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from epicrisis.evaluation.analysis.grouping import (
    P_COLUMN,
    SHARE_COLUMN,
    AccuracyMeasure,
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
from epicrisis.evaluation.experiments.arms import UNPLACED, Study
from epicrisis.evaluation.experiments.experiment import CaseInputs, Experiment, Grid, Runs
from epicrisis.evaluation.experiments.outcome_groups import (
    OutcomesByModel,
    all_outcomes,
    count_questions,
    read_outcomes,
    select,
    values_of,
)
from epicrisis.evaluation.experiments.placement import PLACES, distinct_places
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.partitioning import group_passages
from epicrisis.types import Question

NAME = "positions"
KS = (8, 16)
ARMS = ("rag", "brief-context", "ends", "fused", "oracle", "closed-book")
"""All but `reranked`, which needs a reranker."""
PUBMEDQA = "mirage/pubmedqa"
"""Default question set of the experiments that place documents."""

PASSAGES = (
    "k counts documents, each with its retrieved passages (passages in a run with count = passages, and in runs made "
    "before documents were counted); those of the key document stand together, at 0 before and at 100 after all others."
)
_NOTES = (
    "SD over places, SD over repeats: of the means at each place and of each repeat. Both include the chance of so "
    "many questions; repeats ask the same sample.",
    "The preflight check takes no part: map-reduce itself is studied.",
    "Differences of the bounds (the key alone, no document) are shown, not tested.",
    PASSAGES,
)


def cases(
    questions: Sequence[Question],
    study: Study,
    *,
    ks: Sequence[int] = KS,
    places: Sequence[int] = PLACES,
    arms: Sequence[str] = ARMS,
    at_least_keys: bool = False,
) -> tuple[Case, ...]:
    """Build the cases. Conditions: `arm`, `k`, `place` (percentile) and `repeat`; bounds have neither k nor place.

    The cases of a question are adjacent, so that the beginning of a prompt is still in the model's cache. With
    `at_least_keys` keys of more than k passages stand alone. Raises InputError where a question or document is missing,
    an arm lacks what it needs, or a key document has more passages than k documents may have.
    """
    study.check(arms)
    placed_arms = [arm for arm in arms if arm not in UNPLACED]
    built: list[Case] = []
    for passages in study.gather(questions, max(ks)):
        built += study.bound_cases(passages, arms)
        keys = len(group_passages(passages.keys, study.source.count))
        for k in ks:
            size = max(k, keys) if at_least_keys else k
            rankings = {place: passages.place(size, place) for place in distinct_places(places, size, keys)}
            for arm, (place, ranking) in product(placed_arms, rankings.items()):
                built += study.cases(passages, {"arm": arm, "k": k, "place": place}, ranking)
    return tuple(built)


def tables(
    runs: OutcomesByModel, *, baseline: str = "rag", measure: AccuracyMeasure = "right", remarks: Sequence[str] = ()
) -> tuple[Table, ...]:
    """Build the tables of finished runs: each place, the averages over places with both spreads, and what the middle
    loses against the ends. `remarks` (the notes of the protocol) stand under each table."""
    remarks = (*remarks, *_NOTES)
    places: list[Group] = []
    averages: list[Group] = []
    for model, outcomes in runs.items():
        places += _place_groups(model, outcomes, baseline, measure)
        averages += _average_groups(model, outcomes, baseline, measure)
    return (
        make_accuracy_table(
            "Accuracy by the place of the key document (percentile)",
            ("model", "k", "arm", "place"),
            places,
            baseline=baseline,
            measure=measure,
            more=("SD over repeats",),
            remarks=remarks,
        ),
        make_accuracy_table(
            "Accuracy averaged over the places",
            ("model", "k", "arm"),
            averages,
            baseline=f"{baseline} at that k",
            measure=measure,
            more=("SD over places", "SD over repeats"),
            remarks=remarks,
        ),
        middle_table(runs, baseline=baseline, measure=measure, remarks=remarks),
    )


def _by_k_and_arm(outcomes: Sequence[Outcome]) -> dict[tuple[Cell, Cell], list[Outcome]]:
    """Group the outcomes with a placed ranking by (k, arm), ascending by k."""

    def k_and_arm(outcome: Outcome) -> tuple[Cell, Cell]:
        return outcome.condition["k"], outcome.condition["arm"]

    groups = group_by((outcome for outcome in outcomes if "k" in outcome.condition), k_and_arm)
    return dict(sorted(groups.items(), key=lambda item: int(str(item[0][0]))))


def _place_groups(model: str, outcomes: Sequence[Outcome], baseline: str, measure: AccuracyMeasure) -> Iterator[Group]:
    by_k_and_arm = _by_k_and_arm(outcomes)
    for (k, arm), cases_of_arm in by_k_and_arm.items():
        rivals = by_k_and_arm.get((k, baseline), []) if arm != baseline else []
        for place in values_of(cases_of_arm, "place"):
            here = select(cases_of_arm, place=place)
            spreads = (spread_over(here, "repeat", measure),)
            yield Group((model, k, arm, place), here, select(rivals, place=place), ("repeat",), spreads)


def _average_groups(
    model: str, outcomes: Sequence[Outcome], baseline: str, measure: AccuracyMeasure
) -> Iterator[Group]:
    """Yield the averages over the places by k; the bounds are repeated at each k, against the same baseline."""
    by_k_and_arm = _by_k_and_arm(outcomes)
    unplaced = select(outcomes, k=None)
    for k in dict.fromkeys(k for k, _ in by_k_and_arm) or (None,):
        rivals = by_k_and_arm.get((k, baseline), [])
        for (other_k, arm), here in by_k_and_arm.items():
            if other_k == k:
                spreads = spread_over(here, "place", measure), spread_over(here, "repeat", measure)
                against = rivals if arm != baseline else ()
                yield Group((model, k, arm), here, against, ("place", "repeat"), spreads)
        for arm in values_of(unplaced, "arm"):
            here = select(unplaced, arm=arm)
            repeats = None, spread_over(here, "repeat", measure)
            yield Group((model, k, arm), here, rivals, ("repeat",), repeats, tested=False)


def middle_table(
    runs: OutcomesByModel, *, baseline: str = "rag", measure: AccuracyMeasure = "right", remarks: Sequence[str] = ()
) -> Table:
    """Build the table of what each arm loses when the key document stands between the ends.

    The loss is a question's mean at the ends (percentiles 0 and 100) less its mean between them; next to it stands how
    much less than the baseline the arm loses.
    """
    labels: list[tuple[Cell, ...]] = []
    losses: list[Difference | None] = []
    gains: list[Difference | None] = []
    counts: list[tuple[int, int]] = []
    for model, outcomes in runs.items():
        by_k_and_arm = _by_k_and_arm(outcomes)
        loss_of = {key: _middle_loss(cases_of_arm, measure) for key, cases_of_arm in by_k_and_arm.items()}
        for (k, arm), by_question in loss_of.items():
            total = count_questions(by_k_and_arm[k, arm])
            labels.append((model, k, arm))
            counts.append((len(by_question), total - len(by_question)))
            losses.append(_difference(by_question, dict.fromkeys(by_question, 0.0)))
            rival = loss_of.get((k, baseline)) if arm != baseline else None
            gains.append(_difference(rival, by_question) if rival else None)
    corrected = correct_p_values([*losses, *gains])
    loss_p, gain_p = corrected[: len(labels)], corrected[len(labels) :]
    cells = zip(labels, losses, loss_p, gains, gain_p, counts, strict=True)
    rows = tuple((*label, loss, p, gain, p_of_gain, *n) for label, loss, p, gain, p_of_gain, n in cells)
    columns = (
        "model",
        "k",
        "arm",
        "lost in the middle",
        P_COLUMN,
        f"lost less than {baseline}",
        f"{P_COLUMN} of that",
        "questions",
        "not scored",
    )
    about = (
        "Lost in the middle: share right with the key at either end, less the share right with it between them, of the "
        "questions with a score at both."
    )
    compared = len(corrected) - corrected.count(None)
    guessing = describe_chance(all_outcomes(runs, "k"))
    return Table("What the middle loses", columns, rows, make_notes(compared, (*guessing, about, *remarks), measure))


def _middle_loss(outcomes: Sequence[Outcome], measure: AccuracyMeasure) -> dict[PairingKey, float]:
    """Return each question's mean at the ends less its mean between them, where it has both."""
    at_ends = [outcome for outcome in outcomes if outcome.condition["place"] in (0, 100)]
    between = [outcome for outcome in outcomes if outcome.condition["place"] not in (0, 100)]
    first, second = mean_by_pair(at_ends, (), measure), mean_by_pair(between, (), measure)
    return {key: first[key] - second[key] for key in first if key in second}


def _difference(first: Mapping[PairingKey, float], second: Mapping[PairingKey, float]) -> Difference | None:
    return paired_difference(first, second) if first.keys() & second.keys() else None


def build_placed_cases(inputs: CaseInputs) -> tuple[Case, ...]:
    """Build the cases of an experiment that places documents as this one does."""
    grid = inputs.grid
    return cases(inputs.all_questions(), inputs.study, ks=grid.ks, places=grid.places, arms=grid.arms)


def outcome_tables(build: Callable[..., tuple[Table, ...]]) -> Callable[[Runs, Sequence[str]], tuple[Table, ...]]:
    """Adapt a function from outcomes by model to tables, so that it takes finished runs."""

    def tables_of_runs(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
        return build(read_outcomes(runs), remarks=remarks)

    return tables_of_runs


PLACE_PLOT = PlotSpec(
    "Share right by the place of the key document",
    "line",
    (SHARE_COLUMN,),
    ("place",),
    ("arm",),
    axis_title="place of the key document (percentile)",
)
PLOTS = (
    (PLACE_PLOT,),
    (
        PlotSpec("Share right by arm", "points", (SHARE_COLUMN,), ("arm",), ("arm",)),
        PlotSpec("Differences by arm", "points", ("difference to *",), ("arm",), ("arm",)),
    ),
    (PlotSpec("What the middle loses", "points", ("lost in the middle",), ("arm",), ("arm",)),),
)
EXPERIMENT = Experiment(
    NAME,
    "Does it matter where among k documents the key document stands? (BriefContext, Figure 2)",
    build_placed_cases,
    outcome_tables(tables),
    sets=(PUBMEDQA,),
    grid=Grid(ARMS, KS, PLACES),
    published=("positions", "positions-averages", "positions-averages-preprint"),
    plots=PLOTS,
)
