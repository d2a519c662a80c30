"""Text that a note repeats from an earlier note of the same patient (copy-forward), and when it was first written.

A paragraph is copied if an earlier note has one with nearly the same words, and with the same numbers, negations and
words of change in the same order. Another number is new information, however similar the rest is. Notes without a date
are neither originals nor copies.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from epicrisis.dates import is_before, time_range
from epicrisis.retrieval.record_context import restore_notes, sort_by_time
from epicrisis.types import Passage

MIN_WORDS = 8
"""Shorter paragraphs recur by chance: `No known drug allergies.`"""
SIMILARITY = 0.6
"""The share of three-word sequences that two paragraphs must have in common (Jaccard)."""
_SEQUENCE = 3
_MAX_PLACES = 40
"""Earliest paragraphs remembered for each sequence. More would cost time quadratic in the number of copies."""
_WORD = re.compile(r"\w+(?:[.,/:-]\d+)*")

# The words of `isn't` are `isn` and `t`.
_DECIDING_WORDS = re.compile(
    r"no|not|never|none|without|den(?:y|ies|ied|ying)|negative|positive|absent|present|stopped|discontinued|held|"
    r"started|resumed|(?:in|de)creased|improved|better|worse(?:ned|ning)?|resolved|stable|left|right|bilateral|"
    r"(?:is|are|was|were|does|did|do|has|have|had|can|could|will|would)n|cannot|unable|refus(?:es|ed|ing)|"
    r"declin(?:es|ed|ing)|once|twice|one|two|three|four|five|six|seven|eight|nine|ten"
)

_Sequence: TypeAlias = tuple[tuple[str, ...], str]
"""The deciding words and numbers of a paragraph, and three words of it."""


@dataclass(frozen=True, slots=True)
class CopiedText:
    """A paragraph of a note that an earlier note has, too. Offsets in characters of the later note."""

    start: int
    end: int
    first_document: str
    """The earliest note with this paragraph."""
    first_date: str


@dataclass(frozen=True, slots=True)
class _Paragraph:
    sequences: frozenset[_Sequence]
    date: str
    first_document: str
    first_date: str


def find_copied_text(record: Sequence[Passage]) -> Mapping[str, tuple[CopiedText, ...]]:
    """Map the documents of a record with copied paragraphs to these, by offset.

    A copy of a copy has the date of the first note. Copies of the same day are not reported, as their order is unknown.
    """
    copies: dict[str, list[CopiedText]] = defaultdict(list)
    earlier: list[_Paragraph] = []
    places: dict[_Sequence, list[int]] = defaultdict(list)
    for note in sort_by_time(restore_notes(record)):
        if note.date is None:
            continue
        for start, end in _split_paragraphs(note.text):
            paragraph = _read_paragraph(note.text[start:end], note.document_id, note.date)
            if paragraph is None:
                continue
            original = _find_original(paragraph, earlier, places)
            if original is not None:
                first_document, first_date = original.first_document, original.first_date
                copied = CopiedText(note.start + start, note.start + end, first_document, first_date)
                copies[note.document_id].append(copied)
                paragraph = replace(paragraph, first_document=first_document, first_date=first_date)
            for sequence in paragraph.sequences:
                if len(places[sequence]) < _MAX_PLACES:
                    places[sequence].append(len(earlier))
            earlier.append(paragraph)
    return {document_id: tuple(texts) for document_id, texts in copies.items()}


def remove_copied_text(record: Sequence[Passage]) -> tuple[Passage, ...]:
    """Return the passages with copied paragraphs as white space, so that each statement has the time of its first note.

    Offsets do not change.
    """
    copies = find_copied_text(record)
    passages: list[Passage] = []
    for passage in record:
        text = passage.text
        for copied in copies.get(passage.document_id, ()):
            start = max(0, copied.start - passage.start)
            end = min(len(text), copied.end - passage.start)
            if start < end:
                text = text[:start] + " " * (end - start) + text[end:]
        passages.append(passage if text == passage.text else replace(passage, text=text))
    return tuple(passages)


def _split_paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the parts of a text between blank lines."""
    start, end, offset = 0, 0, 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            start = offset if start == end else start
            end = offset + len(line)
        elif start < end:
            yield start, end
            start = end
        offset += len(line)
    if start < end:
        yield start, end


def _read_paragraph(text: str, document_id: str, date: str) -> _Paragraph | None:
    """Return the words of a paragraph for comparison, or None if it is too short."""
    words = _WORD.findall(text.casefold())
    if len(words) < MIN_WORDS:
        return None
    deciding = tuple(word for word in words if any(map(str.isdigit, word)) or _DECIDING_WORDS.fullmatch(word))
    sequences = set[_Sequence]()
    for start in range(len(words) - _SEQUENCE + 1):
        sequences.add((deciding, " ".join(words[start : start + _SEQUENCE])))
    return _Paragraph(frozenset(sequences), date, document_id, date)


def _find_original(
    paragraph: _Paragraph, earlier: Sequence[_Paragraph], places: Mapping[_Sequence, Sequence[int]]
) -> _Paragraph | None:
    """Return the most similar paragraph of an earlier day, and the first of equally similar ones, or None."""
    shared: Counter[int] = Counter()
    for sequence in paragraph.sequences:
        shared.update(places.get(sequence, ()))
    best, best_similarity = None, 0.0
    for index in sorted(shared):
        other = earlier[index]
        similarity = shared[index] / (len(paragraph.sequences) + len(other.sequences) - shared[index])
        if similarity < SIMILARITY or similarity <= best_similarity:
            continue
        if is_before(time_range(other.date[:10]), time_range(paragraph.date[:10])):
            best, best_similarity = other, similarity
    return best
