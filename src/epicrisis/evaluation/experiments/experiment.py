"""What an experiment is: its name, what it asks where nobody says otherwise, how its cases and its tables are made; and
what may be asked of it. Knows none by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.recorded_run import RecordedRun
from epicrisis.settings import Settings
from epicrisis.types import Question, QuestionForm, StrategyName

CORRECTED = "corrected"

Runs: TypeAlias = Sequence[RecordedRun]
"""Each under the name that the tables give it."""


QuestionsBySet: TypeAlias = Mapping[str, Sequence[Question]]
"""Questions by the name of their set."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The conditions of an experiment; empty: it has none of that kind."""

    arms: tuple[str, ...] = ()
    ks: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    votes: tuple[int, ...] = ()
    """Votes, drafts or rounds."""
    temperatures: tuple[float, ...] = ()
    """Of votes, beside the one that the settings say."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of an experiment; `None` and empty: what it asks by itself."""

    protocol: str = CORRECTED
    sets: tuple[str, ...] = ()
    """Question sets, by name or path."""
    data: Path | None = None
    """Where the sets' files are; `None`: where they are pulled to."""
    questions: int | None = None
    """Of each set; under a protocol that draws by class, of each class."""
    draw: int = 0
    """Seed by which the questions are drawn."""
    repeats: int = 1
    gold: Literal["one", "all"] = "one"
    """Which of several gold documents are placed: one, drawn by the seed, or all of them together."""
    reranker: str | None = None
    """Of the arm `reranked`."""
    population: str = "all"
    """Which questions of a set of records (`datasets.records.populations`)."""
    sparse: str | None = None
    """Sparse encoder of the arms with `+splade`."""
    examples: tuple[tuple[str, Path], ...] = ()
    """Libraries of solved questions, by the names that the tables give them."""
    grid: Grid = field(default_factory=Grid)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment of the papers."""

    name: str
    about: str
    sets: tuple[str, ...]
    grid: Grid
    make: Callable[[QuestionsBySet, Study, Grid, Settings], tuple[Case, ...]]
    tables: Callable[[Runs, Sequence[str]], tuple[Table, ...]]
    """Of finished runs, with the remarks that stand under each table."""
    published: tuple[str, ...] = ()
    """Tables of `published` to set beside them."""
    whole: bool = False
    """Asked of whole question sets where nobody says how many; else of the protocol's sample."""
    strategy: StrategyName = "brief-context"
    """What a strategy needs that is opened: those that read no library of passages want none."""
    placed: bool = True
    """Key documents are placed; else passages are read as they are found."""
    shows_examples: bool = False
    """Solved questions, out of the libraries that are named."""
    by_settings: bool = False
    """Retrieval and all else is as the settings say: no protocol is for it."""
    of_records: bool = False
    """Asked of patients' records, with their whole notes (`recording`), not of passages of literature."""
    forms: tuple[QuestionForm, ...] = ()
    """Of a set of records only these questions are asked; empty: all."""
    concluded: Callable[[Runs], tuple[str, ...]] | None = None
    """What it comes to, where its tables' differences do not say it."""
