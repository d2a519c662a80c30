"""The experiments of the context-retrieval study: what each asks, its cases, and the libraries of solved questions that
they show. They read no library of passages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar

from epicrisis.answering.voting import VotingOptions
from epicrisis.components import ExampleSearch, open_examples
from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments import ensembles, medprompt, openmedprompt
from epicrisis.evaluation.experiments import model_comparison as models
from epicrisis.evaluation.experiments.arms import Study, condition_order
from epicrisis.evaluation.experiments.experiment import Experiment, Grid, QuestionsBySet, Request, Runs
from epicrisis.evaluation.experiments.passage_source import PassageSource
from epicrisis.evaluation.grading.correctness import read_correctness
from epicrisis.evaluation.grading.correctness_tables import correctness_remarks as marks_told
from epicrisis.evaluation.runs.case import Case, Condition
from epicrisis.evaluation.runs.outcomes import Outcome, score_records
from epicrisis.evaluation.runs.record import RunRecord
from epicrisis.evaluation.runs.recorded_run import RecordedRun
from epicrisis.settings import Settings
from epicrisis.types import Question

T = TypeVar("T")

_STUDIED = ("careqa", "mirage/medmcqa", "mirage/medqa", "mirage/mmlu")


def nowhere() -> PassageSource:
    """The evidence of an experiment that reads none."""

    def none(*_: Any) -> Any:
        raise InputError("this experiment reads no library of passages")

    return PassageSource(retrieve=none, passages_of=none)


def sources(request: Request, settings: Settings, held: ExitStack, grid: Grid) -> dict[str, ExampleSearch]:
    """A search for each library of solved questions that was named; with a reranker each once more with it; and those
    of the grid's arms that are controls, of the first library. The libraries are closed with `held`.

    Raises UserError.
    """
    named = list(request.examples)
    if not named and settings.examples.library is not None:
        named = [(settings.examples.library.name, settings.examples.library)]
    _check_names([name for name, _ in named])
    # As many as the largest number that is shown.
    k = max(grid.ks, default=settings.examples.k)
    found: dict[str, ExampleSearch] = {}
    for name, path in named:
        for reranker, title in ((None, name), (request.reranker, f"{name}{medprompt.RERANKED}")):
            if title == name or reranker is not None:
                found[title] = _find(settings, held, library=path, rerank=reranker, k=k)
    for control in (arm for arm in grid.arms if named and arm in medprompt.CONTROLS):
        found[control] = _find(settings, held, library=named[0][1], choose=control, k=k)
    return found


def _check_names(names: Sequence[str]) -> None:
    """Raises InputError for names that the tables could not tell apart."""
    taken = [name for name in names if name in medprompt.ARMS or name.endswith(medprompt.RERANKED) or not name]
    if taken or len({*names}) < len(names):
        which = repr(taken[0]) if taken else f"{len(names)} libraries with {len({*names})} names"
        raise InputError(f"--examples: {which} cannot be told from others: give each a name, --examples NAME=FOLDER")


def _find(settings: Settings, held: ExitStack, **changes: Any) -> ExampleSearch:
    wanted = settings.examples.model_copy(update=changes)
    search = open_examples(settings.model_copy(update={"examples": wanted}))
    if search is None:
        raise InputError("this experiment shows solved questions: name a library of them with --examples")
    held.enter_context(search.search)
    return search


def _by_set(asked: QuestionsBySet, made: Callable[[Sequence[Question]], tuple[Case, ...]]) -> tuple[Case, ...]:
    """The cases of each set; of several sets with its name as condition."""
    if len(asked) == 1:
        return made(*asked.values())
    return tuple(
        replace(case, condition={"set": name, **case.condition})
        for name, questions in asked.items()
        for case in made(questions)
    )


def _drawing(study: Study, settings: Settings) -> ensembles.VoteSampling:
    return ensembles.VoteSampling(VotingOptions(**settings.votes.model_dump()), study.seed, study.repeats)


def _one(grid: Grid, name: str) -> int:
    if len(grid.votes) != 1:
        raise InputError(f"{name} takes one number of votes: give --votes once")
    return grid.votes[0]


def _ensembles(asked: QuestionsBySet, study: Study, grid: Grid, settings: Settings) -> tuple[Case, ...]:
    drawing = _drawing(study, settings)
    wanted: dict[str, Any] = {"votes": grid.votes, "temperatures": grid.temperatures, "arms": grid.arms}
    return _by_set(asked, lambda questions: ensembles.cases(questions, drawing, **wanted))


def _medprompt(asked: QuestionsBySet, study: Study, grid: Grid, settings: Settings) -> tuple[Case, ...]:
    drawing, votes = _drawing(study, settings), _one(grid, medprompt.NAME)
    return _by_set(
        asked, lambda questions: medprompt.cases(questions, drawing, study.examples, votes=votes, arms=grid.arms)
    )


def _models(asked: QuestionsBySet, study: Study, grid: Grid, settings: Settings) -> tuple[Case, ...]:
    return models.cases(asked, _drawing(study, settings), study.examples, votes=_one(grid, models.NAME))


def _openmedprompt(asked: QuestionsBySet, study: Study, grid: Grid, settings: Settings) -> tuple[Case, ...]:
    sizes, drawing = openmedprompt.Sizes(grid.votes, grid.ks), _drawing(study, settings)
    return _by_set(
        asked, lambda questions: openmedprompt.cases(questions, drawing, study.examples, sizes=sizes, arms=grid.arms)
    )


def _marked(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    """Of the marks that lie beside the records; of a run that nobody has marked only what it took, and what to do."""
    markings = [(run, read_correctness(run.path.parent)) for run in runs]
    marked = [(run, marking) for run, marking in markings if marking.judges]
    found = {run.name: _in_order(run, marking.outcomes()) for run, marking in marked}
    notes = dict.fromkeys(note for _, marking in marked for note in marks_told(marking))
    made = openmedprompt.tables(_each_set(found, _condition), remarks=(*remarks, *notes)) if found else ()
    took = ensembles.took(_each_set(_records(runs), _recorded), ("arm", "examples", "k", "n"))
    to_do = (
        f"{run.name}: nobody has marked these open answers yet, so nothing says which are right: `epicrisis open-ended "
        "mark FOLDER --model MODEL` with the run's folder, then `epicrisis report` or the same command again."
        for run, marking in markings
        if not marking.judges
    )
    return (*made, replace(took, notes=(*to_do, *took.notes)))


def _tables(
    made: Callable[..., tuple[Table, ...]], by: Sequence[str]
) -> Callable[[Runs, Sequence[str]], tuple[Table, ...]]:
    """Those of the outcomes, and what it took by these conditions; each set apart, unless the tables do it."""

    def of(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
        found: Mapping[str, Iterable[Outcome]] = {
            run.name: _in_order(run, score_records(run.records())) for run in runs
        }
        records = _records(runs)
        if "set" not in by:
            found, records = _each_set(found, _condition), _each_set(records, _recorded)
        return (*made(found, remarks=remarks), ensembles.took(records, by))

    return of


def _in_order(run: RecordedRun, found: Sequence[Outcome]) -> list[Outcome]:
    """Sets by name, sources of examples as they were named, whatever ended first."""
    named = list(run.manifest.plan.arguments.get("examples", ())) if run.manifest else []
    places = {name: place for place, name in enumerate(named)}

    def place(each: Outcome) -> tuple[Any, ...]:
        source = places.get(str(each.condition.get("examples")), -1)
        return str(each.condition.get("set", "")), source, condition_order(each.condition), each.question

    return sorted(found, key=place)


def _records(runs: Runs) -> Mapping[str, Iterable[RunRecord]]:
    return {run.name: run.records() for run in runs}


def _condition(outcome: Outcome) -> Condition:
    return outcome.condition


def _recorded(record: RunRecord) -> Condition:
    return record.condition


def _each_set(found: Mapping[str, Iterable[T]], condition: Callable[[T], Condition]) -> dict[str, list[T]]:
    """By model; where several sets were asked by model and set, the sets by name."""
    made: dict[tuple[str, str], list[T]] = {}
    for model, cases in found.items():
        for case in cases:
            made.setdefault((model, str(condition(case).get("set", ""))), []).append(case)
    models = list(found)
    order = sorted(made, key=lambda each: (models.index(each[0]), each[1]))
    return {f"{model}, {of}" if of else model: made[model, of] for model, of in order}


EXPERIMENTS: Mapping[str, Experiment] = {
    each.name: each
    for each in (
        Experiment(
            ensembles.NAME,
            "What do votes and shuffled options bring? (Context retrieval, Tables 1 to 3, Figure 2)",
            _STUDIED,
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
            _STUDIED,
            Grid(medprompt.ARMS, votes=(medprompt.VOTES,)),
            _medprompt,
            _tables(medprompt.tables, ("arm", "examples")),
            medprompt.PUBLISHED,
            strategy="self-consistency",
            placed=False,
            shows_examples=True,
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
            shows_examples=True,
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
            shows_examples=True,
            by_settings=True,
        ),
    )
}
