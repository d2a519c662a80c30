"""The evidence table of an answer: one row for each study, with its design, size, population, direction and sentence.

    rows = build_study_table(answer, passages)

Sizes and populations are words of the document, found by rules, with their place in it. What a document does not state
is empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from epicrisis.answering.study_details import StudyDetail, find_population, find_sample_size
from epicrisis.core.answers import Answer, Citation
from epicrisis.core.printable import agree, printable, without_formula
from epicrisis.core.references import name_document
from epicrisis.core.studies import StatedRatio, StudyCell, StudyRow
from epicrisis.core.types import Passage
from epicrisis.reading.comparisons import read_comparison
from epicrisis.reading.directions import describe_effect, find_effect, is_about
from epicrisis.reading.mentions import speaks_of_another
from epicrisis.report.answer_content import (
    AnswerSection,
    SourceEntry,
    describe_marks,
    describe_same_studies,
    group_citations,
)
from epicrisis.report.computed_table import list_computed_numbers
from epicrisis.report.shown_citation import show_citation
from epicrisis.report.stated_ratios import find_ratio

SCREEN_STUDIES = 3
"""Of an answer on a screen of 25 lines. The others are counted."""
ABSTRACT_CHARACTERS = 3_000
"""Where an abstract ends at the latest, in characters of the document."""
_COLUMNS = (
    "study",
    "design",
    "year",
    "size",
    "population",
    "direction",
    "sentence",
    "numbers",
    "warning",
    "document",
    "note",
)


def build_study_table(answer: Answer, passages: Iterable[Passage]) -> tuple[StudyRow, ...]:
    """Return one row for each cited study, in the order of the first citation. See `study_identity` for what is one.

    `passages` are those known of the documents. Sizes and populations are found only in them.
    """
    texts: dict[str, list[Passage]] = {}
    for passage in sorted(passages, key=lambda passage: (passage.document_id, passage.start)):
        texts.setdefault(passage.document_id, []).append(passage)
    tabled = list_computed_numbers(answer)
    shown = [citation for citation in answer.shown_citations if citation.number not in tabled]
    studies = group_citations(shown)
    by_study: dict[str, list[Citation]] = {}
    for citation in shown:
        by_study.setdefault(studies.find_sure(citation.document_id), []).append(citation)
    notes = describe_same_studies(shown)
    rows: list[StudyRow] = []
    for citations in by_study.values():
        documents = list(dict.fromkeys(citation.document_id for citation in citations))
        note = printable(f"also {', '.join(documents[1:])}" if len(documents) > 1 else notes.get(documents[0], ""))
        read = [passage for document_id in documents for passage in texts.get(document_id, ())]
        rows.append(replace(_build_row(answer.question.text, citations, read), note=note))
    return tuple(rows)


def list_studies(answer: Answer) -> AnswerSection:
    """Return the first studies of an evidence answer for a screen: the sentence of each, and one line about it."""
    entries: list[SourceEntry] = []
    for row in build_study_table(answer, ()):
        facts = [row.kind, row.place, row.note]
        if row.direction:
            facts.insert(1, f"{row.direction} (probability {row.probability:.2f})")
        if row.ratio is not None:
            facts.insert(2, f"{row.ratio.measure} {row.ratio.text}")
        others = len(row.citations) - 1
        if others:
            facts.append(f"{others} more sentence{'s' if others > 1 else ''}")
        line = f"{row.reference}. {'; '.join(filter(None, facts))}".removesuffix(". ")
        details = (f"{line}. {row.link}" if row.link else line,)
        entries.append(SourceEntry(f"[{row.citations[0]}]", f"“{row.sentence}”", row.warning, details))
    # A note of a patient's record is no study that a better one makes dispensable.
    shown = len(entries) if answer.question.patient is not None else SCREEN_STUDIES
    more = len(entries) - shown
    lines = (f"{more} more {agree(more, 'study', 'studies')}, farther from the question",) if more > 0 else ()
    return AnswerSection("Studies", tuple(entries[:shown]), lines=lines)


def _build_row(question: str, citations: Sequence[Citation], passages: Sequence[Passage]) -> StudyRow:
    # The sentence is the first verified one: an unverified one is no sentence of the document.
    first = next((citation for citation in citations if citation.verified), citations[0])
    # Other sentences of a document are often about other outcomes.
    effect = find_effect(question, first.quotation, first.title) if first.verified else None
    ratio = _find_ratio(question, first) if first.verified else None
    direction = "" if effect is None else describe_effect(effect.direction)
    numbers = [citation.number for citation in citations]
    reference = first.reference
    is_note = bool(reference.note_type)
    designs = [citation.reference.study.label for citation in (first, *citations) if citation.reference.study]
    kinds = [citation.reference.study.name for citation in (first, *citations) if citation.reference.study]
    marks = next((citation.marks for citation in citations if citation.marks), ())
    return StudyRow(
        document_id=first.document_id,
        title=printable(name_document(first.title, first.document_id)),
        reference=show_citation(first).reference,
        year=printable(reference.year),
        design=printable(reference.note_type or (designs[0] if designs else "")),
        direction=direction,
        probability=None if effect is None else effect.probability,
        kind=printable(reference.note_type or (kinds[0] if kinds else "")),
        author="" if is_note or not reference.authors else printable(reference.authors[0].partition(",")[0]),
        date=printable(first.date or "") if is_note else "",
        ratio=ratio,
        sentence=printable(first.quotation),
        span=(first.start, first.end),
        citations=tuple(dict.fromkeys((first.number, *numbers))),
        warning=describe_marks(marks),
        place=printable(reference.describe_place()),
        link=reference.links[0].url if reference.links else "",
        size=None if is_note else _find_cell(find_sample_size, passages),
        population=None if is_note else _find_cell(find_population, passages),
    )


def _find_ratio(question: str, citation: Citation) -> StatedRatio | None:
    """Return the ratio of a sentence, unless the question compares something that the sentence is not about."""
    comparison, text = read_comparison(question), citation.quotation
    is_about_it = is_about(question, comparison, text, citation.title) and not speaks_of_another(text, comparison)
    return find_ratio(text, comparison.outcome) if is_about_it or not comparison.intervention else None


def _find_cell(find: Callable[[str], StudyDetail | None], passages: Sequence[Passage]) -> StudyCell | None:
    """Return the words of `find` in the first passage with any, near the beginning of a document.

    What follows an abstract tells of other studies, and of parts of its own.
    """
    for passage in passages:
        detail = find(passage.text) if passage.start < ABSTRACT_CHARACTERS else None
        if detail is not None:
            span = (passage.start + detail.start, passage.start + detail.end)
            return StudyCell(printable(detail.text), span, passage.document_id)
    return None


def study_table_csv(rows: Sequence[StudyRow]) -> str:
    """Return the table as CSV. A text that a spreadsheet would read as a formula begins with an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for row in rows:
        values = (
            row.reference,
            row.design,
            row.year,
            row.size.text if row.size else "",
            row.population.text if row.population else "",
            row.direction,
            row.sentence,
            " ".join(map(str, row.citations)),
            row.warning,
            row.document_id,
            row.note,
        )
        writer.writerow([without_formula(printable(value)) for value in values])
    return file.getvalue()
