"""The words of a question that name its subject."""

from __future__ import annotations

import pytest

from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.subject_words import list_subject_words


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Does semaglutide reduce cardiovascular events in obesity?", ["semaglutide"]),
        ("Is antivenom effective for scorpion stings?", ["antivenom", "scorpion", "stings"]),
        ("Does aspirin reduce the risk of stroke in older adults?", []),
        ("semaglutide " * 41, []),
    ],
)
def test_uncommon_words_name_the_subject(question: str, words: list[str]) -> None:
    assert list_subject_words(question, analyze_words) == words
