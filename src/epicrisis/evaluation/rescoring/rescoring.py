"""Kept replies scored again: MIRAGE's released outputs and our own records, by each scoring. Asks no model.

A record of ours keeps the letter that was read and not the reply's own words, so `ours` is that very reading, and
MIRAGE's scorings are given the letter. Knows no scoring's rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from epicrisis.corpus import jsonl
from epicrisis.corpus.reader_base import Skipped, is_folder, shown
from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.statistics import Mean, wilson
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.datasets.load import load_dataset
from epicrisis.evaluation.datasets.mirage import SUBSETS
from epicrisis.evaluation.rescoring.readings import SCORINGS, Scoring
from epicrisis.evaluation.rescoring.released_replies import Outputs, Replied, read_outputs, recorded, released
from epicrisis.evaluation.rescoring.scores import Score, score
from epicrisis.evaluation.runs.case import Condition, canonical_condition
from epicrisis.evaluation.runs.recorded_run import RecordedRun, name_runs, open_run
from epicrisis.evaluation.runs.run_folder import MANIFEST
from epicrisis.types import Question

_SCORINGS: Mapping[Scoring, str] = {
    "ours": "ours: the choice that a reply states; abstained, unparsed and empty replies are neither right nor wrong, "
    "and not right.",
    "mirage-2024": "mirage-2024: MIRAGE's scorer of early 2024, which made its published figures: a reply without a "
    "letter is A, an empty one the reply before it (errata M1).",
    "mirage-head": "mirage-head: its present one: a reply without a letter is A, an empty one wrong (errata M1).",
}
_KEPT = (
    "Runs of this program keep the letter that was read, not the reply's words: `ours` is that reading, and MIRAGE's "
    "scorings read the letter, or what was answered without one. What they would make of the words cannot be told."
)


@dataclass(frozen=True, slots=True)
class Replies:
    """What came back for questions that each stand there once."""

    run: str
    condition: Condition
    dataset: str
    """Of released replies; of our own the questions are in the records."""
    replied: tuple[Replied, ...]
    left_out: int = 0
    """Questions without options or gold letter."""


@dataclass(frozen=True, slots=True)
class Rescored:
    """The same replies by one scoring or several."""

    run: str
    condition: Condition
    dataset: str
    left_out: int
    scores: tuple[Score, ...]


def rescored(
    paths: Sequence[Path],
    home: Path,
    *,
    scorings: Sequence[Scoring] = SCORINGS,
    dataset: str | None = None,
    data: Path | None = None,
) -> tuple[Rescored, ...]:
    """The scores of each run; of each condition, where a run has several.

    A run is a folder or a file of answers of this program, or released replies as `read_outputs` takes them. Which
    questions released replies answer `dataset` says (`load`'s name or path; `data`: where the set's file is), else that
    set of MIRAGE which has the very same ids. Raises InputError.
    """
    ours = [_is_ours(path) for path in paths]
    if dataset is not None and all(ours):
        raise InputError("these runs bring their questions with them: leave --dataset out")
    loaded = cache(partial(load_dataset, home=home, place=data))
    found: list[Replies] = []
    for path, name, is_ours in zip(paths, name_runs(paths), ours, strict=True):
        if is_ours:
            found += _of_records(open_run(path, name))
        else:
            found.append(_of_release(path, name, loaded, dataset))
    return tuple(
        Rescored(
            each.run, each.condition, each.dataset, each.left_out, tuple(score(each.replied, name) for name in scorings)
        )
        for each in found
    )


def _is_ours(path: Path) -> bool:
    """Whether it is a run of this program. Raises InputError where it is nothing that could be read."""
    if is_folder(path):
        return (path / MANIFEST).exists()
    first = next((item for item in jsonl.objects(path) if not isinstance(item, Skipped)), None)
    if first is None:
        raise InputError(f"{shown(path)}: holds no JSON object a line; name a run, or a file of released replies")
    return "answer" in first[1]


def _of_records(run: RecordedRun) -> list[Replies]:
    """One for each condition of which anything can be scored."""
    parts: dict[str, list[Question | Replied]] = defaultdict(list)
    conditions: dict[str, Condition] = {}
    for record in run.records():
        question = record.answer.question
        scorable = question.options and question.gold is not None
        at = canonical_condition(record.condition)
        conditions[at] = record.condition
        parts[at].append(recorded(record.answer) if scorable else question)
    found = []
    for at, cases in parts.items():
        replied = tuple(each for each in cases if isinstance(each, Replied))
        if replied:
            found.append(Replies(run.name, conditions[at], "", replied, len(cases) - len(replied)))
    if not found:
        raise InputError(f"{run.name} has no question with options and a gold letter: nothing in it can be scored so")
    return found


def _of_release(path: Path, name: str, loaded: Callable[[str], Dataset], dataset: str | None) -> Replies:
    outputs = read_outputs(path)
    of = _same_ids(path, outputs, loaded) if dataset is None else loaded(dataset)
    return Replies(name, {}, of.name, released(of.questions, outputs))


def _same_ids(path: Path, outputs: Outputs, loaded: Callable[[str], Dataset]) -> Dataset:
    """The set of MIRAGE whose ids these are."""
    for subset in SUBSETS:
        dataset = loaded(f"mirage/{subset}")
        if {question.id for question in dataset.questions} == outputs.keys():
            return dataset
    raise InputError(
        f"{shown(path)}: its {len(outputs)} ids are not those of a set of MIRAGE: say --dataset, whose questions it "
        "answers"
    )


# -- the table --------------------------------------------------------------------------------------------------------


def table(found: Sequence[Rescored]) -> Table:
    """One row a run, condition and scoring; shares under a heading that ends in percent."""
    conditions = _in_words(found)
    condition = ("condition",) if any(conditions) else ()
    rows = tuple(
        (each.run, *((at,) if condition else ()), scored.scoring, *_cells(scored))
        for each, at in zip(found, conditions, strict=True)
        for scored in each.scores
    )
    columns = (
        "run",
        *condition,
        "scoring",
        "questions",
        "right %",
        "right",
        "wrong",
        "abstained",
        "unparsed",
        "empty",
        "letter by default",
        "right of answered %",
    )
    return Table("Kept replies scored again", columns, rows, tuple(_notes(found)))


def _in_words(found: Sequence[Rescored]) -> list[str]:
    """Each condition, without what is the same throughout its run."""
    told = []
    for each in found:
        others = [other.condition for other in found if other.run == each.run]
        telling = {
            name: value for name, value in each.condition.items() if any(other.get(name) != value for other in others)
        }
        told.append(", ".join(v if isinstance(v, str) else f"{name} {v}" for name, v in telling.items()))
    return told


def _cells(each: Score) -> tuple[Cell, ...]:
    answered = each.right + each.wrong
    return (
        each.n,
        Mean(each.accuracy, wilson(each.right, each.n), each.n),
        *(each.right, each.wrong, each.abstained, each.unparsed, each.failed, each.by_default),
        None if each.accuracy_scored is None else Mean(each.accuracy_scored, wilson(each.right, answered), answered),
    )


def _notes(found: Sequence[Rescored]) -> Iterator[str]:
    yield from dict.fromkeys(_SCORINGS[scored.scoring] for each in found for scored in each.scores)
    yield (
        "Right %: of all questions. Empty: nothing came back. Letter by default: right and wrong ones whose letter no "
        "reply states. Intervals are Wilson's, 95 %."
    )
    for run, dataset in dict.fromkeys((each.run, each.dataset) for each in found):
        chances = {
            f"{scored.chance:.2%}".replace("%", " %") for each in found if each.run == run for scored in each.scores
        }
        answers = f"{run} answers {dataset}; " if dataset else f"{run}: "
        yield f"{answers}guessing would be right in {' or '.join(sorted(chances))}."
    if any(not each.dataset for each in found):
        yield _KEPT
    for each, words in zip(found, _in_words(found), strict=True):
        if each.left_out:
            at = f" ({words})" if words else ""
            yield f"{each.run}{at}: left out without options or gold letter: {each.left_out} of its questions."
