"""Blind pairs: two answers to one question in a hidden order, for reviewers who must not know their arms.

    pairs.csv         for a spreadsheet, with empty columns for verdict, reviewer and why
    pairs.jsonl       the same
    pairs.key.json    the arm of each answer; keep it away from the reviewers

Citations are removed from the answers of all arms (`remove_citations`).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from epicrisis.answering.citations import cite
from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError, StorageError
from epicrisis.core.printable import printable_json, without_formula
from epicrisis.corpus.base.reader_base import os_error_reason, printable_path
from epicrisis.pipeline.recording.answer_record import RunRecord
from epicrisis.system.local_only import open_private

CSV, JSONL, KEY = "pairs.csv", "pairs.jsonl", "pairs.key.json"
COLUMNS = ("pair", "question", "answer 1", "answer 2", "verdict", "reviewer", "why")
_FIELDS = ("pair", "question", "answer_1", "answer_2")
FORMAT = 1
NOT_ASKED = "not asked"

_NAME = r"(?:docs?|documents?|findings?)"
_CITATION_LABEL = re.compile(
    rf"(?<!\s)\s*+\((?:see\s++)?{_NAME}\.?\s*+\d++(?:\s*+(?:,|;|and|&)\s*+(?:{_NAME}\.?\s*+)?\d++)*+\)", re.IGNORECASE
)
_REVEALING_WORD = re.compile(r"\b(?:documents?|findings?|passages?|readers?)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BlindPair:
    """A pair as a reviewer sees it. Its id depends on all of its words."""

    id: str
    question: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindingKey:
    """The secret part of the pairs."""

    arms: tuple[str, str]
    seed: int
    writers: tuple[str, ...]
    """Names of the models of the answers."""
    patients: bool
    """Whether a question is about a patient's record."""
    first: Mapping[str, str]
    """By pair: the arm of the first answer."""
    questions: Mapping[str, str]
    """By pair: `Question.key`."""
    same: tuple[str, ...]
    """Keys of the questions with the same words in both answers. They count as ties and need no verdict."""
    left_out: Mapping[str, Mapping[str, str]]
    """By question key: how each arm ended, if an arm did not answer."""
    categories: Mapping[str, str] = field(default_factory=dict)
    """By question key: the category of the question, such as its medical specialty, if it has one."""

    @property
    def asked(self) -> int:
        """The number of questions."""
        return len(self.first) + len(self.same) + len(self.left_out)

    def preferred(self, pair: str, choice: str) -> str | None:
        """Return the arm that a verdict (`1`, `2` or `tie`) prefers, or None for a tie."""
        if choice == "tie":
            return None
        first, second = sorted(self.arms, key=lambda arm: arm != self.first[pair])
        return first if choice == "1" else second


@dataclass(frozen=True, slots=True)
class BlindPairs:
    """Pairs in the order of the files, and their key."""

    pairs: tuple[BlindPair, ...]
    key: BlindingKey

    def of_category(self, category: str) -> BlindPairs:
        """Return the pairs about questions of a category alone."""
        key = self.key
        questions = {question for question, name in key.categories.items() if name == category}
        pair_ids = {pair for pair, question in key.questions.items() if question in questions}
        part = replace(
            key,
            first={pair: arm for pair, arm in key.first.items() if pair in pair_ids},
            questions={pair: question for pair, question in key.questions.items() if pair in pair_ids},
            same=tuple(question for question in key.same if question in questions),
            left_out={question: states for question, states in key.left_out.items() if question in questions},
        )
        return BlindPairs(tuple(pair for pair in self.pairs if pair.id in pair_ids), part)

    def answers(self, arm: str) -> tuple[str, ...]:
        """Return the arm's answers without citations."""
        return tuple(pair.first if self.key.first[pair.id] == arm else pair.second for pair in self.pairs)

    @property
    def revealing(self) -> int:
        """The number of pairs in which only one answer mentions documents, findings, passages or readers."""
        search = _REVEALING_WORD.search
        return sum(bool(search(pair.first)) != bool(search(pair.second)) for pair in self.pairs)


def remove_citations(text: str) -> str:
    """Remove citations from an answer: `[1]`, `[doc 2]` and `(finding 3)`, which only one arm writes."""
    bare, _ = cite(text, (), ())
    return _CITATION_LABEL.sub("", bare).strip()


def make_pairs(records: Iterable[RunRecord], arms: tuple[str, str], seed: int) -> BlindPairs:
    """Make the pairs of these arms from the records of one or several runs.

    Each arm comes first in half of the pairs; the odd one is drawn. The places, and the order of the pairs, depend only
    on the seed and the question keys. Raises InputError if an arm has no record, or answered a question twice.
    """
    answers: dict[str, dict[str, Answer]] = {}
    writers: dict[str, None] = {}
    for record in records:
        arm, key = record.arm, record.question_key
        if arm not in arms:
            continue
        if arm in answers.setdefault(key, {}):
            raise InputError(
                f"{arm} answered question {record.answer.question.id!r} twice: name runs of one model that ask each "
                "question once an arm"
            )
        # Traces are not kept: those of thousands of answers would fill the memory.
        answers[key][arm] = replace(record.answer, trace=(), partials=())
        writers |= dict.fromkeys(item["name"] for item in record.recipe["models"].values())
    missing = sorted(set(arms).difference(*answers.values()), key=arms.index)
    if missing:
        raise InputError(f"no record of {' and '.join(missing)}: name runs of both {' and '.join(arms)}")
    return _pair_answers(answers, arms, seed, tuple(writers))


def _pair_answers(
    answers: Mapping[str, Mapping[str, Answer]], arms: tuple[str, str], seed: int, writers: tuple[str, ...]
) -> BlindPairs:
    texts: dict[str, dict[str, str]] = {}
    left_out: dict[str, dict[str, str]] = {}
    same: list[str] = []
    for key, by_arm in answers.items():
        states = {arm: by_arm[arm].state if arm in by_arm else NOT_ASKED for arm in arms}
        if set(states.values()) != {"answered"}:
            left_out[key] = states
            continue
        texts[key] = {arm: remove_citations(by_arm[arm].text) for arm in arms}
        first_words, second_words = (" ".join(text.split()).casefold() for text in texts[key].values())
        if first_words == second_words:
            same.append(key)
    # Each purpose has a hash of its own: the place in the file must not reveal the first arm.
    different = sorted(texts.keys() - set(same), key=lambda key: _hash(seed, "first", key))
    start = _hash(seed, "start", "")[0]
    first = {key: arms[(place + start) % 2] for place, key in enumerate(different)}
    pairs: dict[str, BlindPair] = {}
    for key in sorted(different, key=lambda key: _hash(seed, "place", key)):
        words = [answers[key][arms[0]].question.text.strip(), texts[key].pop(first[key]), *texts[key].values()]
        pairs[key] = BlindPair(_pair_id(seed, *words), *words)
    categories = {key: next(iter(by_arm.values())).question.category for key, by_arm in answers.items()}
    blinding_key = BlindingKey(
        arms=arms,
        seed=seed,
        writers=writers,
        patients=any(a.question.patient is not None for by_arm in answers.values() for a in by_arm.values()),
        first=dict(zip((pair.id for pair in pairs.values()), (first[pair] for pair in pairs), strict=True)),
        questions=dict(zip((pair.id for pair in pairs.values()), pairs, strict=True)),
        same=tuple(same),
        left_out=left_out,
        categories={key: category for key, category in categories.items() if category},
    )
    return BlindPairs(tuple(pairs.values()), blinding_key)


def _hash(seed: int, purpose: str, key: str) -> bytes:
    return hashlib.sha256(f"{seed}:{purpose}:{key}".encode()).digest()


def _pair_id(seed: int, *texts: str) -> str:
    """Return an id that begins with a letter: spreadsheets turn ids that look like numbers into numbers."""
    return f"p{hashlib.sha256(json.dumps([seed, *texts]).encode()).hexdigest()[:12]}"


def write_pairs(pairs: BlindPairs, folder: Path) -> None:
    """Write the three files, the key last, readable only for their owner.

    Raises InputError if one of them exists, because people may have written into it, and StorageError if the disk
    refuses them.
    """
    table = io.StringIO()
    # All cells are quoted, because spreadsheets of other countries separate cells by another character.
    writer = csv.writer(table, quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    lines: list[str] = []
    for pair in pairs.pairs:
        cells = pair.id, pair.question, pair.first, pair.second
        writer.writerow([*map(without_formula, cells), "", "", ""])
        row = {**dict(zip(_FIELDS, cells, strict=True)), "verdict": "", "reviewer": "", "why": ""}
        lines.append(printable_json(json.dumps(row, ensure_ascii=False)) + "\n")
    texts = {
        CSV: "\ufeff" + table.getvalue(),
        JSONL: "".join(lines),
        KEY: json.dumps({"format": FORMAT, **asdict(pairs.key)}, ensure_ascii=False, indent=2) + "\n",
    }
    for name in texts:
        if (folder / name).exists():
            raise InputError(f"{folder} holds {name} already, perhaps with verdicts in it: choose another folder")
    try:
        for name, text in texts.items():
            descriptor = open_private(folder / name, os.O_WRONLY | os.O_EXCL)
            # The line ends are those of a spreadsheet on every system.
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written ({error.strerror}): free some space, or choose another folder"
        ) from error


def read_pairs(folder: Path) -> BlindPairs:
    """Read the files of `write_pairs`. Raises InputError if one is missing or was changed."""
    changed = InputError(f"{JSONL} and {KEY} in {folder} were changed: make the pairs again in another folder")
    try:
        lines = (folder / JSONL).read_text("utf-8").split("\n")
        values = json.loads((folder / KEY).read_text("utf-8"))
        check_format(folder / KEY, values.pop("format"))
        pairs = [parse_pair(json.loads(line)) for line in filter(str.strip, lines)]
        key = parse_key(values)
    except OSError as error:
        raise InputError(
            f"{printable_path(error.filename)}: {os_error_reason(error)}; give a folder that `epicrisis grade pairs` "
            "wrote"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise changed from None
    complete = key.first.keys() == {pair.id for pair in pairs}
    if not complete or any(_pair_id(key.seed, p.question, p.first, p.second) != p.id for p in pairs):
        raise changed
    return BlindPairs(tuple(pairs), key)


def check_format(path: Path, version: object) -> None:
    """Raise InputError unless the file has the format that this version reads."""
    if version != FORMAT:
        raise InputError(
            f"{path} has format {version}, but this version reads format {FORMAT}: use the version that wrote it"
        )


def parse_pair(row: Mapping[str, str]) -> BlindPair:
    """Return the pair of a JSON object. Raises KeyError for a missing field."""
    return BlindPair(*(row[field] for field in _FIELDS))


def parse_key(values: Mapping[str, Any]) -> BlindingKey:
    """Return the key of a JSON object. Raises KeyError and TypeError for other fields than those of a key."""
    return BlindingKey(**{**values, **{name: tuple(values[name]) for name in ("arms", "writers", "same")}})
