"""METEOR (Banerjee and Lavie 2005; parameters of Lavie and Agarwal 2007: alpha 0.9, beta 3, gamma 0.5) by nltk.

`meteor[evaluate]` is the score of the package `evaluate`, which the EHR study uses: tokens of nltk's `word_tokenize`,
synonyms of WordNet 3.0. Its data is `meteor-data` in the catalogue of models. Without it, tokens are those of
`wordpunct_tokenize`, which needs no data, and the metric's name lists its stages: words in lower case, then Porter
stems, then synonyms if WordNet's files are installed.

nltk matches from the end and does not search for the alignment with the fewest crossings, so its score differs from the
Java program's. METEOR ignores the values of numbers (errata E6).

Synonyms are those of WordNet's dictionary files (manual page wndb), the same as from nltk's reader. That needs a file
missing in Debian's `wordnet-base`, and a folder of nltk's data. Nothing is downloaded.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, cast

from epicrisis.core.errors import InputError, ModelMissing
from epicrisis.models.model_files import find_model

DATA = "meteor-data"
"""Name of the data of `evaluate`'s METEOR in the catalogue of models."""
_ARCHIVE = "WNdb-3.0.tar.gz"
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


def load_meteor(wordnet: Path | None = None, home: Path | None = None) -> Meteor:
    """Return the metric with the synonyms of WordNet in a folder, or as `evaluate` computes it.

    By default it is that of `evaluate` if its data is in the program's `home`; else WordNet is searched, and the metric
    works without synonyms if it is not found. Raises ModelMissing without nltk, and InputError if the folder does not
    hold WordNet.
    """
    try:
        import nltk.translate.meteor_score  # noqa: F401
    except ImportError as error:
        raise ModelMissing('METEOR needs nltk: pip install "epicrisis[metrics]"') from error
    if wordnet is None and home is not None:
        with suppress(ModelMissing):
            folder = find_model(DATA, "lexicon", home).folder
            return Meteor(load_wordnet(folder), load_splitter(folder / "punkt"))
    dictionary = wordnet or find_wordnet()
    return Meteor(None if dictionary is None else load_wordnet(dictionary))


@dataclass(frozen=True, slots=True)
class Meteor:
    """The metric. `load_meteor` creates it."""

    wordnet: WordNet | None
    splitter: PunktSplitter | None = None
    """nltk's splitter, for the words of `word_tokenize`; None: those of `wordpunct_tokenize`."""

    @property
    def name(self) -> str:
        if self.splitter is not None:
            return "meteor[evaluate]"
        return "meteor[exact+stem+wordnet]" if self.wordnet else "meteor[exact+stem]"

    def score(self, answer: str, golds: Sequence[str]) -> float:
        """Return the best score over the right answers, 0 to 1.

        Equal texts of n tokens score 1 - 0.5 / n^3, so a single right word scores 0.5. Raises ValueError without a
        right answer.
        """
        from nltk.translate.meteor_score import meteor_score

        if not golds:
            raise ValueError("there is no right answer to compare the answer with")
        references = [self._tokenize(gold) for gold in golds]
        return float(meteor_score(references, self._tokenize(answer), wordnet=_Synsets(self.wordnet)))

    def _tokenize(self, text: str) -> list[str]:
        from nltk.tokenize import NLTKWordTokenizer, wordpunct_tokenize

        if self.splitter is None:
            return list(wordpunct_tokenize(text))
        # As `word_tokenize`, whose data cannot be given.
        tokenize = NLTKWordTokenizer().tokenize
        return [token for sentence in self.splitter.tokenize(text) for token in tokenize(sentence)]


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


class PunktSplitter(Protocol):
    """nltk's splitter of texts into sentences."""

    def tokenize(self, text: str) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class _ParameterFolder:
    """A folder as nltk opens it. Its own pointers refuse folders outside of nltk's data."""

    folder: Path

    def join(self, name: str) -> Path:
        return self.folder / name


@cache
def load_splitter(folder: Path) -> PunktSplitter:
    """Return nltk's splitter with the parameters in a folder."""
    from nltk.tokenize.punkt import PunktSentenceTokenizer, load_punkt_params

    splitter = PunktSentenceTokenizer()
    splitter._params = load_punkt_params(_ParameterFolder(folder))
    return cast(PunktSplitter, splitter)


class WordNet:
    """The four dictionaries, in memory (about 100 MB)."""

    def __init__(self, folder: Path) -> None:
        """Read the dictionaries. Raises InputError if a file is missing or invalid."""
        try:
            files = _read_files(folder)
            self._parts = {part: _Part(files, part) for part in _ENDINGS}
        except (OSError, ValueError, IndexError, KeyError, tarfile.TarError) as error:
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

    def __init__(self, files: Mapping[str, bytes], part: str) -> None:
        self._data = files[f"data.{part}"]
        self._offsets: dict[str, tuple[int, ...]] = {}
        for fields in map(str.split, _lines(files[f"index.{part}"])):
            # The last fields of a line are the offsets of the lemma's synsets.
            self._offsets[fields[0]] = tuple(map(int, fields[len(fields) - int(fields[2]) :]))
        self.irregular: dict[str, tuple[str, ...]] = {}
        for word, *forms in map(str.split, _lines(files[f"{part}.exc"])):
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


def _read_files(folder: Path) -> dict[str, bytes]:
    """Return the dictionary's files by name, from Princeton's archive where the folder has it."""
    names = [name for part in _ENDINGS for name in (f"data.{part}", f"index.{part}", f"{part}.exc")]
    files = {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    if (folder / _ARCHIVE).is_file():
        with tarfile.open(folder / _ARCHIVE) as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name in names and (stream := archive.extractfile(member)) is not None:
                    files[name] = stream.read()
    return files


def _lines(content: bytes) -> list[str]:
    """Return the lines without the licence, which is indented at the head of a file."""
    return [line for line in content.decode("ascii").splitlines() if line and not line.startswith(" ")]


@cache
def load_wordnet(folder: Path) -> WordNet:
    """Return the dictionaries of a folder, read once per process."""
    return WordNet(folder)
