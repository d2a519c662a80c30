"""What does context retrieval bring to each of several models? (The context-retrieval study, sections 4.4 and 4.5:
Tables 8 and 9.)

Each model by next token, by self-consistency with shuffled options, and by Medprompt with as many votes. The gain is
shown against both, since the study compares twenty votes with one prediction (errata P6).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from epicrisis.core.errors import InputError
from epicrisis.evaluation.analysis.grouping import (
    SHARE_COLUMN,
    Group,
    describe_failures,
    make_accuracy_table,
    mean_score,
)
from epicrisis.evaluation.analysis.table import Cell, Table, points_plot
from epicrisis.evaluation.experiments import vote_sampling
from epicrisis.evaluation.experiments.arms import check_names
from epicrisis.evaluation.experiments.definition import CaseInputs, Experiment, Grid
from epicrisis.evaluation.experiments.outcome_groups import OutcomesByModel, all_outcomes, select, values_of
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.case import Case

NAME = "models"
VOTES = 20
ARMS = (vote_sampling.ZERO, vote_sampling.SHUFFLED, vote_sampling.MEDPROMPT)

_NOTES = (
    "Zero-shot is one prediction of the next token; the two others have the same number of votes, so their difference "
    "is the effect of the examples.",
)
_LEADERBOARD_NOTE = (
    "Sorted by the mean over the sets, all of equal weight; a model that was not asked all of them has none."
)


def build_cases(inputs: CaseInputs) -> tuple[Case, ...]:
    """Build the cases of questions by set. Conditions: `set`, `arm`, `repeat`.

    Raises InputError for an unknown arm, without exactly one source of examples, or for a question without a gold
    letter.
    """
    voting = vote_sampling.set_votes(inputs, vote_sampling.single_votes(inputs, NAME), shuffle=True)
    check_names(inputs.grid.arms, ARMS)
    if len(inputs.study.examples) != 1:
        raise InputError("models are compared over one library of solved questions: give it with --examples")
    (find,) = inputs.study.examples.values()
    vote_sampling.check_choices(inputs.all_questions())
    built: list[Case] = []
    for name, questions in inputs.questions.items():
        for question in questions:
            overrides_by_arm = {
                vote_sampling.ZERO: RunOverrides(options={"strategy": "zero-shot"}),
                vote_sampling.SHUFFLED: RunOverrides(options={"strategy": "self-consistency", "votes": voting}),
                vote_sampling.MEDPROMPT: RunOverrides(
                    options={"strategy": "medprompt", "votes": voting}, examples=find(question)
                ),
            }
            for arm in inputs.grid.arms:
                built += inputs.repeat(question, {"set": name, "arm": arm}, overrides_by_arm[arm])
    return tuple(built)


def tables(runs: OutcomesByModel, *, remarks: Sequence[str] = ()) -> tuple[Table, ...]:
    """Build the tables of finished runs: gains over zero-shot (Table 8), over the same votes without examples, and all
    methods of all models, sorted (Table 9)."""
    notes = (*_NOTES, *remarks)

    def gains_table(title: str, baseline: str, *arms: str) -> Table:
        groups: list[Group] = []
        for model, outcomes in runs.items():
            present = [arm for arm in arms if select(outcomes, arm=arm)]
            for name, arm in product(values_of(outcomes, "set"), present):
                here, rivals = select(outcomes, set=name, arm=arm), select(outcomes, set=name, arm=baseline)
                groups.append(Group((model, name, arm), here, rivals, ("repeat",)))
        return make_accuracy_table(title, ("model", "set", "arm"), groups, baseline=baseline, remarks=notes)

    sets = values_of(all_outcomes(runs), "set")
    ranked: list[tuple[float, tuple[Cell, ...]]] = []
    for (model, outcomes), arm in product(runs.items(), ARMS):
        if not select(outcomes, arm=arm):
            continue
        means = [mean_score(select(outcomes, set=name, arm=arm)) for name in sets]
        complete = all(mean.n for mean in means)
        average = sum(mean.value for mean in means) / len(means) if complete else None
        ranked.append((-1.0 if average is None else average, (model, arm, average, *means)))
    ranked.sort(key=lambda item: item[0], reverse=True)
    columns = ("model", "arm", "average", *map(str, sets))
    failures = describe_failures(all_outcomes(runs))
    return (
        gains_table(
            "With and without context retrieval", vote_sampling.ZERO, vote_sampling.SHUFFLED, vote_sampling.MEDPROMPT
        ),
        gains_table("What the examples bring", vote_sampling.SHUFFLED, vote_sampling.MEDPROMPT),
        Table("Leaderboard", columns, tuple(item[1] for item in ranked), (*failures, *notes, _LEADERBOARD_NOTE)),
    )


_MODEL, _ROWS = ("model",), ("model", "arm")
EXPERIMENT = Experiment(
    name=NAME,
    question="What does context retrieval bring to each of several models? (Context retrieval, Tables 8 and 9)",
    cases=build_cases,
    tables=vote_sampling.vote_tables(tables, ("set", "arm")),
    sets=vote_sampling.QUESTION_SETS,
    grid=Grid(ARMS, votes=(VOTES,)),
    published=("models", "models-averages", "models-leaderboard"),
    plots=(
        (
            points_plot(
                "Gains over one prediction",
                f"difference to {vote_sampling.ZERO}",
                along=_ROWS,
                series=("arm",),
                panel=("set",),
            ),
            points_plot(
                "Share right", SHARE_COLUMN, along=_ROWS, series=("arm",), panel=("set",), method_columns=("arm",)
            ),
        ),
        (points_plot("What the examples bring", "difference to *", along=_MODEL, series=_MODEL, panel=("set",)),),
        (points_plot("Leaderboard", "average", along=_ROWS, series=("arm",), panel=()),),
        vote_sampling.usage_plots(along=("arm",), series=("arm",), panel=("model", "set")),
    ),
    strategy="self-consistency",
    places_documents=False,
    shows_examples=True,
    by_settings=True,
)
