"""Features of sentences beside a question."""

from __future__ import annotations

import numpy as np

from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.articles import ArticleText
from epicrisis.reading.features import (
    QUESTION_FEATURES,
    Found,
    Matrix,
    compare_with_question,
    list_parts,
    read_article,
)

TEXTS = (["Zinc was given.", "Pain fell.", "Nobody died."], ["It rained.", "Sleep was longer."])
DOCUMENTS = [
    Found(read_article(ArticleText(texts, [""] * len(texts)), analyze_words), n) for n, texts in enumerate(TEXTS)
]


def column(rows: Matrix, name: str) -> list[float]:
    return [float(value) for value in rows[:, QUESTION_FEATURES.index(name)]]


def test_neighbours_are_of_the_same_document() -> None:
    rows = compare_with_question("Does zinc reduce pain?", DOCUMENTS, analyze_words)
    assert column(rows, "outcome covered") == [0, 1, 0, 0, 0]
    assert column(rows, "outcome before") == [0, 0, 1, 0, 0]
    assert column(rows, "outcome after") == [1, 0, 0, 0, 0]
    last = compare_with_question("Does zinc lengthen sleep?", DOCUMENTS, analyze_words)
    assert max(column(last, "question before")[:1]) == 0
    first = compare_with_question("Does rain reduce death?", DOCUMENTS, analyze_words)
    assert column(first, "outcome before")[3] == column(first, "outcome after")[2] == 0


def test_places_of_documents_and_passages_count() -> None:
    rows = compare_with_question("zinc", DOCUMENTS, analyze_words)
    assert column(rows, "document rank") == [1, 1, 1, 0.5, 0.5]
    found = [Found(DOCUMENTS[0].article, 0, [2, None, 0])]
    assert np.allclose(column(compare_with_question("zinc", found, analyze_words), "passage rank"), [1 / 3, 0, 1])


def test_outcome_leaves_out_the_words_of_the_intervention() -> None:
    parts = list_parts("What is the effect of zinc compared with placebo on serum zinc?", analyze_words)
    assert parts["intervention"] == ["zinc"]
    assert parts["outcome"] == ["serum"]
    alone = list_parts("What is the effect of zinc compared with placebo on zinc?", analyze_words)
    assert alone["outcome"] == ["zinc"], "nothing else names it"
