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
RARE, EXPECTED, GENERAL = 0.01, 5, 0.1
"""A word in fewer research articles than the first share is missed, and one that so many documents of the library
should have. Words in more research articles than the last share have no subject: `increase`, `women`."""
_WORD = re.compile(r"(?<![^\W_])(?:[^\W\d_]{3,}-?\d[^\W_]*|[^\W\d_]{4,})(?![^\W_])")
"""Four letters or more, or a name with digits: `BRCA1`, `SGLT-2`."""
_EVERYDAY = frozenset(
    """about after again also been being best better cause causes could does doing else ever find from gets give given
    good have help helps here into just keep kind know known less like long longer look made make makes many matter more
    most much must need needed needs never often only other over really same shall should show some someone soon still
    such take taken taking tell than that their them then there these they thing things think this those through under
    until very want well were what when where whether which while whom whose will with within without work works worse
    worth would your yours""".split()  # noqa: SIM905
)
"""Words of questions rather than of subjects."""
_BEGINNING_END = re.compile(r"(?<=\D)(?=\d)|(?<=\d)(?=\D)")


def names_subject(question: str) -> bool:
    """Return whether a question names a subject, and does not tell a case at length."""
    return 0 < len(_WORD.findall(question)) <= MAX_WORDS


def list_subject_words(question: str, analyze: Callable[[str], Sequence[str]]) -> list[str]:
    """Return the subject's words as they are written, in order. None of a question with more than MAX_WORDS words."""
    return [word for word, share in _list_shares(question, analyze) if not share]


def list_missed_words(question: str, analyze: Callable[[str], Sequence[str]], documents: int) -> list[str]:
    """Return the common words of a question that would be missed if none of so many documents had them, in order."""
    shares = _list_shares(question, analyze)
    missed: list[str] = []
    for word, share in shares:
        should_be_there = 0 < share < RARE or (share < GENERAL and share * documents >= EXPECTED)
        if should_be_there and word.lower() not in _EVERYDAY:
            missed.append(word)
    return missed


def _list_shares(question: str, analyze: Callable[[str], Sequence[str]]) -> list[tuple[str, float]]:
    """Return the different words of a question with the share of research articles that have them, 0 for few."""
    if not names_subject(question):
        return []
    articles, common = load_frequencies()
    shares: list[tuple[str, float]] = []
    for word in dict.fromkeys(_WORD.findall(question)):
        shares.append((word, min((common.get(stem, 0) / articles for stem in analyze(word)), default=1.0)))
    return shares


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
