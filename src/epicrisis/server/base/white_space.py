"""Fill the places between two passages of a document, whose white space the library does not keep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter

from epicrisis.core.types import Passage

_SENTENCE_END = re.compile(r"[.!?\u2026][\"'\u201d\u2019\u00bb)\]]{0,4}(?P<space>\s)")
_LINE_START = re.compile(r"[-*\u2022#]|\d{1,3}[.)]|[A-Za-z][\w /()-]{0,40}:")
"""The start of a list item or of a heading with a colon."""
_ITEM_NUMBER = re.compile(r"(?:^|\n)\d{1,3}[.)]\Z")
"""The number of a list item, which looks like the end of a sentence."""
_MARKS = frozenset(".!?\u2026\"'\u201d\u2019\u00bb)]")


def fill_gap(before: Passage, after: Passage) -> str:
    """Return white space of the length of the gap between two passages, empty if they touch or overlap.

    Passages end at the end of a sentence or a line. A single character is a line break if a list item or heading
    follows, if no sentence ends there, or if sentences of these passages mostly end lines. Longer gaps become a
    paragraph.
    """
    size = after.start - before.end
    if size < 1:
        return ""
    if size > 1:
        return " " * (size - 2) + "\n\n"
    if _ITEM_NUMBER.search(before.text[-6:]):
        return " "
    if _LINE_START.match(after.text):
        return "\n"
    if before.text[-1:] not in _MARKS:
        # A long sentence is cut between words.
        return " " if after.text[:1].islower() else "\n"
    spaces = [match["space"] for passage in (before, after) for match in _SENTENCE_END.finditer(passage.text)]
    return "\n" if 2 * spaces.count("\n") > len(spaces) else " "


def join_text(passages: Sequence[Passage]) -> str:
    """Return the text of a document from its passages, with valid offsets. Overlaps occur once."""
    previous, *others = sorted(passages, key=attrgetter("start", "end"))
    pieces = [previous.text]
    for passage in others:
        if passage.end > previous.end:
            pieces += fill_gap(previous, passage), passage.text[max(0, previous.end - passage.start) :]
            previous = passage
    return "".join(pieces)
