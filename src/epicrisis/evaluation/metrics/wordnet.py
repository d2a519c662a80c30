"""Synonyms from WordNet's dictionary files (its manual page wndb), as nltk's reader gives them.

nltk's own reader asks for a file more than Debian's `wordnet-base` has, and for the folder to be one of nltk's. Knows
the files and no metric; fetches nothing.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from epicrisis.errors import InputError

_DEBIAN = Path("/usr/share/wordnet")
_ENDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "noun": (
        ("s", ""),
        ("ses", "s"),
        ("ves", "f"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    "verb": (("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}
"""WordNet's rules of detachment, by part of speech (its manual page morphy; nltk's, which has `ves` as well)."""


def find_wordnet() -> Path | None:
    """The folder of WordNet's files: WNSEARCHDIR, a `corpora/wordnet` of nltk's data (NLTK_DATA, or in the user's home
    or below /usr/share), Debian's. `None` where there is none."""
    named = [folder for folder in os.environ.get("NLTK_DATA", "").split(os.pathsep) if folder]
    nltk_data = [*map(Path, named), Path.home() / "nltk_data", Path("/usr/share/nltk_data")]
    folders = [folder / "corpora" / "wordnet" for folder in nltk_data]
    if own := os.environ.get("WNSEARCHDIR"):
        folders.insert(0, Path(own))
    return next((folder for folder in [*folders, _DEBIAN] if (folder / "data.noun").is_file()), None)


class WordNet:
    """All of the four dictionaries in memory, about 100 MB."""

    def __init__(self, folder: Path) -> None:
        """Raises InputError where a file is not there or is no dictionary."""
        try:
            self._parts = {part: _Part(folder, part) for part in _ENDINGS}
        except (OSError, ValueError, IndexError) as error:
            raise InputError(
                f"{folder} does not hold WordNet's dictionary ({type(error).__name__}): install Debian's wordnet-base, "
                "or name its folder in WNSEARCHDIR"
            ) from error

    def synonyms(self, word: str) -> frozenset[str]:
        """The single words of every sense of the word and of its base forms, in their own case; of no sense none."""
        found = [self._parts[part].synonyms(form) for part in _ENDINGS for form in self._forms(word.lower(), part)]
        return frozenset().union(*found)

    def _forms(self, word: str, part: str) -> tuple[str, ...]:
        irregular = self._parts[part].irregular.get(word)
        if irregular is not None:
            return (word, *irregular)
        return (word, *(word[: -len(old)] + new for old, new in _ENDINGS[part] if word.endswith(old)))


class _Part:
    """The dictionary of one part of speech."""

    def __init__(self, folder: Path, part: str) -> None:
        self._data = (folder / f"data.{part}").read_bytes()
        self._offsets = dict(_senses(line) for line in _lines(folder / f"index.{part}"))
        pairs = (line.split() for line in _lines(folder / f"{part}.exc"))
        self.irregular = {words[0]: tuple(words[1:]) for words in pairs}

    def synonyms(self, lemma: str) -> frozenset[str]:
        return frozenset(word for offset in self._offsets.get(lemma, ()) for word in self._words(offset))

    def _words(self, offset: int) -> tuple[str, ...]:
        """Single words of the synset whose line begins at this byte, without the marks of an adjective's place."""
        fields = self._data[offset : self._data.index(b"\n", offset)].decode("ascii").split()
        words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        return tuple(word.partition("(")[0] for word in words if "_" not in word)


def _lines(path: Path) -> list[str]:
    """Those that are no licence, which stands indented at the head."""
    return [line for line in path.read_text("ascii").splitlines() if line and not line.startswith(" ")]


def _senses(line: str) -> tuple[str, tuple[int, ...]]:
    """A line of an index: the lemma and the offsets of its synsets, which are the last fields."""
    fields = line.split()
    return fields[0], tuple(int(offset) for offset in fields[len(fields) - int(fields[2]) :])


@cache
def load_wordnet(folder: Path) -> WordNet:
    """Read once a process."""
    return WordNet(folder)
