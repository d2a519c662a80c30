"""The experiments on patients' records, and the tables and plots that they share (EHR study).

Each experiment has every metric by arm, its own tables, and the lengths of the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

from epicrisis.core.errors import InputError
from epicrisis.core.types import QuestionForm
from epicrisis.evaluation.analysis.grouping import P_COLUMN, add_differences, mean_by
from epicrisis.evaluation.analysis.published import make_population_table
from epicrisis.evaluation.analysis.statistics import Difference, estimate_mean, paired_difference
from epicrisis.evaluation.analysis.table import Cell, PlotSpec, Table, line_plot, points_plot
from epicrisis.evaluation.experiments import record_arms
from epicrisis.evaluation.experiments.definition import Experiment, Grid, Runs
from epicrisis.evaluation.experiments.study_protocols import PAPER_SETTINGS
from epicrisis.evaluation.grading import measure_tables, metric_tables
from epicrisis.evaluation.grading.calibration import judge_remarks
from epicrisis.evaluation.grading.computed_answers import COMPUTED_GRADES, WITH_FACTS
from epicrisis.evaluation.grading.measure_tables import MeasuredCases, MeasuredRow, group_cases, metrics_table
from epicrisis.evaluation.grading.measurements import MeasuredCase, read_measured_cases
from epicrisis.evaluation.runs.recorded_run import RecordedRun

EHR = "ehr"
"""Name of the experiment that has the tables of all others."""

MeasuredByModel: TypeAlias = Mapping[str, Sequence[MeasuredCase]]
"""The measured cases of each run, by the name of its model."""
TableBuilder: TypeAlias = Callable[[MeasuredByModel, Sequence[str], str], Iterator[Table]]
"""Yields tables of these cases, with these remarks, against this baseline."""

_BY_LENGTH = ("set", "form", "bin")
"""Conditions of the rows of tables, besides the arm."""
PROTOCOL_NOTES = {
    "published": "Protocol published: the prompts of the study (Appendix C.3) except in the arms brief-context, which "
    "it does not have: notes in order of time, then the question, and one short sentence, without quotations, which "
    "counts as it is. Each ranking gives twice as many hits as chunks. Ours: "
    "the wording, JSON in place of field markers, the fence around notes, a way to give no answer, and the prompt of "
    "multiple-choice questions, which is not printed. Related notes are those of the types that the set is about.",
    "corrected": "Protocol corrected: questions are asked with the settings of `ask`. An extractive question is "
    "answered with words of a note that occur in it; others are no answer, and neither are answers without a verified "
    "quotation (unverified = abstain).",
}
PROTOCOL_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "published": {**PAPER_SETTINGS, "fusion_times": 2},
    "corrected": {},
}
"""Settings of each protocol that the user's own ones override. As published, each ranking gives twice as many hits as
chunks; as corrected, questions are asked and passages found as by `ask`."""
_OLD_PUBLISHED = (
    "Protocol published, in a run made before it had prompts of its own: an extractive question is answered with a "
    "short sentence, as the study asks it. The prompts are ours."
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


def _select_arms(cases: MeasuredByModel, keep: Callable[[Any], bool]) -> dict[str, list[MeasuredCase]]:
    """Return the cases whose arm is to be kept."""
    return {model: [case for case in of_model if keep(case.condition.get("arm"))] for model, of_model in cases.items()}


def _group_rows(cases: MeasuredByModel, by: Sequence[str], baseline: str) -> list[measure_tables.MeasuredRow]:
    """Return a row for each model, value of these conditions, and arm."""
    rows: list[measure_tables.MeasuredRow] = []
    for model, of_model in cases.items():
        rows += measure_tables.group_rows(model, of_model, by, baseline)
    return rows


def _metric_table(
    title: str, cases: MeasuredByModel, by: Sequence[str], baseline: str, remarks: Sequence[str]
) -> Table:
    """Build the table of every metric, with a row for each model, value of these conditions, and arm."""
    rows = _group_rows(cases, by, baseline)
    return measure_tables.metrics_table(title, ("model", *by, "arm"), rows, baseline=baseline, remarks=remarks)


def _length_table(cases: MeasuredByModel, remarks: Sequence[str], _: str) -> Iterator[Table]:
    """Yield the metrics of the whole record by its length."""
    whole_records = _select_arms(cases, (record_arms.ALL, record_arms.FULL).__contains__)
    yield _metric_table("Include All by the length of the record", whole_records, _BY_LENGTH, "", remarks)


def _retrieval_tables(cases: MeasuredByModel, remarks: Sequence[str], baseline: str) -> Iterator[Table]:
    """Yield the metrics by the length of the record, and retrieval against full context by kind of question."""
    yield _metric_table("By the length of the record", cases, _BY_LENGTH, baseline, remarks)
    # The other settings depend on the marked notes, which retrieval does not know.
    others = {*record_arms.SETTINGS, record_arms.WITHOUT_GOLD, record_arms.GOLD} - {baseline}
    rows = _group_rows(_select_arms(cases, lambda arm: arm not in others), ("set", "category"), baseline)
    if rows:
        title, labels = "When does retrieval beat full context?", ("model", "set", "category", "arm")
        yield measure_tables.pooled_table(title, labels, rows, baseline=baseline, remarks=remarks)


def _agreement_tables(cases: MeasuredByModel, remarks: Sequence[str], _: str) -> Iterator[Table]:
    """Yield the tables on the agreement of metrics, for each model."""
    for model, of_model in cases.items():
        for table in metric_tables.agreement_tables(of_model):
            yield replace(table, source=model, notes=(*table.notes, *remarks))


def study_tables(cases: MeasuredByModel, remarks: Sequence[str], baseline: str = record_arms.ALL) -> Iterator[Table]:
    """Yield the tables of retrieval and of metrics, against the whole record."""
    yield from _retrieval_tables(cases, remarks, baseline)
    yield from _agreement_tables(cases, remarks, baseline)


def _build_tables(
    runs: Runs, remarks: Sequence[str], baseline: str, title: str, build_more: TableBuilder
) -> tuple[Table, ...]:
    cases: dict[str, list[MeasuredCase]] = {}
    notes: list[str] = [*remarks]
    for run in runs:
        cases[run.name] = _read_measured(run)
        notes += _describe_run(run)
    for run in runs:
        notes += _describe_missing_measures(run, cases[run.name])
    for run in runs:
        notes += judge_remarks(run.path.parent)
    notes = list(dict.fromkeys(notes))
    built = [_metric_table(title, cases, ("set", "form"), baseline, notes), *build_more(cases, remarks, baseline)]
    built += build_fact_tables(cases, remarks)
    sizes: dict[str, Any] = {}
    estimated = False
    for run in runs:
        if run.manifest is not None:
            arguments = run.manifest.plan.arguments
            sizes[run.name] = arguments.get("asked", {})
            # The run's model does not count the tokens of a text.
            estimated |= arguments.get("tokens") != "counted"
    if any(sizes.values()):
        built.append(make_population_table(sizes))
    built.append(measure_tables.lengths_table(cases, estimated=estimated))
    built.append(measure_tables.distribution_table(cases))
    return tuple(built)


def _read_measured(run: RecordedRun) -> list[MeasuredCase]:
    """Read the run's cases with their measures, by arm (in the order of the plan) and question."""
    arms = list(run.manifest.plan.arguments.get("arms", ())) if run.manifest else []

    def place(case: MeasuredCase) -> tuple[int, str]:
        arm = case.condition.get("arm")
        return arms.index(arm) if arm in arms else len(arms), case.question

    return sorted(read_measured_cases(run.path.parent), key=place)


def _describe_run(run: RecordedRun) -> Iterator[str]:
    """Yield notes on the questions of a run, and on how its records were cut and searched (errata E1)."""
    if run.manifest is None:
        return
    plan, settings = run.manifest.plan, run.recipe.get("settings", {})
    arguments: Mapping[str, Any] = plan.arguments
    protocol = str(arguments.get("protocol"))
    is_old = protocol == "published" and "prompts" not in arguments
    yield _OLD_PUBLISHED if is_old else PROTOCOL_NOTES.get(protocol, f"Protocol {protocol}.")
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
    """Yield instructions for open answers without a measure."""
    open_cases = [case for case in cases if case.form != "choice" and case.ending == "answered"]
    if not open_cases:
        return
    if not any(measure_tables.list_metrics([case]) for case in open_cases):
        yield (
            f"{run.name}: these answers are not measured yet: `epicrisis grade run FOLDER --judge MODEL` with the "
            "run's folder, then `epicrisis report`."
        )
    elif not any(name.startswith("judge-") for name in chain.from_iterable(case.values for case in open_cases)):
        yield (
            f"{run.name}: no judge has graded these answers, so the study's Tables 6, 7 and 11 are missing: "
            "`epicrisis grade run FOLDER --judge MODEL --nli MODEL`."
        )


def _metric_plots(by: str, baseline: str, series: tuple[str, ...]) -> tuple[PlotSpec, ...]:
    """Return the plots of each metric, of the differences, and of the recall of evidence."""
    along = ("arm", *series)
    plots: list[PlotSpec] = []
    for column, title in _METRICS.items():
        plots.append(points_plot(f"{title} {by}", column, along=along, series=series, panel=_PANEL, optional=True))
    plots.append(
        points_plot(f"Differences {by}", f"difference to {baseline}", along=along, series=series, panel=_PANEL)
    )
    title = f"Evidence that was read {by}"
    plots.append(points_plot(title, "evidence recall", along=along, series=series, panel=_PANEL, optional=True))
    return tuple(plots)


def _study(
    name: str,
    question: str,
    baseline: str,
    title: str,
    build_more: TableBuilder,
    arms: tuple[str, ...],
    published: tuple[str, ...],
    forms: tuple[QuestionForm, ...] = (),
) -> Experiment:
    """Return an experiment on records. Its plots are those of the EHR study: by kind of question (Table 13), by length
    (Figures 3, 4 and 8), by arm (Tables 2 to 4, Figure 5), the lengths of records (Figures 6 and 7), correlations
    (Figures 9 and 10)."""
    along, difference = ("category", "arm"), (f"difference to {baseline}",)
    by_kind = points_plot("Differences by kind of question", *difference, along=along, series=("arm",), panel=_PANEL)
    lengths = line_plot(
        "Records by their length", "patients", along=("up to tokens",), series=("set",), panel=("model",), log2=True
    )
    correlations = points_plot("Correlation of metrics", "Spearman*", along=("metric", "other"), panel=())
    return Experiment(
        name=name,
        question=question,
        cases=_refuse,
        tables=lambda runs, remarks: _build_tables(runs, remarks, baseline, title, build_more),
        grid=Grid(arms),
        published=published,
        plots=(
            (by_kind,),
            _metric_plots("by length of the record", baseline, ("bin",)),
            _metric_plots("by arm", baseline, ()),
            (lengths,),
            (correlations,),
        ),
        reads="records",
        strategy="rag",
        whole_sets=True,
        places_documents=False,
        forms=forms,
    )


def _refuse(_: Any) -> Any:
    """Raise InputError: the cases of these experiments come from `record_cases.plan_record_experiment`."""
    raise InputError("this experiment needs patient records: give their folder with --data")


CONTEXT = _study(
    "ehr-context",
    (
        "How well does a model answer from the whole record, from related notes, from other notes, and from none? (EHR "
        "study, Table 2)"
    ),
    record_arms.ALL,
    "Every metric by setting",
    _length_table,
    record_arms.SETTINGS,
    ("ehr-datasets", "ehr-context"),
)
RETRIEVAL = _study(
    "ehr-retrieval",
    "When does retrieval beat full context? (EHR study, Tables 3, 8 and 13)",
    record_arms.FULL,
    "Every metric by arm",
    _retrieval_tables,
    record_arms.RETRIEVAL_ARMS,
    ("ehr-retrieval", "ehr-sparse"),
)
EXTRACTIVE = _study(
    "ehr-extractive",
    "Extractive questions: full context against chunks (EHR study, Table 4)",
    record_arms.FULL,
    "Every metric by arm",
    _retrieval_tables,
    record_arms.EXTRACTIVE_ARMS,
    ("ehr-extractive",),
    ("extractive",),
)
METRICS = _study(
    "ehr-metrics",
    "Do the metrics agree, and where not? (EHR study, Tables 6, 7, 11 and 12, Figures 9 and 10)",
    record_arms.ALL,
    "Every metric by setting",
    _agreement_tables,
    (record_arms.RELATED, record_arms.ALL),
    ("ehr-judges-nli", "ehr-judges", "ehr-numbers"),
    ("open", "extractive"),
)
WHOLE = _study(
    EHR,
    "The whole EHR study on one set of records: settings, retrieval, lengths, kinds of question, metrics",
    record_arms.ALL,
    "Every metric by arm",
    study_tables,
    (*record_arms.SETTINGS, *filter(record_arms.FULL.__ne__, record_arms.RETRIEVAL_ARMS)),
    (
        *CONTEXT.published,
        "ehr-retrieval",
        *EXTRACTIVE.published,
        "ehr-judges-nli",
        "ehr-judges",
        "ehr-sparse",
        "ehr-numbers",
    ),
)


_RIVAL = "the arm without facts"
_LABELS = ("model", "set", "arm")
_MISSING_NOTES = (
    "Questions whose answer is missing from the record, as in LongHealth: abstaining is right. Shares are of the cases "
    "that answered, abstained or could not be read.",
    f"`abstained wrongly`: the share of questions with an answer in the record. Intervals are 95 %, by a bootstrap of "
    f"whole patients. The difference is of `abstained rightly`, to {_RIVAL}, paired by question.",
)
_COMPUTED_NOTES = (
    "How the answer that a program computes from structured entries compares with the right one, before a model words "
    "it. `rightly-abstained`: nothing was computed, and the record has no answer. `not-understood`: the question is "
    "left to the notes.",
)


def build_fact_tables(runs: Mapping[str, MeasuredCases], remarks: Sequence[str]) -> Iterator[Table]:
    """Yield the tables for which the runs have cases, by the names of their models."""
    rows = _list_rows(runs)
    pairs = [row for row in rows if row.against]
    if pairs:
        title = "With and without structured entries"
        yield metrics_table(title, _LABELS, pairs, baseline=_RIVAL, remarks=remarks)
    if any(case.unanswerable for row in rows for case in row.cases):
        yield _missing_table(rows)
    if any(case.computed for row in rows for case in row.cases):
        yield _computed_table(rows)


def _list_rows(runs: Mapping[str, MeasuredCases]) -> list[MeasuredRow]:
    """Return a row for each model, set and arm. An arm with facts is compared with the same one without."""
    rows: list[MeasuredRow] = []
    for model, cases in runs.items():
        groups = group_cases(cases, ("set", "arm"))
        for (name, arm), members in groups.items():
            rival = (name, str(arm).removesuffix(WITH_FACTS))
            against = groups.get(rival, []) if rival != (name, arm) else []
            rows.append(MeasuredRow((model, name, arm), members, against))
    return rows


def _abstained_rightly(case: MeasuredCase) -> float | None:
    return case.values.get("abstained-rightly")


def _abstained_wrongly(case: MeasuredCase) -> float | None:
    return None if case.unanswerable else float(case.ending == "abstained")


def _missing_table(rows: Sequence[MeasuredRow]) -> Table:
    """Return how often each arm abstained where the record has no answer, and where it has one."""
    lines: list[tuple[Cell, ...]] = []
    differences: list[Difference | None] = []
    for row in rows:
        missing = [case for case in row.cases if case.unanswerable]
        clusters = {case.question: case.cluster for case in row.cases}
        one, two = (mean_by(side, attrgetter("question"), _abstained_rightly) for side in (row.cases, row.against))
        differences.append(paired_difference(one, two, clusters) if one.keys() & two.keys() else None)
        figures = _mean(row.cases, _abstained_rightly), len(row.cases) - len(missing)
        lines.append((*row.labels, len(missing), *figures, _mean(row.cases, _abstained_wrongly)))
    figures_columns = ("missing", "abstained rightly", "answerable", "abstained wrongly")
    columns = (*_LABELS, *figures_columns, f"difference to {_RIVAL}", P_COLUMN)
    return Table("Missing information", columns, add_differences(lines, differences), _MISSING_NOTES)


def _mean(cases: MeasuredCases, score: Callable[[MeasuredCase], float | None]) -> Cell:
    scores = list(map(score, cases))
    return None if scores.count(None) == len(scores) else estimate_mean(scores, [case.cluster for case in cases])


def _computed_table(rows: Sequence[MeasuredRow]) -> Table:
    """Return the grades of computed answers by kind of question."""
    lines: list[tuple[Cell, ...]] = []
    for row in rows:
        graded = [case for case in row.cases if case.computed]
        kinds = dict.fromkeys(sorted(case.category for case in graded))
        for kind in (*kinds, "all") if graded else ():
            grades = Counter(case.computed for case in graded if kind in ("all", case.category))
            lines.append((*row.labels, kind, grades.total(), *(grades[grade] for grade in COMPUTED_GRADES)))
    columns = (*_LABELS, "category", "cases", *COMPUTED_GRADES)
    return Table("Computed answers", columns, tuple(lines), _COMPUTED_NOTES)
