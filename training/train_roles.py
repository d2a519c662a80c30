"""Train the roles of sentences: a logistic regression over the sections of abstracts and trial reports."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from examples import is_training_half
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.reading.articles import find_headings
from epicrisis.reading.roles import ROLES, SentenceRole, classify_places, describe_place, mask_numbers, name_role
from epicrisis.reading.text_classifier import TextClassifier
from epicrisis.retrieval.sentence_ranking import is_statement

C, MIN_DOCUMENTS = 2.0, 15
KEPT = 0.12
"""Share of the sentences of whole articles that train, so that abstracts count as much."""
PIBOSO: dict[str, SentenceRole] = {
    "background": "background",
    "population": "method",
    "intervention": "method",
    "study design": "method",
    "outcome": "result",
}
_LABEL = re.compile(r"[A-Z][A-Za-z ]{3,30}: ")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A sentence of a document, its place, and its role by a heading or an annotator."""

    document: str
    text: str
    index: int
    count: int
    role: SentenceRole


def load_roles(data: Path, split: str) -> dict[str, list[Labelled]]:
    """Return the sentences with a known role of each source. `split` is `train` or `validation`."""
    return {
        "PubMedQA, sections of abstracts": list(_read_pubmedqa(data, split)),
        "NICTA-PIBOSO": list(_read_piboso(data, split)),
        "Evidence Inference, sections of articles": list(_read_articles(data, split)),
    }


def read_role(one: Labelled) -> SentenceRole:
    """Return the role of a sentence by its words and place."""
    return ROLES[int(classify_places([(one.text, one.index, one.count)]).argmax())]


def _read_pubmedqa(data: Path, split: str) -> Iterator[Labelled]:
    for id_, entry in json.loads((data / "pubmedqa" / "ori_pqal.json").read_text("utf-8")).items():
        if is_training_half(id_) != (split == "train"):
            continue
        sections = [*zip(entry["LABELS"], entry["CONTEXTS"], strict=True), ("CONCLUSIONS", entry["LONG_ANSWER"])]
        sentences = [(text[start:end], label) for label, text in sections for start, end in find_sentences(text)]
        for index, (sentence, label) in enumerate(sentences):
            if role := name_role(label):
                yield Labelled(id_, sentence, index, len(sentences), role)


def _read_piboso(data: Path, split: str) -> Iterator[Labelled]:
    """Yield the sentences of NICTA-PIBOSO. Its outcomes are results, and the last of an abstract is the conclusion."""
    name = "train_clean" if split == "train" else "test_clean"
    with gzip.open(data / "sentence_roles" / f"{name}.txt.gz", "rt", encoding="utf-8") as file:
        blocks = file.read().split("###")[1:]
    for block in blocks:
        id_, *lines = block.strip().split("\n")
        rows = [line.split("\t") for line in lines if "\t" in line]
        for index, (label, text) in enumerate(rows):
            if role := PIBOSO.get(label):
                is_last = role == "result" and index == len(rows) - 1
                yield Labelled(id_, text, index, len(rows), "conclusion" if is_last else role)


def _read_articles(data: Path, split: str) -> Iterator[Labelled]:
    with gzip.open(data / "evidence_inference" / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
        for article in map(json.loads, file):
            text = article["text"]
            sentences = [text[start:end] for start, end in find_sentences(text)]
            headings = find_headings((sentence, "") for sentence in sentences)
            for index, (sentence, heading) in enumerate(zip(sentences, headings, strict=True)):
                role = name_role(heading)
                if role and len(sentence) > 30 and is_statement(sentence):
                    # The label at the beginning of a sentence would tell its role.
                    yield Labelled(article["pmcid"], _LABEL.sub("", sentence, count=1), index, len(sentences), role)


def train(data: Path) -> TextClassifier:
    """Return the classifier."""
    chance = random.Random(1)
    examples: list[Labelled] = []
    for name, labelled in load_roles(data, "train").items():
        examples += [one for one in labelled if not name.startswith("Evidence") or chance.random() < KEPT]
    vectorizer = TfidfVectorizer(
        tokenizer=mask_numbers,
        lowercase=False,
        token_pattern=None,
        ngram_range=(1, 2),
        min_df=MIN_DOCUMENTS,
        sublinear_tf=True,
    )
    words = vectorizer.fit_transform([one.text for one in examples])
    places = np.array([describe_place(one.text, one.index, one.count) for one in examples])
    model = LogisticRegression(C=C, max_iter=2000)
    model.fit(hstack([words, csr_matrix(places)]).tocsr(), [one.role for one in examples])
    terms = {str(term): int(column) for term, column in vectorizer.vocabulary_.items()}
    idf, weights = vectorizer.idf_.astype(np.float32), model.coef_.astype(np.float32)
    return TextClassifier(tuple(model.classes_), terms, idf, weights, model.intercept_.astype(np.float32))
