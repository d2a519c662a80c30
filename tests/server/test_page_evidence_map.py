"""The evidence map: who read which document, what each part said, and warnings about a poor search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epicrisis.core.answers import (
    Answer,
    Conflict,
    ConflictSide,
    ConflictSource,
    Failure,
    PartialAnswer,
    Quotation,
    Retrieved,
    SentencesSelected,
)
from epicrisis.core.types import Hit, Preflight, Question, Ranking, SearchTops
from epicrisis.privacy.record_access import list_documents
from epicrisis.server.page.answer_view import build_answer_view
from epicrisis.server.page.evidence_map import PartVerdict, build_evidence_map
from epicrisis.server.page.rendering import render
from epicrisis.server.state.stored_answers import StoredAnswer
from tests.support.strategies import passages

QUESTION = Question("Does aspirin prevent stroke?", options={"A": "yes", "B": "no"}, form="choice")
PASSAGES = passages(20)
RANKING = Ranking(tuple(Hit(passage, 1.0, rank) for rank, passage in enumerate(PASSAGES)), "hybrid")
IDS = RANKING.ids
PARTS = (
    PartialAnswer(
        partition=0,
        passages=IDS[:5],
        state="relevant",
        text="It helps.",
        choice="A",
        quotations=(Quotation(IDS[1], "words", 1, 6),),
    ),
    PartialAnswer(partition=1, passages=IDS[5:10], state="relevant", text="It does not.", choice="B"),
    PartialAnswer(partition=2, passages=IDS[10:15], state="nothing"),
    PartialAnswer(
        partition=3, passages=IDS[15:], state="failed", failure=Failure("ChatError", "the model does not reply")
    ),
)
ANSWER = Answer(
    question=QUESTION,
    strategy="brief-context",
    state="answered",
    text="Yes.",
    choice="A",
    partials=PARTS,
    trace=(Retrieved(RANKING),),
)


def test_each_document_has_its_part_and_what_the_part_said() -> None:
    evidence_map = build_evidence_map(ANSWER)
    expected: list[tuple[int, PartVerdict]] = [(1, "supports"), (2, "contradicts"), (3, "nothing"), (4, "failed")]
    assert [(cell.part, cell.statement) for cell in evidence_map.cells] == [pair for pair in expected for _ in range(5)]
    assert [part.ranks for part in evidence_map.parts] == ["1-5", "6-10", "11-15", "16-20"]
    stored = StoredAnswer(id="id", answer=ANSWER, library="lib")
    page = render("map", view=build_answer_view(stored))
    assert page.count("the model does not reply") == 1
    assert page.count("<q>words</q>") == 1


def test_cells_do_not_overlap_and_fit_the_drawing() -> None:
    evidence_map = build_evidence_map(ANSWER)
    assert len({(cell.x, cell.y) for cell in evidence_map.cells}) == len(PASSAGES)
    assert max(cell.x for cell in evidence_map.cells) + 20 == evidence_map.width
    assert max(cell.y for cell in evidence_map.cells) + 42 <= evidence_map.height


def test_parts_without_options_take_sides_by_the_disagreement() -> None:
    sides = (
        ConflictSide(label="an increase", summary="", count=1, is_answer=True, partitions=(0,)),
        ConflictSide(label="a decrease", summary="", count=1, partitions=(1,)),
    )
    parts = tuple(replace(part, choice=None) for part in PARTS)
    answer = replace(ANSWER, choice=None, partials=parts, conflicts=(Conflict("sentences", sides, "reduce call"),))
    statements = [part.statement for part in build_evidence_map(answer).parts]
    assert statements == ["supports", "contradicts", "nothing", "failed"]


def test_parts_without_any_comparison_are_relevant_only() -> None:
    parts = tuple(replace(part, choice=None) for part in PARTS)
    answer = replace(ANSWER, choice=None, partials=parts)
    assert [part.statement for part in build_evidence_map(answer).parts][:2] == ["relevant", "relevant"]


def test_documents_read_in_one_prompt_take_sides_by_the_disagreement() -> None:
    sides = (
        ConflictSide(label="A (yes)", summary="", count=1, is_answer=True, sources=(ConflictSource(document_id="d0"),)),
        ConflictSide(label="B (no)", summary="", count=1, sources=(ConflictSource(document_id="d1"),)),
    )
    answer = replace(ANSWER, partials=(), strategy="rag", conflicts=(Conflict("sentences", sides, "answer call"),))
    statements = [cell.statement for cell in build_evidence_map(answer).cells]
    assert statements[:3] == ["supports", "contradicts", "unread"]


@pytest.mark.parametrize(
    ("dense", "words", "lines", "is_warned"),
    [
        (("d0", "d1", "d2"), ("d2", "d9", "d0"), 2, False),
        (("d0", "d1", "d2"), ("d7", "d8", "d9"), 0, True),
    ],
)
def test_rankings_are_joined_by_shared_documents_and_none_shared_is_a_warning(
    dense: tuple[str, ...], words: tuple[str, ...], lines: int, is_warned: bool
) -> None:
    preflight = Preflight(
        rankings_agree=False,
        value=0.0,
        n=3,
        threshold=0.2,
        depth=16,
        dense_top=dense,
        bm25_top=words,
        reason="because",
        count="documents",
    )
    evidence_map = build_evidence_map(replace(ANSWER, partials=(), preflight=preflight))
    assert evidence_map.rankings is not None
    assert len(evidence_map.rankings.lines) == lines
    assert any("in common" in warning for warning in evidence_map.warnings) == is_warned


@pytest.mark.parametrize("words", [("d2", "d9"), ("d7", "d9")])
@pytest.mark.parametrize("in_sentences", [True, False])
def test_hybrid_search_is_drawn_and_warned_of_without_preflight_words(
    words: tuple[str, ...], in_sentences: bool
) -> None:
    tops = SearchTops(("d0", "d2"), words, {"d0": "Zero", "d2": "Two", "d7": "Seven", "d9": "Nine"})
    found = SentencesSelected((), tops) if in_sentences else Retrieved(replace(RANKING, tops=tops))
    gap = Preflight(
        rankings_agree=True,
        value=0.2,
        n=16,
        threshold=0.1,
        depth=16,
        dense_top=("d0", "d1"),
        bm25_top=(),
        reason="a gap",
        signal="dense-gap",
        count="documents",
    )
    evidence_map = build_evidence_map(replace(ANSWER, partials=(), preflight=gap, trace=(found,)))
    assert evidence_map.rankings is not None
    assert [name.title for name in evidence_map.rankings.right] == [tops.titles[id_] for id_ in words]
    shared = "d2" in words
    assert len(evidence_map.rankings.lines) == shared
    assert any("in common" in warning for warning in evidence_map.warnings) != shared


def test_access_log_has_documents_whose_titles_the_comparison_shows() -> None:
    tops = SearchTops(("d0", "d98"), ("d99",), {"d0": "Zero", "d98": "", "d99": "Nine"})
    for event in (Retrieved(replace(RANKING, tops=tops)), SentencesSelected((), tops)):
        documents = list_documents(event)
        assert {"d0", "d98", "d99"} <= set(documents)
        assert len(documents) == len(set(documents))


def test_search_without_result_and_parts_without_evidence_are_warned_of() -> None:
    nothing = replace(ANSWER, partials=(PARTS[2],))
    assert "No part of the evidence" in build_evidence_map(nothing).warnings[0]
    empty = replace(ANSWER, partials=(), trace=(Retrieved(Ranking((), "hybrid")),))
    evidence_map = build_evidence_map(empty)
    assert evidence_map.cells == ()
    assert evidence_map.warnings == ("The search found nothing in the library.",)
