"""Samples of a question set: which part of it is asked is part of a protocol (errata B14).

Of two questions that one comes first whose `sha256("<seed>:<id>")` is less; a sample of n holds the first n. So it
depends on the seed and the ids alone, a smaller sample is part of a larger one, and two sets that share ids share
samples. Knows nothing of strategies.
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
    """`n` questions, each as likely as any other, in the set's order. Raises InputError where there are not so many."""
    if not 1 <= n <= len(dataset.questions):
        raise InputError(
            f"{dataset.name} has {len(dataset.questions)} questions: draw between 1 and that many (-n), not {n}"
        )
    return _only(dataset, sorted(dataset.questions, key=lambda question: _place(question, seed))[:n])


def sample_per_class(dataset: Dataset, n: int, seed: int) -> Dataset:
    """`n` questions of each class, in the set's order: 35 of PubMedQA's three are the papers' 105.

    Raises InputError where a class has not so many, or a question has no class.
    """
    sizes = Counter(dataset.classes.get(question.id, "") for question in dataset.questions)
    if "" in sizes:
        raise InputError(f"{sizes['']} questions of {dataset.name} have no class (no gold letter): draw at random")
    if n < 1 or n > min(sizes.values()):
        held = ", ".join(f"{size} {name}" for name, size in sorted(sizes.items()))
        raise InputError(f"{dataset.name} has {held}: draw between 1 and {min(sizes.values())} a class (-n), not {n}")
    drawn: Counter[str] = Counter()
    chosen = []
    for question in sorted(dataset.questions, key=lambda question: _place(question, seed)):
        name = dataset.classes[question.id]
        drawn[name] += 1
        if drawn[name] <= n:
            chosen.append(question)
    return _only(dataset, chosen)


def _place(question: Question, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{question.id}".encode()).digest()


def _only(dataset: Dataset, chosen: Iterable[Question]) -> Dataset:
    ids = {question.id for question in chosen}
    return replace(dataset, questions=tuple(question for question in dataset.questions if question.id in ids))
