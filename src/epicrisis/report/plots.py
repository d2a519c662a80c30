"""The plots of each experiment's tables, and those of runs and published tables that belong to no single experiment."""

from __future__ import annotations

from collections.abc import Mapping

from epicrisis.evaluation.analysis.plot_spec import DIFFERENCES, SHARES, PlotSpec
from epicrisis.evaluation.experiments.positions import PLACE_PLOT
from epicrisis.evaluation.experiments.registry import NAMES, find_experiment

_PLAIN_RUNS = ("evaluate", "compare")


def plots_of(name: str) -> tuple[tuple[PlotSpec, ...], ...]:
    """Return the plots of an experiment, or of plain runs: a table is drawn by the first group whose columns it has."""
    if name in _PLAIN_RUNS:
        return (SHARES,), (DIFFERENCES,)
    return find_experiment(name).plots if name in NAMES else ()


def _energy_plots(along: tuple[str, ...], panel: tuple[str, ...]) -> tuple[PlotSpec, ...]:
    return (
        PlotSpec("Energy for questions", "points", ("kWh per 1,000 questions",), along, along, panel),
        PlotSpec("Energy for right answers", "points", ("Wh per right answer",), along, along, panel),
    )


ENERGY_PLOTS = (_energy_plots(("arm",), ("run",)), _energy_plots(("run",), ()))
"""Plots of tables that runs of any experiment may have."""

_MODEL, _STUDY_SETS = ("model",), ("CareQA", "MedMCQA", "MedQA", "MMLU")
PUBLISHED_PLOTS: Mapping[str, PlotSpec] = {
    "positions": PlotSpec(
        PLACE_PLOT.title, "line", ("RAG", "BriefContext"), ("place",), axis_title=PLACE_PLOT.axis_title
    ),
    "integration": PlotSpec("Accuracy", "points", ("MedMCQA", "PubMedQA", "BioASQ"), ("method",)),
    "open-ended": PlotSpec("Verdicts", "bars", ("percent",), ("verdict",)),
    "conflicts": PlotSpec("Conflict cases against RAG", "bars", ("win", "tie", "lose"), ("place",)),
    "ensembles-baseline": PlotSpec("Accuracy by method", "points", _STUDY_SETS, ("method",)),
    "ensembles-shuffling": PlotSpec(
        "Accuracy with shuffled options", "points", _STUDY_SETS, ("options",), panel=("votes",)
    ),
    "ensembles-votes": PlotSpec("Accuracy by the number of votes", "line", _STUDY_SETS, ("votes",)),
    "medprompt-encoders": PlotSpec("Accuracy by encoder", "points", _STUDY_SETS, ("encoder",)),
    "models": PlotSpec("Accuracy without context retrieval and with", "points", _STUDY_SETS, _MODEL, panel=("method",)),
    "models-leaderboard": PlotSpec("Leaderboard", "points", ("average",), ("model", "method"), ("source",), ()),
    "open-baseline": PlotSpec("Accuracy with options and without", "points", ("accuracy (%)",), ("type", "examples")),
    "openmedprompt-refining": PlotSpec("Accuracy by the number of drafts", "line", ("CoT", "ToT"), ("drafts",)),
    "openmedprompt-reflection": PlotSpec("Accuracy by the number of rounds", "line", ("CoT", "ToT"), ("rounds",)),
}
"""The plot of each published table, by its name; values are percentages, as printed."""
