"""MIRAGE's two scorers with their faults (errata M1): its published figures come from the earlier one.

Both read only the first reply to a question. They take the text after the last `"answer_choice": "`, try patterns for a
letter from A to D in a fixed order, and return **A** if none matches. They differ for an empty list of replies: the
scorer of early 2024 scores the reply to the previous question in sorted order, the present one scores the question as
wrong. They know neither options nor gold answers, so a letter that is no option is a wrong answer.

Source: Teddy-XiongGZ/MIRAGE, `src/utils.py` at 224ebe9, `src/evaluate.py` at 224ebe9 and at ddf4a47.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from epicrisis.types import AnswerState

_FIELD = '"answer_choice": "'
_DEFAULT = "A"
# Each pattern is searched in the entire text before the next one is tried.
_PATTERNS = (
    re.compile(r"^\s*([A-D])(?:$| or| and|/|,)"),
    re.compile(r"[Oo]ption ([A-D])"),
    re.compile(r":\s*([A-D])"),
    re.compile(r'^\s*([A-D])[.":]'),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a scoring reads one reply. `choice` is a letter if the state is `answered`, else None."""

    state: AnswerState
    """`failed` for an empty reply."""
    choice: str | None = None
    by_default: bool = False
    """The reply does not state the letter; MIRAGE's scorer set it."""


def find_letter(reply: str) -> str | None:
    """Return the letter that MIRAGE's patterns find, or None if it would score A by default."""
    text = reply.rpartition(_FIELD)[2].strip()
    for pattern in _PATTERNS:
        if match := pattern.search(text):
            return match[1]
    return None


def read_like_head(replies: Iterable[Sequence[str]]) -> Iterator[Reading]:
    """Yield the readings of the present scorer. Each item holds the replies to one question."""
    for outputs in replies:
        yield _read(outputs[0]) if outputs else Reading("failed")


def read_like_early_2024(replies: Iterable[Sequence[str]]) -> Iterator[Reading]:
    """Yield the readings of the scorer of the published figures, for replies in the order of the sorted ids.

    If the very first question has no reply, MIRAGE's program fails; here the reading is `failed`.
    """
    previous: str | None = None
    for outputs in replies:
        if outputs:
            previous = outputs[0]
            yield _read(previous)
        elif previous is None:
            yield Reading("failed")
        else:
            yield Reading("answered", find_letter(previous) or _DEFAULT, by_default=True)


def _read(reply: str) -> Reading:
    letter = find_letter(reply)
    return Reading("answered", letter or _DEFAULT, by_default=letter is None)
