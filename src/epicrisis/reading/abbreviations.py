"""Find the abbreviations that a document explains, and spell them out in its sentences.

names = find_abbreviations("Peak inspiratory pressure (PIP) was recorded.")   # {"PIP": "Peak inspiratory pressure"}
spell_out("PIP was lower.", names)                                           # "Peak inspiratory pressure was lower."
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_SHORT = re.compile(r"\(([A-Za-z][A-Za-z0-9-]{1,7})\)")
_WORD = re.compile(r"[A-Za-z0-9]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_REACH = 120
"""Characters before an abbreviation in which its long form is."""


def find_abbreviations(text: str) -> dict[str, str]:
    """Return the long form of each abbreviation in parentheses whose letters begin the words before it."""
    names: dict[str, str] = {}
    for match in _SHORT.finditer(text):
        letters = [letter.lower() for letter in match[1] if letter.isalpha()]
        if sum(letter.isupper() for letter in match[1]) < 2:
            continue
        before = text[max(0, match.start() - _REACH) : match.start()]
        words = list(_WORD.finditer(before))[-len(letters) :]
        if len(words) == len(letters) and [word[0][0].lower() for word in words] == letters:
            names.setdefault(match[1], before[words[0].start() :].strip())
    return names


def spell_out(text: str, names: Mapping[str, str]) -> str:
    """Return a text with the long form in the place of each abbreviation, unless it has the long form already."""
    lower = text.lower()
    return _NAME.sub(
        lambda match: names[match[0]] if match[0] in names and names[match[0]].lower() not in lower else match[0], text
    )
