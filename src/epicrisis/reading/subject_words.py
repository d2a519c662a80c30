"""Find the words of a question that name its subject: those that are not common in research articles.

list_subject_words("Does semaglutide reduce mortality?", analyze)   # ["semaglutide"]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files

from epicrisis.reading.spellings import list_spellings

MAX_WORDS = 40
"""A longer question tells a case, with words that no answer needs."""
_WORD = re.compile(r"(?<![^\W_])(?:[^\W\d_]{3,}-?\d[^\W_]*|[^\W\d_]{4,})(?![^\W_])")
"""Four letters or more, or a name with digits: `BRCA1`, `SGLT-2`."""
_BEGINNING_END = re.compile(r"(?<=\D)(?=\d)|(?<=\d)(?=\D)")


def names_subject(question: str) -> bool:
    """Return whether a question names a subject, and does not tell a case at length."""
    return 0 < len(_WORD.findall(question)) <= MAX_WORDS


def list_subject_words(question: str, analyze: Callable[[str], Sequence[str]]) -> list[str]:
    """Return the subject's words as they are written, in order. None of a question with more than MAX_WORDS words."""
    if not names_subject(question):
        return []
    words = _WORD.findall(question)
    _, common = load_frequencies()
    return list(dict.fromkeys(word for word in words if any(stem not in common for stem in analyze(word))))


def list_forms(word: str) -> list[str]:
    """Return the forms in which a text may have a word: its spellings, or the beginnings of a name with digits.

    `SGLT-2i` may stand there as `SGLT2` or `SGLT`.
    """
    name = word.replace("-", "")
    ends = [match.start() for match in _BEGINNING_END.finditer(name)]
    return [name, *(name[:end] for end in reversed(ends))] if ends else list_spellings(word)


@cache
def load_frequencies() -> tuple[int, Mapping[str, int]]:
    """Return a number of research articles, and how many of them have each of the common stems."""
    first, *lines = (files(__package__) / "weights" / "common_words.txt").read_text("utf-8").splitlines()
    pairs = (line.split() for line in lines)
    return int(first), {word: int(count) for word, count in pairs}
