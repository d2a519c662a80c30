"""The experiments by name: the one list that the command line and the report read.

To add an experiment, define an `Experiment` in a module and add its line here. Importing this module loads none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from epicrisis.core.errors import InputError
from epicrisis.core.names import match_case

if TYPE_CHECKING:
    from epicrisis.evaluation.experiments.definition import Experiment

_PLACES: Mapping[str, str] = {
    "positions": "positions.EXPERIMENT",
    "integration": "integration.EXPERIMENT",
    "conflicts": "conflicts.EXPERIMENT",
    "context-length": "context_length.EXPERIMENT",
    "preflight": "preflight.EXPERIMENT",
    "attention-bias": "attention_bias.EXPERIMENT",
    "cost": "integration.COST",
    "focused": "equal_tokens.EXPERIMENT",
    "open-ended": "open_ended.EXPERIMENT",
    "probe": "probe.EXPERIMENT",
    "ensembles": "ensembles.EXPERIMENT",
    "medprompt": "medprompt.EXPERIMENT",
    "models": "model_comparison.EXPERIMENT",
    "openmedprompt": "openmedprompt.EXPERIMENT",
    "ehr-context": "record_studies.CONTEXT",
    "ehr-retrieval": "record_studies.RETRIEVAL",
    "ehr-extractive": "record_studies.EXTRACTIVE",
    "ehr-metrics": "record_studies.METRICS",
    "ehr": "record_studies.WHOLE",
}
NAMES = tuple(_PLACES)


def find_experiment(name: str) -> Experiment:
    """Return the experiment with this name. Raises InputError for an unknown name."""
    name = match_case(name, NAMES)
    if name not in _PLACES:
        raise InputError(f"no experiment is called {name}: known are {', '.join(NAMES)}")
    module, _, attribute = _PLACES[name].partition(".")
    experiment: Experiment = getattr(import_module(f"{__package__}.{module}"), attribute)
    return experiment


@cache
def load_experiments() -> Mapping[str, Experiment]:
    """Return all experiments by name."""
    return {name: find_experiment(name) for name in NAMES}
