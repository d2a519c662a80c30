"""The words of a question that name its subject."""

from __future__ import annotations

import pytest

from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.subject_words import list_forms, list_missed_words, list_subject_words


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Does semaglutide reduce cardiovascular events in obesity?", ["semaglutide"]),
        ("Is antivenom effective for scorpion stings?", ["antivenom", "scorpion", "stings"]),
        ("Does aspirin reduce the risk of stroke in older adults?", []),
        ("What is the role of BNT162b2, and of SGLT-2 inhibitors?", ["BNT162b2", "SGLT-2"]),
        ("Do 40mg twice daily help at 12weeks?", []),
        ("semaglutide " * 41, []),
    ],
)
def test_uncommon_words_name_the_subject(question: str, words: list[str]) -> None:
    assert list_subject_words(question, analyze_words) == words


@pytest.mark.parametrize(("documents", "words"), [(15, ["suicide"]), (300, ["suicide", "stroke"])])
def test_common_word_is_missed_where_documents_should_have_it(documents: int, words: list[str]) -> None:
    question = "Does your canagliflozin increase suicide or stroke in patients?"
    assert list_missed_words(question, analyze_words, documents) == words


@pytest.mark.parametrize(
    ("word", "forms"),
    [
        ("BRCA1", ["BRCA1", "BRCA"]),
        ("SGLT-2i", ["SGLT2i", "SGLT2", "SGLT"]),
        ("CYP2C19", ["CYP2C19", "CYP2C", "CYP2", "CYP"]),
        ("tumour", ["tumour", "tumor"]),
    ],
)
def test_text_may_have_a_name_in_these_forms(word: str, forms: list[str]) -> None:
    assert list_forms(word) == forms
