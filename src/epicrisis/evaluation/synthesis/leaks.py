"""Solved examples that are questions of a test set: a strategy that shows them would reveal the answer.

The rule is `retrieval.examples.is_same_question`, which also filters the examples in prompts. Candidates are found by
rare shingles: two texts of the required similarity share at least one of the rarest shingles of each (prefix
filtering). So only a few pairs of an example and a question are compared.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.core.types import Question
from epicrisis.evaluation.synthesis.example_documents import library_examples
from epicrisis.library.library import LibraryStore
from epicrisis.retrieval.examples import is_same_question, shingle_similarity, split_shingles

Shingle: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leak:
    """An example that is a question of the set."""

    example: str
    question: str
    same_id: bool
    similarity: float
    """Similarity of the texts, 0 to 1."""


def find_leaks(library: LibraryStore, questions: Sequence[Question], leak_similarity: float) -> tuple[Leak, ...]:
    """Return the examples that are questions of the set, by example. Raises InputError as `library_examples` does."""
    examples = []
    for passage, example in library_examples(library):
        examples.append((example.id, example.text, str(passage.metadata.get("question_id", ""))))
    leaks = find_leaks_among(examples, questions, leak_similarity)
    return tuple(sorted(leaks, key=lambda leak: (leak.example, leak.question)))


def find_leaks_among(
    examples: Iterable[tuple[str, str, str]], questions: Sequence[Question], leak_similarity: float
) -> Iterator[Leak]:
    """Yield the leaks among examples (id, text, id of the question) in their order. `leak_similarity` is above 0."""
    frequencies: Counter[Shingle] = Counter()
    for question in questions:
        frequencies.update(_shingles(question.text))
    by_shingle: dict[Shingle, list[int]] = defaultdict(list)
    by_id: dict[str, list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        by_id[question.id].append(place)
        for shingle in _rarest_shingles(question.text, frequencies, leak_similarity):
            by_shingle[shingle].append(place)
    for name, text, question_id in examples:
        places = set(by_id.get(question_id, ()))
        for shingle in _rarest_shingles(text, frequencies, leak_similarity):
            places.update(by_shingle.get(shingle, ()))
        for place in sorted(places):
            question = questions[place]
            if is_same_question(question, text, question_id, leak_similarity):
                yield Leak(name, question.id, question.id == question_id, shingle_similarity(question.text, text))


def _rarest_shingles(text: str, frequencies: Mapping[Shingle, int], leak_similarity: float) -> list[Shingle]:
    """Return enough of the rarest shingles that a similar text has at least one of them."""
    rarest_first = sorted(_shingles(text), key=lambda shingle: (frequencies.get(shingle, 0), shingle))
    # Subtract a little, so that rounding does not lose a text of exactly this similarity.
    required = math.ceil(leak_similarity * len(rarest_first) - 1e-9)
    return rarest_first[: len(rarest_first) - required + 1]


def _shingles(text: str) -> set[Shingle]:
    """Return the shingles of a text. All texts without words are equal."""
    return split_shingles(text) or {()}
