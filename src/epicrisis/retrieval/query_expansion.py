"""Other names for the words of a question: spellings, drug brands, lay words and abbreviations.

    names = find_other_names("Does Gleevec help in haemolytic anaemia?")
    expand(text, names)   # the question with imatinib, hemolytic and anemia behind it

The question alone is expanded, never a document.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files

from epicrisis.reading.spellings import list_spellings, spell_american

_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_MAX_WORDS = 40
"""A longer question tells a case. It has many words to be found by."""
FEW = 3
"""A name that so many of the first passages have is how the library calls it."""
_FOLDER = "names"


@dataclass(frozen=True, slots=True)
class OtherNames:
    """What a name in a question is called elsewhere."""

    name: str
    """The name as it stands in the question."""
    start: int
    others: tuple[str, ...]
    is_drug: bool = False

    @property
    def words(self) -> list[str]:
        """The words of the name as they stand in the question."""
        return _WORD.findall(self.name)

    @property
    def is_ambiguous(self) -> bool:
        """Whether the name is an abbreviation of several things, such as AS."""
        long_forms = [other for other in self.others if not is_abbreviation(other)]
        return is_abbreviation(self.name) and len({re.split(r"[ -]", name)[0] for name in long_forms}) > 1


@lru_cache(maxsize=128)
def find_other_names(question: str) -> tuple[OtherNames, ...]:
    """Return the names of a question that have others, in its order. None for a question of over 40 words."""
    words = list(_WORD.finditer(question))
    if len(words) > _MAX_WORDS:
        return ()
    dictionary = load_names()
    keys = [_fold(word[0]) for word in words]
    names: list[OtherNames] = []
    index = 0
    while index < len(words):
        length = 1
        for n in range(min(dictionary.longest, len(words) - index), 0, -1):
            asked = question[words[index].start() : words[index + n - 1].end()]
            key = tuple(keys[index : index + n])
            others = dictionary.look_up(asked, key)
            if others:
                length = n
                names.append(OtherNames(asked, words[index].start(), others, key in dictionary.drugs))
                break
        for word in words[index : index + length]:
            spellings = tuple(list_spellings(word[0])[1:])
            if spellings:
                names.append(OtherNames(word[0], word.start(), spellings))
        index += length
    there = _NameCounter([question])
    pruned = (replace(one, others=tuple(other for other in one.others if not there.count(other))) for one in names)
    return tuple(one for one in pruned if one.others)


def list_drug_words(question: str) -> list[str]:
    """Return the words of a question that are names of drugs, by the table and in order."""
    drugs = load_names().all_drugs
    return [word for word in _WORD.findall(question) if (_fold(word),) in drugs]


def expand(question: str, names: Sequence[OtherNames]) -> str:
    """Return the question with the other names behind it."""
    return " ".join((question, *dict.fromkeys(other for one in names for other in one.others)))


def rewrite(question: str, names: Sequence[OtherNames]) -> str:
    """Return the question with the first other name in the place of each, and without change where two overlap."""
    end = len(question)
    for one in sorted(names, key=lambda one: one.start, reverse=True):
        if one.start + len(one.name) <= end:
            question = question[: one.start] + one.others[0] + question[one.start + len(one.name) :]
            end = one.start
    return question


def list_absent(names: Sequence[OtherNames], texts: Sequence[str]) -> tuple[OtherNames, ...]:
    """Return the names that fewer than FEW of the texts have as they are asked, in singular or plural."""
    counter = _NameCounter(texts)
    return tuple(one for one in names if counter.count(one.name) < FEW)


def reword(question: str, texts: Sequence[str]) -> str:
    """Return the question with the names that the texts have, in the place of those that fewer than FEW have.

    An abbreviation of several things stays, for the texts may mean another one.
    """
    counter = _NameCounter(texts)
    names: list[OtherNames] = []
    for one in find_other_names(question):
        if one.is_ambiguous:
            continue
        best = max(one.others, key=counter.count)
        if counter.count(one.name) < FEW and counter.count(best) > counter.count(one.name):
            names.append(replace(one, others=(best,)))
    return rewrite(question, names)


class _NameCounter:
    """Counts the texts that have a name."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [f" {' '.join(_WORD.findall(text))} " for text in texts]
        self._lowered = [text.lower() for text in self._texts]

    def count(self, name: str) -> int:
        """Return how many texts have the name, in singular or plural. Capitals are found in capitals."""
        spaced, searched = " ".join(_WORD.findall(name)), self._texts
        if not is_abbreviation(name):
            spaced, searched = spaced.lower().removesuffix("s"), self._lowered
        return sum(any(f" {spaced}{end} " in text for end in ("", "s", "es")) for text in searched)


def describe(names: Sequence[OtherNames]) -> str:
    """Return what is searched besides, such as `imatinib for Gleevec`. Empty if there is nothing."""
    return "; ".join(f"{', '.join(one.others)} for {one.name}" for one in names)


@dataclass(frozen=True, slots=True)
class Names:
    """Names with the others of the same thing."""

    by_words: Mapping[tuple[str, ...], tuple[str, ...]]
    """The other names, by the folded words of a name in small letters."""
    by_letters: Mapping[str, tuple[str, ...]]
    """The other names of an abbreviation with two capitals, which is one only as it is written."""
    drugs: frozenset[tuple[str, ...]]
    """The folded words of the names of drugs that have others, brands among them."""
    all_drugs: frozenset[tuple[str, ...]]
    """Those of all names of drugs."""
    longest: int

    def look_up(self, asked: str, key: tuple[str, ...]) -> tuple[str, ...]:
        """Return the other names of a name as it is written, with its folded words."""
        return self.by_letters.get(asked) or self.by_letters.get(asked.removesuffix("s")) or self.by_words.get(key, ())


@cache
def load_names() -> Names:
    """Return the names of drugs and other medical words that ship with the program."""
    by_words: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
    by_letters: dict[str, dict[str, None]] = defaultdict(dict)
    drugs = list(_read_drugs())
    for asked, others in (*drugs, *_read_medical_words(), *_read_abbreviations()):
        if not others:
            continue
        if is_abbreviation(asked):
            by_letters[asked] |= dict.fromkeys(others)
        else:
            by_words[_split(asked)] |= dict.fromkeys(others)
    return Names(
        {key: tuple(others) for key, others in by_words.items()},
        {key: tuple(others) for key, others in by_letters.items()},
        frozenset(_split(asked) for asked, others in drugs if others),
        frozenset(_split(asked) for asked, _ in drugs),
        max(map(len, by_words)),
    )


def _split(name: str) -> tuple[str, ...]:
    """Return the folded words of a name."""
    return tuple(map(_fold, _WORD.findall(name)))


def is_abbreviation(name: str) -> bool:
    """Return whether a name is one word with two capitals, such as `MI` or `tPA`."""
    return " " not in name and sum(letter.isupper() for letter in name) > 1


def _read_drugs() -> Iterator[tuple[str, Sequence[str]]]:
    for line in _read_lines("drug_names.txt"):
        generic, _, brands = line.partition(":")
        names = generic.split(", ")
        for name in names:
            yield name, [other for other in names if other != name]
        for brand in brands.split():
            yield brand, names


def _read_medical_words() -> Iterator[tuple[str, Sequence[str]]]:
    for line in _read_lines("medical_words.txt"):
        lay, _, terms = line.rpartition(" = ")
        names = terms.split(", ")
        yield from _pair(names)
        for word in lay.split(", "):
            if word:
                yield word, names


def _read_abbreviations() -> Iterator[tuple[str, Sequence[str]]]:
    for line in _read_lines("abbreviations.txt"):
        yield from _pair(line.split(": ", 1))


def _pair(names: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    for name in names:
        if len(names) > 1:
            yield name, [other for other in names if other != name]


def _read_lines(name: str) -> Iterable[str]:
    lines = (files(__package__) / _FOLDER / name).read_text("utf-8").splitlines()
    return (line for line in lines if not line.startswith("#"))


def _fold(word: str) -> str:
    """Return a word without its plural, in American spelling and lower case."""
    american = spell_american(word.lower().replace("\u2019", "'"))
    return american[:-1] if american.endswith("s") and not american.endswith(("ss", "us", "is")) else american
