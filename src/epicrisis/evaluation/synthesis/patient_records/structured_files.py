"""Write structured entries of fictional patients: facts.jsonl, questions about them, FHIR, OMOP tables and C-CDA."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from epicrisis.core.errors import InputError
from epicrisis.evaluation.grading.computed_answers import PARTS_SEPARATOR
from epicrisis.evaluation.synthesis.patient_records.ccda_documents import build_document
from epicrisis.evaluation.synthesis.patient_records.chart_entries import list_entries
from epicrisis.evaluation.synthesis.patient_records.entry_questions import (
    CURRENT_DRUG,
    NO_ENTRY,
    StructuredQuestion,
    draw_entry_questions,
)
from epicrisis.evaluation.synthesis.patient_records.fhir_bundles import build_bundle
from epicrisis.evaluation.synthesis.patient_records.fictional_record import FictionalRecord
from epicrisis.evaluation.synthesis.patient_records.omop_tables import OmopTables
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws

FORMATS = ("fhir", "omop", "ccda")
"""The formats, each of which has a folder of its name."""
RECORD = "record"
"""The folder of what belongs into a library. Questions stand beside it."""
FACTS, FACT_QUESTIONS = "facts.jsonl", "fact_questions.jsonl"


def check_formats(formats: Sequence[str]) -> None:
    """Raise InputError for an unknown format."""
    for name in formats:
        if name not in FORMATS:
            raise InputError(f"--structured {name}: choose from {', '.join(FORMATS)}, with commas between them")


class StructuredFiles:
    """Writes the entries of several patients to a folder. A context manager; without formats it writes nothing.

    Raises OSError if the folder cannot be written.
    """

    def __init__(self, folder: Path, formats: Sequence[str]) -> None:
        self._folder = folder
        self._formats = frozenset(formats)
        self._files = ExitStack()

    def __enter__(self) -> StructuredFiles:
        with ExitStack() as files:
            if self._formats:
                self._facts = files.enter_context(_open_lines(self._folder / FACTS))
                self._questions = files.enter_context(_open_lines(self._folder / FACT_QUESTIONS))
            if "omop" in self._formats:
                self._tables = files.enter_context(OmopTables(self._folder / RECORD / "omop"))
            for name in self._formats & {"fhir", "ccda"}:
                (self._folder / RECORD / name).mkdir()
            self._files = files.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def add(self, record: FictionalRecord, draws: Draws) -> int:
        """Write the entries of a record in all formats, and questions. Return the number of entries."""
        if not self._formats:
            return 0
        patient, entries = record.patient, list_entries(record)
        for entry in entries:
            self._facts.write(json.dumps(asdict(entry), ensure_ascii=False) + "\n")
        questions = draw_entry_questions(patient, entries, draws.substream("entries"))
        for number, question in enumerate(questions, 1):
            line = _question_line(f"{patient.id}-f{number:03d}", patient.id, question)
            self._questions.write(json.dumps(line, ensure_ascii=False) + "\n")
        if "fhir" in self._formats:
            bundle = json.dumps(build_bundle(patient, entries), ensure_ascii=False, indent=1)
            (self._folder / RECORD / "fhir" / f"{patient.id}.json").write_text(
                bundle + "\n", encoding="utf-8", newline="\n"
            )
        if "ccda" in self._formats:
            (self._folder / RECORD / "ccda" / f"{patient.id}.xml").write_bytes(build_document(patient, entries))
        if "omop" in self._formats:
            self._tables.add(patient, entries)
        return len(entries)


def _question_line(id_: str, patient: str, question: StructuredQuestion) -> dict[str, Any]:
    """Return a line of a question set. An empty `gold` means that the record has no answer."""
    line: dict[str, Any] = {"id": id_, "text": question.text, "form": "open"}
    line["gold"] = PARTS_SEPARATOR.join(sorted(question.expected or ()))
    if question.expected == frozenset({NO_ENTRY}):
        line["also"] = ["no"]
    elif question.category == CURRENT_DRUG:
        line["also"] = ["yes"]
    return line | {"category": question.category, "patient": patient}


def _open_lines(path: Path) -> Any:
    return path.open("w", encoding="utf-8", newline="\n")
