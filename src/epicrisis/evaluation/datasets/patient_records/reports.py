"""Questions about reports in sets without patient ids (SQuAD's format), linked to MIMIC's notes.

Each report is searched in the patients' notes, so that the whole record is available. Without notes, the report is the
record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from epicrisis.corpus.reader_base import ReaderItem
from epicrisis.evaluation.datasets.patient_records import linking, mimic, squad
from epicrisis.evaluation.datasets.patient_records.source import RecordSource
from epicrisis.types import Document, Question


@dataclass(frozen=True, slots=True)
class Report:
    """A report, or the parts of it in a set, in reading order. `key` is its name in the set."""

    key: str
    parts: tuple[squad.Paragraph, ...]
    titles: tuple[str, ...] = ()

    def alone(self, name: str) -> tuple[Document, tuple[int, ...]]:
        """Return the report as a record of its own, and the offset of each part in its text."""
        begins, text = [], ""
        for part in self.parts:
            text += "\n\n" * bool(text)
            begins.append(len(text))
            text += part.context
        sections = [
            [begin, begin + len(part.context), title]
            for begin, part, title in zip(begins, self.parts, self.titles, strict=False)
        ]
        patient = f"{name}:{self.key}"
        metadata = {"time_missing": True} | ({"sections": sections} if sections else {})
        return Document(id=f"note:{patient}", text=text, source="notes", patient=patient, metadata=metadata), tuple(
            begins
        )


def build_source(
    name: str, reports: Sequence[Report], files: tuple[Path, ...], kind: str, licence: str
) -> tuple[RecordSource, frozenset[str]]:
    """Return the questions of the reports in order, and the ids of those that no report answers.

    `kind` is the note type of the reports. With `files`, the reports are searched in them, and the records are the
    notes of their patients. Reports that are not found are left out, with a notice.
    """
    links, unclear = _links(reports, files, kind) if files else ({}, frozenset())
    asked, answers, elsewhere = [], [], 0
    for report in (report for report in reports if not files or report.key in links):
        pairs = tuple(_questions(name, report, links.get(report.key)))
        answered = {question.text for question, _ in pairs if question.gold}
        for question, found in pairs:
            if question.gold or question.text not in answered:
                asked.append(question)
                answers.append(found)
            else:
                elsewhere += 1
    notices = [*squad.describe_moved_answers(answers)]
    if elsewhere:
        notices.append(
            f"{elsewhere} questions that one part of a report does not answer and another does are asked of that other "
            "alone: what is read is the whole report"
        )
    if lost := len(reports) - len(links) if files else 0:
        shared = f", {len(unclear)} of them because several patients have such a one" if unclear else ""
        notices.append(f"{lost} of {len(reports)} reports are left out: no note is found that is the report{shared}")
    if not files:
        notices.append(
            f"no notes beside the questions: each report alone is its record; put {' or '.join(mimic.FILES)} there"
        )
    patients = frozenset(linked.patient for linked in links.values())

    def notes() -> Iterator[ReaderItem]:
        if files:
            yield from mimic.read_patients_notes(files, patients)
        else:
            yield from (report.alone(name)[0] for report in reports)

    related = {question.id: frozenset(question.gold_documents) for question in asked}
    absent = frozenset(question.id for question in asked if not question.gold)
    return RecordSource(tuple(asked), notes, related, licence, tuple(notices)), absent


def _links(
    reports: Sequence[Report], files: tuple[Path, ...], kind: str
) -> tuple[Mapping[str, linking.LinkedReport], frozenset[str]]:
    parts_by_key = {report.key: tuple(part.context for part in report.parts) for report in reports}
    rows = (item for path in files for item in mimic.read_selected_notes(path, lambda note: mimic.is_kind(note, kind)))
    return linking.link_reports(parts_by_key, (item for item in rows if isinstance(item, Document)))


def _questions(
    name: str, report: Report, linked: linking.LinkedReport | None
) -> Iterator[tuple[Question, squad.GoldSpans]]:
    alone, begins = report.alone(name)
    for number, part in enumerate(report.parts):
        for asked in part.qas:
            found = squad.find_gold_spans(asked, part.context)
            if linked is None:
                note, patient = alone.id, str(alone.patient)
                place = found.place and (found.place[0] + begins[number], found.place[1] + begins[number])
            else:
                note, patient = linked.document_id, linked.patient
                place = found.place and linked.place(number, part.context, found.place)
            yield squad.make_question(asked, found, patient, note, place), found
