"""Question sets in SQuAD's format: COVID-QA, RadQA and CliniQG4QA, answered with spans of a text.

Answers are searched in the text, as offsets in the files may be wrong.

COVID-QA (Möller et al. 2020): 1,380 questions of experts about 98 articles. Each article is treated as a patient record
of one note, so a question is searched only in its article. The texts are freely licensed articles, so results say
nothing about real patient records.

RadQA (Soni et al. 2022, PhysioNet `radqa` 1.0.0): physicians' questions about radiology reports of MIMIC-III, in
`train.json`, `dev.json` and `test.json`. An article is a report. Its two paragraphs are impression (`<title>_I`) and
findings (`<title>_O`); each question is asked about both, with `is_impossible`.

CliniQG4QA's test set (Yue et al. 2021, PhysioNet `mimic-iii-question-answer` 1.0.0): 1,287 questions about 36 discharge
summaries of MIMIC-III, checked or written by clinical experts. `test.final.json` has articles with a `title`, a
paragraph for each note, numbers as ids.

The formats of the last two are known from code that reads them; the files need credentials and were not available. They
have no patient ids and no note ids. Each report is searched in the patients' notes, so that the whole record is
available; without notes, the report is the record. Words are compared in lower case: white space, line breaks and
punctuation, which the sets change, do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epicrisis.core.printable import agree, count_noun
from epicrisis.core.types import Document, EvidenceSpan, Question
from epicrisis.corpus.base.reader_base import ReaderItem, path_error
from epicrisis.evaluation.datasets.patient_records.source import (
    DISCHARGE,
    NOTE_FILES,
    PHYSIONET_LICENCE,
    RADIOLOGY,
    RecordReader,
    RecordSet,
    describe_first_error,
    find_note_files,
    read_json,
    read_notes_of_kind,
    read_patients_notes,
)

ANCHOR = 8
"""The number of consecutive words that are looked up. A report with a shorter longest part is not linked."""
_WORD = re.compile(r"\w+")
_Words: TypeAlias = list[tuple[str, int, int]]
_RADQA_FILES = ("train.json", "dev.json", "test.json")
_SECTIONS = {"O": "FINDINGS", "I": "IMPRESSION"}


class SquadSpan(BaseModel):
    text: str
    answer_start: int


class SquadQuestion(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str = Field(min_length=1)
    question: str = Field(min_length=1)
    answers: list[SquadSpan]
    is_impossible: bool = False


class Paragraph(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    context: str = Field(min_length=1)
    qas: list[SquadQuestion]
    document_id: str = ""


class Article(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    paragraphs: list[Paragraph]
    title: str = ""


class _File(BaseModel):
    data: list[Article]


@dataclass(frozen=True, slots=True)
class GoldSpans:
    """The distinct answers of a question without outer white space, and the offsets of the first in the context."""

    texts: tuple[str, ...]
    place: tuple[int, int] | None
    """None if it is not in the context."""
    moved: bool
    """Whether the offsets in the file are wrong, apart from white space."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report, or the parts of it in a set, in reading order. `key` is its name in the set."""

    key: str
    parts: tuple[Paragraph, ...]
    titles: tuple[str, ...] = ()

    def as_record(self, name: str) -> tuple[Document, tuple[int, ...]]:
        """Return the report as the only note of a patient, and the offset of each part in its text.

        `name` is the name of the set. The titles of the parts become sections of the note.
        """
        begins: list[int] = []
        text = ""
        for part in self.parts:
            if text:
                text += "\n\n"
            begins.append(len(text))
            text += part.context
        metadata: dict[str, Any] = {"time_missing": True}
        for begin, part, title in zip(begins, self.parts, self.titles, strict=False):
            metadata.setdefault("sections", []).append([begin, begin + len(part.context), title])
        patient = f"{name}:{self.key}"
        document = Document(id=f"note:{patient}", text=text, source="notes", patient=patient, metadata=metadata)
        return document, tuple(begins)


def read_covid_qa(path: Path) -> RecordSet:
    """Return all questions in order, of patient `covid_qa:<document id>` with note `note:covid_qa:<document id>`.

    Answers have no outer white space. Raises InputError for another file.
    """
    patients: list[tuple[str, Paragraph]] = []
    for article in _read_articles(path, "COVID-QA's file"):
        patients.extend((f"covid_qa:{paragraph.document_id}", paragraph) for paragraph in article.paragraphs)
    questions, answers = [], []
    for patient, paragraph in patients:
        for squad_question in paragraph.qas:
            spans = find_gold_spans(squad_question, paragraph.context)
            answers.append(spans)
            questions.append(make_question(squad_question, spans, patient, f"note:{patient}", spans.place))

    def notes() -> Iterator[ReaderItem]:
        for patient, paragraph in patients:
            yield Document(
                id=f"note:{patient}",
                text=paragraph.context,
                source="COVID-QA",
                patient=patient,
                metadata={"note_type": "article", "time_missing": True},
            )

    return RecordSet(
        questions=tuple(questions), notes=notes, licence="Apache-2.0", notices=describe_moved_answers(answers)
    )


def read_radqa(path: Path) -> RecordSet:
    """Return all pairs of question and section in a file, or in the three files of its folder.

    A pair without an answer has gold "" (errata E3). The study used the answerable pairs of `train.json`.
    """
    paths = (
        filter(Path.is_file, (path.with_name(file) for file in _RADQA_FILES)) if path.name in _RADQA_FILES else [path]
    )
    sections: list[Report] = []
    train_ids: set[str] = set()
    for source_path in paths:
        for article in _read_articles(source_path, "a file of RadQA"):
            # As in a report, the findings come before the impression.
            parts = tuple(sorted(article.paragraphs, key=lambda part: part.document_id.endswith("_I")))
            titles = tuple(_SECTIONS.get(part.document_id.rpartition("_")[2], "") for part in parts)
            sections.append(Report(article.title, parts, titles))
            if source_path.name == "train.json":
                for part in article.paragraphs:
                    train_ids.update(squad_question.id for squad_question in part.qas)
    source = _build_source("radqa", sections, find_note_files(path), RADIOLOGY, PHYSIONET_LICENCE)
    absent = {question.id for question in source.questions if not question.gold}
    return replace(source, studied=frozenset(train_ids - absent))


def read_cliniqg4qa(path: Path) -> RecordSet:
    """Return all questions in order; the study used all of them. The key of a note is its number in the file."""
    notes: list[Report] = []
    for article in _read_articles(path, "CliniQG4QA's test set"):
        for paragraph in article.paragraphs:
            notes.append(Report(str(len(notes) + 1), (paragraph,)))
    source = _build_source("cliniqg4qa", notes, find_note_files(path), DISCHARGE, PHYSIONET_LICENCE)
    return replace(source, studied=frozenset(question.id for question in source.questions))


READERS = (
    RecordReader("covid-qa", ("*covidQA*.json", "*COVID-QA*.json"), read_covid_qa),
    RecordReader("cliniqg4qa", ("test.final.json",), read_cliniqg4qa),
    RecordReader("radqa", _RADQA_FILES, read_radqa),
)


def _build_source(name: str, reports: Sequence[Report], files: tuple[Path, ...], kind: str, licence: str) -> RecordSet:
    """Return the questions of the reports, whose note type is `kind`, in order, and their records.

    With `files`, the reports are searched in them. Reports that are not found are left out, with a notice.
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
    notices = [*describe_moved_answers(answers)]
    if elsewhere:
        notices.append(
            f"{count_noun(elsewhere, 'question')} that one part of a report does not answer and another does "
            f"{agree(elsewhere, 'is', 'are')} asked of that other "
            "alone: what is read is the whole report"
        )
    missing = len(reports) - len(links)
    if not files:
        notices.append(
            f"no notes beside the questions: each report alone is its record; put {' or '.join(NOTE_FILES)} there"
        )
    elif missing:
        shared = f", {len(unclear)} of them because several patients have such a one" if unclear else ""
        notices.append(
            f"{missing} of {count_noun(len(reports), 'report')} {agree(missing, 'is', 'are')} left out: no note is "
            f"found that is the report{shared}"
        )
    patients = frozenset(linked.patient for linked in links.values())

    def notes() -> Iterator[ReaderItem]:
        if files:
            yield from read_patients_notes(files, patients)
        else:
            for report in reports:
                yield report.as_record(name)[0]

    return RecordSet(
        questions=tuple(questions), notes=notes, licence=licence, notices=tuple(notices), note_types=frozenset((kind,))
    )


def _drop_answered_elsewhere(pairs: Sequence[tuple[Question, GoldSpans]]) -> list[tuple[Question, GoldSpans]]:
    """Return the pairs of one report without questions that only another part of it answers."""
    answered = {question.text for question, _ in pairs if question.gold}
    return [pair for pair in pairs if pair[0].gold or pair[0].text not in answered]


def _make_questions(name: str, report: Report, linked: LinkedReport | None) -> Iterator[tuple[Question, GoldSpans]]:
    alone, begins = report.as_record(name)
    for number, part in enumerate(report.parts):
        for squad_question in part.qas:
            spans = find_gold_spans(squad_question, part.context)
            place = spans.place
            if linked is None:
                note, patient = alone.id, str(alone.patient)
                if place is not None:
                    place = place[0] + begins[number], place[1] + begins[number]
            else:
                note, patient = linked.document_id, linked.patient
                if place is not None:
                    place = linked.place(number, part.context, place)
            yield make_question(squad_question, spans, patient, note, place), spans


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
    words_by_key = {report.key: [split_words(part.context) for part in report.parts] for report in reports}
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


def _read_articles(path: Path, what: str) -> list[Article]:
    """Return the articles in order. Raises InputError for another format."""
    value = read_json(path, what)
    try:
        return _File.model_validate(value).data
    except ValidationError as error:
        wrong = describe_first_error(error) or "its top"
        raise path_error(path, f"not {what}: wrong at {wrong}; fetch it again") from None


def find_gold_spans(squad_question: SquadQuestion, context: str) -> GoldSpans:
    """Return the answers of a question, with the first located in the context."""
    spans = [span for span in squad_question.answers if span.text.strip()]
    texts = tuple(dict.fromkeys(span.text.strip() for span in spans))
    if squad_question.is_impossible or not spans:
        return GoldSpans((), None, False)
    text, start = spans[0].text.strip(), spans[0].answer_start
    stated = start + len(spans[0].text) - len(spans[0].text.lstrip())
    for at in (stated, start):
        if at >= 0 and context.startswith(text, at):
            return GoldSpans(texts, (at, at + len(text)), False)
    nearest = None
    at = context.find(text)
    while at >= 0:
        if nearest is None or abs(at - start) < abs(nearest - start):
            nearest = at
        at = context.find(text, at + 1)
    return GoldSpans(texts, None if nearest is None else (nearest, nearest + len(text)), True)


def make_question(
    squad_question: SquadQuestion, gold: GoldSpans, patient: str, note: str, place: tuple[int, int] | None
) -> Question:
    """Return the question about a patient's note. `place` is the offset of its first answer in the note's text.

    A question without an answer gets the category `absence`.
    """
    return Question(
        text=squad_question.question.strip(),
        form="extractive",
        id=squad_question.id,
        gold=gold.texts[0] if gold.texts else "",
        other_answers=gold.texts[1:],
        gold_documents=(note,),
        patient=patient,
        evidence=() if place is None else (EvidenceSpan(note, *place),),
        category="" if gold.texts else "absence",
    )


def describe_moved_answers(golds: Sequence[GoldSpans]) -> tuple[str, ...]:
    """Return notices on the number of answers with wrong offsets, and of answers that are not in their text."""
    moved = missing = 0
    for gold in golds:
        moved += gold.moved and gold.place is not None
        missing += gold.moved and gold.place is None
    remarks = []
    if moved:
        remarks.append(
            f"{moved} of {count_noun(len(golds), 'answer')} {agree(moved, 'is', 'are')} not at the stated offset: the "
            "nearest place was used"
        )
    if missing:
        remarks.append(
            f"{missing} of {count_noun(len(golds), 'answer')} {agree(missing, 'is', 'are')} not in the text: the place "
            "is unknown"
        )
    return tuple(remarks)
