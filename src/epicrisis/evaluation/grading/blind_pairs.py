"""Blind pairs: two answers to one question in a hidden order, handed out without a word of who gave which.

    pairs.csv         for a spreadsheet, verdict, reviewer and why left empty
    pairs.jsonl       the same
    pairs.key.json    which answer is whose: kept by whoever hands out the others

An answer is shown without its citations, whatever arm it is of; see `blinded`. Knows no verdict and no model.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from epicrisis.answering.citations import cite
from epicrisis.answers import Answer
from epicrisis.corpus.reader_base import os_error_reason, printable_path
from epicrisis.errors import InputError, StorageError
from epicrisis.evaluation.runs.record import RunRecord
from epicrisis.printable import printable_json
from epicrisis.privacy import open_private

CSV, JSONL, KEY = "pairs.csv", "pairs.jsonl", "pairs.key.json"
COLUMNS = ("pair", "question", "answer 1", "answer 2", "verdict", "reviewer", "why")
_FIELDS = ("pair", "question", "answer_1", "answer_2")
FORMAT = 1
NOT_ASKED = "not asked"

_ARM = "arm"
_NAME = r"(?:docs?|documents?|findings?)"
_LABEL = re.compile(
    rf"(?<!\s)\s*+\((?:see\s++)?{_NAME}\.?\s*+\d++(?:\s*+(?:,|;|and|&)\s*+(?:{_NAME}\.?\s*+)?\d++)*+\)", re.IGNORECASE
)
_TELLING = re.compile(r"\b(?:documents?|findings?|passages?|readers?)\b", re.IGNORECASE)
_FORMULA = tuple("=+-@＝＋－＠")


@dataclass(frozen=True, slots=True)
class BlindPair:
    """What a reviewer sees. `id` changes with every word of it."""

    id: str
    question: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class BlindingKey:
    """What no reviewer sees."""

    arms: tuple[str, str]
    seed: int
    writers: tuple[str, ...]
    """Names of the models that answered."""
    patients: bool
    """Whether a question is about a patient's record."""
    first: Mapping[str, str]
    """By pair: the arm whose answer stands first."""
    questions: Mapping[str, str]
    """By pair: `Question.key`."""
    same: tuple[str, ...]
    """Keys of the questions whose two answers are the same words: nothing is to be judged, they are ties."""
    left_out: Mapping[str, Mapping[str, str]]
    """By question key: how each arm ended, where one or both did not answer."""

    @property
    def asked(self) -> int:
        """Questions."""
        return len(self.first) + len(self.same) + len(self.left_out)

    def preferred(self, pair: str, choice: str) -> str | None:
        """The arm that a verdict (`1`, `2` or `tie`) prefers; `None` for a tie."""
        if choice == "tie":
            return None
        return self.first[pair] if choice == "1" else next(arm for arm in self.arms if arm != self.first[pair])


@dataclass(frozen=True, slots=True)
class BlindPairs:
    """Pairs in the order in which they are handed out, and their key."""

    pairs: tuple[BlindPair, ...]
    key: BlindingKey

    def answers(self, arm: str) -> tuple[str, ...]:
        """The arm's answers, as they are shown."""
        return tuple(pair.first if self.key.first[pair.id] == arm else pair.second for pair in self.pairs)

    @property
    def telling(self) -> int:
        """Pairs of which one answer alone speaks of documents, findings, passages or readers."""
        return sum(bool(_TELLING.search(pair.first)) != bool(_TELLING.search(pair.second)) for pair in self.pairs)


def remove_citations(text: str) -> str:
    """The answer without what names its evidence: `[1]` behind it, and `[doc 2]`, `(finding 3)` in it, which only one
    arm writes. All else is as it was written."""
    bare, _ = cite(text, (), {})
    return _LABEL.sub("", bare).strip()


def make_pairs(records: Iterable[RunRecord], arms: tuple[str, str], seed: int) -> BlindPairs:
    """The pairs of these arms (the condition `arm`, else the strategy), of one or several runs.

    Each arm stands first in half of the pairs (the odd one is drawn); which ones, and the order of the pairs, depend on
    seed and question keys alone. Raises InputError where an arm has no record at all, or answered a question twice.
    """
    answers: dict[str, dict[str, Answer]] = {}
    writers: dict[str, None] = {}
    for record in records:
        arm, key = record.arm, record.question_key
        if arm not in arms:
            continue
        if arm in answers.setdefault(key, {}):
            raise InputError(
                f"{arm} answered question {record.answer.question.id!r} twice: name runs of one model that "
                "ask each question once an arm"
            )
        # Not its trace: that of thousands of answers would fill the memory.
        answers[key][arm] = replace(record.answer, trace=(), partials=())
        writers |= {model["name"]: None for model in record.recipe["models"].values()}
    if missing := [arm for arm in arms if not any(arm in each for each in answers.values())]:
        raise InputError(f"no record of {' and '.join(missing)}: name runs of both {' and '.join(arms)}")
    return _paired(answers, arms, seed, tuple(writers))


def _paired(
    answers: Mapping[str, Mapping[str, Answer]], arms: tuple[str, str], seed: int, writers: tuple[str, ...]
) -> BlindPairs:
    states = {
        key: {arm: each[arm].state if arm in each else NOT_ASKED for arm in arms} for key, each in answers.items()
    }
    both = [key for key, ended in states.items() if set(ended.values()) == {"answered"}]
    texts = {key: {arm: remove_citations(answers[key][arm].text) for arm in arms} for key in both}
    same = [key for key in both if len({" ".join(text.split()).casefold() for text in texts[key].values()}) == 1]
    # By a hash of its own for each purpose: the place in the file must not tell which arm stands first.
    ordered = sorted(set(both) - set(same), key=lambda key: _hash(seed, "first", key))
    first = {key: arms[(place + _hash(seed, "start", "")[0]) % 2] for place, key in enumerate(ordered)}
    pairs: dict[str, BlindPair] = {}
    for key in sorted(ordered, key=lambda key: _hash(seed, "place", key)):
        question = answers[key][arms[0]].question.text.strip()
        shown_first, shown_second = (texts[key][arm] for arm in sorted(arms, key=lambda arm: arm != first[key]))
        pairs[key] = BlindPair(_id(seed, question, shown_first, shown_second), question, shown_first, shown_second)
    return BlindPairs(
        tuple(pairs.values()),
        BlindingKey(
            arms=arms,
            seed=seed,
            writers=writers,
            patients=any(a.question.patient is not None for each in answers.values() for a in each.values()),
            first={pair.id: first[key] for key, pair in pairs.items()},
            questions={pair.id: key for key, pair in pairs.items()},
            same=tuple(same),
            left_out={key: states[key] for key in states if key not in texts},
        ),
    )


def _hash(seed: int, purpose: str, key: str) -> bytes:
    return hashlib.sha256(f"{seed}:{purpose}:{key}".encode()).digest()


def _id(seed: int, *texts: str) -> str:
    """Begins with a letter: a spreadsheet makes numbers of what looks like one."""
    return f"p{hashlib.sha256(json.dumps([seed, *texts]).encode()).hexdigest()[:12]}"


# -- files ------------------------------------------------------------------------------------------------------------


def write_pairs(paired: BlindPairs, folder: Path) -> None:
    """The three files, the key last, each its owner's alone to read until it is handed out. Raises InputError where one
    of them is there already: people may have written into it; StorageError where the disk does not take them."""
    texts = {
        CSV: "\ufeff" + _csv(paired.pairs),
        JSONL: "".join(printable_json(json.dumps(row, ensure_ascii=False)) + "\n" for row in map(_row, paired.pairs)),
        KEY: json.dumps({"format": FORMAT, **asdict(paired.key)}, ensure_ascii=False, indent=2) + "\n",
    }
    if there := [name for name in texts if (folder / name).exists()]:
        raise InputError(f"{folder} holds {there[0]} already, perhaps with verdicts in it: name another folder")
    try:
        for name, text in texts.items():
            made = open_private(folder / name, os.O_WRONLY | os.O_EXCL)
            # A spreadsheet's line ends, whatever the system's.
            with os.fdopen(made, "w", encoding="utf-8", newline="") as file:
                file.write(text)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written ({error.strerror}): free some space, or name another"
        ) from error


def _csv(pairs: Sequence[BlindPair]) -> str:
    text = io.StringIO()
    # All of it quoted: in another country's spreadsheet another character parts the cells.
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    writer.writerows([*map(_cell, (pair.id, pair.question, pair.first, pair.second)), "", "", ""] for pair in pairs)
    return text.getvalue()


def _cell(text: str) -> str:
    """A spreadsheet takes what begins like a formula for one; behind an apostrophe it is text."""
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def _row(pair: BlindPair) -> dict[str, str]:
    values = (pair.id, pair.question, pair.first, pair.second)
    return {**dict(zip(_FIELDS, values, strict=True)), "verdict": "", "reviewer": "", "why": ""}


def read_pairs(folder: Path) -> BlindPairs:
    """What `write_pairs` wrote. Raises InputError where a file is missing, or no longer as it was written."""
    changed = InputError(
        f"{JSONL} and {KEY} in {folder} are not as they were written: make the pairs anew in another folder"
    )
    try:
        lines = (folder / JSONL).read_text("utf-8").split("\n")
        values = json.loads((folder / KEY).read_text("utf-8"))
        if (made := values.pop("format")) != FORMAT:
            raise InputError(f"{folder / KEY} has format {made}, this program knows {FORMAT}: use the one that made it")
        pairs = tuple(
            BlindPair(*(row[field] for field in _FIELDS)) for row in map(json.loads, filter(str.strip, lines))
        )
        key = BlindingKey(**{**values, **{name: tuple(values[name]) for name in ("arms", "writers", "same")}})
    except OSError as error:
        raise InputError(
            f"{printable_path(error.filename)}: {os_error_reason(error)}; name a folder that `epicrisis open-ended pairs` wrote"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise changed from None
    whole = all(_id(key.seed, pair.question, pair.first, pair.second) == pair.id for pair in pairs)
    if not whole or {pair.id for pair in pairs} != key.first.keys():
        raise changed
    return BlindPairs(pairs, key)
