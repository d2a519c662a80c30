"""The experiments of the context-retrieval study: what each asks, its cases, and the libraries of solved questions that
they show. They read no library of passages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from epicrisis.answering.voting import Voting
from epicrisis.errors import InputError
from epicrisis.opening import ExampleSearch, open_examples
from epicrisis.settings import Settings
from epicrisis.types import Question

from .experiment import Asked, Experiment, Grid, Request, Runs
from .experiments import ensembles, medprompt, models, openmedprompt
from .experiments.arms import Study, rank_of
from .experiments.evidence import Evidence
from .judging.correctness import marking_of
from .runs.cases import Case
from .runs.records import outcomes
from .tables.correctness import remarks as marks_told
from .tables.table import Table

_MEDQA = ("mirage/medqa",)
_STUDIED = ("careqa", "mirage/medmcqa", "mirage/medqa", "mirage/mmlu")


def nowhere() -> Evidence:
    """The evidence of an experiment that reads none."""

    def none(*_: Any) -> Any:
        raise InputError("this experiment reads no library of passages")

    return Evidence(retrieve=none, passages_of=none)


def sources(request: Request, settings: Settings, held: ExitStack, arms: Sequence[str]) -> dict[str, ExampleSearch]:
    """A search for each library of solved questions that was named; with a reranker each once more with it; and those
    of the arms that are controls, of the first library. The libraries are closed with `held`. Raises UserError."""
    named = list(request.examples)
    if not named and settings.examples.library is not None:
        named = [(settings.examples.library.name, settings.examples.library)]
    if taken := [name for name, _ in named if name in medprompt.ARMS]:
        raise InputError(f"{taken[0]} is the name of a control: give the library another, --examples NAME=FOLDER")
    found: dict[str, ExampleSearch] = {}
    for name, path in named:
        for reranker, title in ((None, name), (request.reranker, f"{name}{medprompt.RERANKED}")):
            if title == name or reranker is not None:
                found[title] = _find(settings, held, library=path, rerank=reranker)
    for control in (arm for arm in arms if named and arm in medprompt.CONTROLS):
        found[control] = _find(settings, held, library=named[0][1], choose=control)
    return found


def _find(settings: Settings, held: ExitStack, **changes: Any) -> ExampleSearch:
    wanted = settings.examples.model_copy(update=changes)
    search = open_examples(settings.model_copy(update={"examples": wanted}))
    if search is None:
        raise InputError("this experiment shows solved questions: name a library of them with --examples")
    held.enter_context(search.opened)
    return search


def _all(asked: Asked) -> list[Question]:
    return [question for questions in asked.values() for question in questions]


def _drawing(study: Study, settings: Settings) -> ensembles.Drawing:
    return ensembles.Drawing(Voting(**settings.votes.model_dump()), study.seed, study.repeats)


def _one(grid: Grid, name: str) -> int:
    if len(grid.votes) != 1:
        raise InputError(f"{name} takes one number of votes: give --votes once")
    return grid.votes[0]


def _ensembles(asked: Asked, study: Study, grid: Grid, settings: Settings) -> tuple[Case, ...]:
    return ensembles.cases(
        _all(asked),
        _drawing(study, settings),
        votes=grid.votes,
        temperatures=grid.temperatures,
        arms=grid.arms,
    )


def _medprompt(asked: Asked, study: Study, grid: Grid, settings: Settings) -> tuple[Case, ...]:
    votes = _one(grid, medprompt.NAME)
    return medprompt.cases(_all(asked), _drawing(study, settings), study.examples, votes=votes, arms=grid.arms)


def _models(asked: Asked, study: Study, grid: Grid, settings: Settings) -> tuple[Case, ...]:
    return models.cases(asked, _drawing(study, settings), study.examples, votes=_one(grid, models.NAME))


def _openmedprompt(asked: Asked, study: Study, grid: Grid, settings: Settings) -> tuple[Case, ...]:
    sizes = openmedprompt.Sizes(grid.votes, grid.ks)
    drawing = _drawing(study, settings)
    return openmedprompt.cases(_all(asked), drawing, study.examples, sizes=sizes, arms=grid.arms)


def _marked(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    """Of the marks that lie beside the records; before any were made every answer is one without a verdict."""
    markings = {run.name: marking_of(run.path.parent) for run in runs}
    found = {
        name: sorted(marking.outcomes(), key=lambda each: (rank_of(each.condition), each.question))
        for name, marking in markings.items()
    }
    notes = dict.fromkeys(note for marking in markings.values() for note in marks_told(marking))
    made = openmedprompt.tables(found, remarks=(*remarks, *notes))
    return (*made, ensembles.took({run.name: run.records() for run in runs}, ("arm", "examples", "k", "n")))


def _tables(
    made: Callable[..., tuple[Table, ...]], by: Sequence[str]
) -> Callable[[Runs, Sequence[str]], tuple[Table, ...]]:
    """Those of the outcomes, and what it took by these conditions."""

    def of(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
        found = {run.name: outcomes(run.records()) for run in runs}
        return (*made(found, remarks=remarks), ensembles.took({run.name: run.records() for run in runs}, by))

    return of


EXPERIMENTS: Mapping[str, Experiment] = {
    each.name: each
    for each in (
        Experiment(
            ensembles.NAME,
            "What do votes and shuffled options bring? (Context retrieval, Tables 1 to 3, Figure 2)",
            _MEDQA,
            Grid(ensembles.ARMS, votes=ensembles.VOTES, temperatures=ensembles.TEMPERATURES),
            _ensembles,
            _tables(ensembles.tables, ("arm", "votes", "temperature")),
            ensembles.PUBLISHED,
            strategy="self-consistency",
            placed=False,
            by_settings=True,
        ),
        Experiment(
            medprompt.NAME,
            "What do solved questions bring, and does it matter which? (Context retrieval, Tables 5 to 7)",
            _MEDQA,
            Grid(medprompt.ARMS, votes=(medprompt.VOTES,)),
            _medprompt,
            _tables(medprompt.tables, ("arm", "examples")),
            medprompt.PUBLISHED,
            strategy="self-consistency",
            placed=False,
            by_settings=True,
        ),
        Experiment(
            models.NAME,
            "What does context retrieval bring to each of several models? (Context retrieval, Tables 8 and 9)",
            _STUDIED,
            Grid(votes=(models.VOTES,)),
            _models,
            _tables(models.tables, ("set", "arm")),
            models.PUBLISHED,
            strategy="self-consistency",
            placed=False,
            by_settings=True,
        ),
        Experiment(
            openmedprompt.NAME,
            "What do drafts, critique and rewards bring to open answers? (Context retrieval, Tables 10 to 12)",
            ("medqa/open-test",),
            Grid(openmedprompt.ARMS, openmedprompt.KS, votes=openmedprompt.NS),
            _openmedprompt,
            _marked,
            openmedprompt.PUBLISHED,
            strategy="self-reflection",
            placed=False,
            by_settings=True,
        ),
    )
}
