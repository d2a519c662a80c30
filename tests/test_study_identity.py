"""Documents that are one study, and the counts, rows and lines that use it."""

from __future__ import annotations

from typing import Any

import pytest

from epicrisis.answering.citations import cite
from epicrisis.answering.disagreements import find_conflicts
from epicrisis.core.answers import Answer, Quotation
from epicrisis.core.references import build_reference
from epicrisis.core.study_identity import CitedArticle, group_studies
from epicrisis.core.types import Passage, Question
from epicrisis.report.answer_content import describe_same_studies
from epicrisis.report.study_table import build_study_table

TITLE = "Aspirin against placebo after a first stroke: a randomised trial"
FALL = "Stroke occurred in 2.0 % with aspirin and in 4.1 % with placebo (odds ratio 0.48)."
RISE = "Stroke occurred in 4.1 % with aspirin and in 2.0 % with placebo (odds ratio 2.08)."
SMITH = ["Smith, John", "Lee, Ann"]


def abstract(
    id_: str,
    title: str = TITLE,
    date: str | None = "2017",
    text: str = FALL,
    patient: str | None = None,
    **metadata: Any,
) -> Passage:
    """A document of one sentence."""
    return Passage(
        id=f"{id_}#0",
        document_id=id_,
        ordinal=0,
        start=0,
        end=len(text),
        text=text,
        title=title,
        source="export",
        date=date,
        patient=patient,
        metadata=metadata,
    )


def answer_with(*read: Passage) -> Answer:
    """An answer that quotes each of these documents."""
    _, citations = cite("", [Quotation(passage.id, passage.text, 0, len(passage.text)) for passage in read], read)
    return Answer(
        question=Question("Does aspirin reduce stroke?", form="open"),
        strategy="rag",
        state="answered",
        citations=citations,
    )


@pytest.mark.parametrize(
    ("one", "two", "likeness"),
    [
        (abstract("pubmed:12", doi="10.1000/a.7"), abstract("x", "", None, doi="https://doi.org/10.1000/A.7"), "same"),
        (abstract("pubmed:12"), abstract("file:a.pdf", "", None, pmid="PMID: 12"), "same"),
        (abstract("pmc:PMC77"), abstract("x", pmcid="PMC77", date=None), "same"),
        (abstract("a", authors=SMITH), abstract("b", f"[{TITLE.upper()}].", authors=["Smith J"]), "same"),
        (abstract("a", authors=SMITH), abstract("b", TITLE.replace("mis", "miz"), authors=["van Smith J"]), "same"),
        (
            abstract("a", "IL-1β in lung", authors=SMITH),
            abstract("b", "IL-1beta in lung", authors=SMITH),
            "different",
        ),
        (
            abstract("a", "IL-1β blockade in sepsis", authors=SMITH),
            abstract("b", "IL-1beta blockade in <i>sepsis</i>", authors=SMITH),
            "same",
        ),
        (abstract("a"), abstract("b"), "unsure"),
        (abstract("a", authors=SMITH), abstract("b", date="2018-01", authors=SMITH), "unsure"),
        (abstract("a", authors=SMITH, doi="10.1000/a"), abstract("b", authors=SMITH, doi="10.1000/b"), "unsure"),
        (abstract("a", authors=SMITH), abstract("b", authors=["Lee A", "Smith J"]), "unsure"),
        (abstract("a", doi="10.1000/a"), abstract("b", "scan0003", doi="10.1000/a"), "unsure"),
        (abstract("a", authors=SMITH), abstract("b", authors=["Jones, P"]), "different"),
        (abstract("a", authors=SMITH), abstract("b", date="2021", authors=SMITH), "different"),
        (abstract("a", "Editorial", authors=SMITH), abstract("b", "Editorial", authors=SMITH), "different"),
        (
            abstract("a", "Pain in children", authors=SMITH, doi="10.1000/s"),
            abstract("b", authors=["Ito K"], doi="10.1000/s"),
            "different",
        ),
        (abstract("a", patient="1"), abstract("b", patient="1"), "different"),
    ],
)
def test_documents_are_compared(one: Passage, two: Passage, likeness: str) -> None:
    groups = group_studies(CitedArticle(read.document_id, read.title, build_reference(read)) for read in (one, two))
    id_ = two.document_id
    joined = groups.find(id_) == one.document_id, groups.find_sure(id_) == one.document_id
    assert joined == {"same": (True, True), "unsure": (True, False), "different": (False, False)}[likeness]


def test_document_that_shares_with_both_joins_two() -> None:
    read = (
        abstract("a", "", doi="10.1000/a"),
        abstract("b", "", pmid="12"),
        abstract("c", "", doi="10.1000/a", pmid="12"),
    )
    groups = group_studies(
        CitedArticle(passage.document_id, passage.title, build_reference(passage)) for passage in read
    )
    assert [groups.find_sure(id_) for id_ in "abc"] == ["a", "a", "a"]


EMBASE, PUBMED, SCOPUS = abstract("doi:1", doi="10.1000/a"), abstract("pubmed:2", doi="10.1000/a"), abstract("file:3")
OTHER = abstract("pubmed:9", "Aspirin after stroke in a second randomised trial", "2019", RISE)


def test_article_of_three_databases_is_one_trial_against_one() -> None:
    answer = answer_with(EMBASE, PUBMED, SCOPUS, OTHER)
    (conflict,) = find_conflicts(answer, {})
    assert conflict.describe() == (
        "1 for a decrease: 1 randomised trial, 1 more document of the same study, not counted, 1 more document of "
        "probably the same study, not counted [1][2][3]; 1 for an increase: 1 randomised trial [4]. "
        "Decided by: answer call"
    )
    sources = [(source.same_study_as, source.is_same_study_sure) for source in conflict.sides[0].sources]
    assert sources == [("", True), ("doi:1", True), ("doi:1", False)]
    assert describe_same_studies(answer.citations) == {
        "pubmed:2": "Same study as [1]",
        "file:3": "Probably the same study as [1]",
    }
    rows = build_study_table(answer, [EMBASE, PUBMED, SCOPUS, OTHER])
    assert [(row.citations, row.note) for row in rows] == [
        ((1, 2), "also pubmed:2"),
        ((3,), "Probably the same study as [1]"),
        ((4,), ""),
    ]


def test_study_counts_on_the_side_of_its_first_document() -> None:
    opposite = abstract("pubmed:2", doi="10.1000/a", text=RISE)
    assert find_conflicts(answer_with(EMBASE, opposite), {}) == ()


def test_documents_of_probably_one_study_on_two_sides_are_named() -> None:
    (conflict,) = find_conflicts(answer_with(EMBASE, abstract("file:3", text=RISE)), {})
    assert [side.count for side in conflict.sides] == [1, 1]
    assert all("probably also on another side" in side.summary for side in conflict.sides)


def test_retraction_of_one_document_holds_for_the_study() -> None:
    marked = abstract("pubmed:2", doi="10.1000/a", retracted=True)
    answer = answer_with(EMBASE, OTHER)
    assert len(find_conflicts(answer, {EMBASE.id: EMBASE, OTHER.id: OTHER})) == 1
    assert find_conflicts(answer, {passage.id: passage for passage in (EMBASE, OTHER, marked)}) == ()
