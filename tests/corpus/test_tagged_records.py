"""Tagged exports of reference managers: what is a tag, where a record ends, and which formats `.txt` files have."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import FileRemark
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.references.reference_entries import parse_references
from epicrisis.corpus.references.tagged_records import begins_with_record

ENDNOTE_FIELDS = """Reference Type:  Journal Article
Record Number: 12
Author: Doe, Jane B., Roe, C. and de la Poe, D.
Year: 2019
Title: Zinc for common colds:
a randomised trial
Journal: Journal of Colds
Volume: 7
Issue: 2
Pages: 11-19
Date: Mar 4
DOI: 10.1234/colds.7
Keywords: zinc
common cold
Abstract: BACKGROUND: Colds are common.
RESULTS: The odds ratio was 0.51 (HR - 0.80, p < 0.01).
Custom 1: 99
Author Address: Clinic of Noses
URL: https://example.org/zinc


Reference Type: Book
Author: World Health Organization
Year: 2010
Title: Colds of the world
Abstract: All of them.
"""
WEB_OF_SCIENCE = """FN Clarivate Analytics Web of Science
VR 1.0
PT J
AU Sample, A
   Other, B
AF Sample, Anna
   Other, Bob
TI Aspirin in
   pregnancy
SO LANCET
DE aspirin; pregnancy
AB Aspirin lowered the rate.
   HR was 0.8.
PD MAR 5
PY 2020
BP 12
EP 15
DI 10.1000/W
PM 123456
ER

PT J
AU Third, C
TI Statins
AB No effect.
PY 2021
ER

EF
"""
REFER = """%0 Journal Article
%A Sample, Anna
%A Other, Bob
%T Aspirin in pregnancy
%J Lancet
%D 2020
%8 March 5
%P 12-15
%R 10.1000/W
%X Aspirin lowered the rate to 5
% of women.

HR was 0.8.
%K aspirin
pregnancy

%0 Book Section
%T Statins
%B The book
%X No effect.
"""


def _abstracts(text: str) -> list[tuple[str, str, str | None]]:
    entries, faults = parse_references(text)
    assert not faults
    return [(entry.title, entry.abstract, entry.date) for entry in entries]


@pytest.mark.parametrize(
    "line",
    [
        *("ER- tumours did not respond.", "ER - positive tumours responded.", "ER  - negative ones did not.", "ER"),
        *("HR - 0.80 (0.7 to 0.9).", "HR  - 0.80.", "OS  - longer in women.", "PFS - 12 months.", "ER status varied."),
        *("HR - Lower in women.", "SP - Specificity was 0.9.", "CT- Scans were read twice."),
        *("TY- Mice lost weight.", "TY - 21 cells were counted."),
    ],
)
def test_text_line_that_looks_like_a_tag_stays_in_abstract(line: str) -> None:
    ris = f"TY  - JOUR\nTI  - T\nAB  - We saw:\n{line}\nMore.\nPY  - 2001\nER  - \n"
    assert _abstracts(ris) == [("T", f"We saw: {' '.join(line.split())} More.", "2001")]


@pytest.mark.parametrize(
    "line", ["XT  - Theme", "DOI - 10.1000/x", "PMID - 5", "XY1 - note", "C9  - ", "US  - https://example.org/full"]
)
def test_unknown_tag_is_not_in_abstract(line: str) -> None:
    ris = f"TY  - JOUR\nTI  - T\nAB  - Text.\n{line}\nPY  - 2001\nER  - \n"
    assert _abstracts(ris) == [("T", "Text.", "2001")]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("AB  - Part one.\nAB  - Part two.", "Part one. Part two."),
        ("N2  - Part one.\nN2  - Part two.", "Part one. Part two."),
        ("AB  - Part one.\nN2  - Part one. Part two.", "Part one. Part two."),
        ("AB  - Same.\nN2  - Same.", "Same."),
        ("AB  - Part one.\u2028ER  - \x0bPart two.", "Part one. ER - Part two."),
        ("AB  - NA\nN2  - Part one.", "Part one."),
        ("AB  - N/A", ""),
        ("AB  - [No abstract available].", ""),
        ("AB  - No abstract is available.", ""),
    ],
)
def test_abstract_in_several_lines_is_joined_and_placeholder_is_none(form: str, expected: str) -> None:
    assert _abstracts(f"TY  - JOUR\nTI  - T\n{form}\nPY  - NA\nER  - \n") == [("T", expected, None)]


@pytest.mark.parametrize(
    "ris",
    [
        "TY  - JOUR\nTI  - A\nAB  - x\nPY  - 2001\nER\nTY  - JOUR\nTI  - B\nAB  - y\nPY  - 2002\nER",
        "DB  - S\nTI  - A\nAB  - x\nTY  - JOUR\nPY  - 2001\nER  -\nTI  - B\nTY  - JOUR\nAB  - y\nPY  - 2002\nER  -",
        "TI  - A\nAB  - x\nPY  - 2001\nER  - \n\nTI  - B\nAB  - y\nPY  - 2002\nER  - \n",
        "TI  - A\nAB  - x\nPY  - 2001\n\nTI  - B\nAB  - y\nPY  - 2002\n",
        "AU  - C\nAU  - D\nTI  - A\nPY  - 2001\nAB  - x\n\nAU  - C\nTI  - B\nAB  - y\nPY  - 2002\n",
        "TI  - A\nAB  - x\nPY  - 2001\n\nTY  - JOUR\nTI  - B\nAB  - y\nPY  - 2002\nER  - \n",
        "TI - A\nAB - x\nY1 - 2001\nTI - B\nAB - y\nY1 - 2002\n",
    ],
)
def test_records_without_type_or_end_are_separated(ris: str) -> None:
    assert _abstracts(ris) == [("A", "x", "2001"), ("B", "y", "2002")]


def test_nbib_paragraphs_and_text_like_tags_stay_in_abstract() -> None:
    nbib = (
        "PMID- 1\nTI  - T\nAB  - One.\u2028\u2028Two.\n\n      Three.\n      HR - 0.8\nER- tumours\nDP  - 2003 Mar\n\n"
    )
    assert _abstracts(f"{nbib}PMID- 2\nTI  - U\nAB  - Four.\nDP  - 2004\n") == [
        ("T", "One. Two. Three. HR - 0.8 ER- tumours", "2003-03"),
        ("U", "Four.", "2004"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        *("CI  - © 2019 The Authors.", "CI  - (c) 2019 Wiley.", "COIS- The authors declare no conflict."),
        *("UIN - Lancet. 2020;1:3. PMID: 5", "CRI - J Demo. 2020;1:3. PMID: 5", "PS  - d'Arc J"),
    ],
)
def test_field_behind_an_abstract_of_pubmed_is_not_in_it(line: str) -> None:
    assert _abstracts(f"PMID- 1\nTI  - T\nAB  - One.\n{line}\nDP  - 2003\n") == [("T", "One.", "2003")]


def test_abstract_in_another_language_stands_for_a_missing_one() -> None:
    assert _abstracts("PMID- 1\nTI  - T\nOAB - Fall.\n      HR - 0.8\nDP  - 2003\n") == [
        ("T", "Fall. HR - 0.8", "2003")
    ]


def test_authors_under_two_tags_keep_their_order() -> None:
    ris = "TY  - JOUR\nA1  - First, A\nAU  - Second, B\nA1  - Third, C\nAU  - First, A\nTI  - T\nAB  - x\nER  - \n"
    (entry,), _ = parse_references(ris)
    assert entry.metadata["authors"] == ["First, A", "Second, B", "Third, C"]


@pytest.mark.parametrize(("text", "abstract"), [(WEB_OF_SCIENCE, ""), (REFER, " to 5 % of women")])
def test_exports_of_web_of_science_and_endnote_are_read(text: str, abstract: str) -> None:
    (first, second), faults = parse_references(text)
    assert not faults
    assert (first.title, first.date) == ("Aspirin in pregnancy", "2020-03-05")
    assert first.abstract == f"Aspirin lowered the rate{abstract}. HR was 0.8."
    assert first.metadata["authors"] == ["Sample, Anna", "Other, Bob"]
    assert first.metadata["keywords"] == ["aspirin", "pregnancy"]
    assert (first.metadata["page_range"], first.metadata["doi"]) == ("12-15", "10.1000/w")
    assert (second.title, second.abstract) == ("Statins", "No effect.")


BIB = "@article{a, title={T}, abstract={x}}\n@book{b, title={U}, abstract={y}}\n"
RIS = "TY  - JOUR\nTI  - T\nAB  - x\nER  - \n\nTY  - JOUR\nTI  - U\nAB  - y\nER  - \n"


@pytest.mark.parametrize(
    "text",
    [RIS, f"Provider: P\nDatabase: D\n\n{RIS}", RIS.replace("TY  - JOUR", "DB  - S"), BIB, WEB_OF_SCIENCE, REFER],
)
def test_text_file_with_records_is_an_export(text: str, tmp_path: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        (tmp_path / "export.txt").write_text(text, encoding=encoding)
        documents = [item for item in read_sources([tmp_path / "export.txt"]) if isinstance(item, Document)]
        assert len(documents) == 2


def test_fields_of_endnote_are_read_and_end_where_the_next_begins() -> None:
    (article, book), faults = parse_references(ENDNOTE_FIELDS)
    assert faults == []
    assert article.title == "Zinc for common colds: a randomised trial"
    assert article.abstract == "BACKGROUND: Colds are common. RESULTS: The odds ratio was 0.51 (HR - 0.80, p < 0.01)."
    assert article.metadata["authors"] == ["Doe, Jane B.", "Roe, C.", "de la Poe, D."]
    assert article.metadata["doi"] == "10.1234/colds.7"
    assert (book.metadata["authors"], book.abstract) == (["World Health Organization"], "All of them.")
    assert begins_with_record(ENDNOTE_FIELDS)
    assert not begins_with_record("Reference Type: seen.\nThe patient was well.")


COCHRANE = """Record #1 of 2
ID: CN-01234567
AU: Smith J
AU: Lee K
TI: Drug R in gout: a randomised trial
SO: Lancet
YR: 2019
PG: 100-110
PM: PUBMED 31000001
XR: EMBASE 2001
PT: Journal article
KW: *gout; Adult
DOI: 10.1000/r.1
AB: Flares fell in 200 adults.
OR: 0.5
US: https://www.cochranelibrary.com/central/doi/10.1002/central/CN-01234567/full

Record #2 of 2
ID: CN-01234568
AU: Doe J
TI: Drug R in pain
AB: Pain fell in 300 adults.
US: https://www.cochranelibrary.com/central/doi/10.1002/central/CN-01234568/full
"""


def test_text_export_of_the_cochrane_library_is_read(tmp_path: Path) -> None:
    (first, second), faults = parse_references(COCHRANE)
    assert faults == []
    assert (first.key, first.title, first.date) == ("CN-01234567", "Drug R in gout: a randomised trial", "2019")
    assert first.abstract == "Flares fell in 200 adults. OR: 0.5"
    assert first.metadata["authors"] == ["Smith, J", "Lee, K"]
    assert first.metadata["keywords"] == ["gout", "Adult"]
    assert (first.metadata["pmid"], first.metadata["doi"]) == ("31000001", "10.1000/r.1")
    assert (second.title, second.abstract) == ("Drug R in pain", "Pain fell in 300 adults.")
    assert "doi" not in second.metadata
    (tmp_path / "citation-export.txt").write_text(COCHRANE.replace("\n", "\r\n"), encoding="utf-8-sig")
    ids = [item.id for item in read_sources([tmp_path]) if isinstance(item, Document)]
    assert ids == ["pubmed:31000001", "file:citation-export.txt#CN-01234568"]


@pytest.mark.parametrize(
    "text",
    [
        "% of patients\n%0 none\n",
        "TY for the notes.\nER - admitted.\n",
        "PT seen.\nAU is fine.\n",
        "TI - x\n",
        "Record #1 of 2\nThe patient was well.\n",
    ],
)
def test_text_file_of_prose_is_no_export(text: str, tmp_path: Path) -> None:
    (tmp_path / "prose.txt").write_text(text)
    (document,) = [item for item in read_sources([tmp_path / "prose.txt"]) if isinstance(item, Document)]
    assert document.text == text


def test_placeholder_abstract_is_counted_as_missing(tmp_path: Path) -> None:
    (tmp_path / "x.ris").write_text("TY  - JOUR\nTI  - T\nAB  - N/A\nER  - \n")
    items = list(read_sources([tmp_path / "x.ris"]))
    assert [item.count for item in items if isinstance(item, FileRemark)] == [1]
