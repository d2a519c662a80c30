"""Citation styles: Vancouver, AMA and APA as their guides print them, and no text that leaves its line."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epicrisis.core.answers import Answer, Citation
from epicrisis.core.errors import InputError
from epicrisis.core.references import Publication, Reference
from epicrisis.core.types import CitationStyle, Passage, Question, ReferenceFormat
from epicrisis.report.citation_files import CitedSource, list_passage_sources
from epicrisis.report.citation_styles import STYLE_NAMES, format_references, write_reference_list, write_references

ARTICLE: dict[str, Any] = {
    "authors": ["Delorme, Vincent", "Cavalier, Jean-François"],
    "journal": "PLoS ONE",
    "journal_abbreviation": "PLoS One",
    "volume": "7",
    "issue": "9",
    "page_range": "e46493",
    "doi": "10.1371/journal.pone.0046493",
}
CHAPTER: dict[str, Any] = {"authors": ["Warby, SC"], "book": "GeneReviews", "editors": ["Adam, MP"], "publisher": "UW"}


def make_sources(*documents: tuple[str, dict[str, Any]]) -> tuple[CitedSource, ...]:
    passages = []
    for number, (title, metadata) in enumerate(documents):
        id_ = f"pubmed:{number + 1}"
        passages.append(
            Passage(
                id=f"{id_}#0",
                document_id=id_,
                ordinal=0,
                start=0,
                end=1,
                text="x",
                title=title,
                source="PubMed",
                date="2012-09-28",
                patient=None,
                metadata=metadata,
            )
        )
    return list_passage_sources(passages)


@pytest.mark.parametrize(
    ("style", "article", "chapter"),
    [
        (
            "vancouver",
            "Delorme V, Cavalier JF. Lipases. PLoS One. 2012 Sep 28;7(9):e46493. doi:10.1371/journal.pone.0046493 "
            "PubMed PMID: 1.",
            "Warby SC. Chorea. In: Adam MP, editor. GeneReviews. UW; 2012. PubMed PMID: 2.",
        ),
        (
            "ama",
            "Delorme V, Cavalier JF. Lipases. PLoS One. 2012;7(9):e46493. doi:10.1371/journal.pone.0046493",
            "Warby SC. Chorea. In: Adam MP, ed. GeneReviews. UW; 2012.",
        ),
        (
            "apa",
            "Delorme, V., & Cavalier, J.-F. (2012). Lipases. PLoS ONE, 7(9), e46493. "
            "https://doi.org/10.1371/journal.pone.0046493",
            "Warby, S. C. (2012). Chorea. In M. P. Adam (ed.), GeneReviews. UW.",
        ),
    ],
)
def test_article_and_chapter_are_formatted(style: CitationStyle, article: str, chapter: str) -> None:
    sources = make_sources(("Lipases.", ARTICLE), ("Chorea", CHAPTER))
    assert format_references(sources, style) == [article, chapter]


@pytest.mark.parametrize("style", list(STYLE_NAMES))
def test_title_without_authors_is_printed_once(style: CitationStyle) -> None:
    [line] = format_references(make_sources(("Nobody wrote this", {"journal": "BMJ"})), style)
    assert line.count("Nobody wrote this") == 1


def test_reference_list_is_numbered_or_by_author() -> None:
    sources = make_sources(("Z", {"authors": ["Young, A"]}), ("A", {"authors": ["Adams, B"]}))
    assert [line[:7] for line in write_reference_list(sources, "ama").splitlines()] == ["1. Youn", "2. Adam"]
    assert [line[:5] for line in write_reference_list(sources, "apa").splitlines()] == ["Adams", "Young"]


@pytest.mark.parametrize("style", list(STYLE_NAMES))
def test_reference_list_marks_retracted_article(style: CitationStyle) -> None:
    (source,) = make_sources(("T", {"authors": ["Young, A"]}))
    assert "RETRACTED" not in write_reference_list([source], style)
    assert write_reference_list([replace(source, marks=("retracted",))], style).endswith(" [RETRACTED]\n")


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.text(max_size=40), st.sampled_from(list(STYLE_NAMES)))
def test_any_text_is_one_line_for_each_source(text: str, style: CitationStyle) -> None:
    publication = Publication(type="foo-bar", journal=text, volume=text, page_range=text, url=text)
    source = CitedSource(
        id=text,
        title=text,
        source=text,
        date="2015-06",
        reference=Reference(authors=(text, f"{text}, {text}"), publication=publication),
    )
    lines = format_references([source, source], style)
    assert len(lines) == 2
    assert not any({"\n", "\x1b", "\u202e"} & set(line) for line in lines)


def test_style_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "citeproc", None)
    with pytest.raises(InputError, match=r"epicrisis\[citations\]"):
        format_references(make_sources(("T", {})), "apa")


@pytest.mark.parametrize(
    ("format", "line"),
    [
        ("vancouver", "1. Doe J. Lipases. 2012."),
        ("bibtex", "  author = {Doe, Jane},"),
        ("ris", "AU  - Doe, Jane"),
        ("csl-json", '        "family": "Doe",'),
    ],
)
def test_references_of_answer_are_written(format: ReferenceFormat, line: str) -> None:
    citation = Citation(
        number=1,
        passage_id="d1#0",
        document_id="d1",
        title="Lipases",
        source="",
        date="2012",
        start=0,
        end=1,
        quotation="x",
        verified=True,
        reference=Reference(authors=("Doe, Jane",)),
    )
    answer = Answer(question=Question("Why?"), strategy="rag", state="answered", citations=(citation,))
    assert line in write_references(answer, format).replace("\r", "").splitlines()
    assert write_references(Answer(question=Question("Why?"), strategy="rag", state="abstained"), format) in (
        "",
        "[]\n",
    )


def test_references_in_unknown_format_are_refused() -> None:
    with pytest.raises(InputError, match="choose one of vancouver, ama, apa, bibtex, ris, csl-json"):
        write_references(Answer(question=Question("Why?"), strategy="rag", state="abstained"), "chicago")  # type: ignore[arg-type]
