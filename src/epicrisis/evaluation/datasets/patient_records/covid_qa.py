"""COVID-QA: 1,380 questions of experts about 98 articles (Möller et al. 2020), answered with spans of the article.

Each article is treated as a patient record of one note, so a question is searched only in its article. The texts are
freely licensed articles, so results say nothing about real patient records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from epicrisis.corpus.reader_base import ReaderItem
from epicrisis.evaluation.datasets.patient_records import squad
from epicrisis.evaluation.datasets.patient_records.source import RecordSource
from epicrisis.types import Document

NAMES = ("covid-qa",)
FILES = ("*covidQA*.json", "*COVID-QA*.json")
LICENCE = "Apache-2.0"


def read(path: Path) -> RecordSource:
    """Return all questions in order, of patient `covid_qa:<document id>` with note `note:covid_qa:<document id>`.

    Answers have no outer white space. Raises InputError for another file.
    """
    questions, answers = [], []
    for patient, paragraph in _read_paragraphs(path):
        for squad_question in paragraph.qas:
            spans = squad.find_gold_spans(squad_question, paragraph.context)
            answers.append(spans)
            questions.append(squad.make_question(squad_question, spans, patient, f"note:{patient}", spans.place))

    def notes() -> Iterator[ReaderItem]:
        for patient, paragraph in _read_paragraphs(path):
            yield Document(
                id=f"note:{patient}",
                text=paragraph.context,
                source="COVID-QA",
                patient=patient,
                metadata={"note_type": "article", "time_missing": True},
            )

    return RecordSource(tuple(questions), notes, LICENCE, squad.describe_moved_answers(answers))


def _read_paragraphs(path: Path) -> Iterator[tuple[str, squad.Paragraph]]:
    """Yield the patient and the text of each article."""
    for article in squad.read(path, "COVID-QA's file"):
        for paragraph in article.paragraphs:
            yield f"covid_qa:{paragraph.document_id}", paragraph
