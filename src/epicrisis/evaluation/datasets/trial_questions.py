"""Readers of two sets of questions about trials: Evidence Inference and MedEvidence, as JSON lines (plain or gzip).

Evidence Inference (DeYoung et al. 2020): a line is an article with `pmcid`, `text` and `prompts`. A prompt has `id`,
`outcome`, `intervention`, `comparator` and `annotations`, each with a `label` and the span (`start`, `end`, characters
of `text`) of the evidence. The question asks for the direction; the span says where in the article the answer stands.

MedEvidence (Polzak et al. 2025): a line is a question of a systematic review with its `answer`, and the abstracts of
the studies that the review used (`sources`, of which `relevant_sources` bear on the question).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epicrisis.core.types import Document, EvidenceSpan, Question
from epicrisis.corpus.base import jsonl
from epicrisis.corpus.base.reader_base import check_file, path_error
from epicrisis.evaluation.datasets.dataset import require_readable

DIRECTIONS: Mapping[str, str] = {
    "A": "significantly increased",
    "B": "significantly decreased",
    "C": "no significant difference",
}
"""Options of Evidence Inference, in the words of its labels."""
CONCLUSIONS: Mapping[str, str] = {
    "A": "higher",
    "B": "lower",
    "C": "no difference",
    "D": "uncertain effect",
    "E": "insufficient data",
}
"""Options of MedEvidence, in the words of its answers."""

_Filled = Annotated[str, Field(min_length=1)]


class _Row(BaseModel):
    model_config = ConfigDict(strict=True)


class _Annotation(_Row):
    label: Literal["significantly increased", "significantly decreased", "no significant difference"]
    start: int = Field(ge=0)
    end: int = Field(ge=0)


class _Prompt(_Row):
    id: _Filled
    outcome: _Filled
    intervention: _Filled
    comparator: _Filled
    annotations: list[_Annotation] = Field(min_length=1)


class _Article(_Row):
    pmcid: _Filled
    text: _Filled
    prompts: list[_Prompt]


class _Source(_Row):
    content: _Filled
    title: str | None = None
    date: str | None = None


class _ReviewQuestion(_Row):
    question_id: int
    question: _Filled
    answer: Literal["higher", "lower", "no difference", "uncertain effect", "insufficient data"]
    relevant_sources: list[str]
    sources: dict[str, _Source] = Field(min_length=1)


R = TypeVar("R", bound=_Row)


def read_evidence_inference(path: Path) -> tuple[tuple[Question, ...], dict[str, Document]]:
    """Return the questions in order, and the whole articles by document id (`pmc:PMC1087200`).

    The right option is the label of most annotators; a prompt without such a label is left out. Raises InputError for
    another file, and for a span outside its article.
    """
    questions: list[Question] = []
    documents: dict[str, Document] = {}
    for number, article in _read_rows(path, _Article):
        document = Document(id=f"pmc:{article.pmcid}", text=article.text, source="Evidence Inference")
        documents[document.id] = document
        for prompt in article.prompts:
            if any(mark.end > len(article.text) for mark in prompt.annotations):
                raise path_error(path, f"line {number}: prompt {prompt.id} has evidence beyond the article's end")
            question = _make_direction_question(prompt, document.id)
            if question is not None:
                questions.append(question)
    return tuple(questions), documents


def _make_direction_question(prompt: _Prompt, document_id: str) -> Question | None:
    """Return the question of a prompt, or None if the annotators disagree without a majority."""
    labels = Counter(mark.label for mark in prompt.annotations).most_common(2)
    if len(labels) > 1 and labels[0][1] == labels[1][1]:
        return None
    spans = {
        EvidenceSpan(document_id, mark.start, mark.end): None for mark in prompt.annotations if mark.end > mark.start
    }
    letters = {text: letter for letter, text in DIRECTIONS.items()}
    return Question(
        text=f"What is the effect of {prompt.intervention} compared with {prompt.comparator} on {prompt.outcome}?",
        options=DIRECTIONS,
        form="choice",
        id=prompt.id,
        gold=letters[labels[0][0]],
        gold_documents=(document_id,),
        evidence=tuple(spans),
    )


def read_med_evidence(path: Path) -> tuple[tuple[Question, ...], dict[str, Document]]:
    """Return the questions in order, and the abstracts of all their sources by document id (`pubmed:34406400`).

    Gold documents are the relevant sources. Raises InputError for another file.
    """
    letters = {text: letter for letter, text in CONCLUSIONS.items()}
    questions: list[Question] = []
    documents: dict[str, Document] = {}
    for _, row in _read_rows(path, _ReviewQuestion):
        for key, source in row.sources.items():
            id_ = f"pubmed:{key}"
            documents[id_] = Document(id=id_, text=source.content, title=source.title or "", source="MedEvidence")
        relevant = [f"pubmed:{key}" for key in row.relevant_sources if key in row.sources]
        question = Question(
            text=row.question,
            options=CONCLUSIONS,
            form="choice",
            id=str(row.question_id),
            gold=letters[row.answer],
            gold_documents=tuple(relevant),
        )
        questions.append(question)
    return tuple(questions), documents


def _read_rows(path: Path, row_type: type[R]) -> list[tuple[int, R]]:
    """Return the rows with their line numbers. Raises InputError for another file or an invalid row."""
    check_file(path)
    rows: list[tuple[int, R]] = []
    for number, value in require_readable(jsonl.read_objects(path)):
        rows.append((number, _validate(path, number, value, row_type)))
    if not rows:
        raise path_error(path, "holds no line; it must be JSON lines")
    return rows


def _validate(path: Path, number: int, value: dict[str, Any], row_type: type[R]) -> R:
    try:
        return row_type.model_validate(value)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"][:3])) or "the start"
        raise path_error(path, f"line {number}: not as expected at {where}; build or copy the file again") from None
