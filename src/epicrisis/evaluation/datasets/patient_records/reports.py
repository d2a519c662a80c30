"""Questions about reports in sets without patient ids (SQuAD's format), linked to MIMIC's notes.

Each report is searched in the patients' notes, so that the whole record is available. Without notes, the report is the
record. The sets have no note ids, so words are compared, in lower case: white space, line breaks and punctuation, which
the sets change, do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from epicrisis.corpus.reader_base import ReaderItem
from epicrisis.evaluation.datasets.patient_records import squad
from epicrisis.evaluation.datasets.patient_records.source import (
    NOTE_FILES,
    RecordSource,
    read_notes_of_kind,
    read_patients_notes,
)
from epicrisis.types import Document, Question

ANCHOR = 8
"""The number of consecutive words that are looked up. A report with a shorter longest part is not linked."""
_WORD = re.compile(r"\w+")
_Words: TypeAlias = list[tuple[str, int, int]]


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
) -> RecordSource:
    """Return the questions of the reports in order, and their records.

    `kind` is the note type of the reports. With `files`, the reports are searched in them, and the records are the
    notes of their patients. Reports that are not found are left out, with a notice.
    """
    links, unclear = link_reports(reports, read_notes_of_kind(files, kind))
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
    missing = len(reports) - len(links)
    if not files:
        notices.append(
            f"no notes beside the questions: each report alone is its record; put {' or '.join(NOTE_FILES)} there"
        )
    elif missing:
        shared = f", {len(unclear)} of them because several patients have such a one" if unclear else ""
        notices.append(f"{missing} of {len(reports)} reports are left out: no note is found that is the report{shared}")
    patients = frozenset(linked.patient for linked in links.values())

    def notes() -> Iterator[ReaderItem]:
        if files:
            yield from read_patients_notes(files, patients)
        else:
            for report in reports:
                yield report.alone(name)[0]

    return RecordSource(tuple(questions), notes, licence, tuple(notices))


def _drop_answered_elsewhere(
    pairs: Sequence[tuple[Question, squad.GoldSpans]],
) -> list[tuple[Question, squad.GoldSpans]]:
    """Return the pairs of one report without questions that only another part of it answers."""
    answered = {question.text for question, _ in pairs if question.gold}
    return [pair for pair in pairs if pair[0].gold or pair[0].text not in answered]


def _make_questions(
    name: str, report: Report, linked: LinkedReport | None
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


@dataclass(frozen=True, slots=True)
class LinkedReport:
    """The note of a report, and the position of each part of the report in it."""

    document_id: str
    patient: str
    parts: tuple[tuple[tuple[int, int], ...], ...]
    """The offsets of the words of each part in the note's text, in order."""

    def place(self, part: int, context: str, place: tuple[int, int]) -> tuple[int, int] | None:
        """Return the offsets in the note of a span of the part, or None if the span has no word."""
        inside = []
        for (_, start, end), offsets in zip(split_words(context), self.parts[part], strict=True):
            if start < place[1] and end > place[0]:
                inside.append(offsets)
        return (inside[0][0], inside[-1][1]) if inside else None


def split_words(text: str) -> _Words:
    """Return the words in lower case with their offsets."""
    return [(match[0].casefold(), match.start(), match.end()) for match in _WORD.finditer(text)]


def link_reports(
    reports: Iterable[Report], notes: Iterable[Document]
) -> tuple[dict[str, LinkedReport], frozenset[str]]:
    """Return the note of each report, by key, and the reports found in records of several patients.

    A note belongs to a report if it contains all of its parts. Reports found for several patients are not linked.
    """
    words_by_key: dict[str, list[_Words]] = {}
    for report in reports:
        words_by_key[report.key] = [split_words(part.context) for part in report.parts]
    anchors: dict[tuple[str, ...], list[str]] = {}
    for key, parts in words_by_key.items():
        longest = max(parts, key=len, default=[])
        if len(longest) >= ANCHOR:
            anchors.setdefault(_texts(longest[:ANCHOR]), []).append(key)
    links: dict[str, LinkedReport] = {}
    unclear: set[str] = set()
    for note in notes:
        note_words = split_words(note.text)
        texts = _texts(note_words)
        candidates: set[str] = set()
        for at in range(len(texts) - ANCHOR + 1):
            candidates.update(anchors.get(texts[at : at + ANCHOR], ()))
        for key in candidates:
            linked = _link_report(note, note_words, texts, words_by_key[key])
            if linked is not None and key in links and links[key].patient != linked.patient:
                unclear.add(key)
            elif linked is not None:
                links.setdefault(key, linked)
    for key in unclear:
        del links[key]
    return links, frozenset(unclear)


def _texts(words: _Words) -> tuple[str, ...]:
    return tuple(word for word, _, _ in words)


def _link_report(
    note: Document, note_words: _Words, texts: tuple[str, ...], parts: list[_Words]
) -> LinkedReport | None:
    """Return the link if the note contains all parts of the report, else None."""
    places = []
    for part in parts:
        words = _texts(part)
        for at in range(len(texts) - len(words) + 1):
            if texts[at : at + len(words)] == words:
                places.append(tuple((start, end) for _, start, end in note_words[at : at + len(part)]))
                break
        else:
            return None
    return LinkedReport(note.id, note.patient or "", tuple(places))
