"""Solved questions out of what a search of their library found: the distinct ones, and never the question itself.

An example is a document whose text is the question; how it was solved stands in its metadata (`METADATA`). Pure; knows
no store and no model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from epicrisis.errors import InputError
from epicrisis.types import Example, Examples, Passage, Question

METADATA = ("question", "question_id", "options", "choice", "reasoning", "answer")
_WORDS = 3
"""Words of a shingle: two questions that share most of them are worded alike."""


def chosen(passages: Iterable[Passage], question: Question, k: int, leak_similarity: float) -> Examples:
    """The first `k` distinct examples of these passages, in their order; left out is whatever `is_itself`.

    Raises InputError where a passage is of no solved question.
    """
    shown: dict[str, Example] = {}
    left_out: dict[str, None] = {}
    for passage in passages:
        if len(shown) == k:
            break
        if passage.document_id in shown or passage.document_id in left_out:
            continue
        example = example_of(passage)
        if is_itself(question, example.text, str(passage.metadata.get("question_id", "")), leak_similarity):
            left_out[passage.document_id] = None
        else:
            shown[passage.document_id] = example
    return Examples(tuple(shown.values()), tuple(left_out))


def example_of(passage: Passage) -> Example:
    """The solved question that a passage is of. Raises InputError where it is of none."""
    told: Mapping[str, Any] = passage.metadata
    options, choice = told.get("options", {}), told.get("choice")
    whole = all(isinstance(told.get(name), str) for name in ("question", "answer")) and isinstance(options, Mapping)
    if not whole or (options and choice not in options):
        raise InputError(
            f"{passage.document_id} is no solved question: name a library that `epicrisis examples build` made"
        )
    return Example(
        passage.document_id,
        told["question"],
        told["answer"],
        dict(options),
        choice,
        str(told.get("reasoning", "")),
        str(told.get("model", "")),
    )


def is_itself(question: Question, text: str, question_id: str, leak_similarity: float) -> bool:
    """Whether the example is the question itself: by its id, or by a text as similar as that.

    An id of figures alone is no evidence: many sets count from 0.
    """
    if question_id and question_id == question.id and not question_id.isdigit():
        return True
    return similarity(question.text, text) >= leak_similarity


def similarity(one: str, other: str) -> float:
    """Jaccard similarity of their shingles of three words, 0 to 1, whatever case and punctuation."""
    mine, theirs = shingles(one), shingles(other)
    return len(mine & theirs) / len(mine | theirs) if mine | theirs else 1.0


def shingles(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[i : i + _WORDS]) for i in range(max(1, len(words) - _WORDS + 1))} if words else set()
