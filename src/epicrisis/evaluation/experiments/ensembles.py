"""What do votes and shuffled options bring? (The context-retrieval study, section 4.1: Tables 1 to 3, Figure 2.)

Zero-shot by next token, one chain of thought, and self-consistency over a growing number of votes, with the options in
order and shuffled; one number of votes at several temperatures. The votes of a smaller number are among those of a
larger one, so they come from the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from epicrisis.evaluation.analysis.grouping import SHARE_COLUMN, Group, make_accuracy_table
from epicrisis.evaluation.analysis.table import Table, line_plot, points_plot
from epicrisis.evaluation.experiments import vote_sampling
from epicrisis.evaluation.experiments.arms import check_names
from epicrisis.evaluation.experiments.definition import CaseInputs, Experiment, Grid
from epicrisis.evaluation.experiments.outcome_groups import (
    OutcomesByModel,
    collect_groups,
    numbers_of,
    select,
    values_of,
    with_condition,
)
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.case import Case, Condition

NAME = "ensembles"
VOTES = (1, 3, 5, 10, 15, 20, 25)
TEMPERATURES = (0.3, 0.5, 0.7, 1.0)
"""Our values: the study varied the temperature and prints none."""
N = 5
"""Votes at each temperature, and in the comparison of methods; where fewer are asked for, the largest number."""
ARMS = (vote_sampling.ZERO, vote_sampling.COT, vote_sampling.SC, vote_sampling.SHUFFLED)

_VOTED, _MODEL = ("arm", "votes"), ("model",)
_NOTES = (
    "A tie of votes is no choice and counts as abstained, unless votes.tie says otherwise. N = 1 is one vote at the "
    "votes' temperature, a chain of thought is one reply at the model's own (errata P5: the study's N = 1 is its "
    "unshuffled chain of thought).",
    "Votes of a smaller number are the first of a larger one, so rows are not independent of each other.",
)


def build_cases(inputs: CaseInputs) -> tuple[Case, ...]:
    """Build the cases. Conditions: `arm`, `repeat`, for self-consistency `votes`, and `temperature` where it is not the
    votes' own. The largest number of votes comes first, and fills the cache for the others.

    Raises InputError for an unknown arm, or a question without a gold letter.
    """
    grid = inputs.grid
    check_names(grid.arms, ARMS)
    vote_sampling.check_choices(inputs.all_questions())
    built: list[Case] = []
    for question, of_set in inputs.questions_with_set():
        for arm in grid.arms:
            condition: Condition = {**of_set, "arm": arm}
            if arm in (vote_sampling.ZERO, vote_sampling.COT):
                strategy: str = "zero-shot" if arm == vote_sampling.ZERO else "chain-of-thought"
                built += inputs.repeat(question, condition, RunOverrides(options={"strategy": strategy}))
                continue
            shuffle = arm == vote_sampling.SHUFFLED
            for n in sorted(grid.votes, reverse=True):
                voting = vote_sampling.set_votes(inputs, n, shuffle=shuffle)
                overrides = RunOverrides(options={"strategy": "self-consistency", "votes": voting})
                built += inputs.repeat(question, {**condition, "votes": n}, overrides)
            n = vote_sampling.preferred_size(N, grid.votes)
            for temperature in sorted({*grid.temperatures} - {inputs.settings.votes.temperature}):
                voting = vote_sampling.set_votes(inputs, n, shuffle=shuffle)
                voting = voting.model_copy(update={"temperature": temperature})
                overrides = RunOverrides(options={"strategy": "self-consistency", "votes": voting})
                built += inputs.repeat(question, {**condition, "votes": n, "temperature": temperature}, overrides)
    return tuple(built)


def tables(runs: OutcomesByModel, *, remarks: Sequence[str] = ()) -> tuple[Table, ...]:
    """Build the tables of finished runs: the methods at one number of votes (Table 1), the effect of shuffling (Table
    2), the number of votes (Table 3, Figure 2), and the temperature where it was varied."""
    as_set = {model: select(outcomes, temperature=None) for model, outcomes in runs.items()}
    shuffling = collect_groups(as_set, _shuffling_groups)
    by_temperature = collect_groups(runs, _temperature_groups)
    build = partial(make_accuracy_table, remarks=(*_NOTES, *remarks))
    votes = ("model", *_VOTED)
    built = [
        build("Accuracy by method", votes, collect_groups(as_set, _method_groups), baseline=vote_sampling.COT),
        build("What shuffled options change", ("model", "votes"), shuffling, baseline="options as they are"),
        build(
            "Accuracy by the number of votes",
            votes,
            collect_groups(as_set, _vote_groups),
            baseline="the same arm at its fewest votes",
        ),
    ]
    if by_temperature:
        built.append(build("Accuracy by temperature", (*votes, "temperature"), by_temperature, baseline="as set"))
    return tuple(built)


def _method_groups(model: str, outcomes: Sequence[Outcome]) -> Iterator[Group]:
    """Yield each method at five votes, as in the study's Table 1, or at the largest number."""
    rivals = select(outcomes, arm=vote_sampling.COT)
    for arm in ARMS:
        here = select(outcomes, arm=arm)
        votes = numbers_of(here, "votes")
        n = vote_sampling.preferred_size(N, votes) if votes else None
        if n is not None:
            here = select(here, votes=n)
        if here:
            yield Group((model, arm, n), here, rivals if arm != vote_sampling.COT else (), ("repeat",))


def _shuffling_groups(model: str, outcomes: Sequence[Outcome]) -> Iterator[Group]:
    shuffled = select(outcomes, arm=vote_sampling.SHUFFLED)
    for n in numbers_of(shuffled, "votes"):
        yield Group((model, n), select(shuffled, votes=n), select(outcomes, arm=vote_sampling.SC, votes=n), ("repeat",))


def _vote_groups(model: str, outcomes: Sequence[Outcome]) -> Iterator[Group]:
    for arm in (vote_sampling.SC, vote_sampling.SHUFFLED):
        of_arm = select(outcomes, arm=arm)
        votes = numbers_of(of_arm, "votes")
        for n in votes:
            rivals = select(of_arm, votes=votes[0]) if n != votes[0] else ()
            yield Group((model, arm, n), select(of_arm, votes=n), rivals, ("repeat",))


def _temperature_groups(model: str, outcomes: Sequence[Outcome]) -> Iterator[Group]:
    for arm in (vote_sampling.SC, vote_sampling.SHUFFLED):
        of_arm = select(outcomes, arm=arm)
        varied = with_condition(of_arm, "temperature")
        for n in numbers_of(varied, "votes"):
            rivals = select(of_arm, votes=n, temperature=None)
            yield Group((model, arm, n, "as set"), rivals, (), ("repeat",))
            for temperature in sorted(map(float, map(str, values_of(varied, "temperature")))):
                here = select(varied, votes=n, temperature=temperature)
                yield Group((model, arm, n, temperature), here, rivals, ("repeat",))


EXPERIMENT = Experiment(
    name=NAME,
    question="What do votes and shuffled options bring? (Context retrieval, Tables 1 to 3, Figure 2)",
    cases=build_cases,
    tables=vote_sampling.vote_tables(tables, ("arm", "votes", "temperature")),
    sets=vote_sampling.QUESTION_SETS,
    grid=Grid(ARMS, votes=VOTES, temperatures=TEMPERATURES),
    published=("ensembles-baseline", "ensembles-shuffling", "ensembles-votes", "study-energy"),
    plots=(
        (
            points_plot(
                "Share right by method",
                SHARE_COLUMN,
                along=_VOTED,
                series=("arm",),
                panel=_MODEL,
                method_columns=_VOTED,
            ),
            points_plot(
                "Differences by method",
                f"difference to {vote_sampling.COT}",
                along=_VOTED,
                series=("arm",),
                panel=_MODEL,
            ),
        ),
        (points_plot("What shuffled options change", "difference to options as they are", along=("votes",)),),
        (
            line_plot(
                "Share right by the number of votes", SHARE_COLUMN, along=("votes",), series=("arm",), panel=_MODEL
            ),
            line_plot(
                "What more votes change",
                "difference to the same arm *",
                along=("votes",),
                series=("arm",),
                panel=_MODEL,
            ),
        ),
        vote_sampling.usage_plots(kind="line", along=("votes",), series=("arm",), panel=_MODEL),
    ),
    strategy="self-consistency",
    places_documents=False,
    by_settings=True,
)
