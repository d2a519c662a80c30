"""Links between reports in a question set and notes of a database. The sets have no note ids, so words are compared.

The words are in lower case, so white space, line breaks and punctuation, which the sets change, do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.types import Document

ANCHOR = 8
"""The number of consecutive words that are looked up. A report with a shorter longest part is not linked."""
_WORD = re.compile(r"\w+")
_Words: TypeAlias = list[tuple[str, int, int]]


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
    reports: Mapping[str, tuple[str, ...]], notes: Iterable[Document]
) -> tuple[dict[str, LinkedReport], frozenset[str]]:
    """Return the note of each report, by key, and the reports found in records of several patients.

    A report is a tuple of parts. A note belongs to it if it contains all of them. Reports found in several patients'
    records are not linked.
    """
    words_by_key = {key: list(map(split_words, parts)) for key, parts in reports.items()}
    anchors: dict[tuple[str, ...], list[str]] = {}
    for key, parts in words_by_key.items():
        anchor = _anchor(parts)
        if anchor is not None:
            anchors.setdefault(anchor, []).append(key)
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


def _anchor(parts: list[_Words]) -> tuple[str, ...] | None:
    longest = max(parts, key=len, default=[])
    return _texts(longest[:ANCHOR]) if len(longest) >= ANCHOR else None


def _link_report(
    note: Document, note_words: _Words, texts: tuple[str, ...], parts: list[_Words]
) -> LinkedReport | None:
    places = []
    for part in parts:
        at = _find_words(_texts(part), texts)
        if at is None:
            return None
        places.append(tuple((start, end) for _, start, end in note_words[at : at + len(part)]))
    return LinkedReport(note.id, note.patient or "", tuple(places))


def _find_words(words: tuple[str, ...], texts: tuple[str, ...]) -> int | None:
    for at in range(len(texts) - len(words) + 1):
        if texts[at : at + len(words)] == words:
            return at
    return None
