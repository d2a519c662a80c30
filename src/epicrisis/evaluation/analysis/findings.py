"""The findings of one experiment: what a report shows of its finished runs."""

from __future__ import annotations

from dataclasses import dataclass

from epicrisis.evaluation.analysis.published import Published
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.runs.recorded_run import RunSummary


@dataclass(frozen=True, slots=True)
class Findings:
    """The tables and conclusions of one experiment."""

    experiment: str
    """Its name on the command line: `positions`, `evaluate`..."""
    about: str
    """The question that it answers, in one sentence."""
    sources: tuple[RunSummary, ...]
    tables: tuple[Table, ...]
    conclusions: tuple[str, ...] = ()
    """Sentences on the differences that were shown, and on those that were not."""
    published: tuple[Published, ...] = ()
    """Tables of papers, for comparison."""
