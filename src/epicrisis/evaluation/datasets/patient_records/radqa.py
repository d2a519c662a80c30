"""RadQA (Soni et al. 2022, PhysioNet `radqa` 1.0.0): physicians' questions about radiology reports of MIMIC-III.

`train.json`, `dev.json` and `test.json` in SQuAD's form. An article is a report, its two paragraphs are its impression
(`<title>_I`) and its findings (`<title>_O`), and each question is asked of both, with `is_impossible`. The form is
known from code that reads it; the files themselves are credentialed and were not seen.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from epicrisis.evaluation.datasets.patient_records import mimic, reports, squad
from epicrisis.evaluation.datasets.patient_records.source import RecordSource

NAMES = ("radqa",)
FILES = ("train.json", "dev.json", "test.json")
LICENCE = "PhysioNet Credentialed Health Data License 1.5.0"
_SECTIONS = {"O": "FINDINGS", "I": "IMPRESSION"}


def read(path: Path) -> RecordSource:
    """All pairs of question and section, of a file, or of those of the three that lie beside it.

    A pair without an answer has gold "" (errata E3). The study's are the answerable ones of `train.json`.
    """
    paths = [each for name in FILES if (each := path.with_name(name)).is_file()] if path.name in FILES else [path]
    articles = [(each.name, article) for each in paths for article in squad.read(each, "a file of RadQA")]
    found = [reports.Report(article.title, *_read_in_order(article)) for _, article in articles]
    source, absent = reports.build_source("radqa", found, mimic.find_note_files(path), mimic.RADIOLOGY, LICENCE)
    trained = {
        asked.id
        for name, article in articles
        if name == "train.json"
        for part in article.paragraphs
        for asked in part.qas
    }
    return replace(source, studied=frozenset(trained) - absent)


def _read_in_order(article: squad.Article) -> tuple[tuple[squad.Paragraph, ...], tuple[str, ...]]:
    """The findings before the impression, as a report has them, and what they are called."""
    parts = tuple(sorted(article.paragraphs, key=lambda part: part.document_id.endswith("_I")))
    return parts, tuple(_SECTIONS.get(part.document_id.rpartition("_")[2], "") for part in parts)
