"""From the folders of runs to their findings: what a report says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun
from epicrisis.evaluation.analysis import energy_tables, run_comparison
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.grouping import group_by
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.selective_prediction import make_selective_tables
from epicrisis.evaluation.experiments import positions, preflight
from epicrisis.evaluation.experiments.definition import Experiment
from epicrisis.evaluation.experiments.planning import EVALUATE
from epicrisis.evaluation.experiments.registry import NAMES, find_experiment
from epicrisis.evaluation.experiments.study_protocols import PLACEMENT_NOTES, describe_protocol
from epicrisis.evaluation.grading.correctness import CORRECTNESS_FOLDER, read_correctness_verdicts
from epicrisis.evaluation.runs.recorded_run import RecordedRun, list_differences, open_runs, refuse_mismatched_records

_DERIVED = {"conflicts": {"rag", "brief-context"}, "cost": {"rag", "brief-context", "closed-book"}}
"""Experiments that runs of `positions` answer as well, with the arms that they need."""


def read_findings(paths: Sequence[Path]) -> tuple[Findings, ...]:
    """Read the findings of each experiment among the runs, those of one experiment together; plain runs are compared.

    Raises InputError where a path holds no run, or one of an unknown experiment.
    """
    with refuse_mismatched_records(paths):
        ranked = [path for path in paths if preflight.holds_rankings(path)]
        runs = open_runs([path for path in paths if path not in ranked])
        findings: list[Findings] = []
        for name, same_name in group_by(runs, _plan_name).items():
            findings += _findings(name, same_name)
        return (*findings, *map(preflight.read_findings, ranked))


def _plan_name(run: RecordedRun) -> str:
    """Return the name of the run's experiment. Raises InputError for an unknown one."""
    name = EVALUATE if run.manifest is None else run.manifest.plan.name
    if name == preflight.NAME or name not in (EVALUATE, *NAMES):
        raise InputError(f"{run.path.parent} is a run of {name}, which this program does not know: update it")
    return name


def _findings(name: str, runs: Sequence[RecordedRun]) -> Iterator[Findings]:
    if name == EVALUATE:
        yield _with_shared_tables(run_comparison.compare_runs(runs), runs)
        return
    renamed = _name_by_model(runs)
    yield _with_shared_tables(_experiment_findings(find_experiment(name), renamed), renamed)
    for derived, arms in _DERIVED.items() if name == positions.NAME else ():
        usable = [run for run in renamed if arms <= {*_arguments(run).get("arms", ())}]
        if usable:
            yield _experiment_findings(find_experiment(derived), usable)


def _with_shared_tables(findings: Findings, runs: Sequence[RecordedRun]) -> Findings:
    """Return the findings with what every experiment has: selective prediction, energy, and remarks on letters."""
    selective, energy = make_selective_tables(runs), energy_tables.make_energy_tables(runs, graded_right)
    conclusions = (*describe_letter_preferences(runs), *findings.conclusions)
    return replace(findings, tables=(*findings.tables, *selective, *energy), conclusions=conclusions)


def graded_right(folder: Path) -> frozenset[str]:
    """Return the keys of the cases in a run folder whose open answers the run's graders call correct."""
    verdicts = read_correctness_verdicts(folder) if (folder / CORRECTNESS_FOLDER).is_dir() else {}
    return frozenset(key for key, verdict in verdicts.items() if verdict == "correct")


def _experiment_findings(experiment: Experiment, runs: Sequence[RecordedRun]) -> Findings:
    notes: list[tuple[str, str]] = []
    places_documents = False
    for run in runs if experiment.reads != "records" else ():
        notes += product((run.name,), describe_protocol(_arguments(run)))
        # Conflicts and cost are read from runs that place documents as well.
        places_documents |= run.manifest is not None and find_experiment(run.manifest.plan.name).places_documents
    counts = Counter(note[1] for note in notes)
    # With the name of the run where the protocols differ.
    remarks = dict.fromkeys(note if counts[note] == len(runs) else f"{name}: {note}" for name, note in notes)
    tables = experiment.tables(runs, (*remarks, *(PLACEMENT_NOTES if places_documents else ())))
    warnings = (*_describe_unfinished(runs), *_describe_differences(runs))
    return Findings(
        experiment=experiment.name,
        about=experiment.question,
        sources=tuple(run.source for run in runs),
        tables=tables,
        conclusions=(*warnings, *experiment.conclude(runs, tables)),
        published=tuple(load_published()[item] for item in experiment.published),
    )


def _describe_unfinished(runs: Sequence[RecordedRun]) -> Iterator[str]:
    for run in runs:
        if run.manifest is None or run.manifest.complete:
            continue
        states = Counter(str(record.answer.model_state) for record in run.records())
        cases = run.manifest.cases
        yield (
            f"{run.name} is not complete: of its {count_noun(cases, 'case')} {cases - states.total():,} "
            f"{agree(cases - states.total(), 'has', 'have')} no record yet, and "
            f"{states['failed']:,} failed. A mean is over the cases with a record, so one over places may have more "
            "of one place than of another; differences are over pairs."
        )


def _describe_differences(runs: Sequence[RecordedRun]) -> Iterator[str]:
    """Yield the differences between runs, other than the model: they share tables, and are not compared."""
    first, *others = runs
    for other in others:
        names = [difference for difference in list_differences(first, other) if difference != "model"]
        if first.questions != other.questions:
            names.append("question set")
        one, two = (run.manifest and run.manifest.plan.sample for run in (first, other))
        if one != two:
            names.append("sample")
        if names:
            yield (
                f"Warning: {first.name} and {other.name} are shown side by side but not compared: they differ in "
                f"{', '.join(names)}."
            )


def _name_by_model(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """Return each run under its model's name, followed by its own where several runs share a model."""
    models: list[str] = []
    for run in runs:
        # The distinct answering models: an endpoint by its model's name, a file by its own.
        names = [str(item["name"]) for item in run.recipe.get("models", {}).values()]
        short = dict.fromkeys(name.rpartition("#")[2].rpartition("/")[2] or name for name in names)
        models.append(" + ".join(short) or run.name)
    renamed: list[RecordedRun] = []
    for run, model in zip(runs, models, strict=True):
        renamed.append(replace(run, name=model if models.count(model) == 1 else f"{model} ({run.name})"))
    return renamed


def _arguments(run: RecordedRun) -> Mapping[str, Any]:
    return run.manifest.plan.arguments if run.manifest else {}


LEAST_CHOICES = 20
"""Fewer choices say nothing about a preference."""
PREFERENCE = 0.9
"""The share of choices of one letter from which a run is remarked on."""
EXCESS = 0.2
"""How much more often the letter is chosen than right, at least."""


def describe_letter_preferences(runs: Sequence[RecordedRun]) -> Iterator[str]:
    """Yield a remark for each run in which one letter is chosen nearly always, and is right less often."""
    for run in runs:
        choices: Counter[str] = Counter()
        golds: Counter[str] = Counter()
        for record in run.records():
            question = record.answer.question
            if record.answer.choice is not None and question.gold is not None and question.options:
                choices[record.answer.choice] += 1
                golds[question.gold] += 1
        n = choices.total()
        if n < LEAST_CHOICES:
            continue
        letter, count = choices.most_common(1)[0]
        share, right = count / n, golds[letter] / n
        if share >= PREFERENCE and share - right >= EXCESS:
            yield (
                f"Warning: {run.name} chooses {letter} in {100 * share:.0f} % of {count_noun(n, 'choice')}, and "
                f"{letter} is right in {100 * right:.0f} %: it may follow the letter and not the evidence."
            )
