"""Judge how probable it is that a document answers a question, by what it has of the question's words.

    probabilities = judge_documents(question, [Found(read_article(article, analyze))], analyze)

A word weighs as much as it is rare in research articles in general, so the other documents of a library hardly count:
the same document has nearly the same probability in a small library and in a large one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise

import numpy as np

from epicrisis.reading.features import Found, Matrix, WordAnalyzer, list_parts
from epicrisis.reading.forest import Forest
from epicrisis.reading.subject_words import load_frequencies

SIMILARITY_ENCODER = "minilm-"
"""How the fingerprint of the encoder begins whose similarities `seems_answered` can read."""
_ODDS, _SIMILARITY, _CONSTANT = 0.38, 18.86, -11.04
"""The regression of `seems_answered` (benchmarks/not_in_library.py)."""
RELEVANCE_FEATURES = (
    "question in document",
    "question in window",
    "question in sentence",
    "question in two sentences",
    "question in title",
    "behind the best document",
    "rarest missing",
    "second rarest missing",
    "rarest word",
    "weight of the question",
    "words of the question",
    "pairs in document",
    "pairs in sentence",
    "intervention in document",
    "intervention in window",
    "outcome in document",
    "outcome in window",
    "outcome in sentence",
    "comparator in document",
    "has comparison",
    "has title",
    "sentences",
)


def judge_documents(question: str, documents: Sequence[Found], analyze: WordAnalyzer) -> Matrix:
    """Return the probability that each document answers the question `(documents,)`."""
    return judge_rows(describe_documents(question, documents, analyze))


def seems_answered(probability: float, similarity: float | None, *, lacks_word: bool) -> bool:
    """Return whether a library seems to answer a question. Of 100 that it answers, about five do not seem so.

    `probability` is the highest of its documents, `similarity` the cosine of the question and the nearest passage by
    SIMILARITY_ENCODER, and `lacks_word` tells that none of its documents has a word of the subject.
    """
    if similarity is None:
        return probability >= (0.05 if lacks_word else 0.01)
    odds = _ODDS * math.log(probability / (1 - probability)) + _SIMILARITY * similarity + _CONSTANT
    return 1 / (1 + math.exp(-odds)) >= (0.3 if lacks_word else 0.12)


def judge_rows(rows: Matrix) -> Matrix:
    """Return the probabilities of rows of `describe_documents`."""
    return (1 / (1 + np.exp(-load_relevance().predict(rows)))).astype(np.float32)


def describe_documents(question: str, documents: Sequence[Found], analyze: WordAnalyzer) -> Matrix:
    """Return what each document has of the question `(documents, len(RELEVANCE_FEATURES))`."""
    stems = list_parts(question, analyze)
    words = list(dict.fromkeys(itertools.chain.from_iterable(stems.values())))
    parts = {name: _Part(part, words) for name, part in stems.items()}
    pairs = {pair: weigh(pair[0]) + weigh(pair[1]) for pair in pairwise(analyze(question))}
    rows = np.array([_describe(found, words, parts, pairs) for found in documents], dtype=np.float32)
    covered = rows[:, RELEVANCE_FEATURES.index("question in document")]
    rows[:, RELEVANCE_FEATURES.index("behind the best document")] = covered.max() - covered
    return rows


def weigh(word: str) -> float:
    """Return the weight of a stem: how rare it is in research articles."""
    total, frequencies = load_frequencies()
    return math.log((total + 1) / (frequencies.get(word, 1) + 1))


class _Part:
    """Some words of a question, their columns and weights."""

    def __init__(self, part: Sequence[str], words: Sequence[str]) -> None:
        self.columns = [words.index(word) for word in part]
        self.weights = np.array([weigh(word) for word in part], dtype=np.float32)
        self.total = float(self.weights.sum()) or 1.0

    def cover(self, has: Matrix) -> Matrix:
        """Return the share of the weight of the words that each row has. `has` has one column a word."""
        return (has[:, self.columns] @ self.weights) / self.total


def _describe(
    found: Found, words: Sequence[str], parts: Mapping[str, _Part], pairs: Mapping[tuple[str, str], float]
) -> list[float]:
    """Return the features of one document. That of the other documents is 0."""
    article = found.article
    question, outcome, intervention = parts["question"], parts["outcome"], parts["intervention"]
    has = np.array([[word in count for word in words] for count in article.counts], dtype=np.float32)
    has = has.reshape(len(article.counts), len(words))
    near = has.copy()
    near[1:] = np.maximum(near[1:], has[:-1])
    near[:-1] = np.maximum(near[:-1], has[1:])
    title = np.array([[word in article.title for word in words]], dtype=np.float32)
    whole = np.vstack([has, title]).max(axis=0, keepdims=True)
    sentences = question.cover(has)
    best = has[int(sentences.argmax())] if len(has) else title[0]
    missing = sorted(question.weights * (1 - whole[0, question.columns]), reverse=True)
    pairs_of = [pairs.keys() & set(pairwise(sentence)) for sentence in article.words]
    pairs_there = set[tuple[str, str]]().union(*pairs_of)
    return [
        _highest(question.cover(whole)),
        _highest(question.cover(near)),
        _highest(sentences),
        _highest(question.cover(np.maximum(has, best))),
        _highest(question.cover(title)),
        0.0,
        float(missing[0]) if missing else 0.0,
        float(missing[1]) if len(missing) > 1 else 0.0,
        float(question.weights.max(initial=0.0)),
        question.total,
        float(len(question.columns)),
        sum(pairs[pair] for pair in pairs_there) / (sum(pairs.values()) or 1.0),
        float(max(map(len, pairs_of), default=0)),
        _highest(intervention.cover(whole)),
        _highest(intervention.cover(near)),
        _highest(outcome.cover(whole)),
        _highest(outcome.cover(near)),
        _highest(outcome.cover(has)),
        _highest(parts["comparator"].cover(whole)),
        float(bool(intervention.columns)),
        float(bool(article.title)),
        float(min(500, len(article.counts))),
    ]


def _highest(values: Matrix) -> float:
    return float(values.max(initial=0.0))


@cache
def load_relevance() -> Forest:
    return Forest.from_bytes((files(__package__) / "weights" / "relevance.npz").read_bytes())
