"""The type of an experiment, and the types of what it is given: options, questions and finished runs.

`registry` names the modules that define experiments: their cases, tables, plots and published figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias

from epicrisis.core.types import Question, QuestionForm
from epicrisis.evaluation.analysis.conclusions import draw_conclusions
from epicrisis.evaluation.analysis.table import PlotSpec, Table
from epicrisis.evaluation.experiments.arms import Study, repeat_case
from epicrisis.evaluation.runs.recorded_run import RecordedRun
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.case import Case, Condition
from epicrisis.settings.settings import Settings

CORRECTED = "corrected"

Runs: TypeAlias = Sequence[RecordedRun]
"""Finished runs, each under its name in the tables."""

QuestionsBySet: TypeAlias = Mapping[str, Sequence[Question]]
"""Questions by the name of their set."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The conditions of an experiment. An empty field: the experiment does not vary it."""

    arms: tuple[str, ...] = ()
    ks: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    votes: tuple[int, ...] = ()
    """Votes, drafts or rounds."""
    temperatures: tuple[float, ...] = ()
    """Temperatures of votes, in addition to the one of the settings."""
    prompt_tokens: tuple[int, ...] = ()
    """Limits for all prompts of a question together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of one run of an experiment. None and empty fields: the defaults of the experiment."""

    protocol: str = CORRECTED
    sets: tuple[str, ...] = ()
    """Question sets, by name or path."""
    data: Path | None = None
    """Folder of the sets' files; None: the download folder."""
    questions: int | None = None
    """Number of questions from each set; from each class under a protocol that samples by class."""
    draw: int = 0
    """Seed of the sample of questions."""
    repeats: int = 1
    gold: Literal["one", "all"] = "one"
    """Place one of several gold documents, chosen by the seed, or all of them together."""
    reranker: str | None = None
    """Reranker of the arm `reranked`."""
    population: str = "all"
    """Population of a set of records (`datasets.patient_records.populations`)."""
    sparse: str | None = None
    """Sparse encoder of the arms with `+splade`."""
    examples: tuple[tuple[str, Path], ...] = ()
    """Libraries of solved questions, by their names in the tables."""
    grid: Grid = field(default_factory=Grid)


@dataclass(frozen=True, slots=True)
class CaseInputs:
    """The inputs from which an experiment builds its cases."""

    questions: QuestionsBySet
    study: Study
    grid: Grid
    settings: Settings

    def all_questions(self) -> list[Question]:
        """Return the questions of all sets, in the order of the sets."""
        return list(chain.from_iterable(self.questions.values()))

    def questions_with_set(self) -> Iterator[tuple[Question, Condition]]:
        """Yield each question with the condition `set`, which is left out if there is only one set."""
        for name, questions in self.questions.items():
            for question in questions:
                yield question, {"set": name} if len(self.questions) > 1 else {}

    def repeat(self, question: Question, condition: Condition, overrides: RunOverrides) -> list[Case]:
        """Return one case per repeat, each with its own seed."""
        return repeat_case(question, condition, overrides, self.study.seed, self.study.repeats)


def conclude_from_tables(_: Runs, tables: Sequence[Table]) -> tuple[str, ...]:
    """Return the sentences on the tested differences of all tables."""
    return tuple(chain.from_iterable(map(draw_conclusions, tables)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment of the papers: what it asks, and what its finished runs show."""

    name: str
    question: str
    """The question it answers, with the table or figure of the paper."""
    cases: Callable[[CaseInputs], tuple[Case, ...]]
    tables: Callable[[Runs, Sequence[str]], tuple[Table, ...]]
    """Builds the tables of finished runs; the remarks are notes under each table."""
    sets: tuple[str, ...] = ()
    """Default question sets."""
    grid: Grid = field(default_factory=Grid)
    """Default conditions."""
    published: tuple[str, ...] = ()
    """Names of the published tables that are shown next to these."""
    plots: tuple[tuple[PlotSpec, ...], ...] = ()
    """Groups of plots. A table is drawn by the first group whose columns it has."""
    conclude: Callable[[Runs, Sequence[Table]], tuple[str, ...]] = conclude_from_tables
    reads: Literal["passages", "records", "rankings"] = "passages"
    """Passages of a library, patients' records with their whole notes, or recorded rankings without a chat model."""
    strategy: str = "brief-context"
    """Strategy that decides which components are opened. Some strategies need no library of passages."""
    whole_sets: bool = False
    """Ask whole question sets by default; else the sample of the protocol."""
    places_documents: bool = True
    """Key documents are placed; else passages are read in the order of the search."""
    brings_documents: bool = False
    """Without a library, one is made of the documents of the question sets."""
    shows_examples: bool = False
    """Solved questions are shown, from the libraries of the request."""
    by_settings: bool = False
    """The settings decide everything; a protocol does not apply."""
    forms: tuple[QuestionForm, ...] = ()
    """Forms of the questions asked of a set of records; empty: all."""
