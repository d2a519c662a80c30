"""Classify short texts by their words and pairs of words, with multinomial logistic regression.

classifier = TextClassifier.from_bytes(content)
probabilities = classifier.predict([["the", "risk", "fell"]], [[0.0, 1.0]])   # (1, classes)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from os import PathLike

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TextClassifier:
    """The weights of a regression on TF-IDF (logarithmic frequencies, unit length) and on further features."""

    classes: tuple[str, ...]
    terms: Mapping[str, int]
    """The column of each word, and of each pair with a blank between."""
    idf: FloatArray
    weights: FloatArray
    """Shape `(classes, terms + further features)`."""
    intercept: FloatArray

    def predict(self, texts: Sequence[Sequence[str]], further: npt.ArrayLike) -> FloatArray:
        """Return the probability of each class for the words of each text, an array of shape `(texts, classes)`.

        `further` has the other features of each text `(texts, features)`.
        """
        counters = [Counter(self.terms[term] for term in list_terms(words) if term in self.terms) for words in texts]
        columns = list({column: None for counter in counters for column in counter})
        counts = np.array([[row[column] for column in columns] for row in counters], dtype=np.float32)
        counts = counts.reshape(len(texts), len(columns))
        values = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0) * self.idf[columns]
        norms = np.sqrt((values**2).sum(axis=1, keepdims=True))
        logits = (values / np.where(norms > 0, norms, 1)) @ self.weights[:, columns].T + self.intercept
        logits += np.asarray(further, dtype=np.float32) @ self.weights[:, len(self.idf) :].T
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities: FloatArray = (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32)
        return probabilities

    def save(self, path: str | PathLike[str]) -> None:
        """Write the weights as compressed arrays."""
        terms = "\n".join(sorted(self.terms, key=self.terms.__getitem__))
        idf, weights, intercept = (array.astype(np.float16) for array in (self.idf, self.weights, self.intercept))
        names = np.array(self.classes)
        np.savez_compressed(path, classes=names, terms=np.array(terms), idf=idf, weights=weights, intercept=intercept)

    @classmethod
    def from_bytes(cls, content: bytes) -> TextClassifier:
        """Return the classifier of a file's content. Raises ValueError for another content."""
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            terms = {term: column for column, term in enumerate(str(arrays["terms"]).split("\n"))}
            idf, weights, intercept = (arrays[name].astype(np.float32) for name in ("idf", "weights", "intercept"))
            return cls(tuple(map(str, arrays["classes"])), terms, idf, weights, intercept)


def list_terms(words: Sequence[str]) -> Iterator[str]:
    """Yield the words and the pairs of neighbouring words."""
    yield from words
    for index in range(len(words) - 1):
        yield f"{words[index]} {words[index + 1]}"
