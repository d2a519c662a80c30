"""Find the words of a question that name its subject: those that are not common in research articles.

list_subject_words("Does semaglutide reduce mortality?", analyze)   # ["semaglutide"]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files

MAX_WORDS = 40
"""A longer question tells a case, with words that no answer needs."""
_WORD = re.compile(r"[^\W\d_]{4,}")
_SPELLINGS = (("ae", "e"), ("oe", "e"), ("our", "or"), ("isa", "iza"), ("ise", "ize"), ("ph", "f"), ("lys", "lyz"))
"""British and American."""


def list_subject_words(question: str, analyze: Callable[[str], Sequence[str]]) -> list[str]:
    """Return the subject's words as they are written, in order. None of a question with more than MAX_WORDS words."""
    words = _WORD.findall(question)
    if len(words) > MAX_WORDS:
        return []
    common = _load_common_words()
    return list(dict.fromkeys(word for word in words if any(stem not in common for stem in analyze(word))))


def list_spellings(word: str) -> list[str]:
    """Return a word with the British and American spellings of each of its places."""
    lower = word.lower()
    spellings = dict.fromkeys((word,))
    for pair in _SPELLINGS:
        for one, other in (pair, pair[::-1]):
            for place in range(len(lower)):
                if lower.startswith(one, place):
                    spellings[lower[:place] + other + lower[place + len(one) :]] = None
    return list(spellings)


@cache
def _load_common_words() -> frozenset[str]:
    text = (files(__package__) / "weights" / "common_words.txt").read_text("utf-8")
    return frozenset(text.split())
