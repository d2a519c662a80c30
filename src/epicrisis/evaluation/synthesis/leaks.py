"""Which solved questions of a library are questions of a set: whoever answers that set would be shown the answer.

The rule is `retrieval.examples.is_itself`, which leaves them out wherever examples are shown. Which two to compare is
found by rare shingles alone: of two texts as similar as that, at least one of each one's rarest is common to both
(prefix filtering). So not every example is compared with every question.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.evaluation.synthesis.example_documents import library_examples
from epicrisis.library.library import Library
from epicrisis.retrieval.examples import is_same_question, shingle_similarity, split_shingles
from epicrisis.types import Question

Shingle: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leak:
    """An example that is a question of the set."""

    example: str
    question: str
    same_id: bool
    similarity: float
    """Of their texts, 0 to 1."""


def find_leaks(library: Library, questions: Sequence[Question], leak_similarity: float) -> tuple[Leak, ...]:
    """Every example with every question that it is, by the example's id. Raises InputError as `library_examples` does."""
    examples = library_examples(library)
    texts = ((each.id, each.text, str(passage.metadata.get("question_id", ""))) for passage, each in examples)
    found = find_leaks_among(texts, questions, leak_similarity)
    return tuple(sorted(found, key=lambda leak: (leak.example, leak.question)))


def find_leaks_among(
    examples: Iterable[tuple[str, str, str]], questions: Sequence[Question], leak_similarity: float
) -> Iterator[Leak]:
    """The leaks among examples, each (its id, its text, its question's id), in their order; `leak_similarity` > 0."""
    shared = Counter(shingle for question in questions for shingle in _texts(question.text))
    by_shingle: dict[Shingle, list[int]] = defaultdict(list)
    by_id: dict[str, list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        by_id[question.id].append(place)
        for shingle in _rarest(question.text, shared, leak_similarity):
            by_shingle[shingle].append(place)
    for name, text, question_id in examples:
        near = {i for shingle in _rarest(text, shared, leak_similarity) for i in by_shingle.get(shingle, ())}
        for question in (questions[i] for i in sorted(near.union(by_id.get(question_id, ())))):
            if is_same_question(question, text, question_id, leak_similarity):
                yield Leak(name, question.id, question.id == question_id, shingle_similarity(question.text, text))


def _rarest(text: str, shared: Mapping[Shingle, int], leak_similarity: float) -> list[Shingle]:
    """As many as suffice: a text as similar as that lacks fewer."""
    shingles = sorted(_texts(text), key=lambda shingle: (shared.get(shingle, 0), shingle))
    # Less a little: what is exactly as similar must not be lost by rounding.
    common = math.ceil(leak_similarity * len(shingles) - 1e-9)
    return shingles[: len(shingles) - common + 1]


def _texts(text: str) -> set[Shingle]:
    """A text without words is like any other without."""
    return split_shingles(text) or {()}
