"""The whole EHR study on one set of records: settings, retrieval, lengths, kinds of question, metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.ehr_metrics import agreement_tables
from epicrisis.evaluation.experiments.ehr_retrieval import length_and_kind_tables
from epicrisis.evaluation.experiments.experiment import Experiment, Grid
from epicrisis.evaluation.experiments.record_arms import ALL, FULL, RETRIEVAL_ARMS, SETTINGS
from epicrisis.evaluation.experiments.record_tables import MeasuredByModel, build_no_cases, record_plots, record_tables

NAME = "ehr"


def study_tables(cases: MeasuredByModel, remarks: Sequence[str]) -> Iterator[Table]:
    """Yield the tables of retrieval and of metrics, against the whole record."""
    yield from length_and_kind_tables(cases, remarks, ALL)
    yield from agreement_tables(cases, remarks)


EXPERIMENT = Experiment(
    NAME,
    "The whole EHR study on one set of records: settings, retrieval, lengths, kinds of question, metrics",
    build_no_cases,
    record_tables(ALL, "Every metric by arm", study_tables),
    grid=Grid((*SETTINGS, *(arm for arm in RETRIEVAL_ARMS if arm != FULL))),
    published=(
        "ehr-datasets",
        "ehr-context",
        "ehr-retrieval",
        "ehr-extractive",
        "ehr-judges-nli",
        "ehr-judges",
        "ehr-sparse",
        "ehr-numbers",
    ),
    plots=record_plots(ALL),
    reads="records",
    strategy="rag",
    whole_sets=True,
    places_documents=False,
)
