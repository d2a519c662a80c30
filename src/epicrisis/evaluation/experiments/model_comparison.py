"""What does context retrieval bring to each of several models? (The context-retrieval study, sections 4.4 and 4.5:
Tables 8 and 9.)

Each model by next token, by self-consistency with shuffled options, and by Medprompt with as many votes: the gain is
told against both, since the study measures twenty votes against one prediction (errata P6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.grouping import AccuracyMeasure, Group, mean, table
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.arms import ExampleFinder
from epicrisis.evaluation.experiments.ensembles import SHUFFLED, ZERO, VoteSampling, check_choices, of
from epicrisis.evaluation.experiments.medprompt import MEDPROMPT
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.overrides import RunOverrides
from epicrisis.types import Question

NAME = "models"
VOTES = 20
ARMS = (ZERO, SHUFFLED, MEDPROMPT)
PUBLISHED = ("models", "models-averages", "models-leaderboard")

_NOTES = (
    "Zero-shot is one prediction of the next token; the two others have the same number of votes, so what the examples "
    "bring is the difference between these.",
)
_SORTED = (
    "Sorted by the mean over the sets, each of them counted alike; a model that was not asked all of them has none.",
)


def cases(
    asked: Mapping[str, Sequence[Question]],
    drawing: VoteSampling,
    sources: Mapping[str, ExampleFinder],
    *,
    votes: int = VOTES,
) -> tuple[Case, ...]:
    """Of questions by the name of their set. Conditions: `set`, `arm`, `repeat`. Raises InputError unless there is one
    source of examples, or for a question without a gold letter."""
    if len(sources) != 1:
        raise InputError("models are compared over one library of solved questions: name it with --examples")
    (find,) = sources.values()
    voting = drawing.votes(votes, shuffle=True)
    made: list[Case] = []
    for name, questions in asked.items():
        check_choices(questions)
        for question in questions:
            for arm, treatment in (
                (ZERO, RunOverrides("zero-shot")),
                (SHUFFLED, RunOverrides("self-consistency", voting=voting)),
                (MEDPROMPT, RunOverrides("medprompt", voting=voting, examples=find(question))),
            ):
                made += drawing.cases(question, {"set": name, "arm": arm}, treatment)
    return tuple(made)


def tables(
    runs: Mapping[str, Sequence[Outcome]],
    *,
    measure: AccuracyMeasure = "right",
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> tuple[Table, ...]:
    """Of finished runs, by the name of their model: gains over zero-shot (Table 8), over the same votes without
    examples, and all methods of all models in order (Table 9)."""
    told = (*_NOTES, *remarks)

    def gains(title: str, over: str, arms: Sequence[str]) -> Table:
        groups = [
            Group((model, name, arm), of(found, set=name, arm=arm), of(found, set=name, arm=over), ("repeat",))
            for model, found in runs.items()
            for name in _sets(found)
            for arm in arms
        ]
        return table(title, ("model", "set", "arm"), groups, baseline=over, measure=measure, remarks=told, seed=seed)

    return (
        gains("With and without context retrieval", ZERO, (SHUFFLED, MEDPROMPT)),
        gains("What the examples bring", SHUFFLED, (MEDPROMPT,)),
        _leaderboard(runs, measure, (*told, *_SORTED), seed),
    )


def _leaderboard(
    runs: Mapping[str, Sequence[Outcome]], measure: AccuracyMeasure, remarks: tuple[str, ...], seed: int
) -> Table:
    sets = list(dict.fromkeys(name for found in runs.values() for name in _sets(found)))
    rows: list[tuple[Cell, ...]] = []
    for model, found in runs.items():
        for arm in ARMS:
            means = [mean(of(found, set=name, arm=arm), measure, seed) for name in sets]
            average = sum(each.value for each in means) / len(means) if all(each.n for each in means) else None
            rows.append((model, arm, average, *means))
    rows.sort(key=lambda row: -1.0 if row[2] is None else float(str(row[2])), reverse=True)
    return Table("Leaderboard", ("model", "arm", "average", *map(str, sets)), tuple(rows), remarks)


def _sets(outcomes: Sequence[Outcome]) -> list[Cell]:
    return list(dict.fromkeys(each.condition["set"] for each in outcomes))
