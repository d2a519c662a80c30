"""PubMed's download "Abstract (text)": one entry for each article, with what it says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import Skipped
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.references.reference_entries import ReferenceEntry, parse_references

COMPLETE = """1. N Engl J Demo. 2018 Jun 7;378(23):2191-2201. doi: 10.1000/NEJD1. Epub
2018 May 16.

Rivaroxaban for Stroke Prevention after Embolic Stroke of Undetermined
Source.

Hart RG(1), de la Cruz M(1)(2), Müller-Schmidt KH(#)(1), O'Brien P Jr(2), King M 3rd;
DEMO Investigators.

Collaborators: Ameriso S, Smith J.

Author information:
(1)Demo Institute.

(2)Demo Hospital.

Comment in
    N Engl J Demo. 2018 Sep 6;379(10):986. doi: 10.1000/comment.

Erratum in
    N Engl J Demo. 2018 Oct 6;379(11):1.

BACKGROUND: Strokes are
embolic.
METHODS: We compared two drugs.

CONCLUSIONS: None was superior.

Copyright © 2018 Demo Society.

DOI: 10.1000/NEJD1
PMCID: PMC1234567
PMID: 29766772 [Indexed for MEDLINE]

Conflict of interest statement: None.
"""
BARE = """2. Rev Demo. 2020 Mar-Apr;12 Suppl 1:S3-9.

[Honey for cough].

[Article in German]

[No authors listed]

PMID: 32000000
"""
GROUP = """3. Eur J Demo. 2021 Mar 4:dkz123. doi: 10.1000/x.3. Online ahead of print.

Honey in schools.

WHO Study Group.

Author information:
(1)Geneva.

Two parts were done.

2. Part two was done in Geneva. 2016 was the year.

5. J Demo. 2016 was cited.

PMID: 33000000
"""


def _parse(text: str) -> list[ReferenceEntry]:
    entries, faults = parse_references(text)
    assert not faults
    return entries


@pytest.mark.parametrize("line_end", ["\n", "\r\n", " \n"])
def test_each_entry_has_its_citation_authors_and_abstract(line_end: str) -> None:
    complete, bare, group = _parse("\n\n".join((COMPLETE, BARE, GROUP)).replace("\n", line_end))
    assert complete.title == "Rivaroxaban for Stroke Prevention after Embolic Stroke of Undetermined Source."
    assert complete.abstract == (
        "BACKGROUND: Strokes are embolic. METHODS: We compared two drugs. CONCLUSIONS: None was superior."
    )
    assert (complete.key, complete.date) == ("29766772", "2018-06-07")
    corrections = complete.metadata.pop("corrections")
    assert [correction["type"] for correction in corrections] == ["ErratumIn"]
    assert complete.metadata == {
        "authors": [
            *("Hart, RG", "de la Cruz, M", "Müller-Schmidt, KH", "O'Brien, P, Jr", "King, M, 3rd"),
            "DEMO Investigators",
        ],
        "group_authors": ["DEMO Investigators"],
        "journal": "N Engl J Demo",
        "volume": "378",
        "issue": "23",
        "page_range": "2191-2201",
        "doi": "10.1000/nejd1",
        "pmid": "29766772",
        "pmcid": "PMC1234567",
    }
    assert (bare.title, bare.abstract, bare.date) == ("[Honey for cough].", "", "2020-04")
    assert bare.metadata == {
        "journal": "Rev Demo",
        "volume": "12 Suppl 1",
        "page_range": "S3-9",
        "pmid": "32000000",
        "language": ["German"],
    }
    assert group.metadata["authors"] == group.metadata["group_authors"] == ["WHO Study Group"]
    assert (group.date, group.metadata["page_range"]) == ("2021-03-04", "dkz123")
    assert group.metadata["doi"] == "10.1000/x.3", "the citation has it where no line does"
    assert group.abstract.startswith("Two parts were done. 2. Part two"), "a number of a paragraph begins no entry"
    assert group.abstract.endswith("5. J Demo. 2016 was cited."), "nor does a number that is not the next"


@pytest.mark.parametrize(
    "paragraph",
    [
        "Vitamin D, taken with food, shortened colds, and nothing else.",
        "BACKGROUND: Colds are common.\nRESULTS: Zinc shortened colds.",
    ],
)
def test_abstract_without_authors_is_no_list_of_authors(paragraph: str) -> None:
    (entry,) = _parse(f"1. J Demo. 2019;1:2.\n\nColds.\n\n{paragraph}\n\nPMID: 5\n")
    assert entry.abstract == " ".join(paragraph.split())
    assert "authors" not in entry.metadata


@pytest.mark.parametrize("heading", ["Retraction in", "Retracted and republished in"])
def test_retracted_article_is_marked(heading: str) -> None:
    (entry,) = _parse(f"1. J Demo. 2019;1:2.\n\nColds.\n\n{heading}\n    J Demo. 2020;2:3.\n\nX.\n\nPMID: 5\n")
    assert entry.metadata["retracted"] is True
    assert entry.abstract == "X."


def test_text_file_of_abstracts_is_one_document_for_each(tmp_path: Path) -> None:
    (tmp_path / "abstract-cough.txt").write_text(f"\ufeff{COMPLETE}\n\n{BARE}\n\n{GROUP}", encoding="utf-8")
    documents = [item for item in read_sources([tmp_path]) if isinstance(item, Document)]
    assert [document.id for document in documents] == ["pubmed:29766772", "pubmed:33000000"]


@pytest.mark.parametrize(
    "text",
    [
        "1. Take one tablet. 2019 was a good year.\n\nRest.\n",
        "1. Doe A. Zinc. J Demo. 2001;3:1. PMID: 5\n2. Roe B. Zinc. Lancet. 1999;1:2. PMID: 6\n",
        "Zinc for colds\n\nPMID: 5\n",
    ],
)
def test_other_text_stays_a_document_of_its_own(text: str, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text(text, encoding="utf-8")
    (document,) = [item for item in read_sources([tmp_path]) if isinstance(item, Document)]
    assert document.id == "file:note.txt"


SUMMARY = (
    "1: Smith A, Lee K. Drug L for migraine. Demo J. 2019 Mar 4;3(4):100-110. doi:\n10.1000/pm.1. Epub 2019 Jan 2. "
    "PMID: 53000001; PMCID: PMC5300001.\n\n2: Doe J. Drug L bei Migräne. Demo J. 2020. PMID: 53000002.\n"
)


def test_summary_of_pubmed_is_refused_with_the_format_to_save(tmp_path: Path) -> None:
    (tmp_path / "summary-set.txt").write_text(SUMMARY)
    (skipped,) = read_sources([tmp_path / "summary-set.txt"])
    assert isinstance(skipped, Skipped)
    assert skipped.reason == (
        "PubMed's Summary, which has no abstracts; save the format PubMed or Abstract (text) there"
    )


@pytest.mark.parametrize(
    "text",
    [
        "1: The patient was seen in 2019 and was well on Drug L.\n\n2: PMID: 53000002.\n",
        "Background. Demo J. 2019 Mar 4;3(4):100-110. PMID: 53000001.\n",
        "1: Take the drug at home.\n",
    ],
)
def test_numbered_prose_is_no_summary(text: str, tmp_path: Path) -> None:
    (tmp_path / "prose.txt").write_text(text)
    assert [item.text for item in read_sources([tmp_path]) if isinstance(item, Document)] == [text]
