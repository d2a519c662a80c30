"""METEOR (Banerjee and Lavie 2005; parameters of Lavie and Agarwal 2007: alpha 0.9, beta 3, gamma 0.5) by nltk.

The score depends on the matching stages, so the metric's name lists them: words in lower case, then Porter stems, then
synonyms if WordNet's files are installed. nltk matches from the end and does not search for the alignment with the
fewest crossings, so its score differs from the Java program's. Tokens are those of nltk's `wordpunct_tokenize` (words,
and runs of punctuation), which needs no data. METEOR ignores the values of numbers (errata E6).

Synonyms are those of WordNet's dictionary files (manual page wndb), the same as from nltk's reader. That needs a file
missing in Debian's `wordnet-base`, and a folder of nltk's data. Nothing is downloaded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from epicrisis.errors import InputError, ModelMissing

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
"""WordNet's rules of detachment by part of speech (manual page morphy), with nltk's rule for `ves`."""


def load_meteor(wordnet: Path | None = None) -> Meteor:
    """Return the metric with the synonyms of WordNet in a folder.

    By default WordNet is searched, and the metric works without synonyms if it is not found. Raises ModelMissing
    without nltk, and InputError if the folder does not hold WordNet.
    """
    try:
        import nltk.translate.meteor_score  # noqa: F401
    except ImportError as error:
        raise ModelMissing('METEOR needs nltk: pip install "epicrisis[metrics]"') from error
    folder = wordnet or find_wordnet()
    return Meteor(None if folder is None else load_wordnet(folder))


@dataclass(frozen=True, slots=True)
class Meteor:
    """The metric. `load_meteor` creates it."""

    wordnet: WordNet | None

    @property
    def name(self) -> str:
        return "meteor[exact+stem+wordnet]" if self.wordnet else "meteor[exact+stem]"

    def score(self, answer: str, golds: Sequence[str]) -> float:
        """Return the best score over the right answers, 0 to 1.

        Equal texts of n tokens score 1 - 0.5 / n^3, so a single right word scores 0.5. Raises ValueError without a
        right answer.
        """
        from nltk.tokenize import wordpunct_tokenize
        from nltk.translate.meteor_score import meteor_score

        if not golds:
            raise ValueError("there is no right answer to compare the answer with")
        references = list(map(wordpunct_tokenize, golds))
        return float(meteor_score(references, wordpunct_tokenize(answer), wordnet=_Synsets(self.wordnet)))


@dataclass(frozen=True, slots=True)
class _Synsets:
    """The interface of a WordNet reader for nltk. All synonyms of a word form one synset."""

    wordnet: WordNet | None

    def synsets(self, word: str) -> tuple[_Synset, ...]:
        return () if self.wordnet is None else (_Synset(self.wordnet.synonyms(word)),)


@dataclass(frozen=True, slots=True)
class _Synset:
    words: frozenset[str]

    def lemmas(self) -> tuple[_Lemma, ...]:
        return tuple(map(_Lemma, self.words))


@dataclass(frozen=True, slots=True)
class _Lemma:
    word: str

    def name(self) -> str:
        return self.word


def find_wordnet() -> Path | None:
    """Return the folder of WordNet's files, or None.

    Searches WNSEARCHDIR, then `corpora/wordnet` in nltk's data (NLTK_DATA, the user's home, /usr/share), then Debian's
    folder.
    """
    configured = filter(None, os.environ.get("NLTK_DATA", "").split(os.pathsep))
    nltk_data = [*map(Path, configured), Path.home() / "nltk_data", Path("/usr/share/nltk_data")]
    folders = [*(folder / "corpora" / "wordnet" for folder in nltk_data), _DEBIAN]
    if override := os.environ.get("WNSEARCHDIR"):
        folders.insert(0, Path(override))
    for folder in folders:
        if (folder / "data.noun").is_file():
            return folder
    return None


class WordNet:
    """The four dictionaries, in memory (about 100 MB)."""

    def __init__(self, folder: Path) -> None:
        """Read the dictionaries. Raises InputError if a file is missing or invalid."""
        try:
            self._parts = {part: _Part(folder, part) for part in _ENDINGS}
        except (OSError, ValueError, IndexError) as error:
            raise InputError(
                f"{folder} does not hold WordNet's dictionary ({type(error).__name__}): install Debian's wordnet-base, "
                "or set WNSEARCHDIR to its folder"
            ) from error

    def synonyms(self, word: str) -> frozenset[str]:
        """Return the single words of all senses of the word and of its base forms, in their own case."""
        synonyms: set[str] = set()
        word = word.lower()
        for name, part in self._parts.items():
            forms = [word]
            if word in part.irregular:
                forms += part.irregular[word]
            else:
                for old, new in _ENDINGS[name]:
                    if word.endswith(old):
                        forms.append(word.removesuffix(old) + new)
            for form in forms:
                synonyms |= part.synonyms(form)
        return frozenset(synonyms)


class _Part:
    """The dictionary of one part of speech."""

    def __init__(self, folder: Path, part: str) -> None:
        self._data = (folder / f"data.{part}").read_bytes()
        self._offsets: dict[str, tuple[int, ...]] = {}
        for fields in map(str.split, _lines(folder / f"index.{part}")):
            # The last fields of a line are the offsets of the lemma's synsets.
            self._offsets[fields[0]] = tuple(map(int, fields[len(fields) - int(fields[2]) :]))
        self.irregular: dict[str, tuple[str, ...]] = {}
        for word, *forms in map(str.split, _lines(folder / f"{part}.exc")):
            self.irregular[word] = tuple(forms)

    def synonyms(self, lemma: str) -> set[str]:
        """Return the single words of all synsets of a lemma, without markers of an adjective's position."""
        synonyms: set[str] = set()
        for offset in self._offsets.get(lemma, ()):
            fields = self._data[offset : self._data.index(b"\n", offset)].decode("ascii").split()
            for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2]:
                if "_" not in word:
                    synonyms.add(word.partition("(")[0])
        return synonyms


def _lines(path: Path) -> list[str]:
    """Return the lines without the licence, which is indented at the head of a file."""
    return [line for line in path.read_text("ascii").splitlines() if line and not line.startswith(" ")]


@cache
def load_wordnet(folder: Path) -> WordNet:
    """Return the dictionaries of a folder, read once per process."""
    return WordNet(folder)
