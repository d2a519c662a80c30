"""The result of a search for a reader: documents in order, each with its reference and the words that match.

    for document in group_hits(ranking, "aspirin in pregnancy"):
        print(document.title, document.passages[0].text)

All texts in it are one printable line each. Offsets of matches are characters of these lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from epicrisis.core.printable import count_noun, printable
from epicrisis.core.references import Link, Reference, build_reference, find_document_study, name_document
from epicrisis.core.study_types import StudyTypeMatch
from epicrisis.core.types import Hit, Passage, Ranking
from epicrisis.report.answer_content import AnswerContent, AnswerSection, SourceEntry, describe_marks

_WORD = re.compile(r"[^\W_]+")
FILE_SNIPPET = 300
"""Characters of text shown of a passage in a file."""
_LEAD = 30
"""Characters shown before the first match, at most."""


@dataclass(frozen=True, slots=True)
class WordMatch:
    """A word of a text that matches a word of the query."""

    start: int
    end: int
    stem: str


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A passage of a document that was found."""

    id: str
    place: str
    """Such as `section Results, page 3`; empty if unknown."""
    score: float
    text: str
    matches: tuple[WordMatch, ...]


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A document with passages that were found, in the order of their rank."""

    id: str
    title: str
    """The title, or the id of a document without one."""
    description: str
    """Authors, journal or source, year or date, type of study or note. Empty if unknown."""
    warning: str
    """What became of the article, in capitals, such as `RETRACTED`."""
    links: tuple[Link, ...]
    passages: tuple[FoundPassage, ...]


def group_hits(ranking: Ranking, query: str) -> tuple[FoundDocument, ...]:
    """Return the documents of a ranking in the order of their best passages."""
    stems = find_stems(query)
    return tuple(_describe_document(group, stems) for group in group_by_document(ranking))


def group_by_document(ranking: Ranking) -> tuple[tuple[Hit, ...], ...]:
    """Return the hits of each document, in the order of their best passages."""
    by_document: dict[str, list[Hit]] = {}
    for hit in ranking.hits:
        by_document.setdefault(hit.passage.document_id, []).append(hit)
    return tuple(map(tuple, by_document.values()))


def _describe_document(hits: Sequence[Hit], stems: frozenset[str]) -> FoundDocument:
    first = hits[0].passage
    reference = build_reference(first)
    study = find_document_study(first.document_id, (hit.passage for hit in hits))
    passages: list[FoundPassage] = []
    for hit in hits:
        text = " ".join(printable(hit.passage.text).split())
        place = printable(build_reference(hit.passage).describe_place())
        passages.append(FoundPassage(printable(hit.passage.id), place, hit.score, text, find_matches(text, stems)))
    return FoundDocument(
        printable(first.document_id),
        printable(name_document(first.title.strip(), first.document_id)),
        describe_source(first, reference, study),
        describe_marks(first.marks),
        reference.links,
        tuple(passages),
    )


def describe_source(passage: Passage, reference: Reference, study: StudyTypeMatch | None) -> str:
    """Return authors, journal or source, year or date, and type of study or note, on one printable line."""
    parts = [reference.describe("", passage.source, passage.date), study.label if study else reference.note_type]
    return printable(". ".join(filter(None, parts)))


def build_search_content(ranking: Ranking, query: str, references: AnswerSection | None = None) -> AnswerContent:
    """Return the documents found for a file: each with its reference, links and the text around the matches."""
    documents = group_hits(ranking, query)
    entries: list[SourceEntry] = []
    for number, document in enumerate(documents, 1):
        details = [document.description] if document.description else []
        for passage in document.passages:
            start, end = choose_window(passage.text, passage.matches, FILE_SNIPPET)
            before, after = "… " if start else "", " …" if end < len(passage.text) else ""
            details.append(f"“{before}{passage.text[start:end]}{after}”")
            details.append(", ".join(filter(None, (passage.id, passage.place))))
        entries.append(SourceEntry(f"{number}.", document.title, document.warning, tuple(details), document.links))
    sections = [AnswerSection("Documents", tuple(entries))] if entries else []
    if references is not None and references.entries:
        sections.append(references)
    summary = f"{count_noun(len(ranking.hits), 'passage')} of {count_noun(len(documents), 'document')}"
    return AnswerContent(
        question=printable(query),
        head=f"Found by {ranking.retriever}",
        verdict=(summary,),
        remarks=tuple(map(printable, ranking.notes)),
        sections=tuple(sections),
    )


def find_stems(query: str) -> frozenset[str]:
    """Return the stems of the query's words, without stop words, as the index of words has them."""
    from epicrisis.library.engines.word_index import analyze_words

    return frozenset(analyze_words(query))


def find_matches(text: str, stems: frozenset[str]) -> tuple[WordMatch, ...]:
    """Return the words of a text whose stem is one of these, in order."""
    matches: list[WordMatch] = []
    for word in _WORD.finditer(text):
        stem = _find_stem(word[0])
        if stem in stems:
            matches.append(WordMatch(word.start(), word.end(), stem))
    return tuple(matches)


@cache
def _find_stem(word: str) -> str:
    """Return the stem of one word, or an empty text for a stop word."""
    from epicrisis.library.engines.word_index import analyze_words

    return next(iter(analyze_words(word)), "")


def choose_window(text: str, matches: Sequence[WordMatch], size: int) -> tuple[int, int]:
    """Return the span of up to `size` characters with the most different words of the query, at word boundaries."""
    if len(text) <= size:
        return 0, len(text)
    best, best_score = 0, (0, 0)
    for match in matches:
        start = _find_word_start(text, max(0, match.start - _LEAD), match.start)
        inside = [other.stem for other in matches if start <= other.start and other.end <= start + size]
        if (score := (len(set(inside)), len(inside))) > best_score:
            best, best_score = start, score
    best = min(best, _find_word_start(text, len(text) - size, len(text)))
    end = min(best + size, len(text))
    if end < len(text) and (space := text.rfind(" ", best + 1, end + 1)) > 0:
        end = space
    return best, end


def _find_word_start(text: str, start: int, stop: int) -> int:
    """Return the beginning of the first word from `start`, at most `stop`."""
    if start == 0:
        return 0
    space = text.find(" ", start - 1, stop)
    return stop if space < 0 else space + 1


def list_matches(passages: Iterable[Passage], query: str) -> dict[str, list[tuple[int, int]]]:
    """Map the id of each passage to the matching words of its text, as offsets in characters."""
    stems = find_stems(query)
    return {
        passage.id: [(match.start, match.end) for match in find_matches(passage.text, stems)] for passage in passages
    }
