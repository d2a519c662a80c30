"""How probable it is that a document answers a question."""

from __future__ import annotations

import pytest

from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.articles import ArticleText
from epicrisis.reading.features import Found, read_article
from epicrisis.reading.relevance import (
    RELEVANCE_FEATURES,
    describe_documents,
    judge_documents,
    seems_answered,
    weigh,
)

QUESTION = "What is the effect of zinc compared with placebo on the duration of diarrhoea?"
ZINC = (
    "Diarrhoea is a common illness of children. We compared zinc with placebo in 120 children with acute diarrhoea. "
    "The duration of diarrhoea was 3.1 days with zinc and 4.2 days with placebo (p = 0.01). Zinc shortens diarrhoea."
)
ASTHMA = (
    "Asthma is a common illness of children. We compared budesonide with placebo in 120 children with asthma. "
    "The rate of attacks was 0.4 with budesonide and 0.9 with placebo (p = 0.01). Budesonide prevents attacks."
)
IRON = ZINC.replace("zinc", "iron").replace("Zinc", "Iron")


def read(text: str, title: str = "") -> Found:
    sentences = [text[start:end] for start, end in find_sentences(text)]
    return Found(read_article(ArticleText(sentences, [""] * len(sentences)), analyze_words, title))


def test_document_on_the_question_is_probable_and_another_is_not() -> None:
    right, other_drug, other = judge_documents(QUESTION, [read(ZINC), read(IRON), read(ASTHMA)], analyze_words)
    assert right > 0.8
    assert other < 0.05
    assert other < other_drug < right


@pytest.mark.parametrize("beside", [[], [ASTHMA], [ASTHMA] * 7])
def test_probability_does_not_depend_on_the_other_documents(beside: list[str]) -> None:
    alone = judge_documents(QUESTION, [read(ZINC)], analyze_words)[0]
    together = judge_documents(QUESTION, [read(ZINC), *map(read, beside)], analyze_words)[0]
    assert together == pytest.approx(alone)


def test_document_is_seen_beside_the_best() -> None:
    rows = describe_documents(QUESTION, [read(ASTHMA), read(ZINC)], analyze_words)
    covered, behind = (
        rows[:, RELEVANCE_FEATURES.index(name)] for name in ("question in document", "behind the best document")
    )
    assert behind.tolist() == pytest.approx([covered[1] - covered[0], 0])
    assert behind[0] > 0.2


def test_rare_word_weighs_more() -> None:
    assert weigh("xylophon") > weigh("zinc") > weigh("placebo") > weigh("patient") > 0


@pytest.mark.parametrize(
    ("probability", "similarity", "lacks_word", "expected"),
    [
        (0.005, None, False, False),
        (0.02, None, False, True),
        (0.02, None, True, False),
        (0.06, None, True, True),
        (0.02, 0.5, False, False),
        (0.02, 0.6, False, True),
        (0.02, 0.6, True, False),
        (0.02, 0.65, True, True),
        (0.9, 0.4, False, False),
        (0.9, 0.45, False, True),
    ],
)
def test_library_answers_by_words_and_meaning(
    probability: float, similarity: float | None, lacks_word: bool, expected: bool
) -> None:
    assert seems_answered(probability, similarity, lacks_word=lacks_word) is expected


def test_features_say_what_is_there() -> None:
    (row,) = describe_documents(QUESTION, [read("Zinc shortened diarrhoea.", title="Zinc")], analyze_words)
    features = dict(zip(RELEVANCE_FEATURES, row.tolist(), strict=True))
    assert features["question in document"] == features["question in sentence"] == features["question in window"]
    assert 0 < features["question in title"] < features["question in sentence"] < 1
    assert features["intervention in document"] == 1
    assert features["comparator in document"] == 0
    missing = set(analyze_words(QUESTION)) - set(analyze_words("Zinc shortened diarrhoea."))
    assert features["rarest missing"] == pytest.approx(max(map(weigh, missing)))
    assert features["sentences"] == 1


def test_window_reaches_a_sentence_before_and_after() -> None:
    lines = ["Zinc was given.", "Placebo was not.", "Diarrhoea ended.", "Nothing else happened."]
    (row,) = describe_documents("zinc placebo diarrhoea", [read(" ".join(lines))], analyze_words)
    features = dict(zip(RELEVANCE_FEATURES, row.tolist(), strict=True))
    assert features["question in window"] == 1
    assert features["question in two sentences"] < 1
    (row,) = describe_documents("zinc diarrhoea nothing", [read(" ".join(lines))], analyze_words)
    assert dict(zip(RELEVANCE_FEATURES, row.tolist(), strict=True))["question in window"] < 1


def test_document_without_sentences_has_its_title() -> None:
    (empty,) = describe_documents(QUESTION, [read("", title="Zinc")], analyze_words)
    features = dict(zip(RELEVANCE_FEATURES, empty.tolist(), strict=True))
    assert features["question in document"] == features["question in title"] > 0
    assert features["question in sentence"] == features["sentences"] == 0
