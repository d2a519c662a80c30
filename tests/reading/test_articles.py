"""Headings above the sentences of articles."""

from __future__ import annotations

import pytest

from epicrisis.reading.articles import ArticleText, find_headings, is_heading
from epicrisis.reading.features import OWN_FEATURES, read_article


def test_labels_lines_and_sections_are_headings() -> None:
    sentences = [
        ("OBJECTIVE: To compare both.", ""),
        ("It was a trial.", ""),
        ("RESULTS - Pain fell.", ""),
        ("Discussion", ""),
        ("It may help.", ""),
        ("Nobody paid.", "Funding"),
    ]
    assert find_headings(sentences) == ["OBJECTIVE", "OBJECTIVE", "RESULTS", "Discussion", "Discussion", "Funding"]


def test_heading_of_the_file_ends_with_its_section() -> None:
    assert find_headings([("Pain fell.", "Results"), ("Thanks.", "")]) == ["Results", ""]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ABSTRACT.RESULTS:", True),
        ("3.2 Statistical analysis", True),
        ("Patients and methods", True),
        ("Results were alike in both groups.", False),
        ("ACE inhibitors reduced mortality.", False),
    ],
)
def test_headings_are_told_from_sentences(text: str, expected: bool) -> None:
    assert is_heading(text) is expected


def test_document_without_statements_has_no_features() -> None:
    assert read_article(ArticleText([], []), str.split).own.shape == (0, len(OWN_FEATURES))
