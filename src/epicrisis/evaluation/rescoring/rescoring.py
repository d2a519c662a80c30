"""Rescoring of replies: MIRAGE's released replies and the records of our own runs, by each scoring, without a model.

A record holds the letter that was read and not the words of the reply. `ours` therefore uses that reading, and MIRAGE's
scorings receive the letter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree
from epicrisis.corpus.base import jsonl
from epicrisis.corpus.base.reader_base import Skipped, is_folder, printable_path
from epicrisis.evaluation.analysis.statistics import Mean, wilson
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.datasets.load import load_dataset
from epicrisis.evaluation.datasets.pinned_readers import MIRAGE_SUBSETS
from epicrisis.evaluation.rescoring.scores import (
    SCORINGS,
    AnsweredQuestion,
    Score,
    Scoring,
    pair_with_replies,
    read_recorded_answer,
    read_released_replies,
    score_replies,
)
from epicrisis.evaluation.runs.recorded_run import RecordedRun, name_runs, open_run
from epicrisis.evaluation.runs.run_folder import MANIFEST
from epicrisis.pipeline.recording.case import Condition, canonical_condition

_DESCRIPTIONS: Mapping[Scoring, str] = {
    "ours": "ours: the choice that a reply states. Abstained, unparsed and empty replies are neither right nor wrong.",
    "mirage-2024": "mirage-2024: MIRAGE's scorer of early 2024, the source of its published figures. A reply without a "
    "letter counts as A, an empty one as the reply before it (errata M1).",
    "mirage-head": "mirage-head: MIRAGE's present scorer. A reply without a letter counts as A, an empty one as wrong "
    "(errata M1).",
}
_LETTERS_ONLY = (
    "Runs of this program record the letter that was read, not the words of the reply: `ours` is that reading, and "
    "MIRAGE's scorings read the letter, or the answer if it has no letter. How they would read the words is unknown."
)
_COUNTS = ("right", "wrong", "abstained", "unparsed", "empty", "letter by default")
_COLUMNS = ("scoring", "questions", "right %", *_COUNTS, "right of answered %")


@dataclass(frozen=True, slots=True)
class RescoredRun:
    """The scores of the same replies by one or more scorings."""

    run: str
    condition: Condition
    dataset: str
    """Name of the data set of released replies. Empty for our own runs, whose records hold the questions."""
    left_out: int
    """Questions without options or gold letter."""
    scores: tuple[Score, ...]


def rescore_runs(
    paths: Sequence[Path],
    home: Path,
    *,
    scorings: Sequence[Scoring] = SCORINGS,
    dataset: str | None = None,
    data: Path | None = None,
) -> tuple[RescoredRun, ...]:
    """Return the scores of each run, or of each condition if a run has several.

    A run is a folder or a file of answers of this program, or released replies (see `read_released_replies`). `dataset`
    is the name or path of the questions of released replies, and `data` the place of its file. By default it is the set
    of MIRAGE with exactly the same ids. Raises InputError.
    """
    recorded = list(map(_is_recorded, paths))
    if dataset is not None and all(recorded):
        raise InputError("these runs contain their questions: leave --dataset out")
    load = cache(partial(load_dataset, home=home, place=data))
    candidates = [f"mirage/{subset}" for subset in MIRAGE_SUBSETS] if dataset is None else [dataset]
    results: list[RescoredRun] = []
    for path, name, is_recorded in zip(paths, name_runs(paths), recorded, strict=True):
        if is_recorded:
            set_name, groups = "", _read_recorded(open_run(path, name))
        else:
            replies = read_released_replies(path)
            for candidate in candidates:
                question_set = load(candidate)
                if dataset is not None or {question.id for question in question_set.questions} == replies.keys():
                    break
            else:
                raise InputError(
                    f"{printable_path(path)}: its {len(replies)} ids are not those of a set of MIRAGE: "
                    "pass the questions with --dataset"
                )
            set_name, groups = question_set.name, [({}, pair_with_replies(question_set.questions, replies), 0)]
        for condition, questions, left_out in groups:
            scores = tuple(score_replies(questions, scoring) for scoring in scorings)
            results.append(RescoredRun(name, condition, set_name, left_out, scores))
    return tuple(results)


def _is_recorded(path: Path) -> bool:
    """Return whether this is a run of this program. Raises InputError if nothing in it can be read."""
    if is_folder(path):
        return (path / MANIFEST).exists()
    for item in jsonl.read_objects(path):
        if not isinstance(item, Skipped):
            return "answer" in item[1]
    raise InputError(
        f"{printable_path(path)}: the file has no line with a JSON object; pass a run or a file of released replies"
    )


def _read_recorded(run: RecordedRun) -> list[tuple[Condition, tuple[AnsweredQuestion, ...], int]]:
    """Return each condition with its questions that can be scored, at least one, and the number of the others."""
    questions: dict[str, list[AnsweredQuestion]] = defaultdict(list)
    left_out: dict[str, int] = defaultdict(int)
    conditions: dict[str, Condition] = {}
    for record in run.records():
        question = record.answer.question
        key = canonical_condition(record.condition)
        conditions[key] = record.condition
        if question.options and question.gold is not None:
            questions[key].append(read_recorded_answer(record.answer))
        else:
            left_out[key] += 1
    if not questions:
        raise InputError(f"{run.name} has no question with options and a gold letter: nothing in it can be rescored")
    return [
        (condition, tuple(questions[key]), left_out[key]) for key, condition in conditions.items() if questions[key]
    ]


def make_table(runs: Sequence[RescoredRun]) -> Table:
    """Return a table with one row for each run, condition and scoring. Headings of shares end in a percent sign."""
    labels = [_describe_condition(run, runs) for run in runs]
    has_conditions = any(labels)
    rows: list[tuple[Cell, ...]] = []
    for run, label in zip(runs, labels, strict=True):
        head: tuple[Cell, ...] = (run.run, label) if has_conditions else (run.run,)
        for score in run.scores:
            answered = score.right + score.wrong
            share_of_answered = None
            if score.accuracy_scored is not None:
                share_of_answered = Mean(score.accuracy_scored, wilson(score.right, answered), answered)
            accuracy = Mean(score.accuracy, wilson(score.right, score.n), score.n)
            counts = (score.right, score.wrong, score.abstained, score.unparsed, score.failed, score.by_default)
            rows.append((*head, score.scoring, score.n, accuracy, *counts, share_of_answered))
    columns = ("run", "condition", *_COLUMNS) if has_conditions else ("run", *_COLUMNS)
    return Table("Rescored replies", columns, tuple(rows), tuple(_notes(runs)))


def _describe_condition(run: RescoredRun, runs: Sequence[RescoredRun]) -> str:
    """Return the parts of a condition in which the conditions of its run differ."""
    others = [other.condition for other in runs if other.run == run.run]
    words: list[str] = []
    for name, value in run.condition.items():
        if any(other.get(name) != value for other in others):
            words.append(value if isinstance(value, str) else f"{name} {value}")
    return ", ".join(words)


def _notes(runs: Sequence[RescoredRun]) -> Iterator[str]:
    descriptions: dict[str, None] = {}
    chances: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in runs:
        for score in run.scores:
            descriptions[_DESCRIPTIONS[score.scoring]] = None
            chances[run.run, run.dataset].add(f"{100 * score.chance:.2f} %")
    yield from descriptions
    yield (
        "Right %: of all questions. Empty: no reply. Letter by default: right and wrong answers whose letter no reply "
        "states. Intervals are Wilson's, 95 %."
    )
    for (name, dataset), shares in chances.items():
        source = f"{name} answers {dataset}; " if dataset else f"{name}: "
        yield f"{source}guessing would be right in {' or '.join(sorted(shares))}."
    if not all(run.dataset for run in runs):
        yield _LETTERS_ONLY
    for run in runs:
        if run.left_out:
            label = _describe_condition(run, runs)
            where = f"{run.run} ({label})" if label else run.run
            are = agree(run.left_out, "is", "are")
            yield f"{where}: {run.left_out} of its questions {are} left out, without options or gold letter."
