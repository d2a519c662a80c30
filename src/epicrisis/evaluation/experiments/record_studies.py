"""The experiments of the EHR study: which arms each asks, and the tables of its finished and measured runs.

They take records, not passages of literature: `recording` makes their cases. Knows no screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.population_tables import make_population_table
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments import record_arms
from epicrisis.evaluation.experiments.experiment import Experiment, Grid, Runs
from epicrisis.evaluation.grading import measure_tables as tables
from epicrisis.evaluation.grading import metric_tables
from epicrisis.evaluation.grading.calibration_tables import judge_remarks as judged
from epicrisis.evaluation.grading.measurements import MeasuredCase, read_measured_cases
from epicrisis.evaluation.runs.recorded_run import RecordedRun
from epicrisis.types import QuestionForm

WHOLE = "ehr"


def cases_of(run: RecordedRun) -> list[MeasuredCase]:
    """The run's cases with their measures: arms in the order in which they were asked for, then by question; calls at
    once end in any order, tables have one."""
    arms = list(run.manifest.plan.arguments.get("arms", ())) if run.manifest else []

    def place(case: MeasuredCase) -> tuple[int, str]:
        arm = case.condition.get("arm")
        return arms.index(arm) if arm in arms else len(arms), case.question

    return sorted(read_measured_cases(run.path.parent), key=place)


def _all(runs: Runs) -> dict[str, list[MeasuredCase]]:
    return {run.name: cases_of(run) for run in runs}


def _only(
    cases: Mapping[str, Sequence[MeasuredCase]], kept: Callable[[MeasuredCase], bool]
) -> dict[str, list[MeasuredCase]]:
    return {model: [case for case in each if kept(case)] for model, each in cases.items()}


def _rows(cases: Mapping[str, Sequence[MeasuredCase]], names: Sequence[str], baseline: str) -> list[tables.MeasuredRow]:
    return [row for model, each in cases.items() for row in tables.group_rows(model, each, names, baseline)]


def _by(
    title: str, cases: Mapping[str, Sequence[MeasuredCase]], names: Sequence[str], baseline: str, remarks: Sequence[str]
) -> Table:
    labels = ("model", *names, "arm")
    return tables.metrics_table(title, labels, _rows(cases, names, baseline), baseline=baseline, remarks=remarks)


def _study(
    baseline: str, title: str, *, more: Callable[[Mapping[str, Sequence[MeasuredCase]], Sequence[str]], Iterator[Table]]
) -> Callable[[Runs, Sequence[str]], tuple[Table, ...]]:
    """Every metric by arm, then what there is more, then how long the records are."""

    def of(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
        cases = _all(runs)
        told = tuple(dict.fromkeys((*remarks, *_asked(runs), *_unmeasured(runs, cases), *_judges(runs))))
        made = [_by(title, cases, ("set", "form"), baseline, told), *more(cases, remarks)]
        asked = {run.name: run.manifest.plan.arguments.get("asked", {}) for run in runs if run.manifest}
        sizes = [make_population_table(asked)] if any(asked.values()) else []
        return (
            *made,
            *sizes,
            tables.lengths_table(cases, estimated=_estimated(runs)),
            tables.distribution_table(cases),
        )

    return of


def _estimated(runs: Runs) -> bool:
    """Whether some model does not tell how many tokens a text has."""
    return any(run.manifest is not None and run.manifest.plan.arguments.get("tokens") != "counted" for run in runs)


_PROTOCOLS = {
    "published": "Protocol published: an extractive question is answered with a short sentence, as the study asks it.",
    "corrected": "Protocol corrected: an extractive question is answered with words of a note that are found there "
    "again; others are no answer.",
}


def _asked(runs: Runs) -> Iterator[str]:
    """What was asked of whom, and how records were cut and searched: the study leaves most of it open (errata E1)."""
    for run in runs:
        if run.manifest is None:
            continue
        told, settings = run.manifest.plan.arguments, run.recipe.get("settings", {})
        yield _PROTOCOLS.get(str(told.get("protocol")), f"Protocol {told.get('protocol')}.")
        notices = run.manifest.plan.sample.get("notices") or {}
        yield from (f"{run.name}, {name}: {line}." for name, lines in notices.items() for line in lines)
        rerank = (settings.get("rerank") or {}).get("name")
        yield (
            f"{run.name}: population {told.get('population')} (populations are never compared, errata E5); chunks of "
            f"{told.get('chunk_tokens')} tokens of the encoder, {told.get('overlap')} shared by neighbours; search "
            f"{settings.get('by')}, {settings.get('fusion_times') or 'a fixed number of'} times as many hits of each "
            f"ranking fused as chunks wanted, k of the fusion {settings.get('rrf_k')}, reranker {rerank or 'none'}."
        )


def _judges(runs: Runs) -> Iterator[str]:
    """What is known of who judged: whether the judge is a writer (errata E4), and how it agrees with people."""
    for run in runs:
        yield from judged(run.path.parent)


def _unmeasured(runs: Runs, cases: Mapping[str, Sequence[MeasuredCase]]) -> Iterator[str]:
    """What to do where open answers have no measure yet."""
    for run in runs:
        open_ones = [case for case in cases[run.name] if case.form != "choice" and case.ending == "answered"]
        if open_ones and not any(tables.list_metrics([case]) for case in open_ones):
            yield (
                f"{run.name}: nothing of these answers is measured yet: `epicrisis measure FOLDER --judge MODEL` with "
                "the run's folder, then `epicrisis report`."
            )
        elif open_ones and not any(name.startswith("judge-") for case in open_ones for name in case.values):
            yield (
                f"{run.name}: no judge has seen these answers, so the study's Tables 6, 7 and 11 are not made: "
                "`epicrisis measure FOLDER --judge MODEL --nli MODEL`."
            )


def _context(cases: Mapping[str, Sequence[MeasuredCase]], remarks: Sequence[str]) -> Iterator[Table]:
    whole = _only(cases, lambda case: case.condition.get("arm") in (record_arms.ALL, record_arms.FULL))
    yield _by("Include All by the length of the record", whole, ("set", "form", "bin"), "", remarks)


def _retrieval(cases: Mapping[str, Sequence[MeasuredCase]], remarks: Sequence[str]) -> Iterator[Table]:
    yield _by("By the length of the record", cases, ("set", "form", "bin"), record_arms.FULL, remarks)
    yield from _retrieval_against(record_arms.FULL, cases, remarks)


def _retrieval_against(
    baseline: str, cases: Mapping[str, Sequence[MeasuredCase]], remarks: Sequence[str]
) -> Iterator[Table]:
    """By kind of question (the study's Table 13): full context and what retrieves, without the other settings."""
    settings = {*record_arms.SETTINGS} - {baseline}
    kept = _only(cases, lambda case: case.condition.get("arm") not in settings)
    labels = ("model", "set", "category", "arm")
    if rows := _rows(kept, labels[1:3], baseline):
        title = "When does retrieval beat full context?"
        yield tables.pooled_table(title, labels, rows, baseline=baseline, remarks=remarks)


def _whole(cases: Mapping[str, Sequence[MeasuredCase]], remarks: Sequence[str]) -> Iterator[Table]:
    by = ("set", "form")
    yield _by("By the length of the record", cases, (*by, "bin"), record_arms.ALL, remarks)
    yield from _retrieval_against(record_arms.ALL, cases, remarks)
    yield from _metrics_more(cases, remarks)


def _metrics_more(cases: Mapping[str, Sequence[MeasuredCase]], remarks: Sequence[str]) -> Iterator[Table]:
    for model, each in cases.items():
        yield from (
            replace(made, source=model, notes=(*made.notes, *remarks)) for made in metric_tables.agreement_tables(each)
        )


def _made(*_: Any) -> Any:
    raise InputError("this experiment asks records: name them with --data")


def _experiment(
    name: str,
    about: str,
    arms: Sequence[str],
    tables_of: Callable[[Runs, Sequence[str]], tuple[Table, ...]],
    published: Sequence[str] = (),
    forms: tuple[QuestionForm, ...] = (),
) -> Experiment:
    return Experiment(
        name,
        about,
        (),
        Grid(tuple(arms)),
        _made,
        tables_of,
        tuple(published),
        whole=True,
        strategy="rag",
        placed=False,
        of_records=True,
        forms=forms,
    )


_PRINTED = (
    "ehr-datasets",
    "ehr-context",
    "ehr-retrieval",
    "ehr-extractive",
    "ehr-judges-nli",
    "ehr-judges",
    "ehr-sparse",
    "ehr-numbers",
)


EXPERIMENTS: Mapping[str, Experiment] = {
    each.name: each
    for each in (
        _experiment(
            record_arms.CONTEXT,
            "What does a model make of a whole record, of its related notes, of the others, of none? (EHR study, Table "
            "2)",
            record_arms.SETTINGS,
            _study(record_arms.ALL, "Every metric by setting", more=_context),
            ("ehr-datasets", "ehr-context"),
        ),
        _experiment(
            record_arms.RETRIEVAL,
            "When does retrieval beat full context? (EHR study, Tables 3, 8 and 13)",
            record_arms.RETRIEVAL_ARMS,
            _study(record_arms.FULL, "Every metric by arm", more=_retrieval),
            ("ehr-retrieval", "ehr-sparse"),
        ),
        _experiment(
            record_arms.EXTRACTIVE,
            "Extractive questions: full context against chunks (EHR study, Table 4)",
            record_arms.EXTRACTIVE_ARMS,
            _study(record_arms.FULL, "Every metric by arm", more=_retrieval),
            ("ehr-extractive",),
            ("extractive",),
        ),
        _experiment(
            record_arms.METRICS,
            "Do the metrics agree, and where not? (EHR study, Tables 6, 7, 11 and 12, Figures 9 and 10)",
            (record_arms.RELATED, record_arms.ALL),
            _study(record_arms.ALL, "Every metric by setting", more=_metrics_more),
            ("ehr-judges-nli", "ehr-judges", "ehr-numbers"),
            ("open", "extractive"),
        ),
        _experiment(
            WHOLE,
            "The whole EHR study on one set of records: settings, retrieval, lengths, kinds of question, metrics",
            (*record_arms.SETTINGS, *(arm for arm in record_arms.RETRIEVAL_ARMS if arm != record_arms.FULL)),
            _study(record_arms.ALL, "Every metric by arm", more=_whole),
            _PRINTED,
        ),
    )
}
