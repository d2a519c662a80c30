"""The noun of a report: what the finished runs of one experiment came to. Knows neither how a table was computed
nor how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from epicrisis.evaluation.analysis.published import Published
from epicrisis.evaluation.analysis.table import Table


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run, as a reader is told of it."""

    name: str
    """As the tables call it: its model, and its folder's name where two runs share one."""
    facts: Mapping[str, Any]
    """What it asked, of what, with what (of its manifest): plain values by their name."""
    complete: bool
    """False: it was not finished, and its tables are of what there is."""
    questions: str = ""
    """The name of the question set, or of several joined by ` + `; empty where nobody says."""


@dataclass(frozen=True, slots=True)
class Findings:
    """All that a report says of one experiment."""

    experiment: str
    """Its name on the command line: `positions`, ..., or `evaluate`."""
    about: str
    """One sentence: what is asked."""
    sources: tuple[RunSummary, ...]
    tables: tuple[Table, ...]
    conclusions: tuple[str, ...] = ()
    """Plain sentences: what was shown, and what was not."""
    published: tuple[Published, ...] = field(default=())
    """To stand beside the tables."""
