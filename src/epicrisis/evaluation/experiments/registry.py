"""The experiments by name: what each asks where nobody says otherwise, its cases, and the tables of its finished runs.

The one table from a name on the command line to the files in `experiments/`. Asks no model; knows no screen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import Any

from epicrisis.components import ExampleSearch, Opened, examples_told, scope_of
from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.datasets.load import load
from epicrisis.evaluation.experiments import (
    attention_bias,
    cloze,
    conflicts,
    context_length,
    cost,
    integration,
    open_ended,
    positions,
    probe,
)
from epicrisis.evaluation.experiments.arms import Study, condition_order
from epicrisis.evaluation.experiments.ensemble_studies import EXPERIMENTS as ENSEMBLES
from epicrisis.evaluation.experiments.ensemble_studies import nowhere, sources
from epicrisis.evaluation.experiments.experiment import CORRECTED, Experiment, Grid, QuestionsBySet, Request, Runs
from epicrisis.evaluation.experiments.passage_source import PassageSource, library_source
from epicrisis.evaluation.experiments.placement import PLACES
from epicrisis.evaluation.experiments.record_studies import EXPERIMENTS as RECORDS
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS, StudyProtocol
from epicrisis.evaluation.grading.blind_pairs import pairs_of
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome, outcomes
from epicrisis.evaluation.runs.recorded_run import RecordedRun
from epicrisis.evaluation.runs.run_folder import RunPlan, told
from epicrisis.library.passage_lookup import at_random
from epicrisis.models.rerankers import load_reranker
from epicrisis.pipeline import WITHOUT_LIBRARY, Pipeline
from epicrisis.settings import PreflightSettings, Settings
from epicrisis.types import Question

CANDIDATES = 20
"""Passages looked at for each question that the library's own documents shall answer."""


def _all(asked: QuestionsBySet) -> list[Question]:
    return [question for questions in asked.values() for question in questions]


def _placed(asked: QuestionsBySet, study: Study, grid: Grid, _: Settings) -> tuple[Case, ...]:
    return positions.cases(_all(asked), study, ks=grid.ks, places=grid.places, arms=grid.arms)


def _lengthened(asked: QuestionsBySet, study: Study, grid: Grid, _: Settings) -> tuple[Case, ...]:
    return context_length.cases(_all(asked), study, ks=grid.ks, places=grid.places, arms=grid.arms)


def _integrated(asked: QuestionsBySet, study: Study, grid: Grid, settings: Settings) -> tuple[Case, ...]:
    if len(grid.ks) > 1:
        raise InputError(f"{integration.NAME} reads one k: give -k once, and run it again for another")
    return _as_found(asked, study, grid, settings)


def _as_found(asked: QuestionsBySet, study: Study, grid: Grid, settings: Settings) -> tuple[Case, ...]:
    """Nothing is placed, so the check looks at what it would see in use."""
    if settings.rerank.name is not None:
        raise InputError("this experiment reads passages in the order of the search: leave rerank out of the settings")
    # The protocol's check, unless the settings have one of their own.
    check = None if settings.preflight == PreflightSettings() else settings.preflight
    return _once(each for k in grid.ks for each in integration.cases(asked, study, k=k, arms=grid.arms, check=check))


def _open_ended(asked: QuestionsBySet, _study: Study, _grid: Grid, _settings: Settings) -> tuple[Case, ...]:
    return open_ended.cases(_all(asked))


def _biased(asked: QuestionsBySet, study: Study, grid: Grid, _: Settings) -> tuple[Case, ...]:
    return _once(each for k in grid.ks for each in attention_bias.cases(_all(asked), study, k=k, arms=grid.arms))


def _once(cases: Iterable[Case]) -> tuple[Case, ...]:
    """The arms without documents are asked once, whatever k is."""
    return tuple({case.key: case for case in cases}.values())


def _outcomes(run: RecordedRun) -> list[Outcome]:
    return sorted(outcomes(run.records()), key=lambda each: (condition_order(each.condition), each.question))


def _spent(run: RecordedRun) -> list[cost.CaseCost]:
    return sorted(cost.case_costs(run.records()), key=lambda each: (condition_order(each.condition), each.question))


def _by_outcomes(tables: Callable[..., tuple[Table, ...]]) -> Callable[[Runs, Sequence[str]], tuple[Table, ...]]:
    def of(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
        return tables({run.name: _outcomes(run) for run in runs}, remarks=remarks)

    return of


def _conflicts(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    made: list[Table] = []
    for run in runs:
        parted, rival = conflicts.split_arms(run.records())
        cases = sorted(parted, key=lambda case: condition_order(case.outcome.condition))
        by = [each for each in ("k", "place") if any(each in case.outcome.condition for case in cases)]
        made += [
            conflicts.conflicts_table(cases, rival, by, source=run.name),
            conflicts.parts_table(cases, by, source=run.name),
            conflicts.rules_table(cases, source=run.name),
        ]
    return _remarked(made, remarks)


def _remarked(tables: Sequence[Table], remarks: Sequence[str]) -> tuple[Table, ...]:
    return tuple(replace(table, notes=(*table.notes, *remarks)) for table in tables)


def _integration(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    stood_in = dict.fromkeys(remark for run in runs for remark in integration.mirage_remarks(run.records()))
    took = (each for each in _cost(runs, remarks) if each.rows)
    return (*_by_outcomes(integration.tables)(runs, (*remarks, *stood_in)), *took)


def _judged(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    return open_ended.tables({run.name: _judging(run) for run in runs}, remarks=remarks)


def _verdicts(runs: Runs) -> tuple[str, ...]:
    return open_ended.conclusions({run.name: _judging(run) for run in runs})


def _judging(run: RecordedRun) -> open_ended.Judging:
    """The run's pairs with the verdicts that lie beside it; before any were written, what there is to judge."""
    folder = run.path.parent / open_ended.JUDGING
    if folder.is_dir():
        return open_ended.read_judging_folder(folder)
    return open_ended.Judging(pairs_of(run.records(), open_ended.ARMS, 0))


def _probe(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    found = {run.name: _outcomes(run) for run in runs}
    return probe.tables(found, {run.name: _spent(run) for run in runs}, remarks)


def _cost(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    made: list[Table] = []
    for run in runs:
        cases = _spent(run)
        made += [cost.measured_table(cases, run.name), cost.prediction_table(cases, run.name)]
    return _remarked(made, remarks)


_BOTH = ("rag", "brief-context")
_PUBMEDQA = ("mirage/pubmedqa",)

EXPERIMENTS: Mapping[str, Experiment] = {
    each.name: each
    for each in (
        Experiment(
            positions.NAME,
            "Does it matter where among k documents the key document stands? (BriefContext, Figure 2)",
            _PUBMEDQA,
            Grid(positions.ARMS, positions.KS, PLACES),
            _placed,
            _by_outcomes(positions.tables),
            positions.PUBLISHED,
        ),
        Experiment(
            integration.NAME,
            "What do reasoning, RAG and BriefContext answer rightly, on what is retrieved? (BriefContext, Figure 3)",
            integration.SETS,
            Grid(integration.ARMS, (integration.K,)),
            _integrated,
            _integration,
            integration.PUBLISHED,
            whole=True,
            placed=False,
        ),
        Experiment(
            "conflicts",
            "Where the parts of a question state different choices, what becomes of it? (BriefContext, Figure 4)",
            _PUBMEDQA,
            Grid(_BOTH, positions.KS, PLACES),
            _placed,
            _conflicts,
            ("conflicts", "conflicts-totals"),
        ),
        Experiment(
            context_length.NAME,
            "Is a short context read better than a long one with the same key document? (BriefContext, Figure 5)",
            _PUBMEDQA,
            Grid(context_length.ARMS, context_length.KS, PLACES),
            _lengthened,
            _by_outcomes(context_length.tables),
        ),
        Experiment(
            attention_bias.NAME,
            "Is the middle lost because of the place, or because of what stands around it? (BriefContext, Figure 6)",
            _PUBMEDQA,
            Grid(attention_bias.ARMS, (attention_bias.K,)),
            _biased,
            _by_outcomes(attention_bias.tables),
        ),
        Experiment(
            "cost",
            "What does map-reduce cost, predicted and measured? (BriefContext, equations 4 and 5)",
            _PUBMEDQA,
            Grid((*_BOTH, integration.CHECKED, integration.CLOSED), (integration.K,)),
            _as_found,
            _cost,
            ("cost",),
            placed=False,
        ),
        Experiment(
            open_ended.NAME,
            "Whose answer to an open question is better, judged blindly? (BriefContext, on MedQ)",
            ("medq",),
            Grid(),
            _open_ended,
            _judged,
            open_ended.PUBLISHED,
            whole=True,
            placed=False,
            by_settings=True,
            concluded=_verdicts,
        ),
        Experiment(
            probe.NAME,
            "Does this model lose the middle of a long prompt, and is map-reduce worth its cost for it?",
            (cloze.NAME,),
            Grid(probe.ARMS, (probe.K,), probe.PLACES),
            _placed,
            _probe,
        ),
    )
} | {**ENSEMBLES, **RECORDS}


def find_experiment(name: str) -> Experiment:
    """The experiment called so. Raises InputError."""
    if name not in EXPERIMENTS:
        raise InputError(f"no experiment is called {name}: known are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def plan_experiment(
    wanted: Experiment, request: Request, settings: Settings, pipeline: Pipeline
) -> tuple[RunPlan, tuple[Case, ...]]:
    """A run of the experiment over the pipeline's library: its plan and its cases.

    Raises InputError: an unknown protocol, set or arm, too few questions, a document or an answer that is not there.
    """
    _check(wanted, request, pipeline)
    protocol = replace(protocol_of(request.protocol), gold=request.gold)
    names = request.sets or wanted.sets
    sets = [load(name, settings.home, request.data) for name in names if name != cloze.NAME]
    whole = wanted.whole and request.questions is None
    samples = sets if whole else [protocol.drawn(dataset, request.draw, request.questions) for dataset in sets]
    grid = _grid(wanted, request)
    with ExitStack() as held:
        examples: Mapping[str, ExampleSearch] = {}
        if pipeline.opened is None:
            evidence = nowhere()
            examples = sources(request, settings, held, grid) if wanted.shows_examples else {}
        else:
            evidence, own = _evidence(pipeline.opened, request, settings, protocol, names)
            sets += own
            samples = [*samples, *own]
        finds = {name: search.find for name, search in examples.items()}
        study = Study(evidence, protocol, request.repeats, settings.seed, finds)
        cases = wanted.make({sample.name: sample.questions for sample in samples}, study, grid, settings)
        shown = {name: examples_told(search.opened.library) for name, search in examples.items()}
    plan = RunPlan(
        name=wanted.name,
        arguments={
            **({} if wanted.by_settings else {"protocol": protocol.name}),
            **{each.name: value for each in fields(grid) if (value := getattr(grid, each.name))},
            **({"gold": request.gold} if request.gold != "one" else {}),
            **({"reranker": request.reranker} if request.reranker else {}),
            **({"examples": shown} if shown else {}),
            "repeats": request.repeats,
        },
        recipe=pipeline.recipe(),
        dataset=together(sets),
        sample=_sample(names, protocol, request, whole=whole),
        seed=settings.seed,
    )
    return plan, cases


def _check(wanted: Experiment, request: Request, pipeline: Pipeline) -> None:
    """Raises InputError where the experiment lacks something, or has no use for what was asked."""
    if pipeline.opened is None and wanted.strategy not in WITHOUT_LIBRARY:
        raise InputError("experiments take their documents from a library: name one with --library")
    if wanted.by_settings and request.protocol != CORRECTED:
        raise InputError(f"{wanted.name} goes by the settings alone: leave --protocol out")
    if request.gold != "one" and not wanted.placed:
        raise InputError(f"{wanted.name} places no document: leave --gold out")
    if request.examples and not wanted.shows_examples:
        raise InputError(f"{wanted.name} shows no solved questions: leave --examples out")


def _evidence(
    opened: Opened, request: Request, settings: Settings, protocol: StudyProtocol, names: Sequence[str]
) -> tuple[PassageSource, list[Dataset]]:
    """Out of the library, and the questions that it answers itself where they are asked for."""
    reranker = None
    if request.reranker is not None:
        reranker = request.reranker, load_reranker(request.reranker, settings.home, settings.threads)
    evidence = library_source(opened, settings, protocol.by, reranker=reranker, seed=request.draw, count=protocol.count)
    if cloze.NAME not in names:
        return evidence, []
    n = request.questions or probe.N
    own, keys = cloze.draw_questions(
        at_random(opened.library, CANDIDATES * n, request.draw, scope_of(settings.scope)), n
    )
    return probe.use_key_passages(evidence, keys), [own]


def _sample(names: Sequence[str], protocol: StudyProtocol, request: Request, *, whole: bool) -> dict[str, str | int]:
    """How the questions were drawn; those that the library answers itself are drawn by no protocol."""
    if set(names) == {cloze.NAME}:
        return {"how": "at-random", "n": request.questions or probe.N, "seed": request.draw}
    return {"how": "all"} if whole else protocol.sample_told(request.draw, request.questions)


def _grid(wanted: Experiment, request: Request) -> Grid:
    """What was asked for, else what the experiment asks by itself."""
    for flag, theirs, ours in (
        ("--arm", request.grid.arms, wanted.grid.arms),
        ("-k", request.grid.ks, wanted.grid.ks),
        ("--place", request.grid.places, wanted.grid.places),
        ("--votes", request.grid.votes, wanted.grid.votes),
        ("--temperature", request.grid.temperatures, wanted.grid.temperatures),
    ):
        if theirs and not ours:
            raise InputError(f"{wanted.name} does not vary that: leave {flag} out")
    if 0 in request.grid.ks and 0 not in wanted.grid.ks:
        raise InputError(f"{wanted.name} reads something: give -k 1 or more")
    return Grid(
        request.grid.arms or wanted.grid.arms,
        request.grid.ks or wanted.grid.ks,
        request.grid.places or wanted.grid.places,
        request.grid.votes or wanted.grid.votes,
        request.grid.temperatures or wanted.grid.temperatures,
    )


def together(sets: Sequence[Dataset]) -> Mapping[str, Any]:
    """One question set or several, as a plan tells of them."""
    if len(sets) == 1:
        return told(sets[0])
    return {
        "name": " + ".join(each.name for each in sets),
        "sha256": hashlib.sha256(" ".join(each.sha256 for each in sets).encode()).hexdigest(),
        "n": sum(len(each.questions) for each in sets),
        "sets": [told(each) for each in sets],
    }


def protocol_of(name: str) -> StudyProtocol:
    """The protocol called so. Raises InputError."""
    if name not in PROTOCOLS:
        raise InputError(f"no protocol is called {name}: known are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
