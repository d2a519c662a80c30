"""What does a model make of a whole record, of parts of it, and of none? (EHR study, section 4.2: Table 2.)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.experiment import Experiment, Grid
from epicrisis.evaluation.experiments.record_arms import ALL, FULL, SETTINGS
from epicrisis.evaluation.experiments.record_tables import (
    BY_LENGTH,
    MeasuredByModel,
    build_no_cases,
    metric_table,
    record_plots,
    record_tables,
    select_arms,
)


def _length_table(cases: MeasuredByModel, remarks: Sequence[str]) -> Iterator[Table]:
    """Yield the metrics of the whole record by its length."""
    whole_records = select_arms(cases, lambda arm: arm in (ALL, FULL))
    yield metric_table("Include All by the length of the record", whole_records, BY_LENGTH, "", remarks)


EXPERIMENT = Experiment(
    "ehr-context",
    "What does a model make of a whole record, of its related notes, of the others, of none? (EHR study, Table 2)",
    build_no_cases,
    record_tables(ALL, "Every metric by setting", _length_table),
    grid=Grid(SETTINGS),
    published=("ehr-datasets", "ehr-context"),
    plots=record_plots(ALL),
    reads="records",
    strategy="rag",
    whole_sets=True,
    places_documents=False,
)
