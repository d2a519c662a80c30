"""Statements that carry their own places: marked when written, found again when the note is whole.

The marks are characters for private use that travel in the text through all that is done to it; what is handed out has
none. Knows nothing of notes or questions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BEGIN, _KEY, _ANSWER, _ANSWERED, _END = "\ue000", "\ue001", "\ue002", "\ue003", "\ue004"
_TOKEN = re.compile(f"{_BEGIN}([^{_BEGIN}{_KEY}]*){_KEY}|[{_ANSWER}{_ANSWERED}{_END}]")


@dataclass(frozen=True, slots=True)
class FactSpan:
    """Where the fact `key` is stated, and where in that its answer stands; offsets in characters, `end` excluded."""

    key: str
    start: int
    end: int
    answer_start: int
    answer_end: int


def stated(key: str, sentence: str, answer: str) -> str:
    """The sentence, marked. Raises ValueError where the answer does not stand in it."""
    start = sentence.index(answer)
    before, after = sentence[:start], sentence[start + len(answer) :]
    return f"{_BEGIN}{key}{_KEY}{before}{_ANSWER}{answer}{_ANSWERED}{after}{_END}"


def unmarked(text: str) -> tuple[str, tuple[FactSpan, ...]]:
    """The text without marks, and what they said, in the order of the text. Marks do not stand in each other."""
    pieces: list[str] = []
    marks: list[FactSpan] = []
    length = last = 0
    key, at = "", [0, 0, 0]
    for token in _TOKEN.finditer(text):
        pieces.append(text[last : token.start()])
        length += len(pieces[-1])
        last = token.end()
        match token[0][0]:
            case "\ue000":
                key, at[0] = token[1], length
            case "\ue002":
                at[1] = length
            case "\ue003":
                at[2] = length
            case _:
                marks.append(FactSpan(key, at[0], length, at[1], at[2]))
    return "".join((*pieces, text[last:])), tuple(marks)
