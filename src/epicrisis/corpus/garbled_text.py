"""Recognise text of a PDF file whose fonts do not say which letters their shapes are.

Such text has the numbers of shapes in the place of letters: `RU WKH SDWLHQWV`, signs of the private area, or control
characters. A page counts only if this is sure.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

MIN_WORDS = 15
_MAX_FOREIGN = 0.2
"""The largest share of signs that no text has."""
_MIN_COMMON = 0.01
"""The least share of common words in text: reference lists and tables of authors have more."""
_READABLE_COMMON = 0.05
_DECODED_COMMON = 0.1
"""The share of common words that shows that another alphabet is the right one."""
_MIN_DECODED, _MIN_DECODED_RARELY = 4, 7
"""Different common words in a decoded text, by a usual or another distance. A table of numbers has some by chance."""
_MAX_CAPITALS = 0.8
_VOWELS = (0.15, 0.65)
"""The smallest and largest share of vowels among the letters of text in European languages."""
_MIN_SPOKEN, _MAX_ODD = 30, 0.2
"""Different words that are not in capitals, and the largest share of those that cannot be spoken."""
_SPOKEN_WORD = re.compile(r"(?<![^\W_])[A-Z]?[a-z]{3,30}(?![^\W_])")
_ODD_WORD = re.compile(r"[bcdfghjklmnpqrstvwxz]{4}|[aeiou]{3}")
_FIRST_SYMBOL, _LAST_SYMBOL = "\u00a1", "\u00bf"
"""Signs between the letters of Latin-1, such as ¶ and ¿, of which a text has few."""
_WORD = re.compile(r"[^\W\d_]{2,}")
_COMMON = re.compile(
    r"(?:the|of|and|in|to|is|was|for|with|on|at|by|as|from|that|we|were|are|or|an|not|this|no|be"
    r"|der|die|das|und|von|den|mit|ist|ein|eine|zu|im|bei|nicht|auf|des|le|la|les|de|du|et|un|une|est|dans|pour|par"
    r"|el|los|las|que|en|del|por|con|una|se|il|di|che|per|non|della|dei|os|da|do|em|para|com|não"
    r"|het|van|een|voor|op|och|att|som|av|til|og|det|på)"
)
_SHIFTS = (28, 29, 30, 31, -1, 1)
"""Usual distances between the numbers of shapes and letters: 29 in fonts of Windows, 31 in others."""
_RARE_SHIFTS = tuple(distance for distance in range(-40, 41) if distance and distance not in _SHIFTS)


def is_garbled(text: str, unmapped: float = 0.0) -> bool:
    """Return whether the letters of a page are surely not those that its reader sees.

    `unmapped` is the share of its characters without a letter in their font. Some of them are right all the same.
    """
    signs = [sign for sign in text if not sign.isspace()]
    if not signs:
        return False
    foreign = sum(
        unicodedata.category(sign) in ("Co", "Cn", "Cs", "Cc") or sign == "�" or _FIRST_SYMBOL <= sign <= _LAST_SYMBOL
        for sign in signs
        if sign != "\x02"
    )
    if len(signs) >= MIN_WORDS and foreign > _MAX_FOREIGN * len(signs):
        return True
    if unmapped > _MAX_FOREIGN and _share_common(text) < _READABLE_COMMON:
        return True
    # A shifted text has signs among its letters, so words are what stands between blanks.
    pieces = text.split()
    if len(pieces) < MIN_WORDS or _share_common(text) >= _MIN_COMMON:
        return False
    if any(_is_readable(_shift(text, distance), _MIN_DECODED) for distance in _SHIFTS):
        return True
    if any(_is_readable(_shift(text, distance), _MIN_DECODED_RARELY) for distance in _RARE_SHIFTS):
        return True
    return _has_no_language(text) or _has_odd_words(text)


def _share_common(text: str) -> float:
    """Return the share of common words of European languages."""
    words = _WORD.findall(text.lower())
    return sum(_COMMON.fullmatch(word) is not None for word in words) / len(words) if words else 0.0


def _is_readable(text: str, least: int) -> bool:
    """Return whether a text has so many different common words, and enough of them."""
    words = _WORD.findall(text.lower())
    common = [word for word in words if _COMMON.fullmatch(word)]
    return len(set(common)) >= least and len(common) >= _DECODED_COMMON * len(words)


def _shift(text: str, distance: int) -> str:
    """Return a text with each ASCII sign that many places further, and blanks for what is before the first sign."""
    return text.translate({code: chr(max(32, code + distance)) for code in range(1, 0x7F) if not chr(code).isspace()})


def _has_odd_words(text: str) -> bool:
    """Return whether many words have four consonants or three vowels in a row, as if letters were exchanged."""
    words = {word.lower() for word in _SPOKEN_WORD.findall(unicodedata.normalize("NFKD", text))}
    odd = sum(_ODD_WORD.search(word) is not None for word in words)
    return len(words) >= _MIN_SPOKEN and odd > _MAX_ODD * len(words)


def _has_no_language(text: str) -> bool:
    """Return whether long Latin text has the wrong share of vowels, and words no language would form."""
    letters = [sign for sign in unicodedata.normalize("NFKD", text).lower() if "a" <= sign <= "z"]
    if len(letters) < 200 or 2 * len(letters) < sum(not sign.isspace() for sign in text):
        return False
    if sum(sign.isupper() for sign in text) > _MAX_CAPITALS * len(letters):
        # Sequences of proteins, and tables of abbreviations.
        return False
    counts = Counter(letters)
    vowels = sum(counts[vowel] for vowel in "aeiouy") / len(letters)
    return not _VOWELS[0] <= vowels <= _VOWELS[1]
