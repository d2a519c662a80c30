"""RadQA (Soni et al. 2022, PhysioNet `radqa` 1.0.0): physicians' questions about radiology reports of MIMIC-III.

`train.json`, `dev.json` and `test.json` have SQuAD's format. An article is a report. Its two paragraphs are impression
(`<title>_I`) and findings (`<title>_O`); each question is asked about both, with `is_impossible`. The format is known
from code that reads it; the files need credentials and were not available.
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
    """Return all pairs of question and section in a file, or in the three files of its folder.

    A pair without an answer has gold "" (errata E3). The study used the answerable pairs of `train.json`.
    """
    paths = (
        [source_path for name in FILES if (source_path := path.with_name(name)).is_file()]
        if path.name in FILES
        else [path]
    )
    articles = [
        (source_path.name, article) for source_path in paths for article in squad.read(source_path, "a file of RadQA")
    ]
    sections = [reports.Report(article.title, *_read_in_order(article)) for _, article in articles]
    source, absent = reports.build_source("radqa", sections, mimic.find_note_files(path), mimic.RADIOLOGY, LICENCE)
    trained = {
        squad_question.id
        for name, article in articles
        if name == "train.json"
        for part in article.paragraphs
        for squad_question in part.qas
    }
    return replace(source, studied=frozenset(trained) - absent)


def _read_in_order(article: squad.Article) -> tuple[tuple[squad.Paragraph, ...], tuple[str, ...]]:
    """Return the findings and then the impression, as in a report, and their headings."""
    parts = tuple(sorted(article.paragraphs, key=lambda part: part.document_id.endswith("_I")))
    return parts, tuple(_SECTIONS.get(part.document_id.rpartition("_")[2], "") for part in parts)
