"""The registered names of a patient inside other words: `hnakamura`, `NakamuraHildegard`, `nakamuras`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import permutations

from epicrisis.library.base.person_names import fold, is_common, name_words
from epicrisis.privacy.deidentification.common_words import COMMON_WORDS
from epicrisis.privacy.deidentification.eponyms import EPONYMS, ORDINARY_WORDS
from epicrisis.privacy.deidentification.name_lists import LOWER, UPPER
from epicrisis.privacy.deidentification.unlisted_names import CLINICAL_ENDING, read_english_words

TOKEN = re.compile(r"[^\W_]++(?:['\u2019\u02bc-][^\W_]++)*+")
_SIGNS = re.compile(r"['\u2019\u02bc-]")
_POSSESSIVE = re.compile(r"['\u2019\u02bc][sS]\Z")
_NO_LETTER = re.compile(r"[\W\d_]+")
_MIN_PART = 3
_SURE = 6
"""Letters of a name that is looked for inside any word. Shorter ones may be inside ordinary words."""
_MOST_REST = 2
"""Letters beside a shorter name: an initial, a plural."""


class RegisteredNames:
    """Finds the names of one patient inside words. `names` are full names, as registered."""

    def __init__(self, names: Sequence[str]) -> None:
        words = {word for name in names for word in name_words(name)}
        parts = words | {part for word in words for part in word.split("-")} | {_SIGNS.sub("", word) for word in words}
        self._initials = {part[0] for part in parts}
        ordered = sorted((part for part in parts if len(part) >= _MIN_PART), key=len, reverse=True)
        pairs = [pair for name in names for pair in permutations(name_words(name), 2)]
        self._joined = frozenset("".join(pair) for pair in pairs) - read_english_words()
        # Spelled as registered: beside other letters the same letters may be folded in another way (`ptZwingenberg`).
        spellings = {part for name in names for part in re.findall(r"[^\W\d_]+", name.casefold())}
        self._spellings = tuple(part for part in spellings if len(part) >= _SURE and not is_common(fold(part)))
        self._parts = tuple(part for part in ordered if part not in ORDINARY_WORDS or len(part) > _MIN_PART)

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each word that contains a registered name."""
        for match in TOKEN.finditer(text) if self._parts or self._joined else ():
            word = _POSSESSIVE.sub("", match[0])
            if _NO_LETTER.sub("", fold(word)) in self._joined or self._contains_name(word):
                yield match.start(), match.start() + len(word)

    def _contains_name(self, token: str) -> bool:
        if any(part in token.casefold() for part in self._spellings):
            return fold(token) not in EPONYMS
        plain = _NO_LETTER.sub("", fold(token))
        rest = plain
        names: list[str] = []
        for part in self._parts:
            if part in rest:
                rest = rest.replace(part, " ")
                names.append(part)
        if not names:
            return False
        letters = rest.replace(" ", "")
        is_common_word = all(is_common(name) or name in ORDINARY_WORDS | COMMON_WORDS for name in names)
        if plain in EPONYMS and letters:
            return False
        if len(names) > 1 and len(letters) <= _MOST_REST + 1:
            return True
        if is_common_word:
            return bool(letters) and self._is_initial(letters) and plain not in ORDINARY_WORDS | COMMON_WORDS
        if len(names[0]) >= _SURE or self._is_hump(token, names[0]):
            return True
        if len(names[0]) > _MIN_PART:
            word = token.casefold()
            is_word = word in read_english_words() or CLINICAL_ENDING.search(word)
            return len(letters) <= _MOST_REST or not is_word
        return not letters or (self._is_initial(letters) and plain not in ORDINARY_WORDS | COMMON_WORDS)

    def _is_initial(self, letters: str) -> bool:
        return len(letters) == 1 and letters in self._initials - {"s"}

    @staticmethod
    def _is_hump(token: str, name: str) -> bool:
        """Return whether the name is a part of the token that begins with a capital, or is beside digits."""
        humps = re.findall(rf"[{UPPER}]?[{LOWER}]+|[{UPPER}]+", token)
        return len(humps) > 1 and name in map(fold, humps)
