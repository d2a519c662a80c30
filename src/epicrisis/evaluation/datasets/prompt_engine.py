"""The question files of the context-retrieval study's repository, HPAI-BSC/prompt_engine: MedQA, MedMCQA, CareQA, MMLU.

A file is one object, `{key: {id, question, correct_answer, options}}`. The answer is a letter, or a text without
options. CareQA's entries also have a `category`. The name of a file may contradict its content (errata P13).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from epicrisis.corpus.reader_base import path_error
from epicrisis.evaluation.datasets.dataset import read_content
from epicrisis.types import Question

_Filled = Annotated[str, Field(min_length=1)]


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True)

    id: _Filled | None = None
    question: _Filled
    correct_answer: _Filled
    options: dict[Annotated[str, Field(pattern="^[A-Z]$")], _Filled] | None = Field(default=None, min_length=2)
    context: list[str] | None = None
    category: str | None = None


def read(path: Path) -> tuple[Question, ...]:
    """Return the questions in order. Ids are those of the entries (`medqa_4opt_validation_0`), or else their keys.

    Raises InputError for another file or an invalid entry, and for the repository's PubMedQA files: their abstracts
    belong to the prompt (errata P9), and a question cannot hold them.
    """
    try:
        entries = TypeAdapter(dict[str, _Entry]).validate_json(read_content(path))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"][:3])) or "the start"
        raise path_error(path, f"not a question file of HPAI-BSC/prompt_engine (at {where}); pull it again") from None
    questions: dict[str, Question] = {}
    for key, entry in entries.items():
        if entry.context is not None:
            raise path_error(path, "its questions come with abstracts; ask pubmedqa/test, which keeps them")
        options = entry.options or {}
        if options and entry.correct_answer not in options:
            raise path_error(path, f"{key}: the answer is not a letter of the options; pull the file again")
        question = Question(
            text=entry.question,
            options=options,
            form="choice" if options else "open",
            id=entry.id or key,
            gold=entry.correct_answer,
            category=entry.category or "",
        )
        questions[question.id] = question
    if not questions:
        raise path_error(path, "holds no question; pull it again")
    if len(questions) < len(entries):
        raise path_error(path, "two of its questions have the same id; pull it again")
    return tuple(questions.values())
