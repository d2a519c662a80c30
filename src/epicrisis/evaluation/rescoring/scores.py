"""Replies to questions, from a file of released replies or the records of a run, and their figures by each scoring.

The scorings are ours, and MIRAGE's two with their faults (errata M1).

MIRAGE's published figures come from its earlier scorer. Both read only the first reply to a question. They take the
text after the last `"answer_choice": "`, try patterns for a letter from A to D in a fixed order, and return **A** if
none matches. They differ for an empty list of replies: the scorer of early 2024 scores the reply to the previous
question in sorted order, the present one scores the question as wrong. They know neither options nor gold answers, so a
letter that is no option is a wrong answer.

Source: Teddy-XiongGZ/MIRAGE, `src/utils.py` at 224ebe9, `src/evaluate.py` at 224ebe9 and at ddf4a47.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from epicrisis.answering.stated_choice import read_free_reply
from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.question_options import chance_accuracy, is_same_option
from epicrisis.core.types import AnswerState, Question
from epicrisis.corpus.base import jsonl
from epicrisis.corpus.base.reader_base import check_file, is_folder, os_error_reason, printable_path
from epicrisis.evaluation.datasets.dataset import require_readable

RepliesById: TypeAlias = Mapping[str, tuple[str, ...]]

Scoring: TypeAlias = Literal["ours", "mirage-2024", "mirage-head"]
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)

SPLITS = ("test", "dev")
"""MIRAGE's names of the splits; its file names begin with them."""

_FILE_NAMES = " or ".join(f"{split}_<id>.json" for split in SPLITS)
_LINE_FORMAT = "each line must be an object with id and outputs, a list of texts; [] if there was no reply"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a scoring reads one reply. `choice` is a letter if the state is `answered`, else None."""

    state: AnswerState
    """`failed` for an empty reply."""
    choice: str | None = None
    by_default: bool = False
    """The reply does not state the letter; MIRAGE's scorer set it."""


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question and its replies. Only the first reply counts."""

    question: Question
    outputs: tuple[str, ...]
    """Empty if there was no reply."""
    reading: Reading | None = None
    """How our own run read the reply; the scoring `ours` uses it."""


class _Line(BaseModel):
    model_config = ConfigDict(strict=True)

    id: str
    outputs: list[str]


def read_released_replies(path: Path) -> RepliesById:
    """Read the replies of a run.

    `path` is a file with JSON lines (`{"id": ..., "outputs": [...]}`) or a folder as MIRAGE releases it: files
    `test_<id>.json` or `dev_<id>.json`, each a list of texts. Raises InputError for any other content, because a run
    with a missing reply would be another run.
    """
    if is_folder(path):
        return _read_folder(path)
    check_file(path)
    replies: dict[str, tuple[str, ...]] = {}
    for number, value in require_readable(jsonl.read_objects(path)):
        try:
            line = _Line.model_validate(value)
        except ValidationError:
            raise InputError(f"{printable_path(path)}, line {number}: not a released reply; {_LINE_FORMAT}") from None
        if line.id in replies:
            raise InputError(
                f"{printable_path(path)}, line {number}: an earlier line has the same id; keep one of the two"
            )
        replies[line.id] = tuple(line.outputs)
    return replies


def _read_folder(folder: Path) -> RepliesById:
    texts: TypeAdapter[list[str]] = TypeAdapter(list[str])
    replies: dict[str, tuple[str, ...]] = {}
    for path in sorted(folder.glob("*.json")):
        split, _, key = path.stem.partition("_")
        if split not in SPLITS or not key or key in replies:
            raise InputError(f"{printable_path(path)}: pass the folder of one run with files called {_FILE_NAMES}")
        try:
            replies[key] = tuple(texts.validate_python(json.loads(path.read_bytes()), strict=True))
        except OSError as error:
            raise InputError(
                f"{printable_path(path)}: {os_error_reason(error)}; check the file and its permissions"
            ) from error
        except (ValueError, RecursionError):
            raise InputError(f"{printable_path(path)}: not a JSON list of texts; fetch the file again") from None
    if not replies:
        raise InputError(
            f"{printable_path(folder)}: the folder has no file called {_FILE_NAMES}; pass the folder with them"
        )
    return replies


def pair_with_replies(questions: Iterable[Question], replies: RepliesById) -> tuple[AnsweredQuestion, ...]:
    """Return the questions in their order, each with its replies. Replies to other questions are ignored.

    Raises InputError if a question is missing; an empty list of replies counts as present.
    """
    questions = list(questions)
    missing = [question.id for question in questions if question.id not in replies]
    if missing:
        ids = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"{len(missing)} of {count_noun(len(questions), 'question')} {agree(len(missing), 'has', 'have')} no reply "
            f"({ids}): pass the replies to these questions"
        )
    return tuple(AnsweredQuestion(question, replies[question.id]) for question in questions)


def read_recorded_answer(answer: Answer) -> AnsweredQuestion:
    """Return the question and the answer of a run's record.

    Records do not contain the words of the reply. MIRAGE's scorers get the letter instead, the answer's text if there
    is no letter, and no reply if the answer failed.
    """
    choice = answer.choice if answer.state == "answered" else None
    outputs = () if answer.state in ("failed", "over-window") else (choice or answer.text,)
    return AnsweredQuestion(answer.question, outputs, Reading(answer.state, choice))


_FIELD = '"answer_choice": "'
_DEFAULT = "A"
# Each pattern is searched in the entire text before the next one is tried.
_PATTERNS = (
    re.compile(r"^\s*([A-D])(?:$| or| and|/|,)"),
    re.compile(r"[Oo]ption ([A-D])"),
    re.compile(r":\s*([A-D])"),
    re.compile(r'^\s*([A-D])[.":]'),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The figures of a run: `n == right + wrong + abstained + unparsed + failed`, numbers of questions."""

    scoring: Scoring
    n: int
    right: int
    wrong: int
    abstained: int
    unparsed: int
    failed: int
    """No reply, a blank one, or no request (`over-window`)."""
    by_default: int
    """Right and wrong answers whose letter the reply does not state (MIRAGE's scorers)."""
    accuracy: float
    """Share of right answers among all questions, 0 to 1: MIRAGE's figure."""
    accuracy_scored: float | None
    """Share of right answers among those with a letter; None if there are none."""
    chance: float
    """Expected accuracy of guessing among each question's options."""


def read_replies(questions: Sequence[AnsweredQuestion], scoring: Scoring) -> tuple[Reading, ...]:
    """Return how a scoring reads the reply to each question, in the given order.

    `mirage-2024` reads a question without a reply as the previous one in the order of the ids, so the readings for part
    of a data set can differ from those for all of it.
    """
    if scoring == "ours":
        readings = []
        for question in questions:
            reading = question.reading
            if reading is None and not question.outputs:
                reading = Reading("failed")
            elif reading is None:
                reply = read_free_reply(question.outputs[0], question.question.options)
                reading = Reading(reply.state, reply.choice)
            readings.append(reading)
        return tuple(readings)
    if scoring == "mirage-head":
        return tuple(read_like_head(question.outputs for question in questions))
    order = sorted(range(len(questions)), key=lambda place: questions[place].question.id)
    in_order = read_like_early_2024(questions[place].outputs for place in order)
    by_place = dict(zip(order, in_order, strict=True))
    return tuple(by_place[item] for item in range(len(questions)))


def is_right(question: Question, reading: Reading, scoring: Scoring = "ours") -> bool | None:
    """Return whether the letter is the gold one; None for abstained, unparsed and failed, neither right nor wrong.

    `ours` also accepts the letter of an option with the same text. MIRAGE's scorings compare letters.
    """
    if reading.state != "answered":
        return None
    if scoring == "ours":
        return is_same_option(question.options, reading.choice, question.gold)
    return reading.choice == question.gold


def score_replies(questions: Sequence[AnsweredQuestion], scoring: Scoring) -> Score:
    """Return the figures of one scoring. Raises InputError if a question has no options or no gold letter."""
    n = len(questions)
    if not n:
        raise InputError("there is no question to score: pass at least one")
    unscorable = 0
    for question in questions:
        unscorable += not question.question.options or question.question.gold is None
    if unscorable:
        raise InputError(
            f"{unscorable} of {count_noun(n, 'question')} {agree(unscorable, 'has', 'have')} no options or no gold "
            "letter: leave them out, only letters are scored"
        )
    readings = read_replies(questions, scoring)
    marks: Counter[bool | None] = Counter()
    states: Counter[str] = Counter()
    by_default = 0
    chances = []
    for question, reading in zip(questions, readings, strict=True):
        options = question.question.options
        chance = 1 / len(options)
        if scoring == "ours":
            chance = chance_accuracy(options, question.question.gold) or 0.0
        chances.append(chance)
        marks[is_right(question.question, reading, scoring)] += 1
        states[reading.state] += 1
        by_default += reading.by_default
    right, wrong = marks[True], marks[False]
    return Score(
        scoring=scoring,
        n=n,
        right=right,
        wrong=wrong,
        abstained=states["abstained"],
        unparsed=states["unparsed"],
        failed=states["failed"] + states["over-window"],
        by_default=by_default,
        accuracy=right / n,
        accuracy_scored=right / (right + wrong) if right + wrong else None,
        chance=fmean(chances),
    )


def find_letter(reply: str) -> str | None:
    """Return the letter that MIRAGE's patterns find, or None if it would score A by default."""
    text = reply.rpartition(_FIELD)[2].strip()
    for pattern in _PATTERNS:
        if match := pattern.search(text):
            return match[1]
    return None


def read_like_head(replies: Iterable[Sequence[str]]) -> Iterator[Reading]:
    """Yield the readings of the present scorer. Each item holds the replies to one question."""
    for outputs in replies:
        yield _read(outputs[0]) if outputs else Reading("failed")


def read_like_early_2024(replies: Iterable[Sequence[str]]) -> Iterator[Reading]:
    """Yield the readings of the scorer of the published figures, for replies in the order of the sorted ids.

    If the very first question has no reply, MIRAGE's program fails; here the reading is `failed`.
    """
    previous: str | None = None
    for outputs in replies:
        if outputs:
            previous = outputs[0]
            yield _read(previous)
        elif previous is None:
            yield Reading("failed")
        else:
            yield Reading("answered", find_letter(previous) or _DEFAULT, by_default=True)


def _read(reply: str) -> Reading:
    letter = find_letter(reply)
    return Reading("answered", letter or _DEFAULT, by_default=letter is None)
