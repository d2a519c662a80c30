"""Do the metrics agree, and where not? (EHR study, Tables 6, 7, 11 and 12, Figures 9 and 10.)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.experiment import Experiment, Grid
from epicrisis.evaluation.experiments.record_arms import ALL, RELATED
from epicrisis.evaluation.experiments.record_tables import MeasuredByModel, build_no_cases, record_plots, record_tables
from epicrisis.evaluation.grading import metric_tables


def agreement_tables(cases: MeasuredByModel, remarks: Sequence[str]) -> Iterator[Table]:
    """Yield the tables on the agreement of metrics, for each model."""
    for model, of_model in cases.items():
        for table in metric_tables.agreement_tables(of_model):
            yield replace(table, source=model, notes=(*table.notes, *remarks))


EXPERIMENT = Experiment(
    "ehr-metrics",
    "Do the metrics agree, and where not? (EHR study, Tables 6, 7, 11 and 12, Figures 9 and 10)",
    build_no_cases,
    record_tables(ALL, "Every metric by setting", agreement_tables),
    grid=Grid((RELATED, ALL)),
    published=("ehr-judges-nli", "ehr-judges", "ehr-numbers"),
    plots=record_plots(ALL),
    reads="records",
    strategy="rag",
    whole_sets=True,
    places_documents=False,
    forms=("open", "extractive"),
)
