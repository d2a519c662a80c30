"""From an experiment and the options of a run to the run's plan and its cases."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import Any

from epicrisis.components import ExampleSearch, LibrarySearch, build_scope, describe_examples
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.datasets.load import load_dataset
from epicrisis.evaluation.experiments import cloze, probe
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.example_sources import open_sources
from epicrisis.evaluation.experiments.experiment import CORRECTED, CaseInputs, Experiment, Grid, Request
from epicrisis.evaluation.experiments.passage_source import PassageSource, library_source, no_source
from epicrisis.evaluation.experiments.study_protocols import StudyProtocol, find_protocol
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.run_folder import RunPlan, describe_dataset
from epicrisis.library.passage_lookup import sample_passages
from epicrisis.models.pair_models import load_reranker
from epicrisis.pipeline import WITHOUT_LIBRARY, Pipeline
from epicrisis.settings import Settings

CANDIDATES = 20
"""Passages inspected for each question that is made from the library's own documents."""
_FLAGS = {"arms": "--arm", "ks": "-k", "places": "--place", "votes": "--votes", "temperatures": "--temperature"}
"""Option of each field of the grid."""


def plan_experiment(
    experiment: Experiment, request: Request, settings: Settings, pipeline: Pipeline
) -> tuple[RunPlan, tuple[Case, ...]]:
    """Build the plan and the cases of a run over the pipeline's library.

    Raises InputError for an unknown protocol, set or arm, too few questions, or a missing document or answer.
    """
    _check(experiment, request, pipeline)
    protocol = replace(find_protocol(request.protocol), gold=request.gold)
    names = request.sets or experiment.sets
    sets = [load_dataset(name, settings.home, request.data) for name in names if name != cloze.NAME]
    whole_sets = experiment.whole_sets and request.questions is None
    samples = list(sets)
    if not whole_sets:
        samples = [protocol.draw_sample(dataset, request.draw, request.questions) for dataset in sets]
    grid = choose_grid(experiment, request)
    with ExitStack() as stack:
        examples: Mapping[str, ExampleSearch] = {}
        if pipeline.search is not None:
            source, own_sets = _open_source(pipeline.search, request, settings, protocol, names)
            sets += own_sets
            samples += own_sets
        else:
            source = no_source()
            if experiment.shows_examples:
                examples = open_sources(request, settings, stack, grid)
        finders = {name: search.find for name, search in examples.items()}
        study = Study(source, protocol, request.repeats, settings.seed, finders)
        questions = {sample.name: sample.questions for sample in samples}
        cases = experiment.cases(CaseInputs(questions, study, grid, settings))
        libraries = {name: describe_examples(search.search.library) for name, search in examples.items()}
    plan = RunPlan(
        name=experiment.name,
        arguments=_describe_arguments(experiment, request, grid, libraries),
        recipe=pipeline.recipe(),
        dataset=describe_sets(sets),
        sample=describe_sample(names, protocol, request, whole_sets=whole_sets),
        seed=settings.seed,
    )
    return plan, cases


def _check(experiment: Experiment, request: Request, pipeline: Pipeline) -> None:
    """Raise InputError for a missing library, and for options without effect on the experiment."""
    if pipeline.search is None and experiment.strategy not in WITHOUT_LIBRARY:
        raise InputError("experiments take their documents from a library: name one with --library")
    if experiment.by_settings and request.protocol != CORRECTED:
        raise InputError(f"{experiment.name} goes by the settings alone: leave --protocol out")
    if request.gold != "one" and not experiment.places_documents:
        raise InputError(f"{experiment.name} places no document: leave --gold out")
    if request.examples and not experiment.shows_examples:
        raise InputError(f"{experiment.name} shows no solved questions: leave --examples out")


def _open_source(
    library_search: LibrarySearch, request: Request, settings: Settings, protocol: StudyProtocol, names: Sequence[str]
) -> tuple[PassageSource, list[Dataset]]:
    """Return the library as a passage source, and the questions made from its own documents if `cloze` is asked for."""
    reranker = None
    if request.reranker is not None:
        reranker = request.reranker, load_reranker(request.reranker, settings.home, settings.threads)
    source = library_source(
        library_search, settings, protocol.by, reranker=reranker, seed=request.draw, count=protocol.count
    )
    if cloze.NAME not in names:
        return source, []
    n = request.questions or probe.N
    passages = sample_passages(library_search.library, CANDIDATES * n, request.draw, build_scope(settings.scope))
    dataset, keys = cloze.draw_questions(passages, n)
    return probe.use_key_passages(source, keys), [dataset]


def choose_grid(experiment: Experiment, request: Request) -> Grid:
    """Return the requested conditions, with the experiment's defaults where none are requested.

    Raises InputError for conditions that the experiment does not vary.
    """
    changes: dict[str, Any] = {}
    for name, flag in _FLAGS.items():
        values = getattr(request.grid, name)
        if values and not getattr(experiment.grid, name):
            raise InputError(f"{experiment.name} does not vary that: leave {flag} out")
        if values:
            changes[name] = values
    if 0 in request.grid.ks and 0 not in experiment.grid.ks:
        raise InputError(f"{experiment.name} reads passages: give -k 1 or more")
    return replace(experiment.grid, **changes)


def describe_grid(grid: Grid) -> dict[str, Any]:
    """Return the conditions of the grid that are not empty, as arguments of a plan."""
    values = {field.name: getattr(grid, field.name) for field in fields(grid)}
    return {name: value for name, value in values.items() if value}


def _describe_arguments(
    experiment: Experiment, request: Request, grid: Grid, examples: Mapping[str, Any]
) -> dict[str, Any]:
    arguments: dict[str, Any] = {} if experiment.by_settings else {"protocol": request.protocol}
    arguments |= describe_grid(grid)
    if request.gold != "one":
        arguments["gold"] = request.gold
    if request.reranker:
        arguments["reranker"] = request.reranker
    if examples:
        arguments["examples"] = examples
    return {**arguments, "repeats": request.repeats}


def describe_sample(
    names: Sequence[str], protocol: StudyProtocol, request: Request, *, whole_sets: bool
) -> dict[str, str | int]:
    """Return how the questions were drawn. No protocol applies to questions made from the library itself."""
    if set(names) == {cloze.NAME}:
        return {"how": "at-random", "n": request.questions or probe.N, "seed": request.draw}
    return {"how": "all"} if whole_sets else protocol.describe_sample(request.draw, request.questions)


def describe_sets(sets: Sequence[Dataset]) -> Mapping[str, Any]:
    """Return the entry of a plan on one question set, or on several together."""
    if len(sets) == 1:
        return describe_dataset(sets[0])
    hashes = " ".join(dataset.sha256 for dataset in sets)
    return {
        "name": " + ".join(dataset.name for dataset in sets),
        "sha256": hashlib.sha256(hashes.encode()).hexdigest(),
        "n": sum(len(dataset.questions) for dataset in sets),
        "sets": list(map(describe_dataset, sets)),
    }
