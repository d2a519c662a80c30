"""The language of a question that is not English, by its script or its function words.

find_language("Hilft Aspirin bei einem Herzinfarkt?")   # "German"
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_SCRIPTS: Mapping[str, str] = {
    "CJK": "Chinese or Japanese",
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "HANGUL": "Korean",
    "THAI": "Thai",
    "CYRILLIC": "Russian or another language in Cyrillic letters",
    "ARABIC": "Arabic or another language in its letters",
    "HEBREW": "Hebrew",
    "DEVANAGARI": "Hindi or another language in Devanagari",
}
_WORD = re.compile(r"[^\W\d_]{2,}")
_FEWEST = 2
"""Function words of another language that a question needs."""


def find_language(text: str) -> str:
    """Return the name of the language of a question, or an empty string for English and for what is unclear."""
    letters = [letter for letter in text if letter.isalpha()]
    scripts = Counter(unicodedata.name(letter, "").split(" ")[0] for letter in letters)
    for script in ("HIRAGANA", "KATAKANA", *_SCRIPTS):
        if 2 * sum(scripts[name] for name in _SCRIPTS) > len(letters) and scripts[script]:
            return _SCRIPTS[script]
    words = [word.lower() for word in _WORD.findall(text)]
    counts = {language: sum(word in own for word in words) for language, own in _load_function_words().items()}
    first, second = sorted(counts, key=lambda language: -counts[language])[:2]
    is_clear = counts[first] > counts[second] and counts[first] >= _FEWEST
    return first if is_clear and first != "English" else ""


@cache
def _load_function_words() -> Mapping[str, frozenset[str]]:
    lines = (files(__package__) / "names" / "function_words.txt").read_text("utf-8").splitlines()
    pairs = (line.split(": ", 1) for line in lines if not line.startswith("#"))
    return {language: frozenset(words.split()) for language, words in pairs}
