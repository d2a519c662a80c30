"""The experiments by name: the one list that the command line and the report read.

To add an experiment, write a module with an `EXPERIMENT` and add its line here. Importing this module loads none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from epicrisis.errors import InputError

if TYPE_CHECKING:
    from epicrisis.evaluation.experiments.experiment import Experiment

_MODULES: Mapping[str, str] = {
    "positions": "positions",
    "integration": "integration",
    "conflicts": "conflicts",
    "context-length": "context_length",
    "preflight": "preflight",
    "attention-bias": "attention_bias",
    "cost": "cost_study",
    "open-ended": "open_ended",
    "probe": "probe",
    "ensembles": "ensembles",
    "medprompt": "medprompt",
    "models": "model_comparison",
    "openmedprompt": "openmedprompt",
    "ehr-context": "ehr_context",
    "ehr-retrieval": "ehr_retrieval",
    "ehr-extractive": "ehr_extractive",
    "ehr-metrics": "ehr_metrics",
    "ehr": "ehr_study",
}
NAMES = tuple(_MODULES)


def find_experiment(name: str) -> Experiment:
    """Return the experiment with this name. Raises InputError for an unknown name."""
    if name not in _MODULES:
        raise InputError(f"no experiment is called {name}: known are {', '.join(NAMES)}")
    experiment: Experiment = import_module(f"{__package__}.{_MODULES[name]}").EXPERIMENT
    return experiment


@cache
def load_experiments() -> Mapping[str, Experiment]:
    """Return all experiments by name."""
    return {name: find_experiment(name) for name in NAMES}
