"""The noun: a question set as it was read. Knows no file and no network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from epicrisis.types import Document, Question

_VERDICTS = {"yes", "no", "maybe"}


@dataclass(frozen=True, slots=True)
class Dataset:
    """Questions in the order of their source. Their ids, and so their keys, are unique in it."""

    name: str
    questions: tuple[Question, ...]
    classes: Mapping[str, str]
    """What a question counts as in a sample drawn by class, by question id; a question may have none."""
    documents: Mapping[str, Document] = field(default_factory=dict)
    """Gold documents that come with the set, by their ids; where a set has none, a library must hold them."""
    licence: str = ""

    @property
    def sha256(self) -> str:
        """Of what is asked and what is right, in order: the same for the same questions, whatever file held them."""
        rows = [[q.id, q.text, dict(q.options), q.gold, q.gold_documents] for q in self.questions]
        return hashlib.sha256(json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def classes_by_gold(questions: Iterable[Question]) -> dict[str, str]:
    """The class of each question with options and a gold letter: yes, no or maybe where these are the options, else the
    letter."""
    return {q.id: _class(q, q.gold) for q in questions if q.gold is not None and q.gold in q.options}


def _class(question: Question, gold: str) -> str:
    return question.options[gold] if set(question.options.values()) <= _VERDICTS else gold
