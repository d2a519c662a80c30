"""References: what a reader is told of a source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from epicrisis.answering.citations import cite
from epicrisis.core.answers import Quotation
from epicrisis.core.references import build_reference, join_places
from epicrisis.core.types import Document, Passage
from epicrisis.corpus.base.reader_base import FileDocument
from epicrisis.corpus.readers.sources import read_sources

ARTICLE = Passage(
    id="pubmed:12377809#0",
    document_id="pubmed:12377809",
    ordinal=0,
    start=0,
    end=32,
    text="Patients were randomly assigned.",
    title="Endosonography in dyschesia.",
    source="PubMed",
    date="2002-10-14",
    metadata={
        "authors": ["Pucciani, Filippo", "Rottoli, Maria-Luisa", "Bologna, A", "Cianchi, F"],
        "journal": "Dis Colon Rectum",
        "doi": "10.1007/s10350-004-6240-3",
        "publication_types": ["Journal Article", "Randomized Controlled Trial"],
    },
)


def test_article_is_cited_with_authors_journal_year_and_links() -> None:
    reference = build_reference(ARTICLE)
    assert reference.describe(ARTICLE.title, ARTICLE.source, ARTICLE.date) == (
        "Pucciani F et al. Endosonography in dyschesia. Dis Colon Rectum. 2002"
    )
    assert [(link.label, link.url) for link in reference.links] == [
        ("PMID", "https://pubmed.ncbi.nlm.nih.gov/12377809/"),
        ("DOI", "https://doi.org/10.1007/s10350-004-6240-3"),
    ]
    assert reference.study is not None
    assert reference.study.label == "randomised trial"


def test_up_to_three_authors_are_named_with_initials() -> None:
    metadata = {**ARTICLE.metadata, "authors": ["Rottoli, Maria-Luisa", "WHO Study Group"]}
    reference = build_reference(replace(ARTICLE, metadata=metadata))
    assert reference.describe("T", "", None).startswith("Rottoli ML, WHO Study Group. T")


@pytest.mark.parametrize(
    ("author", "printed"),
    [
        ("Lee, K.-H.", "Lee KH. T"),
        ("Lee, K\u2010H", "Lee KH. T"),
        ("Lee, B.C.", "Lee BC. T"),
        ("Lee, KH", "Lee KH. T"),
        ("Lee, Kyung-Ho", "Lee KH. T"),
        ("Lee, KYUNG", "Lee K. T"),
        ("Demo Inc.", "Demo Inc. T"),
    ],
)
def test_author_is_printed_with_all_initials_and_one_full_stop(author: str, printed: str) -> None:
    reference = build_reference(replace(ARTICLE, metadata={"authors": [author]}))
    assert reference.describe("T", "", None) == f"{printed}. 2002"


@pytest.mark.parametrize("doi", ["javascript:alert(1)", "10.1/x y", 'x" onclick="', "", None, 5])
def test_identifier_of_another_form_is_no_link(doi: object) -> None:
    reference = build_reference(replace(ARTICLE, document_id="file:a.pdf", metadata={"doi": doi, "pmid": "1;2"}))
    assert reference.links == ()


@pytest.mark.parametrize("doi", ["10.1002/(SICI)1097(1999)85:2<1::AID-C>3.0", '10.1000/"><script>', "10.1000/a)b"])
def test_address_of_a_doi_has_no_markup(doi: str) -> None:
    (link,) = build_reference(replace(ARTICLE, document_id="x", metadata={"doi": doi})).links
    assert link.url.startswith("https://doi.org/10.")
    assert not set("<>\"()'& ") & set(link.url)


def test_abbreviated_journal_is_preferred() -> None:
    metadata = {"journal": "The New England journal of medicine", "journal_abbreviation": "N Engl J Med"}
    assert build_reference(replace(ARTICLE, metadata=metadata)).journal == "N Engl J Med"


@pytest.mark.data
def test_real_pubmed_record_and_article_have_complete_references(data_folder: Path) -> None:
    files = [data_folder / "pubmed_xml/pubmed-29768149.xml", data_folder / "pubmed_xml/pone.0046493.nxml"]
    references: list[str] = []
    links: list[str] = []
    studies: list[str] = []
    for item in read_sources(files):
        if isinstance(item, Document | FileDocument):
            document = item.document if isinstance(item, FileDocument) else item
            passage = Passage(
                id=f"{document.id}#0",
                document_id=document.id,
                ordinal=0,
                start=0,
                end=len(document.text),
                text=document.text,
                title=document.title,
                source=document.source,
                date=document.date,
                patient=None,
                metadata=document.metadata,
            )
            reference = build_reference(passage)
            references.append(reference.describe(document.title, document.source, document.date))
            links += [link.label for link in reference.links]
            studies.append(reference.study.type if reference.study else "")
    assert references[0] == (
        "O'Byrne PM et al. Inhaled Combined Budesonide-Formoterol as Needed in Mild Asthma. N Engl J Med. 2018;"
        "378(20):1865-1876"
    )
    assert references[1].endswith("PLoS One. 2012;7(9):e46493")
    assert studies[0] == "randomised-trial"
    assert links == ["PMID", "DOI", "PMID", "PMCID", "DOI"]


def test_note_of_a_record_has_type_and_date_and_no_study_or_links() -> None:
    note = replace(
        ARTICLE,
        patient="p1",
        title="Radiology, 2180-05-07",
        date="2180-05-07",
        metadata={"note_type": "radiology", "section": "FINDINGS", "pmid": "12377809", "page": True},
    )
    reference = build_reference(note)
    assert (reference.note_type, reference.study, reference.links, reference.page) == ("radiology", None, (), None)
    assert reference.describe_place() == "section FINDINGS"
    assert reference.describe(note.title, "notes", note.date).endswith("2180-05-07")


def test_page_of_a_pdf_is_named() -> None:
    reference = build_reference(replace(ARTICLE, metadata={"page": 3, "section": "Results"}))
    assert reference.describe_place() == "section Results, page 3"


@pytest.mark.parametrize("value", [7, {"a": 1}, [None, 3]])
def test_unexpected_metadata_gives_an_empty_reference(value: object) -> None:
    keys = ("authors", "journal", "doi", "pmid", "pmcid", "section", "note_type", "publication_types")
    reference = build_reference(replace(ARTICLE, metadata=dict.fromkeys(keys, value), document_id="x"))
    assert (reference.authors, reference.journal, reference.section) == ((), "", "")


def test_citation_states_page_and_section_of_its_sentence() -> None:
    """Not those of the beginning of the passage; a passage without offsets has its own."""
    text = "Methods were sound. Results were good."
    places = {"page": 3, "section": "Methods", "page_starts": [[120, 4]], "section_starts": [[120, "Results"]]}
    passage = Passage(id="d#0", document_id="d", ordinal=0, start=100, end=100 + len(text), text=text, metadata=places)
    quotations = [
        Quotation("d#0", text[:19], 100, 119),
        Quotation("d#0", text[20:], 120, 138),
        Quotation("d#0", "None."),
    ]
    _, citations = cite("", quotations, [passage])
    assert [citation.reference.describe_place() for citation in citations] == [
        "section Methods, page 3",
        "section Results, page 4",
        "section Methods, page 3",
    ]
    older = replace(passage, metadata={"page": 3, "section": "Methods"})
    _, citations = cite("", quotations[1:2], [older])
    assert citations[0].reference.describe_place() == "section Methods, page 3"


@pytest.mark.parametrize("starts", [None, "x", [5], [["a", 4]], [[120]], [[120, True]], {"120": 4}])
def test_page_starts_of_unexpected_types_are_ignored(starts: object) -> None:
    passage = Passage(
        id="d#0",
        document_id="d",
        ordinal=0,
        start=100,
        end=200,
        text="Text.",
        metadata={"page": 3, "page_starts": starts},
    )
    assert build_reference(passage, 150).page in (3, None)
    assert build_reference(passage).page == 3


def test_joined_passages_keep_their_pages() -> None:
    first = Passage(
        id="d#0",
        document_id="d",
        ordinal=0,
        start=0,
        end=50,
        text="a" * 50,
        metadata={"page": 1, "page_starts": [[30, 2]], "journal": "BMJ"},
    )
    second = Passage(
        id="d#1",
        document_id="d",
        ordinal=1,
        start=40,
        end=90,
        text="a" * 50,
        metadata={"page": 2, "section": "End", "page_starts": [[60, 3]]},
    )
    metadata = join_places((first, second))
    assert metadata == {
        "page": 1,
        "journal": "BMJ",
        "page_starts": [[30, 2], [60, 3]],
        "section_starts": [[40, "End"]],
    }


def test_place_on_page_read_by_ocr_is_marked() -> None:
    passage = Passage(
        id="d#0",
        document_id="d",
        ordinal=0,
        start=0,
        end=4,
        text="Text",
        title="T",
        metadata={"page": 2, "pages_by_ocr": [2]},
    )
    assert build_reference(passage).describe_place() == "page 2 (read by OCR)"
    passage = replace(passage, metadata={"page": 1, "pages_by_ocr": [2]})
    assert build_reference(passage).describe_place() == "page 1"
