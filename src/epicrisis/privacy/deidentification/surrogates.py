"""Surrogates of identifiers: stable for one patient under a secret key, of the same shape, never a real name."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Sequence, Set
from functools import lru_cache

from epicrisis.privacy.deidentification.eponyms import CLINICAL_NOUNS, EPONYMS, ORDINARY_WORDS
from epicrisis.privacy.deidentification.name_lists import WORD, read_name_lists
from epicrisis.privacy.deidentification.spans import IdentifierKind

_SMALLEST_SHIFT, _LARGEST_SHIFT = 30, 364
"""Days that dates move at least and at most."""
_MIN_LETTERS = 4
_PLACES = """
street st avenue ave av road rd drive dr lane ln boulevard blvd court ct place pl terrace ter way circle cir parkway
pkwy square sq highway hwy trail trl alley crescent close row walk north south east west n s e w apt apartment unit
suite ste floor fl room po box p o hospital hospice medical center clinic infirmary nursing home facility rehab
rehabilitation pharmacy general memorial community regional university county the of health system school church
college
"""
_PLACE_WORDS = frozenset(_PLACES.split())
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OVER_AGE = "90+"


@lru_cache(maxsize=1)
def list_surrogate_names() -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Return the male, female and last names that surrogates are chosen from, in lower case and sorted."""
    from faker.providers.person.en_US import Provider

    taboo = EPONYMS | ORDINARY_WORDS | CLINICAL_NOUNS | _PLACE_WORDS
    pools: list[Sequence[str]] = []
    for names in (Provider.first_names_male, Provider.first_names_female, Provider.last_names):
        pool = {name.casefold() for name in names if name.isascii() and name.isalpha() and len(name) >= _MIN_LETTERS}
        pools.append(sorted(pool - taboo))
    return pools[0], pools[1], pools[2]


class Surrogates:
    """Chooses the surrogates of one patient's identifiers.

    `avoid` has the words that no surrogate may be, in lower case.
    """

    def __init__(self, key: bytes, patient: str, avoid: Set[str] = frozenset()) -> None:
        self._key = hmac.digest(key, f"patient\0{patient}".encode(), "sha256")
        self._avoid = set(avoid)
        self._names: dict[str, str] = {}
        self._originals: dict[str, str] = {}
        self._codes: dict[tuple[str, str], str] = {}
        self._used_codes: set[str] = set()
        self.pseudonym = f"person-{hmac.digest(self._key, b'pseudonym', 'sha256').hex()[:12]}"
        """An id that stands for the patient."""
        number = self._draw("dates", "", 2 * (_LARGEST_SHIFT - _SMALLEST_SHIFT + 1))
        sign = 1 if number % 2 else -1
        self.days = sign * (_SMALLEST_SHIFT + number // 2)
        """Days by which every date of the patient moves."""
        self.letters = 1 + self._draw("initials", "", len(_ALPHABET) - 1)
        """Letters by which every initial moves."""

    def avoid(self, words: Set[str]) -> None:
        """Exclude these words, in lower case, from later names."""
        self._avoid |= words

    def name(self, plain: str) -> str:
        """Return the surrogate of one word of a name, in lower case: of the same gender if the name has one."""
        if plain not in self._names:
            lists, (male, female, last) = read_name_lists(), list_surrogate_names()
            is_male, is_female = plain in lists.male, plain in lists.female
            pool = last
            if is_male != is_female:
                pool = male if is_male else female
            elif plain in lists.first and plain not in lists.last:
                pool = sorted({*male, *female})
            self._names[plain] = self._pick(pool, plain)
            self._originals[self._names[plain]] = plain
        return self._names[plain]

    def _pick(self, pool: Sequence[str], plain: str) -> str:
        start = self._draw("name", plain, len(pool))
        lists = read_name_lists()
        for step in range(len(pool)):
            choice = pool[(start + step) % len(pool)]
            if choice != plain and choice not in self._originals and choice not in self._avoid:
                return choice
        # Every name of the pool is taken: join two.
        number = len(self._originals)
        while True:
            choice = f"{pool[number % len(pool)]}-{pool[(number // len(pool) + start) % len(pool)]}"
            if choice not in self._originals and choice not in lists.last:
                return choice
            number += 1

    def initial(self, letter: str, direction: int = 1) -> str:
        """Return another letter for an initial. With direction -1 return the original letter."""
        return _ALPHABET[(_ALPHABET.index(letter) + direction * self.letters) % len(_ALPHABET)]

    def code(self, kind: IdentifierKind, original: str, is_free: Callable[[str], bool]) -> str:
        """Return the surrogate of a number, address or code. `is_free` tells whether a text may be chosen."""
        if (kind, original) in self._codes:
            return self._codes[kind, original]
        for attempt in range(1000):
            choice = self._make_code(kind, original, str(attempt))
            if choice != original and choice not in self._used_codes and is_free(choice):
                break
        self._codes[kind, original] = choice
        self._used_codes.add(choice)
        return choice

    def _make_code(self, kind: IdentifierKind, original: str, attempt: str) -> str:
        number = self._draw(kind, f"{attempt}\0{original}", 10**9)
        if kind == "email":
            return f"person{number % 100_000}@example.org"
        if kind == "url":
            return f"https://example.org/{number % 1_000_000}"
        if kind == "ip":
            return f"2001:db8::{number % 65_536:x}" if ":" in original else f"192.0.2.{number % 256}"
        if kind == "date":
            # A holiday, which no calendar moves.
            return f"holiday {number % 10_000}"
        if kind == "age":
            return _OVER_AGE if attempt == "0" else f"{_OVER_AGE}{'*' * int(attempt)}"
        if kind == "place":
            return self._replace_place(original, attempt)
        return self._replace_characters(kind, original, attempt)

    def _replace_place(self, original: str, attempt: str) -> str:
        _, _, last = list_surrogate_names()

        def replace_word(match: re.Match[str]) -> str:
            if match[0].casefold() in _PLACE_WORDS:
                return match[0]
            word = last[self._draw("place", f"{attempt}\0{match[0].casefold()}", len(last))]
            return match_case(word, match[0])

        return self._replace_characters("place", WORD.sub(replace_word, original), attempt, letters=False)

    def _replace_characters(self, kind: str, original: str, attempt: str, *, letters: bool = True) -> str:
        """Return the text with other digits and, in codes, other letters. The first digit is never 0."""
        plain = re.sub(r"[\W_]", "", original)
        digest = hashlib.shake_256(self._key + f"{kind}\0{attempt}\0{plain}".encode()).digest(len(original))
        pieces: list[str] = []
        for character, byte in zip(original, digest, strict=True):
            if character.isdecimal():
                pieces.append(str(byte % 9 + 1))
            elif letters and character.isascii() and character.isalpha():
                letter = _ALPHABET[byte % len(_ALPHABET)]
                pieces.append(letter if character.isupper() else letter.lower())
            else:
                pieces.append(character)
        return "".join(pieces)

    def _draw(self, kind: str, text: str, limit: int) -> int:
        digest = hmac.digest(self._key, f"{kind}\0{text}".encode(), "sha256")
        return int.from_bytes(digest[:8], "big") % limit


def match_case(word: str, original: str) -> str:
    """Return the word in the letter case of the original: capitals, lower case, or a first capital."""
    if len(original) > 1 and original.isupper():
        return word.upper()
    return word.lower() if original[:1].islower() else "-".join(part.capitalize() for part in word.split("-"))
