"""Which note of a database a report in a question set is, found by its words: the sets name no note ids.

Both are compared as words in small letters, so that white space, line breaks and punctuation, which the sets change,
do not matter. Knows no form of a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.types import Document

ANCHOR = 8
"""Words in a row that are looked up; a report whose longest part has fewer is not looked for."""
_WORD = re.compile(r"\w+")
_Words: TypeAlias = list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class LinkedReport:
    """The note that a report is, and where in it each part of the report stands."""

    document_id: str
    patient: str
    parts: tuple[tuple[tuple[int, int], ...], ...]
    """Of each part the places of its words in the note's text, in order."""

    def place(self, part: int, context: str, place: tuple[int, int]) -> tuple[int, int] | None:
        """Where in the note stands what is at this place of the part; `None` where no word of it is."""
        inside = [
            number for number, (_, start, end) in enumerate(split_words(context)) if start < place[1] and end > place[0]
        ]
        where = self.parts[part]
        return (where[inside[0]][0], where[inside[-1]][1]) if inside else None


def split_words(text: str) -> _Words:
    """The words in small letters with their places."""
    return [(match[0].casefold(), match.start(), match.end()) for match in _WORD.finditer(text)]


def link_reports(
    reports: Mapping[str, tuple[str, ...]], notes: Iterable[Document]
) -> tuple[dict[str, LinkedReport], frozenset[str]]:
    """The note of each report, given by its parts, as far as one is found that holds them all; and the reports that
    were found in the records of several patients, which are not linked."""
    spoken = {key: [split_words(part) for part in parts] for key, parts in reports.items()}
    anchors: dict[tuple[str, ...], list[str]] = {}
    for key, parts in spoken.items():
        anchor = _anchor(parts)
        if anchor is not None:
            anchors.setdefault(anchor, []).append(key)
    found: dict[str, LinkedReport] = {}
    unclear: set[str] = set()
    for note in notes:
        own = split_words(note.text)
        spelled = [word for word, _, _ in own]
        near = {key for at in range(len(own) - ANCHOR + 1) for key in anchors.get(tuple(spelled[at : at + ANCHOR]), ())}
        for key in near:
            linked = _linked(note, own, spelled, spoken[key])
            if linked is not None and key in found and found[key].patient != linked.patient:
                unclear.add(key)
            elif linked is not None:
                found.setdefault(key, linked)
    return {key: linked for key, linked in found.items() if key not in unclear}, frozenset(unclear)


def _anchor(parts: list[_Words]) -> tuple[str, ...] | None:
    longest = max(parts, key=len, default=[])
    return tuple(word for word, _, _ in longest[:ANCHOR]) if len(longest) >= ANCHOR else None


def _linked(note: Document, own: _Words, spelled: list[str], parts: list[_Words]) -> LinkedReport | None:
    places = []
    for part in parts:
        wanted = [word for word, _, _ in part]
        at = next((i for i in range(len(own) - len(wanted) + 1) if spelled[i : i + len(wanted)] == wanted), None)
        if at is None:
            return None
        places.append(tuple((start, end) for _, start, end in own[at : at + len(wanted)]))
    return LinkedReport(note.id, note.patient or "", tuple(places))
