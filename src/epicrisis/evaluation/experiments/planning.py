"""The plans and the cases of runs: from an experiment and its options, or a question set asked once (a plain run)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from epicrisis.answering.paper_prompts import describe_prompts
from epicrisis.answering.strategy import find_strategy
from epicrisis.core.errors import InputError
from epicrisis.core.types import Document, Question
from epicrisis.evaluation.datasets.dataset import Dataset, sample_at_random
from epicrisis.evaluation.datasets.load import load_dataset
from epicrisis.evaluation.experiments import cloze, medprompt, probe
from epicrisis.evaluation.experiments.arms import ExampleFinder, Study
from epicrisis.evaluation.experiments.definition import CORRECTED, CaseInputs, Experiment, Grid, Request
from epicrisis.evaluation.experiments.passage_source import PassageSource, library_source
from epicrisis.evaluation.experiments.recorded_rankings import Guard, guard_scope
from epicrisis.evaluation.experiments.study_protocols import StudyProtocol, find_protocol
from epicrisis.evaluation.runs.run_folder import RunPlan, describe_dataset
from epicrisis.library.core.passage_lookup import sample_passages
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.library.write.ingest_batches import IngestProgress, IngestReport
from epicrisis.models.pair_models import load_reranker
from epicrisis.pipeline.components import (
    ExampleSearch,
    LibrarySearch,
    build_scope,
    describe_examples,
    load_ingest_encoder,
    open_examples,
)
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.case import Case
from epicrisis.settings.settings import Settings

EVALUATE = "evaluate"
"""Name of plain runs."""
CANDIDATES = 20
"""Passages inspected for each question that is made from the library's own documents."""
_FLAGS = {
    "arms": "--arm",
    "ks": "-k",
    "places": "--place",
    "votes": "--votes",
    "temperatures": "--temperature",
    "prompt_tokens": "--prompt-tokens",
}
"""Option of each field of the grid."""


def plan_experiment(
    experiment: Experiment, request: Request, settings: Settings, pipeline: Pipeline
) -> tuple[RunPlan, tuple[Case, ...]]:
    """Build the plan and the cases of a run over the pipeline's library.

    Raises InputError for an unknown protocol, set or arm, too few questions, or a missing document or answer.
    """
    _check(experiment, request, pipeline)
    grid = choose_grid(experiment, request)
    protocol = replace(find_protocol(request.protocol), gold=request.gold)
    _check_prompts(protocol, experiment, settings)
    names = request.sets or experiment.sets
    sets = [load_dataset(name, settings.home, request.data) for name in names if name != cloze.NAME]
    whole_sets = experiment.whole_sets and request.questions is None
    samples = list(sets)
    if not whole_sets:
        samples = [protocol.draw_sample(dataset, request.draw, request.questions) for dataset in sets]
    with ExitStack() as stack:
        examples: Mapping[str, ExampleSearch] = {}
        if pipeline.search is not None:
            source, own_sets = _open_source(pipeline.search, request, settings, protocol, names)
            sets += own_sets
            samples += own_sets
        else:
            source = PassageSource()
            if experiment.shows_examples:
                examples = _open_examples(request, settings, stack, grid)
        finders: dict[str, ExampleFinder] = {}
        libraries: dict[str, Any] = {}
        for name, search in examples.items():
            finders[name] = search.find
            libraries[name] = describe_examples(search.search.library)
        study = Study(source, protocol, request.repeats, settings.seed, finders)
        questions = {dataset.name: dataset.questions for dataset in samples}
        cases = experiment.cases(CaseInputs(questions, study, grid, settings))
    arguments: dict[str, Any] = {} if experiment.by_settings else {"protocol": request.protocol}
    arguments |= describe_grid(grid)
    if protocol.prompts is not None and not experiment.by_settings:
        arguments["prompts"] = describe_prompts(protocol.prompts)
    if request.gold != "one":
        arguments["gold"] = request.gold
    if request.reranker:
        arguments["reranker"] = request.reranker
    if libraries:
        arguments["examples"] = libraries
    plan = RunPlan(
        name=experiment.name,
        arguments={**arguments, "repeats": request.repeats},
        recipe=pipeline.recipe(),
        dataset=describe_sets(sets),
        sample=describe_sample(names, protocol, request, whole_sets=whole_sets),
        seed=settings.seed,
    )
    return plan, cases


def add_set_documents(
    path: Path,
    names: Sequence[str],
    settings: Settings,
    data: Path | None,
    on_progress: Callable[[IngestProgress], None] | None = None,
) -> IngestReport:
    """Add the documents of these question sets to the library at `path`. It is created if needed.

    Raises InputError for a set without documents, which needs a library, and UserError for another encoder.
    """
    documents: dict[str, Document] = {}
    for name in names:
        dataset = load_dataset(name, settings.home, data)
        if not dataset.documents:
            raise InputError(f"{name} brings no documents: give a library that holds them with --library")
        documents |= dataset.documents
    encoder, encoder_name = load_ingest_encoder(settings, path, precomputed=False)
    with open_or_create(path, encoder, encoder_name) as library:
        return add_documents(library, documents.values(), encoder, on_progress=on_progress)


def _check(experiment: Experiment, request: Request, pipeline: Pipeline) -> None:
    """Raise InputError for a missing library, and for options without effect on the experiment."""
    if pipeline.search is None and find_strategy(experiment.strategy).needs_library:
        raise InputError("experiments take their documents from a library: give one with --library")
    if experiment.by_settings and request.protocol != CORRECTED:
        raise InputError(f"{experiment.name} goes by the settings alone: leave --protocol out")
    if request.gold != "one" and not experiment.places_documents:
        raise InputError(f"{experiment.name} places no document: leave --gold out")
    if request.examples and not experiment.shows_examples:
        raise InputError(f"{experiment.name} shows no solved questions: leave --examples out")


def _check_prompts(protocol: StudyProtocol, experiment: Experiment, settings: Settings) -> None:
    """Raise InputError for settings that the prompts of a paper leave without effect."""
    if protocol.prompts is None or experiment.by_settings:
        return
    for key, is_set in (
        ("citing=numbers", settings.citing == "numbers"),
        ("map_confidence", settings.map_confidence),
        ("defence.isolated_votes", settings.defence.isolated_votes),
    ):
        if is_set:
            raise InputError(
                f"protocol {protocol.name} has the prompts of the paper, which know no {key}: leave the setting out, "
                "or use --protocol corrected"
            )


def _open_source(
    library_search: LibrarySearch, request: Request, settings: Settings, protocol: StudyProtocol, names: Sequence[str]
) -> tuple[PassageSource, list[Dataset]]:
    """Return the library as a passage source, and the questions made from its own documents if `cloze` is asked for."""
    reranker = None
    if request.reranker is not None:
        reranker = request.reranker, load_reranker(request.reranker, settings.home, settings.threads)
    source = library_source(
        library_search,
        settings,
        protocol.by,
        reranker=reranker,
        seed=request.draw,
        count=protocol.count,
        word_statistics=protocol.word_statistics,
    )
    if cloze.NAME not in names:
        return source, []
    n = request.questions or probe.N
    passages = sample_passages(library_search.library, CANDIDATES * n, request.draw, build_scope(settings.scope))
    dataset, keys = cloze.draw_questions(passages, n)
    return probe.use_key_passages(source, keys), [dataset]


def _open_examples(request: Request, settings: Settings, stack: ExitStack, grid: Grid) -> dict[str, ExampleSearch]:
    """Open a search for each library of solved questions in the request, by its name in the tables.

    With a reranker each library has a second search that uses it. The control arms of the grid search the first
    library. The stack closes the libraries. Raises UserError.
    """
    libraries = list(request.examples)
    if not libraries and settings.examples.library is not None:
        libraries = [(settings.examples.library.name, settings.examples.library)]
    _check_names([library[0] for library in libraries])

    def open_library(**changes: Any) -> ExampleSearch:
        # Deep enough for the largest number of examples.
        changes["k"] = max(grid.ks, default=settings.examples.k)
        examples = settings.examples.model_copy(update=changes)
        search = open_examples(settings.model_copy(update={"examples": examples}))
        if search is None:
            raise InputError("this experiment shows solved questions: give a library of them with --examples")
        stack.enter_context(search.search)
        return search

    searches: dict[str, ExampleSearch] = {}
    for name, path in libraries:
        searches[name] = open_library(library=path, rerank=None)
        if request.reranker is not None:
            searches[f"{name}{medprompt.RERANKED}"] = open_library(library=path, rerank=request.reranker)
    for arm in grid.arms:
        if libraries and arm in medprompt.CONTROLS:
            searches[arm] = open_library(library=libraries[0][1], choose=arm)
    return searches


def _check_names(names: Sequence[str]) -> None:
    """Raise InputError for names that the tables could not tell apart."""
    reserved = [name for name in names if name in medprompt.ARMS or name.endswith(medprompt.RERANKED) or not name]
    distinct = len(set(names))
    if reserved or distinct < len(names):
        which = repr(reserved[0]) if reserved else f"{len(names)} libraries with {distinct} names"
        raise InputError(
            f"--examples: {which} cannot be distinguished from others: give each a name, --examples NAME=FOLDER"
        )


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
    arguments = asdict(grid)
    return {name: value for name, value in arguments.items() if value}


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
    hashes = " ".join(part.sha256 for part in sets)
    return {
        "name": " + ".join(part.name for part in sets),
        "sha256": hashlib.sha256(hashes.encode()).hexdigest(),
        "n": sum(len(part.questions) for part in sets),
        "sets": list(map(describe_dataset, sets)),
    }


def plan_plain_run(
    questions: str,
    settings: Settings,
    pipeline: Pipeline,
    *,
    data: Path | None = None,
    n: int | None = None,
    draw: int = 0,
    guard: Guard = "none",
) -> tuple[RunPlan, tuple[Case, ...]]:
    """Build the plan and the cases: all questions of the set with that name or path, or a sample of `n` by seed `draw`.

    Raises InputError for a missing library or set, too few questions, or a guard that cannot be applied.
    """
    if pipeline.search is None and find_strategy(settings.strategy).needs_library:
        raise InputError(f"the strategy {settings.strategy} reads a library: give one with --library")
    dataset = load_dataset(questions, settings.home, data)
    sample = dataset if n is None else sample_at_random(dataset, n, draw)
    plan = RunPlan(
        name=EVALUATE,
        arguments={"guard": guard},
        recipe=pipeline.recipe(),
        dataset=describe_dataset(dataset),
        sample={"how": "all"} if n is None else {"how": "at-random", "n": n, "seed": draw},
        seed=settings.seed,
    )
    return plan, tuple(_build_case(question, settings, pipeline, guard) for question in sample.questions)


def _build_case(question: Question, settings: Settings, pipeline: Pipeline, guard: Guard) -> Case:
    if guard == "none":
        return Case(question)
    if pipeline.search is None:
        raise InputError(f"the strategy {settings.strategy} reads no library: leave the leak guard out")
    if not question.gold_documents:
        raise InputError(
            f"question {question.id!r} names no source document, so nothing can be hidden from it: give it "
            "gold_documents, or leave the leak guard out"
        )
    scope = guard_scope(question, guard, build_scope(settings.scope, question=question), pipeline.search.library)
    if scope is None:
        raise InputError(
            f"none of the documents of question {question.id!r} has a date in the library, so older documents cannot "
            "be recognised: leave such questions out, or use --leak-guard source-hidden"
        )
    return Case(question, treatment=RunOverrides(scope=scope))
