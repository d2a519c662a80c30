"""Exact match and token F1 of short answers, as in SQuAD (Rajpurkar et al. 2016, section 6.1; its script 1.1).

They compare words, not numbers or meanings: `five` and `5` differ, and so do `hypertension` and `high blood pressure`.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Return the text in lower case, without ASCII punctuation and articles, with single spaces between words.

    Punctuation is deleted: `0.5` and `05` become the same. Numbers have a metric of their own for this reason.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """Return 1 if the normalized answer is one of the right answers, otherwise 0. Raises ValueError without any."""
    return float(normalize_answer(answer) in map(normalize_answer, _require(golds)))


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """Return the best F1 of words over the right answers, 0 to 1; repeated words count repeatedly.

    Two texts without words have F1 0, as in SQuAD's script 1.1. Raises ValueError without a right answer.
    """
    words = Counter(normalize_answer(answer).split())
    best = 0.0
    for gold in _require(golds):
        gold_words = Counter(normalize_answer(gold).split())
        if shared := (words & gold_words).total():
            best = max(best, 2 * shared / (words.total() + gold_words.total()))
    return best


def _require(golds: Sequence[str]) -> Sequence[str]:
    if not golds:
        raise ValueError("there is no right answer to compare the answer with")
    return golds
