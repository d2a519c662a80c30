"""Extractive questions: full context against chunks (EHR study, section 5: Table 4)."""

from __future__ import annotations

from epicrisis.evaluation.experiments.ehr_retrieval import length_and_kind_tables
from epicrisis.evaluation.experiments.experiment import Experiment, Grid
from epicrisis.evaluation.experiments.record_arms import EXTRACTIVE_ARMS, FULL
from epicrisis.evaluation.experiments.record_tables import build_no_cases, record_plots, record_tables

EXPERIMENT = Experiment(
    "ehr-extractive",
    "Extractive questions: full context against chunks (EHR study, Table 4)",
    build_no_cases,
    record_tables(FULL, "Every metric by arm", length_and_kind_tables),
    grid=Grid(EXTRACTIVE_ARMS),
    published=("ehr-extractive",),
    plots=record_plots(FULL),
    reads="records",
    strategy="rag",
    whole_sets=True,
    places_documents=False,
    forms=("extractive",),
)
