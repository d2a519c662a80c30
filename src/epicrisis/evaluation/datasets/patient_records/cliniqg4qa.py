"""CliniQG4QA's test set (Yue et al. 2021, PhysioNet `mimic-iii-question-answer` 1.0.0): 1,287 questions about 36
discharge summaries of MIMIC-III, checked or written by clinical experts, each answered with spans.

`test.final.json` has SQuAD's format: articles with a `title`, a paragraph for each note, numbers as ids. The format is
known from code that reads it; the file needs credentials and was not available.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from epicrisis.evaluation.datasets.patient_records import reports, squad
from epicrisis.evaluation.datasets.patient_records.source import DISCHARGE, RecordSource, find_note_files

NAMES = ("cliniqg4qa",)
FILES = ("test.final.json",)
LICENCE = "PhysioNet Credentialed Health Data License 1.5.0"


def read(path: Path) -> RecordSource:
    """Return all questions in order; the study used all of them. The key of a note is its number in the file."""
    notes: list[reports.Report] = []
    for article in squad.read(path, "CliniQG4QA's test set"):
        for paragraph in article.paragraphs:
            notes.append(reports.Report(str(len(notes) + 1), (paragraph,)))
    source = reports.build_source("cliniqg4qa", notes, find_note_files(path), DISCHARGE, LICENCE)
    return replace(source, studied=frozenset(question.id for question in source.questions))
