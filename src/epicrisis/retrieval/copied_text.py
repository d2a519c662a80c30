"""Text that a note repeats from an earlier note of the same patient (copy-forward), and when it was first written.

A paragraph is carried forward if a note of an earlier day has one with nearly the same words. Its sentences are
compared with those of the latest such paragraph: one with the same words was first written there, or earlier still. One
in which a word, a number or a negation differs is a new statement, and has the date of its own note. Notes without a
date are neither originals nor copies.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from epicrisis.core.dates import is_before, time_range
from epicrisis.core.types import Passage
from epicrisis.retrieval.record_context import restore_notes, sort_by_time

MIN_WORDS = 8
"""Shorter paragraphs recur by chance: `No known drug allergies.`"""
SIMILARITY = 0.6
"""The share of three-word sequences that two paragraphs must have in common (Jaccard)."""
_SEQUENCE = 3
_MAX_PLACES = 40
"""Latest paragraphs remembered for each sequence. More would cost time quadratic in the number of copies."""
_WORD = re.compile(r"\w+(?:[.,/:-]\d+)*")
_SENTENCE = re.compile(r"\S(?:[^\n.!?]|[.!?](?!\s))*+[.!?]?")
"""A sentence, a line, or a part of a sentence that ends with an abbreviation: parts of one origin are joined again."""
_IGNORED_WORDS = frozenset(("a", "an", "the", "and", "so", "also", "then", "that", "which"))
"""Words that may differ in a sentence that says the same."""

_Sentence: TypeAlias = tuple[str, ...]
"""The words of a sentence in lower case, without `_IGNORED_WORDS`."""


@dataclass(frozen=True, slots=True)
class CopiedText:
    """Sentences of a note that an earlier note has, too. Offsets in characters of the later note."""

    start: int
    end: int
    first_document: str
    """The earliest note with these sentences."""
    first_date: str


@dataclass(frozen=True, slots=True)
class _Paragraph:
    date: str
    sequences: frozenset[str]
    origins: Mapping[_Sentence, tuple[str, str]]
    """The first note of each sentence: document and date."""


class _EarlierText:
    """The paragraphs of the notes read so far, in order of time."""

    def __init__(self) -> None:
        self._paragraphs: list[_Paragraph] = []
        self._places: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=_MAX_PLACES))
        self._long_sentences: dict[_Sentence, _Paragraph] = {}
        """The latest paragraph with each sentence of MIN_WORDS or more."""

    def add(self, paragraph: _Paragraph) -> None:
        """Remember a paragraph of the latest note."""
        for sequence in paragraph.sequences:
            self._places[sequence].append(len(self._paragraphs))
        self._paragraphs.append(paragraph)
        for sentence in paragraph.origins:
            if len(sentence) >= MIN_WORDS:
                self._long_sentences[sentence] = paragraph

    def find_original(self, date: str, sequences: frozenset[str]) -> _Paragraph | None:
        """Return the latest paragraph of an earlier day that is similar, the most similar one of its note, or None.

        A statement that was changed and changed back is as new as the change.
        """
        shared: Counter[int] = Counter()
        for sequence in sequences:
            shared.update(self._places.get(sequence, ()))
        best, best_similarity = None, 0.0
        for index in sorted(shared, reverse=True):
            other = self._paragraphs[index]
            if best is not None and other.date != best.date:
                break
            similarity = shared[index] / (len(sequences) + len(other.sequences) - shared[index])
            if similarity >= SIMILARITY and similarity >= best_similarity and _is_earlier(other.date, date):
                best, best_similarity = other, similarity
        return best

    def find_sentence(self, date: str, sentence: _Sentence) -> _Paragraph | None:
        """Return the latest paragraph with this long sentence if it is of an earlier day, or None."""
        paragraph = self._long_sentences.get(sentence)
        return paragraph if paragraph is not None and _is_earlier(paragraph.date, date) else None


def find_copied_text(record: Sequence[Passage]) -> Mapping[str, tuple[CopiedText, ...]]:
    """Map the documents of a record with copied sentences to these, by offset. Neighbours of one origin are joined.

    A copy of a copy has the date of the first note. Copies of the same day are not reported, as their order is unknown.
    """
    copies: dict[str, list[CopiedText]] = defaultdict(list)
    earlier = _EarlierText()
    for note in sort_by_time(restore_notes(record)):
        if note.date is None:
            continue
        for start, end in _split_paragraphs(note.text):
            text = note.text[start:end]
            sequences = _list_sequences(text)
            if not sequences:
                continue
            original = earlier.find_original(note.date, sequences)
            origins: dict[_Sentence, tuple[str, str]] = {}
            for match in _SENTENCE.finditer(text):
                first, last = match.start(), match.start() + len(match[0].rstrip())
                sentence = _read_sentence(text[first:last])
                source = original or earlier.find_sentence(note.date, sentence)
                origin = None if source is None else source.origins.get(sentence)
                origins[sentence] = origin or (note.document_id, note.date)
                if origin is not None:
                    begin = note.start + start
                    _append(copies[note.document_id], CopiedText(begin + first, begin + last, *origin))
            earlier.add(_Paragraph(note.date, sequences, origins))
    return {document_id: tuple(texts) for document_id, texts in copies.items() if texts}


def _append(texts: list[CopiedText], copied: CopiedText) -> None:
    """Append copied sentences, or join them to the last ones if only white space can be between both."""
    if texts and texts[-1].first_document == copied.first_document and copied.start - texts[-1].end <= 1:
        texts[-1] = replace(texts[-1], end=copied.end)
    else:
        texts.append(copied)


def remove_copied_text(record: Sequence[Passage]) -> tuple[Passage, ...]:
    """Return the passages with copied sentences as white space, so that each statement has the time of its first note.

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


def _list_sequences(text: str) -> frozenset[str]:
    """Return the three-word sequences of a paragraph, none if it is too short."""
    words = _WORD.findall(text.casefold())
    if len(words) < MIN_WORDS:
        return frozenset()
    return frozenset(" ".join(words[start : start + _SEQUENCE]) for start in range(len(words) - _SEQUENCE + 1))


def _read_sentence(text: str) -> _Sentence:
    return tuple(word for word in _WORD.findall(text.casefold()) if word not in _IGNORED_WORDS)


def _is_earlier(date: str, other: str) -> bool:
    """Return whether a note is of an earlier day than another."""
    return is_before(time_range(date[:10]), time_range(other[:10]))
