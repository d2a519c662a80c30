"""Questions about reports in sets without patient ids (SQuAD's format), linked to MIMIC's notes.

Each report is searched in the patients' notes, so that the whole record is available. Without notes, the report is the
record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epicrisis.corpus.reader_base import ReaderItem
from epicrisis.evaluation.datasets.patient_records import linking, mimic, squad
from epicrisis.evaluation.datasets.patient_records.source import RecordSource, map_gold_documents
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
        metadata: dict[str, Any] = {"time_missing": True}
        for begin, part, title in zip(begins, self.parts, self.titles, strict=False):
            metadata.setdefault("sections", []).append([begin, begin + len(part.context), title])
        patient = f"{name}:{self.key}"
        document = Document(id=f"note:{patient}", text=text, source="notes", patient=patient, metadata=metadata)
        return document, tuple(begins)


def build_source(
    name: str, reports: Sequence[Report], files: tuple[Path, ...], kind: str, licence: str
) -> tuple[RecordSource, frozenset[str]]:
    """Return the questions of the reports in order, and the ids of those that no report answers.

    `kind` is the note type of the reports. With `files`, the reports are searched in them, and the records are the
    notes of their patients. Reports that are not found are left out, with a notice.
    """
    links, unclear = _link_reports(reports, files, kind) if files else ({}, frozenset())
    questions, answers, elsewhere = [], [], 0
    for report in reports:
        if files and report.key not in links:
            continue
        pairs = tuple(_make_questions(name, report, links.get(report.key)))
        selection = _drop_answered_elsewhere(pairs)
        elsewhere += len(pairs) - len(selection)
        for question, spans in selection:
            questions.append(question)
            answers.append(spans)
    notices = [*squad.describe_moved_answers(answers)]
    if elsewhere:
        notices.append(
            f"{elsewhere} questions that one part of a report does not answer and another does are asked of that other "
            "alone: what is read is the whole report"
        )
    missing = len(reports) - len(links) if files else 0
    if missing:
        shared = f", {len(unclear)} of them because several patients have such a one" if unclear else ""
        notices.append(f"{missing} of {len(reports)} reports are left out: no note is found that is the report{shared}")
    if not files:
        notices.append(
            f"no notes beside the questions: each report alone is its record; put {' or '.join(mimic.FILES)} there"
        )
    patients = frozenset(linked.patient for linked in links.values())

    def notes() -> Iterator[ReaderItem]:
        if files:
            yield from mimic.read_patients_notes(files, patients)
        else:
            for report in reports:
                yield report.alone(name)[0]

    absent = frozenset(question.id for question in questions if not question.gold)
    related = map_gold_documents(questions)
    return RecordSource(tuple(questions), notes, related, licence, tuple(notices)), absent


def _link_reports(
    reports: Sequence[Report], files: tuple[Path, ...], kind: str
) -> tuple[Mapping[str, linking.LinkedReport], frozenset[str]]:
    parts_by_key: dict[str, tuple[str, ...]] = {}
    for report in reports:
        parts_by_key[report.key] = tuple(part.context for part in report.parts)
    rows = mimic.read_selected_notes(files, lambda note: mimic.is_kind(note, kind))
    return linking.link_reports(parts_by_key, (item for item in rows if isinstance(item, Document)))


def _drop_answered_elsewhere(
    pairs: Sequence[tuple[Question, squad.GoldSpans]],
) -> list[tuple[Question, squad.GoldSpans]]:
    """Return the pairs of one report without questions that only another part of it answers."""
    answered = {question.text for question, _ in pairs if question.gold}
    return [pair for pair in pairs if pair[0].gold or pair[0].text not in answered]


def _make_questions(
    name: str, report: Report, linked: linking.LinkedReport | None
) -> Iterator[tuple[Question, squad.GoldSpans]]:
    alone, begins = report.alone(name)
    for number, part in enumerate(report.parts):
        for squad_question in part.qas:
            spans = squad.find_gold_spans(squad_question, part.context)
            place = spans.place
            if linked is None:
                note, patient = alone.id, str(alone.patient)
                if place is not None:
                    place = place[0] + begins[number], place[1] + begins[number]
            else:
                note, patient = linked.document_id, linked.patient
                if place is not None:
                    place = linked.place(number, part.context, place)
            yield squad.make_question(squad_question, spans, patient, note, place), spans
