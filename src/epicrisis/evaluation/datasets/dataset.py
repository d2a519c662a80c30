"""A question set, helpers of the modules that read one, and samples of it. A sample is part of a protocol (errata B14).

To sample, questions are sorted by `sha256("<seed>:<id>")`, and the first n are taken. A sample depends only on the seed
and the ids: a smaller one is part of a larger one, and two sets with the same ids have the same samples.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.types import Document, Question
from epicrisis.corpus.base.reader_base import Skipped, check_file, unreadable

T = TypeVar("T")
_VERDICTS = {"yes", "no", "maybe"}


@dataclass(frozen=True, slots=True)
class Dataset:
    """Questions in the order of their source, with unique ids and keys."""

    name: str
    questions: tuple[Question, ...]
    classes: Mapping[str, str]
    """The class of a question in a sample by class, by question id. A question may have none."""
    documents: Mapping[str, Document] = field(default_factory=dict)
    """Gold documents of the set, by id. If a set brings none, a library must hold them."""
    licence: str = ""

    @property
    def sha256(self) -> str:
        """The hash of questions and right answers in order, independent of the file."""
        rows = [[q.id, q.text, dict(q.options), q.gold, q.gold_documents] for q in self.questions]
        return hashlib.sha256(json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def read_content(path: Path) -> bytes:
    """Return the bytes of a file. Raises InputError if it is empty or cannot be read."""
    check_file(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def require_readable(items: Iterable[T | Skipped]) -> Iterator[T]:
    """Yield the items. Raises InputError for the first one that could not be read."""
    for item in items:
        if isinstance(item, Skipped):
            raise InputError(f"{', '.join(filter(None, (item.path, item.where)))}: {item.reason}")
        yield item


def classes_by_gold(questions: Iterable[Question]) -> dict[str, str]:
    """Return the class of each question with options and a gold letter, by id.

    The class is yes, no or maybe if these are the options, otherwise the letter.
    """
    return {
        question.id: question.options[question.gold] if set(question.options.values()) <= _VERDICTS else question.gold
        for question in questions
        if question.gold is not None and question.gold in question.options
    }


def sample_at_random(dataset: Dataset, n: int, seed: int) -> Dataset:
    """Return a random sample of `n` questions, in the set's order. Raises InputError if there are fewer."""
    if not 1 <= n <= len(dataset.questions):
        raise InputError(
            f"{dataset.name} has {count_noun(len(dataset.questions), 'question')}: draw between 1 and that many (-n), "
            f"not {n}"
        )
    return _select(dataset, _shuffle(dataset, seed)[:n])


def sample_per_class(dataset: Dataset, n: int, seed: int) -> Dataset:
    """Return `n` questions of each class, in the set's order: 35 of PubMedQA's three classes are the papers' 105.

    Raises InputError if a class has fewer, or a question has no class.
    """
    sizes = Counter(dataset.classes.get(question.id, "") for question in dataset.questions)
    if "" in sizes:
        raise InputError(
            f"{count_noun(sizes[''], 'question')} of {dataset.name} {agree(sizes[''], 'has', 'have')} no class (no "
            "gold letter): draw at random"
        )
    if n < 1 or n > min(sizes.values()):
        class_sizes = ", ".join(f"{size} {name}" for name, size in sorted(sizes.items()))
        raise InputError(
            f"{dataset.name} has {class_sizes}: draw between 1 and {min(sizes.values())} a class (-n), not {n}"
        )
    counts: Counter[str] = Counter()
    chosen = []
    for question in _shuffle(dataset, seed):
        name = dataset.classes[question.id]
        counts[name] += 1
        if counts[name] <= n:
            chosen.append(question)
    return _select(dataset, chosen)


def sample_as_coded(dataset: Dataset, n: int, seed: int) -> Dataset:
    """Return `n` questions of each gold letter, in the set's order, drawn as BriefContext's notebooks do.

    They draw with Python's generator, letter by letter, from the questions in the order of MIRAGE's file, with seed 0.
    Raises InputError if a letter has fewer, or a question has no class.
    """
    sample_per_class(dataset, n, seed)  # for its checks
    by_letter: dict[str, list[Question]] = {}
    for question in dataset.questions:
        by_letter.setdefault(str(question.gold), []).append(question)
    generator = random.Random(seed)
    chosen: list[Question] = []
    for letter in sorted(by_letter):
        chosen += generator.sample(by_letter[letter], n)
    return _select(dataset, chosen)


def _shuffle(dataset: Dataset, seed: int) -> list[Question]:
    def sort_key(question: Question) -> bytes:
        return hashlib.sha256(f"{seed}:{question.id}".encode()).digest()

    return sorted(dataset.questions, key=sort_key)


def _select(dataset: Dataset, chosen: Iterable[Question]) -> Dataset:
    ids = {question.id for question in chosen}
    return replace(dataset, questions=tuple(filter(lambda question: question.id in ids, dataset.questions)))
