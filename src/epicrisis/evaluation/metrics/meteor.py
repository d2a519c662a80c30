"""METEOR (Banerjee and Lavie 2005; parameters of Lavie and Agarwal 2007: alpha 0.9, beta 3, gamma 0.5) by nltk.

`meteor[evaluate]` is the score of the package `evaluate`, which the EHR study uses: tokens of nltk's `word_tokenize`,
synonyms of WordNet 3.0. Its data is `meteor-data` in the catalogue of models. Without it, tokens are those of
`wordpunct_tokenize`, which needs no data, and the metric's name lists its stages: words in lower case, then Porter
stems, then synonyms if WordNet's files are installed.

nltk matches from the end and does not search for the alignment with the fewest crossings, so its score differs from the
Java program's. METEOR ignores the values of numbers (errata E6).

Synonyms are those of nltk's reader of WordNet, which is given the dictionary files of any folder, and of Princeton's
archive. Nothing is downloaded.
"""

from __future__ import annotations

import os
import tarfile
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol, cast

from epicrisis.core.errors import InputError, ModelMissing
from epicrisis.models.model_files import find_model

DATA = "meteor-data"
"""Name of the data of `evaluate`'s METEOR in the catalogue of models."""
_ARCHIVE = "WNdb-3.0.tar.gz"
_DEBIAN = Path("/usr/share/wordnet")
_FILES = tuple(
    name.format(part) for part in ("noun", "verb", "adj", "adv") for name in ("data.{}", "index.{}", "{}.exc")
)
_LEXICOGRAPHER_FILES = 45


class WordNet(Protocol):
    """nltk's reader of WordNet."""

    def synsets(self, word: str) -> Sequence[Any]: ...


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
        return float(meteor_score(references, self._tokenize(answer), wordnet=self.wordnet or _NoSynonyms()))

    def _tokenize(self, text: str) -> list[str]:
        from nltk.tokenize import NLTKWordTokenizer, wordpunct_tokenize

        if self.splitter is None:
            return list(wordpunct_tokenize(text))
        # As `word_tokenize`, whose data cannot be given.
        tokenize = NLTKWordTokenizer().tokenize
        return [token for sentence in self.splitter.tokenize(text) for token in tokenize(sentence)]


class _NoSynonyms:
    """A WordNet without words."""

    def synsets(self, word: str) -> Sequence[Any]:
        return ()


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


@cache
def load_wordnet(folder: Path) -> WordNet:
    """Return the dictionaries of a folder, read once per process. Raises InputError if a file is missing or invalid."""
    from nltk.corpus.reader.wordnet import WordNetCorpusReader, WordNetError
    from nltk.data import PathPointer, SeekableUnicodeStreamReader

    class Folder(PathPointer):  # type: ignore[misc]
        """A root that is not below nltk's data."""

        join = open = file_size = None

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, file: str) -> SeekableUnicodeStreamReader:
            # Debian's `wordnet-base` has no `lexnames`, and synonyms need none.
            content = (
                files[file] if file != "lexnames" else b"".join(b"%d x 0\n" % i for i in range(_LEXICOGRAPHER_FILES))
            )
            return SeekableUnicodeStreamReader(BytesIO(content), "utf-8")

        def map_wn(self, version: str = "wordnet") -> None:
            """Leave out the mapping between versions, which needs another WordNet."""

    try:
        files = _read_files(folder)
        with warnings.catch_warnings():
            # It warns that it has no other languages.
            warnings.simplefilter("ignore")
            return cast(WordNet, Reader(Folder(), None))
    except (OSError, ValueError, LookupError, StopIteration, WordNetError, tarfile.TarError) as error:
        raise InputError(
            f"{folder} does not hold WordNet's dictionary ({type(error).__name__}): install Debian's wordnet-base, "
            "or set WNSEARCHDIR to its folder"
        ) from error


def _read_files(folder: Path) -> dict[str, bytes]:
    """Return the dictionary's files by name, from Princeton's archive where the folder has it."""
    files = {name: (folder / name).read_bytes() for name in _FILES if (folder / name).is_file()}
    if (folder / _ARCHIVE).is_file():
        with tarfile.open(folder / _ARCHIVE) as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name in _FILES and (stream := archive.extractfile(member)) is not None:
                    files[name] = stream.read()
    return files
