"""COVID-QA: 1,380 questions of experts on 98 whole articles (Möller et al. 2020), the answer a span of the article.

An article stands for a record of one note, so that a question is searched in its own article alone. Real text, freely
licensed: what is measured on it is no measurement on patients' records.
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
_WHAT = "COVID-QA's file"


def read(path: Path) -> RecordSource:
    """All questions in the file's order: patient `covid_qa:<document id>`, its one note `note:covid_qa:<document id>`.

    Answers are told without outer white space. Raises InputError where the file is another.
    """
    articles = squad.read(path, _WHAT)
    questions, answers = [], []
    for paragraph in (paragraph for article in articles for paragraph in article.paragraphs):
        patient = f"covid_qa:{paragraph.document_id}"
        for asked in paragraph.qas:
            found = squad.find_gold_spans(asked, paragraph.context)
            answers.append(found)
            questions.append(squad.make_question(asked, found, patient, f"note:{patient}", found.place))

    def notes() -> Iterator[ReaderItem]:
        for article in squad.read(path, _WHAT):
            for paragraph in article.paragraphs:
                patient = f"covid_qa:{paragraph.document_id}"
                yield Document(
                    id=f"note:{patient}",
                    text=paragraph.context,
                    source="COVID-QA",
                    patient=patient,
                    metadata={"note_type": "article", "time_missing": True},
                )

    related = {question.id: frozenset(question.gold_documents) for question in questions}
    return RecordSource(tuple(questions), notes, related, LICENCE, squad.describe_moved_answers(answers))
