"""The sentences of a document, and the headings above them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_NAMES = (
    r"(?:structured )?abstract|summary|backgrounds?|introduction|rationale|context|importance|aims?|objectives?|"
    r"purpose|hypothesis|(?:patients?|materials?|subjects?|"
    r"participants?) and methods|(?:study )?(?:design|setting|population)|methods?|methodology|patients|"
    r"participants|subjects|interventions?|(?:main |primary )?outcomes?"
    r"(?: measures?)?|measurements?(?: and main results)?|main results|(?:statistical|data) analys[ie]s|"
    r"results?|findings|(?:results and )?discussion|comments?|"
    r"limitations?|(?:authors.? )?conclusions?(?: and relevance)?|interpretation|implications|significance|funding|"
    r"(?:conflicts?|declaration|competing) (?:of )?interests?|acknowledge?ments?|references|trial registration|"
    r"abbreviations"
)
_WHOLE = re.compile(rf"(?:\d{{1,2}}(?:\.\d{{1,2}}){{0,3}}\.?\s+)?(?:{_NAMES})\s*[:.]?", re.IGNORECASE)
_CAPITALS = re.compile(r"[A-Z][A-Z .&,/()'-]{3,80}[^:\n]{0,120}:\s*")
_LABEL = re.compile(rf"((?i:{_NAMES})|[A-Z][A-Z ,/&'-]{{3,60}})(?::\s+|\s+[-\u2013\u2014]\s+)(?=\S)")


@dataclass(frozen=True, slots=True)
class ArticleText:
    """The sentences of a document in order, and the heading above each, empty for none."""

    sentences: Sequence[str]
    headings: Sequence[str]


def is_heading(text: str) -> bool:
    """Return whether a line is the heading of a section of an article: `Results`, `ABSTRACT.METHODS:`."""
    return _WHOLE.fullmatch(text) is not None or _CAPITALS.fullmatch(text) is not None


def find_headings(sentences: Iterable[tuple[str, str]]) -> list[str]:
    """Return the heading above each sentence of a document.

    Sentences come with the section that the document's file names, empty for none. Lines that are headings, and labels
    such as `RESULTS:` at the beginning of a sentence, are headings too.
    """
    headings: list[str] = []
    current = named = ""
    for text, section in sentences:
        if section != named:
            current = named = section
        if is_heading(text):
            current = text.strip(" :.")
        elif label := _LABEL.match(text):
            current = label[1]
        headings.append(current)
    return headings
