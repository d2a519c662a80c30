"""Samples of a question set. The sample is part of a protocol (errata B14).

Questions are sorted by `sha256("<seed>:<id>")`, and a sample holds the first n. It depends only on the seed and the
ids: a smaller sample is part of a larger one, and two sets with the same ids have the same samples.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.types import Question


def sample_at_random(dataset: Dataset, n: int, seed: int) -> Dataset:
    """Return a random sample of `n` questions, in the set's order. Raises InputError if there are fewer."""
    if not 1 <= n <= len(dataset.questions):
        raise InputError(
            f"{dataset.name} has {len(dataset.questions)} questions: draw between 1 and that many (-n), not {n}"
        )
    return _select(dataset, sorted(dataset.questions, key=lambda question: _hash(question, seed))[:n])


def sample_per_class(dataset: Dataset, n: int, seed: int) -> Dataset:
    """Return `n` questions of each class, in the set's order: 35 of PubMedQA's three classes are the papers' 105.

    Raises InputError if a class has fewer, or a question has no class.
    """
    sizes = Counter(dataset.classes.get(question.id, "") for question in dataset.questions)
    if "" in sizes:
        raise InputError(f"{sizes['']} questions of {dataset.name} have no class (no gold letter): draw at random")
    if n < 1 or n > min(sizes.values()):
        class_sizes = ", ".join(f"{size} {name}" for name, size in sorted(sizes.items()))
        raise InputError(
            f"{dataset.name} has {class_sizes}: draw between 1 and {min(sizes.values())} a class (-n), not {n}"
        )
    counts: Counter[str] = Counter()
    chosen = []
    for question in sorted(dataset.questions, key=lambda question: _hash(question, seed)):
        name = dataset.classes[question.id]
        counts[name] += 1
        if counts[name] <= n:
            chosen.append(question)
    return _select(dataset, chosen)


def _hash(question: Question, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{question.id}".encode()).digest()


def _select(dataset: Dataset, chosen: Iterable[Question]) -> Dataset:
    ids = {question.id for question in chosen}
    return replace(dataset, questions=tuple(filter(lambda question: question.id in ids, dataset.questions)))
