"""What do solved questions bring, and does it matter which? (The context-retrieval study, section 4.2: Tables 5 to 7.)

Medprompt over libraries of solved questions that differ in encoder or in how they were written, with and without a
reranker. The rivals are the same votes without examples (errata P6), and examples drawn at random or the same for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from epicrisis.core.errors import InputError
from epicrisis.evaluation.analysis.grouping import Group, make_accuracy_table
from epicrisis.evaluation.analysis.table import DIFFERENCES, SHARES, Table, points_plot
from epicrisis.evaluation.experiments import vote_sampling
from epicrisis.evaluation.experiments.arms import check_names
from epicrisis.evaluation.experiments.definition import CaseInputs, Experiment, Grid
from epicrisis.evaluation.experiments.outcome_groups import OutcomesByModel, select, values_of
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.case import Case

NAME = "medprompt"
VOTES = 5
RETRIEVED = "retrieved"
CONTROLS = ("random", "fixed")
ARMS = (vote_sampling.NO_EXAMPLES, RETRIEVED, *CONTROLS)
"""Kinds of examples."""
RERANKED = "+reranker"
_FIRST = "the first library, or without reranker"

_NOTES = (
    "Without examples: self-consistency with the same number of votes and shuffled options (errata P6: the study's "
    "gains are measured against one next-token prediction).",
    "Random: other examples for each question, from the first library; fixed: the same for all questions.",
    "The reranker scores question against question, though MedCPT's was trained on query and article (errata P7).",
)


def build_cases(inputs: CaseInputs) -> tuple[Case, ...]:
    """Build the cases. Conditions: `arm`, `examples` (the source's name, or `none`) and `repeat`.

    The sources of one question are adjacent. Raises InputError without a source, for an unknown arm, or for a question
    without a gold letter.
    """
    arms, sources = inputs.grid.arms, inputs.study.examples
    voting = vote_sampling.set_votes(inputs, vote_sampling.single_votes(inputs, NAME), shuffle=True)
    check_names(arms, ARMS)
    if not sources:
        raise InputError("this experiment shows solved questions: give a library of them with --examples NAME=LIBRARY")
    vote_sampling.check_choices(inputs.all_questions())
    built: list[Case] = []
    for question, of_set in inputs.questions_with_set():
        if vote_sampling.NO_EXAMPLES in arms:
            condition = {**of_set, "arm": vote_sampling.SHUFFLED, "examples": vote_sampling.NO_EXAMPLES}
            overrides = RunOverrides(options={"strategy": "self-consistency", "votes": voting})
            built += inputs.repeat(question, condition, overrides)
        for name, find in sources.items():
            if (name if name in CONTROLS else RETRIEVED) in arms:
                condition = {**of_set, "arm": vote_sampling.MEDPROMPT, "examples": name}
                overrides = RunOverrides(options={"strategy": "medprompt", "votes": voting}, examples=find(question))
                built += inputs.repeat(question, condition, overrides)
    return tuple(built)


def tables(runs: OutcomesByModel, *, remarks: Sequence[str] = ()) -> tuple[Table, ...]:
    """Build the tables of finished runs: each source against no examples, and against the first source.

    A reranked source is compared with itself without the reranker.
    """
    against_none: list[Group] = []
    against_first: list[Group] = []
    for model, outcomes in runs.items():
        names = list(map(str, values_of(outcomes, "examples")))
        first = next(filter(vote_sampling.NO_EXAMPLES.__ne__, names), vote_sampling.NO_EXAMPLES)
        without = select(outcomes, examples=vote_sampling.NO_EXAMPLES)
        for name in names:
            here = select(outcomes, examples=name)
            against_none.append(
                Group((model, name), here, without if name != vote_sampling.NO_EXAMPLES else (), ("repeat",))
            )
            rival = name.removesuffix(RERANKED) if name.endswith(RERANKED) else first
            if name not in (vote_sampling.NO_EXAMPLES, rival):
                against_first.append(Group((model, name), here, select(outcomes, examples=rival), ("repeat",)))
    build = partial(make_accuracy_table, labels=("model", "examples"), remarks=(*_NOTES, *remarks))
    built = [build("Accuracy by the examples that are shown", groups=against_none, baseline="no examples")]
    if against_first:
        built.append(build("Which examples", groups=against_first, baseline=_FIRST))
    return tuple(built)


EXPERIMENT = Experiment(
    name=NAME,
    question="What do solved questions bring, and does it matter which? (Context retrieval, Tables 5 to 7)",
    cases=build_cases,
    tables=vote_sampling.vote_tables(tables, ("arm", "examples")),
    sets=vote_sampling.QUESTION_SETS,
    grid=Grid(ARMS, votes=(VOTES,)),
    published=("medprompt-encoder-properties", "medprompt-encoders", "medprompt-databases", "medprompt-reranker"),
    plots=(
        (points_plot("Differences between examples", f"difference to {_FIRST}", panel=("model",)),),
        (SHARES, DIFFERENCES),
        vote_sampling.usage_plots(along=("examples",)),
    ),
    strategy="self-consistency",
    places_documents=False,
    shows_examples=True,
    by_settings=True,
)
