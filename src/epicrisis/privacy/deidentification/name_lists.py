"""The words of names, and the lists of first and last names of many countries."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import lru_cache

_LATIN = [chr(code) for code in (*range(0xC0, 0x250), *range(0x1E00, 0x1F00))]
UPPER = f"A-Z{''.join(letter for letter in _LATIN if letter.isupper())}"
LOWER = f"a-z{''.join(letter for letter in _LATIN if letter.islower())}"
"""The Latin letters of all languages, for a set of a regular expression."""
WORD = re.compile(r"[^\W\d_]++(?:['\u2019-][^\W\d_]++)*+")
"""A word of a name, with its apostrophes and hyphens. The apostrophe U+02BC is a letter."""


@dataclass(frozen=True, slots=True)
class NameLists:
    """First and last names of many countries, in lower case."""

    male: Set[str]
    female: Set[str]
    last: Set[str]
    first: Set[str]
    english: Set[str]
    """First names in English-speaking countries."""


@lru_cache(maxsize=1)
def read_name_lists() -> NameLists:
    """Return the names of the package Faker, those in Latin letters."""
    import faker.providers.person as people

    counts: Counter[str] = Counter()
    first: set[str] = set()
    english: set[str] = set()
    last: set[str] = set()
    for module in pkgutil.iter_modules(people.__path__):
        if not module.ispkg:
            continue
        provider = importlib.import_module(f"{people.__name__}.{module.name}").Provider
        for attribute in dir(provider):
            words = tuple(_list_words(getattr(provider, attribute))) if "_name" in attribute else ()
            if attribute.startswith("last_name"):
                last.update(words)
            elif attribute.startswith("first_name"):
                first.update(words)
                english.update(words if module.name.startswith("en_") else ())
                counts.update(words if attribute.endswith("_male") else ())
                counts.subtract(words if attribute.endswith("_female") else ())
    male = (word for word, count in counts.items() if count > 0)
    female = (word for word, count in counts.items() if count < 0)
    return NameLists(frozenset(male), frozenset(female), frozenset(last), frozenset(first), frozenset(english))


def _list_words(value: object) -> Iterator[str]:
    for word in value if isinstance(value, (dict, list, tuple, set)) else ():
        if isinstance(word, str) and WORD.fullmatch(word) and len(word) > 1:
            yield word.casefold()
