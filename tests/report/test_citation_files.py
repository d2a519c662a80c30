"""BibTeX, RIS and CSL-JSON: checked with independent parsers, also for titles that try to add fields or entries."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import rispy
from bibtexparser.entrypoint import parse_string
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.references import Publication, Reference
from epicrisis.core.types import Passage
from epicrisis.report import citation_files
from epicrisis.report.citation_files import (
    CitedSource,
    list_passage_sources,
    make_csl_item,
    parse_name,
    split_pages,
    write_bibtex,
    write_csl_json,
    write_ris,
)

METADATA: dict[str, Any] = {
    "authors": ["O'Byrne, Paul M", "King, Martin, Jr", "Li", "Group for Asthma, Lung and Heart"],
    "group_authors": ["Group for Asthma, Lung and Heart"],
    "journal": "The New England journal of medicine",
    "journal_abbreviation": "N Engl J Med",
    "volume": "378",
    "issue": "20",
    "page_range": "1865-76",
    "doi": "10.1056/NEJMoa_171",
    "pmcid": "PMC77",
    "issn": "1533-4406",
}
CHAPTER = {"book": "GeneReviews", "editors": ["Adam, MP"], "publisher": "UW", "publisher_place": "Seattle"}
HOSTILE = "T}\n@article{evil,\n title={x} \\input{/etc/passwd} 100% $x_1$ #&~^\r\nER  - \nTY  - JOUR\x1b[2J\u202e"


def passage(id_: str = "pubmed:29768149", title: str = "Asthma.", **metadata: Any) -> Passage:
    return Passage(
        id=f"{id_}#0",
        document_id=id_,
        ordinal=0,
        start=0,
        end=1,
        text="x",
        title=title,
        source="PubMed",
        date="2018-05-17",
        patient=None,
        metadata=metadata,
    )


def parse_bibtex(text: str) -> list[Any]:
    library = parse_string(text)
    assert not library.failed_blocks
    return [
        (entry.entry_type, {key: field.value for key, field in entry.fields_dict.items()}) for entry in library.entries
    ]


def test_article_has_all_fields_in_bibtex() -> None:
    [(kind, fields)] = parse_bibtex(write_bibtex(list_passage_sources([passage(**METADATA)])))
    assert kind == "article"
    assert fields == {
        "title": "{Asthma}",
        "author": "O'Byrne, Paul M and King, Jr, Martin and {Li} and {Group for Asthma, Lung and Heart}",
        "journal": "The New England journal of medicine",
        "year": "2018",
        "volume": "378",
        "number": "20",
        "pages": "1865--76",
        "issn": "1533-4406",
        "pmid": "29768149",
        "pmcid": "PMC77",
        "doi": "10.1056/NEJMoa_171",
    }


def test_article_has_all_fields_in_ris() -> None:
    [entry] = rispy.loads(write_ris(list_passage_sources([passage(**METADATA)])))
    assert entry["type_of_reference"] == "JOUR"
    assert entry["authors"][1:3] == ["King, Martin, Jr", "Li"]
    names = ("secondary_title", "year", "date", "volume", "number", "start_page", "end_page", "doi", "accession_number")
    values = ("The New England journal of medicine", "2018", "2018/05/17", "378", "20", "1865", "1876")
    assert tuple(entry[name] for name in names) == (*values, "10.1056/NEJMoa_171", "29768149")


def test_article_and_chapter_have_all_fields_in_csl_json() -> None:
    article, chapter = json.loads(
        write_csl_json(list_passage_sources([passage(**METADATA), passage("pubmed:2", "Huntington", **CHAPTER)]))
    )
    assert (article["type"], article["page"], article["issued"]) == (
        "article-journal",
        "1865-1876",
        {"date-parts": [[2018, 5, 17]]},
    )
    assert article["author"][1:] == [
        {"family": "King", "given": "Martin", "suffix": "Jr"},
        {"literal": "Li"},
        {"literal": "Group for Asthma, Lung and Heart"},
    ]
    assert (article["DOI"], article["PMID"], article["PMCID"]) == ("10.1056/NEJMoa_171", "29768149", "PMC77")
    assert (chapter["type"], chapter["container-title"], chapter["publisher-place"]) == (
        "chapter",
        "GeneReviews",
        "Seattle",
    )
    assert chapter["editor"] == [{"family": "Adam", "given": "M. P."}]


def test_hostile_title_adds_no_entry_and_no_field() -> None:
    sources = list_passage_sources([passage(title=HOSTILE, authors=[HOSTILE, "and, and"], journal=HOSTILE)])
    [(kind, fields)] = parse_bibtex(write_bibtex(sources))
    assert (kind, set(fields)) == ("article", {"title", "author", "journal", "year", "pmid"})
    [entry] = rispy.loads(write_ris(sources))
    assert entry["title"].startswith("T} @article{evil, title={x} \\input")
    for text in (write_bibtex(sources), write_ris(sources), write_csl_json(sources)):
        assert not {"\x1b", "\u202e"} & set(text)


@pytest.mark.slow
@given(st.lists(st.text(max_size=40), max_size=4), st.text(max_size=60))
def test_any_text_is_one_entry(names: list[str], text: str) -> None:
    publication = Publication(type="article-journal", journal=text, volume=text, page_range=text)
    reference = Reference(authors=tuple(names), publication=publication)
    source = CitedSource(id=text, title=text, source=text, date=None, reference=reference)
    assert len(parse_bibtex(write_bibtex([source, source]))) == 2
    assert len(rispy.loads(write_ris([source, source]))) == 2
    assert len(json.loads(write_csl_json([source, source]))) == 2


def test_identifier_with_braces_is_percent_encoded() -> None:
    [(_, fields)] = parse_bibtex(write_bibtex(list_passage_sources([passage(doi="10.1000/a{b}\\c")])))
    assert fields["doi"] == "10.1000/a%7Bb%7D%5Cc"


def test_retracted_article_says_so_in_every_format() -> None:
    source = replace(list_passage_sources([passage(**METADATA)])[0], marks=("retracted",))
    for write in citation_files.CITATION_WRITERS.values():
        assert "This article is marked: retracted" in write([source])


@pytest.mark.parametrize(
    ("pages", "first", "last"),
    [("1187-95", "1187", "1195"), ("7-9", "7", "9"), ("e46493", "e46493", ""), ("S12-S19", "S12", "S19"), ("", "", "")],
)
def test_pages_are_divided_and_completed(pages: str, first: str, last: str) -> None:
    assert split_pages(pages) == (first, last)


def test_note_of_a_patient_is_a_document_without_links() -> None:
    note = replace(passage("note:1", "Progress note", note_type="Progress note", doi="10.1000/x"), patient="7")
    item = make_csl_item(list_passage_sources([note])[0])
    assert item == {
        "id": "note:1",
        "type": "document",
        "title": "Progress note",
        "issued": {"date-parts": [[2018, 5, 17]]},
    }


def test_name_without_a_comma_is_not_divided() -> None:
    assert parse_name("World Health Organization").given == ""
    assert parse_name("A, B", is_group=True).family == "A, B"
