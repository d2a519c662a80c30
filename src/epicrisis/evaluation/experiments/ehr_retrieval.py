"""When does retrieval beat full context? (EHR study, section 4.3: Tables 3, 8 and 13.)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.experiment import Experiment, Grid
from epicrisis.evaluation.experiments.record_arms import FULL, RETRIEVAL_ARMS, SETTINGS
from epicrisis.evaluation.experiments.record_tables import (
    BY_LENGTH,
    MeasuredByModel,
    build_no_cases,
    group_rows,
    metric_table,
    record_plots,
    record_tables,
    select_arms,
)
from epicrisis.evaluation.grading import measure_tables


def length_and_kind_tables(cases: MeasuredByModel, remarks: Sequence[str], baseline: str = FULL) -> Iterator[Table]:
    """Yield the metrics by the length of the record, and retrieval against full context by kind of question."""
    yield metric_table("By the length of the record", cases, BY_LENGTH, baseline, remarks)
    # The other settings depend on the marked notes, which retrieval does not know.
    others = {*SETTINGS} - {baseline}
    compared = select_arms(cases, lambda arm: arm not in others)
    rows = group_rows(compared, ("set", "category"), baseline)
    if rows:
        title, labels = "When does retrieval beat full context?", ("model", "set", "category", "arm")
        yield measure_tables.pooled_table(title, labels, rows, baseline=baseline, remarks=remarks)


EXPERIMENT = Experiment(
    "ehr-retrieval",
    "When does retrieval beat full context? (EHR study, Tables 3, 8 and 13)",
    build_no_cases,
    record_tables(FULL, "Every metric by arm", length_and_kind_tables),
    grid=Grid(RETRIEVAL_ARMS),
    published=("ehr-retrieval", "ehr-sparse"),
    plots=record_plots(FULL),
    reads="records",
    strategy="rag",
    whole_sets=True,
    places_documents=False,
)
