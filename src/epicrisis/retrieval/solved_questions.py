"""Solved questions from a search of their library: distinct ones, and never the question itself.

An example is a document with a question as its text and the solution in its metadata (`METADATA`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from epicrisis.core.errors import InputError
from epicrisis.core.types import Example, Examples, Passage, Question

METADATA = ("question", "question_id", "options", "choice", "reasoning", "answer")
_SHINGLE_WORDS = 3


def choose_examples(passages: Iterable[Passage], question: Question, k: int, leak_similarity: float) -> Examples:
    """Return the first `k` distinct examples of these passages without the question itself (`is_same_question`).

    Raises InputError if a passage is not from a solved question.
    """
    examples: dict[str, Example] = {}
    left_out: dict[str, None] = {}
    for passage in passages:
        if len(examples) == k:
            break
        if passage.document_id in examples or passage.document_id in left_out:
            continue
        example = read_example(passage)
        question_id = str(passage.metadata.get("question_id", ""))
        if is_same_question(question, example.text, question_id, leak_similarity):
            left_out[passage.document_id] = None
        else:
            examples[passage.document_id] = example
    return Examples(tuple(examples.values()), tuple(left_out))


def read_example(passage: Passage) -> Example:
    """Return the solved question of a passage. Raises InputError if the passage is not from one."""
    metadata: Mapping[str, Any] = passage.metadata
    text, answer = metadata.get("question"), metadata.get("answer")
    options, choice = metadata.get("options", {}), metadata.get("choice")
    is_complete = isinstance(text, str) and isinstance(answer, str) and isinstance(options, Mapping)
    if not is_complete or (options and choice not in options):
        raise InputError(
            f"{passage.document_id} is not a solved question: give a library that `epicrisis examples build` made"
        )
    return Example(
        id=passage.document_id,
        text=metadata["question"],
        answer=metadata["answer"],
        options=dict(options),
        choice=choice,
        reasoning=str(metadata.get("reasoning", "")),
        model=str(metadata.get("model", "")),
    )


def is_same_question(question: Question, text: str, question_id: str, leak_similarity: float) -> bool:
    """Return whether an example is the question itself: by its id, or by a text with at least this similarity.

    An id of digits only is no evidence, because many data sets count from 0.
    """
    if question_id and question_id == question.id and not question_id.isdigit():
        return True
    return shingle_similarity(question.text, text) >= leak_similarity


def shingle_similarity(one: str, other: str) -> float:
    """Return the Jaccard similarity of the shingles of two texts, 0 to 1, without regard to case and punctuation."""
    first, second = split_shingles(one), split_shingles(other)
    return len(first & second) / len(first | second) if first | second else 1.0


def split_shingles(text: str) -> set[tuple[str, ...]]:
    """Return the sequences of three words in a text; all its words if there are fewer."""
    words = re.findall(r"\w+", text.casefold())
    if not words:
        return set()
    return {tuple(words[i : i + _SHINGLE_WORDS]) for i in range(max(1, len(words) - _SHINGLE_WORDS + 1))}
