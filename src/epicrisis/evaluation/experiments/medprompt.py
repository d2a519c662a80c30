"""What do solved questions bring, and does it matter which? (The context-retrieval study, section 4.2: Tables 5 to 7.)

Medprompt over libraries of solved questions that differ in encoder or in how they were made, with and without a
reranker; beside it the same votes without examples (errata P6), and examples drawn at random or the same for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.grouping import AccuracyMeasure, Group, table
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.arms import ExampleFinder
from epicrisis.evaluation.experiments.ensembles import SHUFFLED, VoteSampling, check_choices, of
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.overrides import RunOverrides
from epicrisis.types import Question

NAME = "medprompt"
VOTES = 5
K = 5
MEDPROMPT = "medprompt"
NONE, RETRIEVED = "none", "retrieved"
CONTROLS = ("random", "fixed")
ARMS = (NONE, RETRIEVED, *CONTROLS)
"""Which examples are shown."""
RERANKED = "+reranker"
PUBLISHED = ("medprompt-encoder-properties", "medprompt-encoders", "medprompt-databases", "medprompt-reranker")

_NOTES = (
    "Without examples: self-consistency with the same number of votes and shuffled options (errata P6: the study's "
    "gains are measured against one next-token prediction).",
    "Random: other examples for each question, of the first library; fixed: the same for all questions.",
    "The reranker scores question against question, though MedCPT's was trained on query and article (errata P7).",
)


def cases(
    questions: Sequence[Question],
    drawing: VoteSampling,
    sources: Mapping[str, ExampleFinder],
    *,
    votes: int = VOTES,
    arms: Sequence[str] = ARMS,
) -> tuple[Case, ...]:
    """Conditions: `arm`, `examples` (the source's name, or `none` for the control), `repeat`; of one question the
    sources follow each other.

    Raises InputError without a source, for an arm that is not known, or for a question without a gold letter.
    """
    if unknown := [arm for arm in arms if arm not in ARMS]:
        raise InputError(f"no arm is called {unknown[0]}: known are {', '.join(ARMS)}")
    if not sources:
        raise InputError("this experiment shows solved questions: name a library of them with --examples NAME=LIBRARY")
    check_choices(questions)
    voting = drawing.votes(votes, shuffle=True)
    made: list[Case] = []
    for question in questions:
        if NONE in arms:
            without = RunOverrides("self-consistency", voting=voting)
            made += drawing.cases(question, {"arm": SHUFFLED, "examples": NONE}, without)
        for name, find in sources.items():
            if (name if name in CONTROLS else RETRIEVED) not in arms:
                continue
            treatment = RunOverrides("medprompt", voting=voting, examples=find(question))
            made += drawing.cases(question, {"arm": MEDPROMPT, "examples": name}, treatment)
    return tuple(made)


def tables(
    runs: Mapping[str, Sequence[Outcome]],
    *,
    measure: AccuracyMeasure = "right",
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> tuple[Table, ...]:
    """Of finished runs, by the name of their model: each source against no examples, and against the first source where
    there are others."""
    made = partial(table, labels=("model", "examples"), measure=measure, remarks=(*_NOTES, *remarks), seed=seed)
    by_source = [
        (model, name, of(found, examples=name), found) for model, found in runs.items() for name in _names(found)
    ]
    shown = [
        Group((model, name), here, of(found, examples=NONE) if name != NONE else (), ("repeat",))
        for model, name, here, found in by_source
    ]
    others = [group for model, name, here, found in by_source for group in _against_first(model, name, here, found)]
    first = "the first library, or without reranker"
    return (
        made("Accuracy by the examples that are shown", groups=shown, baseline="no examples"),
        *([made("Which examples", groups=others, baseline=first)] if others else ()),
    )


def _against_first(model: str, name: str, here: Sequence[Outcome], found: Sequence[Outcome]) -> Iterator[Group]:
    """A reranked source is held against itself without the reranker."""
    first = next((each for each in _names(found) if each != NONE), NONE)
    other = name.removesuffix(RERANKED) if name.endswith(RERANKED) else first
    if name not in (NONE, other):
        yield Group((model, name), here, of(found, examples=other), ("repeat",))


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(str(each.condition["examples"]) for each in outcomes))
