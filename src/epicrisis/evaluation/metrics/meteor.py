"""METEOR (Banerjee and Lavie 2005; parameters of Lavie and Agarwal 2007: alpha 0.9, beta 3, gamma 0.5) by nltk.

What METEOR gives depends on its stages, so the metric's name says them: words are matched as they are (lower case),
then by Porter stem, then, where WordNet's files are here, as synonyms. nltk matches from the end and does not look for
the alignment with the fewest crossings, so it is not the Java program's figure. Tokens are those of nltk's
`wordpunct_tokenize` (words, and runs of punctuation), which needs no data. Knows no numbers: errata E6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from epicrisis.errors import ModelMissing
from epicrisis.evaluation.metrics.wordnet import WordNet, find_wordnet, load_wordnet


def load_meteor(wordnet: Path | None = None) -> Meteor:
    """With the synonyms of that folder (default: wherever WordNet lies, else without). Raises ModelMissing without
    nltk, InputError where the folder holds no WordNet."""
    try:
        import nltk.translate.meteor_score  # noqa: F401
    except ImportError as error:
        raise ModelMissing('METEOR needs nltk: pip install "epicrisis[metrics]"') from error
    folder = wordnet or find_wordnet()
    return Meteor(None if folder is None else load_wordnet(folder))


@dataclass(frozen=True, slots=True)
class Meteor:
    """`load_meteor` makes it."""

    wordnet: WordNet | None

    @property
    def name(self) -> str:
        return "meteor[exact+stem+wordnet]" if self.wordnet else "meteor[exact+stem]"

    def score(self, answer: str, golds: Sequence[str]) -> float:
        """0 to 1, the best over the right answers. Of equal texts it is 1 - 0.5 / n^3 for n tokens: a single right word
        has 0.5. Raises ValueError without any right answer."""
        from nltk.tokenize import wordpunct_tokenize
        from nltk.translate.meteor_score import meteor_score

        if not golds:
            raise ValueError("an answer is compared with right answers, and there is none")
        references = [wordpunct_tokenize(gold) for gold in golds]
        return float(meteor_score(references, wordpunct_tokenize(answer), wordnet=_Synsets(self.wordnet)))


@dataclass(frozen=True, slots=True)
class _Synsets:
    """What nltk asks a WordNet reader for: here all synonyms of a word are one synset."""

    wordnet: WordNet | None

    def synsets(self, word: str) -> tuple[_Synset, ...]:
        return () if self.wordnet is None else (_Synset(self.wordnet.synonyms(word)),)


@dataclass(frozen=True, slots=True)
class _Synset:
    words: frozenset[str]

    def lemmas(self) -> tuple[_Lemma, ...]:
        return tuple(_Lemma(word) for word in self.words)


@dataclass(frozen=True, slots=True)
class _Lemma:
    word: str

    def name(self) -> str:
        return self.word
