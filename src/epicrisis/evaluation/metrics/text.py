"""Short answers word by word, as SQuAD judges them (Rajpurkar et al. 2016, section 6.1; its script 1.1).

Knows no numbers and no meaning: `five` and `5` differ, and so do `hypertension` and `high blood pressure`.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, then without articles, words apart by one space.

    Punctuation goes without a trace: `0.5` and `05` become the same, which is why numbers have a metric of their own.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """1 where the answer, normalised, is one of the right ones, else 0. Raises ValueError without any."""
    return max(float(normalize_answer(answer) == normalize_answer(gold)) for gold in _some(golds))


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """The harmonic mean of the precision and recall of words, each counted as often as it stands; the best over the
    right answers, 0 to 1. Of two texts without a word, articles aside, it is 0, as in SQuAD's script 1.1. Raises
    ValueError without any right answer."""
    return max(_f1(normalize_answer(answer).split(), normalize_answer(gold).split()) for gold in _some(golds))


def _f1(answer: Sequence[str], gold: Sequence[str]) -> float:
    shared = sum((Counter(answer) & Counter(gold)).values())
    return 2 * shared / (len(answer) + len(gold)) if shared else 0.0


def _some(golds: Sequence[str]) -> Sequence[str]:
    if not golds:
        raise ValueError("an answer is compared with right answers, and there is none")
    return golds
