"""The preflight experiment's findings from a folder of recorded rankings, a file for each leak guard. Asks nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.statistics import Mean
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.preflight import (
    ALWAYS,
    AS_CODED,
    NEVER,
    PAPERS_RULE,
    Definition,
    Rule,
    counts_table,
    curve_table,
    definitions,
    guards_table,
    places_table,
    rules_table,
)
from epicrisis.evaluation.experiments.preflight_calibration import (
    PreflightCalibration,
    calibrate,
    calibration_table,
    signals_table,
)
from epicrisis.evaluation.experiments.recorded_rankings import GUARDS, Guard, QuestionRankings, read_rankings
from epicrisis.evaluation.runs.recorded_run import RunSummary
from epicrisis.retrieval.ranking_signals import Signal

NAME = "preflight"
K = 16
HIDDEN: Guard = "source-hidden"
OVERLAP = Signal("overlap", 3)
"""Of the papers' rule."""
RULES = (PAPERS_RULE, Rule(OVERLAP, 0.2, depth=64), AS_CODED, Rule(Signal("overlap", 5), 0.2), ALWAYS, NEVER)
"""The papers' rule, deeper, as coded and wider, between the two that look at nothing."""


def file_of(folder: Path, guard: Guard) -> Path:
    """Where the rankings made under a guard lie."""
    return folder / f"rankings-{guard}.jsonl"


def holds_rankings(folder: Path) -> bool:
    """Whether a run of this experiment was written there."""
    return file_of(folder, "none").is_file()


def findings_of(folder: Path) -> Findings:
    """All tables of one library's rankings. Raises InputError where a file is none of them."""
    recipe, recorded = read_rankings(file_of(folder, "none"))
    arms: dict[str, Sequence[QuestionRankings]] = {"none": recorded}
    for guard in GUARDS[1:]:
        if file_of(folder, guard).is_file():
            arms[guard] = read_rankings(file_of(folder, guard))[1]
    tables = [places_table(recorded, K), counts_table(recorded), rules_table(recorded, RULES, K)]
    said: list[str] = []
    for definition in definitions(K)[:2]:
        tables += _fitted(recorded, definition, said)
    if len(arms) > 1:
        tables.append(guards_table(arms, k=K))
    told = f"{folder.resolve().name}: {recipe['passages']:,} passages by {recipe['encoder']}, read {recipe['by']}, "
    told += f"counted by {recipe.get('count', 'passages')}"
    return Findings(
        experiment=NAME,
        about="Can it be foreseen that the key document will be lost? (BriefContext, Supplementary Tables 4 and 5)",
        # One guard hides what the other did not: both are of the same questions when they are done.
        sources=(
            RunSummary(
                folder.resolve().name,
                _facts(recipe, arms),
                len(arms.get(HIDDEN, recorded)) == len(recorded),
                " + ".join(dict.fromkeys(each.dataset for each in recorded)),
            ),
        ),
        tables=tuple(replace(table, source=table.source or told) for table in tables),
        conclusions=tuple(said),
        published=tuple(load_published()[name] for name in ("preflight", "preflight-rates")),
    )


def _fitted(recorded: Sequence[QuestionRankings], definition: Definition, said: list[str]) -> list[Table]:
    """The tables of one definition of the issue; what they come to is added to `said`."""
    try:
        fitted = calibrate(recorded, definition)
    except InputError as error:
        said.append(f"No rule was fitted for the issue that the key document is {definition.name}: {error.message}.")
        return []
    said += _told(fitted)
    made = (
        signals_table(recorded, definition),
        calibration_table(fitted, K),
        curve_table(recorded, OVERLAP, definition),
    )
    return [replace(each, title=f"{each.title} (issue: key document {definition.name})") for each in made]


def _told(fitted: PreflightCalibration) -> list[str]:
    """Both rules at the same recall, in one sentence."""
    papers = fitted.papers
    matched = fitted.at_recall(papers.recall.value)
    ours, theirs = (f"{_percent(of.specificity)} at a recall of {_percent(of.recall)}" for of in (matched, papers))
    return [
        f"The issue being that the key document is {fitted.definition.name}: the papers' rule has a specificity of "
        f"{theirs}; rules fitted on the other questions, set to that recall, {ours}. Fitted on all: {fitted.rule}."
    ]


def _percent(share: Mean) -> str:
    return f"{100 * share.value:.1f} % ({100 * share.interval.low:.1f} to {100 * share.interval.high:.1f})"


def _facts(recipe: Mapping[str, Any], arms: Mapping[str, Sequence[QuestionRankings]]) -> dict[str, Any]:
    counted = {f"questions, {guard}" if guard != "none" else "questions": len(found) for guard, found in arms.items()}
    return {**counted, "recipe": {name: value for name, value in recipe.items() if name != "guard"}}
