"""From the folders of runs to what a report says of them. Asks nothing and draws nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis import energy_tables, run_comparison
from epicrisis.evaluation.analysis.conclusions import conclusions
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.published import published
from epicrisis.evaluation.experiments import positions, preflight_findings
from epicrisis.evaluation.experiments.experiment import Experiment
from epicrisis.evaluation.experiments.plain_run import NAME as EVALUATE
from epicrisis.evaluation.experiments.registry import EXPERIMENTS
from epicrisis.evaluation.experiments.study_protocols import PLACEMENT_NOTES, PROTOCOLS
from epicrisis.evaluation.runs.recorded_run import RecordedRun, differing, open_runs, read_back

_ALSO = {"conflicts": {"rag", "brief-context"}, "cost": {"rag", "brief-context", "closed-book"}}
"""Experiments that the records of `positions` answer as well, where they have these arms."""


def read_findings(paths: Sequence[Path]) -> tuple[Findings, ...]:
    """One for each experiment among the runs, those of the same experiment together; plain runs are compared.

    Raises InputError where a path holds no run, or one of an experiment that is not known.
    """
    with read_back(paths):
        return _of_paths(paths)


def _of_paths(paths: Sequence[Path]) -> tuple[Findings, ...]:
    by_name: dict[str, list[RecordedRun]] = {}
    ranked = [path for path in paths if preflight_findings.holds_rankings(path)]
    for run in open_runs([path for path in paths if path not in ranked]):
        name = EVALUATE if run.manifest is None else run.manifest.plan.name
        if name not in (EVALUATE, *EXPERIMENTS):
            raise InputError(f"{run.path.parent} is a run of {name}, which this program does not know: update it")
        by_name.setdefault(name, []).append(run)
    asked = (found for name, runs in by_name.items() for found in _findings(name, runs))
    return (*asked, *map(preflight_findings.findings_of, ranked))


def _findings(name: str, runs: Sequence[RecordedRun]) -> Iterator[Findings]:
    if name == EVALUATE:
        yield _with_energy(run_comparison.findings_of_runs(runs), runs)
        return
    named = _by_model(runs)
    yield _with_energy(_of(EXPERIMENTS[name], named), named)
    for also, arms in _ALSO.items() if name == positions.NAME else ():
        if having := [run for run in named if arms <= {*_arguments(run).get("arms", ())}]:
            yield _of(EXPERIMENTS[also], having)


def _with_energy(found: Findings, runs: Sequence[RecordedRun]) -> Findings:
    return replace(found, tables=(*found.tables, *energy_tables.tables(runs)))


def _of(wanted: Experiment, runs: Sequence[RecordedRun]) -> Findings:
    told = () if wanted.of_records else (*_protocols(runs), *(PLACEMENT_NOTES if _places(runs) else ()))
    tables = wanted.tables(runs, told)
    said = [*_unfinished(runs), *_unlike(runs)]
    said += wanted.concluded(runs) if wanted.concluded else (each for table in tables for each in conclusions(table))
    return Findings(
        experiment=wanted.name,
        about=wanted.about,
        sources=tuple(run.source for run in runs),
        tables=tables,
        conclusions=tuple(said),
        published=tuple(published()[each] for each in wanted.published),
    )


def _protocols(runs: Sequence[RecordedRun]) -> list[str]:
    """What the runs' protocols have a reader know; with the run's name where another one went by another."""
    protocols = {run.name: PROTOCOLS.get(str(_arguments(run).get("protocol"))) for run in runs}
    notes = [(name, note) for name, each in protocols.items() if each for note in each.notes]
    often = Counter(note for _, note in notes)
    told = (note if often[note] == len(runs) else f"{name}: {note}" for name, note in notes)
    return list(dict.fromkeys(told))


def _places(runs: Sequence[RecordedRun]) -> bool:
    """Whether documents are placed in any of them: conflicts and cost are read off such runs as well."""
    return any(run.manifest is not None and EXPERIMENTS[run.manifest.plan.name].placed for run in runs)


def _unfinished(runs: Sequence[RecordedRun]) -> Iterator[str]:
    for run in runs:
        if run.manifest is None or run.manifest.complete:
            continue
        states = Counter(str(record["answer"]["state"]) for record in run.records())
        cases = run.manifest.cases
        yield (
            f"{run.name} is not complete: of its {cases:,} cases {cases - states.total():,} have no record yet, and "
            f"{states['failed']:,} failed. A mean is over the cases that there are, so one over places may have more "
            "of one place than of another; differences are over pairs."
        )


def _unlike(runs: Sequence[RecordedRun]) -> Iterator[str]:
    """What sets the runs apart beside their model: they stand in the same tables, each held against itself alone."""
    first, *others = runs
    for other in others:
        names = [name for name in differing(first, other) if name != "model"]
        plans = [(run.questions, run.manifest.plan.sample if run.manifest else None) for run in (first, other)]
        names += [name for name, mine, theirs in zip(("question set", "sample"), *plans, strict=True) if mine != theirs]
        if names:
            yield (
                f"Warning: {first.name} and {other.name} stand side by side and are not compared with each other: they "
                f"differ in {', '.join(names)}."
            )


def _by_model(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """Each run under its model's name, with its own behind it where several share one."""
    models = [_model(run) for run in runs]
    often = Counter(models)
    return [
        replace(run, name=model if often[model] == 1 else f"{model} ({run.name})")
        for run, model in zip(runs, models, strict=True)
    ]


def _model(run: RecordedRun) -> str:
    """The models that answer, each once; an endpoint's by its model's name, a file by its own."""
    names = [str(model["name"]) for model in run.recipe.get("models", {}).values()]
    return " + ".join(dict.fromkeys(name.rpartition("#")[2].rpartition("/")[2] or name for name in names)) or run.name


def _arguments(run: RecordedRun) -> Mapping[str, Any]:
    return run.manifest.plan.arguments if run.manifest else {}
