"""RadQA (Soni et al. 2022, PhysioNet `radqa` 1.0.0): physicians' questions about radiology reports of MIMIC-III.

`train.json`, `dev.json` and `test.json` have SQuAD's format. An article is a report. Its two paragraphs are impression
(`<title>_I`) and findings (`<title>_O`); each question is asked about both, with `is_impossible`. The format is known
from code that reads it; the files need credentials and were not available.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from epicrisis.evaluation.datasets.patient_records import reports, squad
from epicrisis.evaluation.datasets.patient_records.source import RADIOLOGY, RecordSource, find_note_files

NAMES = ("radqa",)
FILES = ("train.json", "dev.json", "test.json")
LICENCE = "PhysioNet Credentialed Health Data License 1.5.0"
_SECTIONS = {"O": "FINDINGS", "I": "IMPRESSION"}


def read(path: Path) -> RecordSource:
    """Return all pairs of question and section in a file, or in the three files of its folder.

    A pair without an answer has gold "" (errata E3). The study used the answerable pairs of `train.json`.
    """
    paths = filter(Path.is_file, map(path.with_name, FILES)) if path.name in FILES else [path]
    sections: list[reports.Report] = []
    train_ids: set[str] = set()
    for source_path in paths:
        for article in squad.read(source_path, "a file of RadQA"):
            # As in a report, the findings come before the impression.
            parts = tuple(sorted(article.paragraphs, key=lambda part: part.document_id.endswith("_I")))
            titles = tuple(_SECTIONS.get(part.document_id.rpartition("_")[2], "") for part in parts)
            sections.append(reports.Report(article.title, parts, titles))
            if source_path.name == "train.json":
                for part in article.paragraphs:
                    train_ids.update(squad_question.id for squad_question in part.qas)
    source = reports.build_source("radqa", sections, find_note_files(path), RADIOLOGY, LICENCE)
    absent = {question.id for question in source.questions if not question.gold}
    return replace(source, studied=frozenset(train_ids - absent))
