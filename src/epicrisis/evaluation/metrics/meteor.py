"""METEOR (Banerjee and Lavie 2005; parameters of Lavie and Agarwal 2007: alpha 0.9, beta 3, gamma 0.5) by nltk.

The score depends on the matching stages, so the metric's name lists them: words in lower case, then Porter stems, then
synonyms if WordNet's files are installed. nltk matches from the end and does not search for the alignment with the
fewest crossings, so its score differs from the Java program's. Tokens are those of nltk's `wordpunct_tokenize` (words,
and runs of punctuation), which needs no data. METEOR ignores the values of numbers (errata E6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from epicrisis.errors import ModelMissing
from epicrisis.evaluation.metrics.wordnet import WordNet, find_wordnet, load_wordnet


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
