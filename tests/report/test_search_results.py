"""Search results for a reader: hits of one document together, matching words, and a window of text around them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.types import Hit, Passage, Ranking
from epicrisis.report.search_results import choose_window, find_matches, find_stems, group_hits

TEXT = "Women at risk took placebo. " * 20 + "Aspirin prevented pre-eclampsia in pregnancies. " + "Nothing else. " * 20


def passage(document: str, ordinal: int, text: str = "Aspirin.", **fields: Any) -> Passage:
    return Passage(
        id=f"{document}#{ordinal}", document_id=document, ordinal=ordinal, start=0, end=len(text), text=text, **fields
    )


def rank(*passages: Passage) -> Ranking:
    return Ranking(tuple(Hit(item, 1.0 - place / 10, place) for place, item in enumerate(passages)), "bm25")


def test_hits_of_one_document_are_grouped_in_the_order_of_the_best() -> None:
    ranking = rank(passage("b", 2), passage("a", 0), passage("b", 0))
    documents = group_hits(ranking, "aspirin")
    assert [document.id for document in documents] == ["b", "a"]
    assert [found.id for found in documents[0].passages] == ["b#2", "b#0"]


def test_matches_are_found_by_stem_and_without_stop_words() -> None:
    stems = find_stems("the prevention of pregnancy by aspirin")
    words = [TEXT[match.start : match.end] for match in find_matches(TEXT, stems)]
    assert words == ["Aspirin", "prevented", "pregnancies"]


def test_window_holds_the_densest_matches() -> None:
    matches = find_matches(TEXT, find_stems("women risk aspirin preventing eclampsia in pregnancy"))
    start, end = choose_window(TEXT, matches, 100)
    assert "Aspirin prevented pre-eclampsia in pregnancies" in TEXT[start:end]
    assert end - start <= 100


@pytest.mark.slow
@given(st.text(alphabet="ab \n", max_size=300), st.integers(10, 80))
def test_window_is_never_longer_than_asked(text: str, size: int) -> None:
    start, end = choose_window(text, find_matches(text, frozenset({"a", "ab"})), size)
    assert 0 <= start <= end <= len(text)
    assert end - start <= size


def test_hostile_title_and_text_are_one_printable_line() -> None:
    hostile = passage("x", 0, "Aspirin\x1b[2J\nforged", title="T\x1b]0;x\x07\u202e", source="s\n1. forged")
    (document,) = group_hits(rank(hostile), "aspirin")
    shown = (document.title, document.description, document.passages[0].text)
    for text in shown:
        assert not set("\x1b\x07\n\u202e") & set(text)
