"""A question set, and helpers of the modules that read one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from epicrisis.corpus.reader_base import Skipped, check_file, unreadable
from epicrisis.errors import InputError
from epicrisis.types import Document, Question

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
    classes: dict[str, str] = {}
    for question in questions:
        if question.gold is not None and question.gold in question.options:
            has_verdicts = set(question.options.values()) <= _VERDICTS
            classes[question.id] = question.options[question.gold] if has_verdicts else question.gold
    return classes
