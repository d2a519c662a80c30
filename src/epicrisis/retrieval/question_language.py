"""The language of a question or document that is not English, by its script or its function words.

find_language("Hilft Aspirin bei einem Herzinfarkt?")   # "German"
find_document_language("Wir haben 300 Patienten nach einem Infarkt untersucht. ...")   # "German"
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

_SCRIPTS: Mapping[str, str] = {
    "CJK": "Chinese or Japanese",
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "HANGUL": "Korean",
    "THAI": "Thai",
    "CYRILLIC": "Russian or another language in Cyrillic letters",
    "GREEK": "Greek",
    "ARABIC": "Arabic or another language in its letters",
    "HEBREW": "Hebrew",
    "DEVANAGARI": "Hindi or another language in Devanagari",
}
FOUND_BY_PAIRS = frozenset(("Chinese or Japanese", "Japanese", "Korean", "Thai"))
"""Languages that the word index cuts into pairs of letters, so that the search by words reads them."""
_WORD = re.compile(r"[^\W\d_]{2,}")
_FEWEST = 2
"""Function words of another language that a question needs."""
_FEWEST_OF_DOCUMENT, _LEAST_SHARE = 4, 0.12
"""Function words of another language that a document needs, also as a share of its words. Names in English texts
(de la Cruz), titles and lists have fewer."""
_PIECES, _PIECE = 4, 400
"""Pieces of a document that are read, and their characters."""


def find_language(text: str) -> str:
    """Return the name of the language of a question, or an empty string for English and for what is unclear."""
    if script := _find_script(text):
        return script
    (first, count), (_, second_count), _ = _count_function_words(_WORD.findall(text.lower()))
    is_clear = count > second_count and count >= _FEWEST
    return first if is_clear and first != "English" else ""


def find_document_language(text: str) -> str:
    """Return the name of the language of a document, or an empty string for English and for what is unclear.

    Of a long text, most of several pieces must be in the language: an article may begin with an abstract in English.
    """
    pieces = [text]
    if len(text) > _PIECES * _PIECE:
        step = (len(text) - _PIECE) // (_PIECES - 1)
        pieces = [text[step * number : step * number + _PIECE] for number in range(_PIECES)]
    ((language, count),) = Counter(_find_language_of_piece(piece) for piece in pieces).most_common(1)
    return language if 2 * count > len(pieces) else ""


def _find_language_of_piece(text: str) -> str:
    if script := _find_script(text):
        return script
    words = _WORD.findall(text.lower())
    (first, count), _, english = _count_function_words(words)
    is_clear = count >= max(_FEWEST_OF_DOCUMENT, 2 * english + 1, _LEAST_SHARE * len(words))
    return first if is_clear and first != "English" else ""


def _find_script(text: str) -> str:
    """Return the language of most of the letters, or an empty string for Latin and other letters."""
    if text.isascii():
        return ""
    letters = [letter for letter in text if letter.isalpha()]
    scripts = Counter(unicodedata.name(letter, "").split(" ")[0] for letter in letters)
    if 2 * sum(scripts[name] for name in _SCRIPTS) <= len(letters):
        return ""
    return next(_SCRIPTS[script] for script in ("HIRAGANA", "KATAKANA", *_SCRIPTS) if scripts[script])


def _count_function_words(words: Sequence[str]) -> tuple[tuple[str, int], tuple[str, int], int]:
    """Return the two languages with the most function words among these words, their counts, and that of English."""
    counts = {language: sum(word in own for word in words) for language, own in _load_function_words().items()}
    first, second = sorted(counts.items(), key=lambda item: -item[1])[:2]
    return first, second, counts["English"]


@cache
def _load_function_words() -> Mapping[str, frozenset[str]]:
    lines = (files(__package__) / "names" / "function_words.txt").read_text("utf-8").splitlines()
    pairs = (line.split(": ", 1) for line in lines if not line.startswith("#"))
    return {language: frozenset(words.split()) for language, words in pairs}
