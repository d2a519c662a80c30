"""Train the direction of an effect: a logistic regression over the marked sentences of Evidence Inference."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from epicrisis.reading.comparisons import Comparison
from epicrisis.reading.directions import Effect, list_signs, mask_words
from epicrisis.reading.text_classifier import TextClassifier, list_terms

LABELS: dict[str, Effect] = {
    "significantly increased": "increased",
    "significantly decreased": "decreased",
    "no significant difference": "no-difference",
}
C, MIN_DOCUMENTS = 5.0, 5


@dataclass(frozen=True, slots=True)
class Marked:
    """A prompt with the passages that its annotators marked."""

    article: str
    comparison: Comparison
    texts: Sequence[str]
    direction: Effect


def load_marked(data: Path, split: str) -> list[Marked]:
    """Return the prompts with a direction; that of most annotators counts."""
    marked: list[Marked] = []
    with gzip.open(data / "evidence_inference" / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
        for article in map(json.loads, file):
            for prompt in article["prompts"]:
                notes = [note for note in prompt["annotations"] if note["end"] > note["start"]]
                label = Counter(note["label"] for note in prompt["annotations"]).most_common(1)[0][0]
                spans = sorted({(note["start"], note["end"]) for note in notes if note["label"] == label})
                comparison = Comparison(prompt["outcome"], prompt["intervention"], prompt["comparator"])
                if spans:
                    texts = dict.fromkeys(article["text"][start:end] for start, end in spans)
                    marked.append(Marked(article["pmcid"], comparison, list(texts), LABELS[label]))
    return marked


def train(marked: Sequence[Marked]) -> TextClassifier:
    """Return the classifier of single marked passages."""
    pairs = [(text, prompt) for prompt in marked for text in prompt.texts]
    vectorizer = TfidfVectorizer(
        analyzer=lambda words: list(list_terms(words)), min_df=MIN_DOCUMENTS, sublinear_tf=True
    )
    words = vectorizer.fit_transform([mask_words(text, prompt.comparison) for text, prompt in pairs])
    signs = np.array([list_signs(text, prompt.comparison) for text, prompt in pairs])
    model = LogisticRegression(C=C, max_iter=2000)
    model.fit(hstack([words, csr_matrix(signs)]).tocsr(), [prompt.direction for _, prompt in pairs])
    terms = {str(term): int(column) for term, column in vectorizer.vocabulary_.items()}
    idf, weights = vectorizer.idf_.astype(np.float32), model.coef_.astype(np.float32)
    return TextClassifier(tuple(model.classes_), terms, idf, weights, model.intercept_.astype(np.float32))
