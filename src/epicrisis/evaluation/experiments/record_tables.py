"""The tables and plots that the experiments on patients' records share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.plot_spec import PlotSpec
from epicrisis.evaluation.analysis.published import make_population_table
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.experiment import CaseInputs, Runs
from epicrisis.evaluation.grading import measure_tables
from epicrisis.evaluation.grading.calibration import judge_remarks as judge_remarks
from epicrisis.evaluation.grading.measurements import MeasuredCase, read_measured_cases
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.recorded_run import RecordedRun

MeasuredByModel: TypeAlias = Mapping[str, Sequence[MeasuredCase]]
"""The measured cases of each run, by the name of its model."""
TableBuilder: TypeAlias = Callable[[MeasuredByModel, Sequence[str]], Iterator[Table]]

BY_KIND, BY_LENGTH = ("set", "form"), ("set", "form", "bin")
"""Conditions of the rows of tables, besides the arm."""

_PROTOCOL_NOTES = {
    "published": "Protocol published: an extractive question is answered with a short sentence, as the study asks it.",
    "corrected": "Protocol corrected: an extractive question is answered with words of a note that occur in it; others "
    "are no answer.",
}


def build_no_cases(_: CaseInputs) -> tuple[Case, ...]:
    """Raise InputError: the cases of these experiments come from `record_cases.plan_record_experiment`."""
    raise InputError("this experiment asks records: name them with --data")


def read_measured(run: RecordedRun) -> list[MeasuredCase]:
    """Read the run's cases with their measures, by arm (in the order of the plan) and question."""
    arms = list(run.manifest.plan.arguments.get("arms", ())) if run.manifest else []

    def place(case: MeasuredCase) -> tuple[int, str]:
        arm = case.condition.get("arm")
        return arms.index(arm) if arm in arms else len(arms), case.question

    return sorted(read_measured_cases(run.path.parent), key=place)


def select_arms(cases: MeasuredByModel, keep: Callable[[str], bool]) -> dict[str, list[MeasuredCase]]:
    """Return the cases whose arm is to be kept."""

    def is_kept(case: MeasuredCase) -> bool:
        return keep(str(case.condition.get("arm")))

    return {model: list(filter(is_kept, of_model)) for model, of_model in cases.items()}


def group_rows(cases: MeasuredByModel, by: Sequence[str], baseline: str) -> list[measure_tables.MeasuredRow]:
    """Return a row for each model, value of these conditions, and arm."""
    rows: list[measure_tables.MeasuredRow] = []
    for model, of_model in cases.items():
        rows += measure_tables.group_rows(model, of_model, by, baseline)
    return rows


def metric_table(title: str, cases: MeasuredByModel, by: Sequence[str], baseline: str, remarks: Sequence[str]) -> Table:
    """Build the table of every metric, with a row for each model, value of these conditions, and arm."""
    rows = group_rows(cases, by, baseline)
    return measure_tables.metrics_table(title, ("model", *by, "arm"), rows, baseline=baseline, remarks=remarks)


def record_tables(
    baseline: str, title: str, build_more: TableBuilder
) -> Callable[[Runs, Sequence[str]], tuple[Table, ...]]:
    """Return the table builder of an experiment: every metric by arm, its own tables, and the lengths of records."""

    def tables_of_runs(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
        cases = {run.name: read_measured(run) for run in runs}
        notes = dict.fromkeys(remarks)
        for run in runs:
            notes |= dict.fromkeys(_describe_run(run))
        for run in runs:
            notes |= dict.fromkeys(_describe_missing_measures(run, cases[run.name]))
        for run in runs:
            notes |= dict.fromkeys(judge_remarks(run.path.parent))
        built = [metric_table(title, cases, BY_KIND, baseline, tuple(notes)), *build_more(cases, remarks)]
        sizes = {run.name: run.manifest.plan.arguments.get("asked", {}) for run in runs if run.manifest}
        if any(sizes.values()):
            built.append(make_population_table(sizes))
        built.append(measure_tables.lengths_table(cases, estimated=any(map(_has_estimated_tokens, runs))))
        built.append(measure_tables.distribution_table(cases))
        return tuple(built)

    return tables_of_runs


def _has_estimated_tokens(run: RecordedRun) -> bool:
    """Return whether the run's model does not count the tokens of a text."""
    return run.manifest is not None and run.manifest.plan.arguments.get("tokens") != "counted"


def _describe_run(run: RecordedRun) -> Iterator[str]:
    """Yield notes on the questions of a run, and on how its records were cut and searched (errata E1)."""
    if run.manifest is None:
        return
    plan, settings = run.manifest.plan, run.recipe.get("settings", {})
    arguments: Mapping[str, Any] = plan.arguments
    protocol = str(arguments.get("protocol"))
    yield _PROTOCOL_NOTES.get(protocol, f"Protocol {protocol}.")
    for name, lines in (plan.sample.get("notices") or {}).items():
        for line in lines:
            yield f"{run.name}, {name}: {line}."
    rerank = (settings.get("rerank") or {}).get("name")
    yield (
        f"{run.name}: population {arguments.get('population')} (populations are never compared, errata E5); chunks of "
        f"{arguments.get('chunk_tokens')} tokens of the encoder, {arguments.get('overlap')} shared by neighbours; "
        f"search {settings.get('by')}, {settings.get('fusion_times') or 'a fixed number of'} times as many hits of "
        f"each ranking fused as chunks requested, k of the fusion {settings.get('rrf_k')}, reranker {rerank or 'none'}."
    )


def _describe_missing_measures(run: RecordedRun, cases: Sequence[MeasuredCase]) -> Iterator[str]:
    """Yield what to do where open answers have no measure yet."""
    open_cases = [case for case in cases if case.form != "choice" and case.ending == "answered"]
    metrics = set(chain.from_iterable(case.values for case in open_cases))
    if open_cases and not any(measure_tables.list_metrics([case]) for case in open_cases):
        yield (
            f"{run.name}: these answers are not measured yet: `epicrisis grade run FOLDER --judge MODEL` with the "
            "run's folder, then `epicrisis report`."
        )
    elif open_cases and not any(name.startswith("judge-") for name in metrics):
        yield (
            f"{run.name}: no judge has graded these answers, so the study's Tables 6, 7 and 11 are missing: "
            "`epicrisis grade run FOLDER --judge MODEL --nli MODEL`."
        )


_PANEL = ("model", "set", "form")
_METRICS = {
    "accuracy": "Accuracy",
    "judge-correctness*": "Correctness, by judges",
    "nli-entailment*": "Entailment",
    "bertscore*": "BERTScore",
    "meteor*": "METEOR",
    "token-f1": "Token F1",
}
"""Patterns of columns of tables of measured answers, with their titles."""


def record_plots(baseline: str) -> tuple[tuple[PlotSpec, ...], ...]:
    """Return the plots of the EHR study: by kind of question (Table 13), by length (Figures 3, 4 and 8), by arm (Tables
    2 to 4, Figure 5), the lengths of records (Figures 6 and 7), correlations (Figures 9 and 10)."""
    by_kind = PlotSpec(
        "Differences by kind of question",
        "points",
        (f"difference to {baseline}",),
        ("category", "arm"),
        ("arm",),
        _PANEL,
    )
    lengths = PlotSpec(
        "Records by their length", "line", ("patients",), ("up to tokens",), ("set",), ("model",), log2=True
    )
    correlations = PlotSpec("Correlation of metrics", "points", ("Spearman*",), ("metric", "other"), panel=())
    return (
        (by_kind,),
        _metric_plots("by length of the record", baseline, ("bin",)),
        _metric_plots("by arm", baseline, ()),
        (lengths,),
        (correlations,),
    )


def _metric_plots(by: str, baseline: str, series: tuple[str, ...]) -> tuple[PlotSpec, ...]:
    """Return the plots of each metric, of the differences, and of the recall of evidence."""
    along = ("arm", *series)
    metrics = [
        PlotSpec(f"{title} {by}", "points", (column,), along, series, _PANEL, optional=True)
        for column, title in _METRICS.items()
    ]
    recall = ("evidence recall",)
    return (
        *metrics,
        PlotSpec(f"Differences {by}", "points", (f"difference to {baseline}",), along, series, _PANEL),
        PlotSpec(f"Evidence that was read {by}", "points", recall, along, series, _PANEL, optional=True),
    )
