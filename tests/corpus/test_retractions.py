"""The list of Retraction Watch, and what PubMed's notices say of other articles."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.articles.retractions import (
    article_names,
    extract_statements,
    is_retraction_watch,
    read_retraction_watch,
)
from epicrisis.corpus.base.reader_base import ArticleStatement, FileFingerprint, Skipped
from epicrisis.corpus.readers.sources import read_sources

HEADER = (
    "Record ID,Title,Subject,Institution,Journal,Publisher,Country,Author,URLS,ArticleType,RetractionDate,"
    "RetractionDOI,RetractionPubMedID,OriginalPaperDate,OriginalPaperDOI,OriginalPaperPubMedID,RetractionNature,"
    "Reason,Paywalled,Notes"
)


def entry(number: object, nature: str, day: str = "5/31/2021 0:00", pmid: object = 0, doi: str = "unavailable") -> str:
    return f'{number},"A title, of two parts",,,,,,,,,{day},,,1/1/2010 0:00,{doi},{pmid},{nature},+Fraud;,No,'


def watch(path: Path, *entries: str) -> Path:
    """The list with these entries."""
    path.write_text("\n".join((HEADER, *entries)) + "\n", encoding="utf-8")
    return path


def test_retraction_entry_has_article_kind_and_date(tmp_path: Path) -> None:
    path = watch(
        tmp_path / "retraction_watch.csv",
        entry(1, "Retraction", pmid=21645374, doi="10.1000/ABC.1"),
        entry(2, "Expression of concern", "2020-02-03", doi="https://doi.org/10.1000/x(2)"),
        entry(3, "Correction", "soon", pmid="7; 8"),
        entry(4, "Reinstatement", "12/1/2022 0:00", pmid=7),
        entry(5, "Retraction"),
        entry(6, "Apology", pmid=9),
        entry("", "Retraction", pmid=9),
    )
    cure = "; update epicrisis, or fetch the list again"
    assert list(read_retraction_watch(path)) == [
        ArticleStatement("retraction-watch:1", ("pubmed:21645374", "doi:10.1000/abc.1"), "retracted", 20210531),
        ArticleStatement("retraction-watch:2", ("doi:10.1000/x(2)",), "expression-of-concern", 20200203),
        ArticleStatement("retraction-watch:3", ("pubmed:7", "pubmed:8"), "corrected", None),
        ArticleStatement("retraction-watch:4", ("pubmed:7",), "reinstated", 20221201),
        ArticleStatement("retraction-watch:5", (), "retracted", 20210531),
        Skipped(str(path), "line 7", f"its RetractionNature is unknown{cure}"),
        Skipped(str(path), "line 8", f"has no Record ID{cure}"),
    ]


@pytest.mark.parametrize(
    ("pmid", "doi", "targets"),
    [
        ("PMC12345", "unavailable", ()),
        ("123456789012", "unavailable", ()),
        ("12345.0", "unavailable", ("pubmed:12345",)),
        ("7;8", "10.1000/a;10.1000/b", ("pubmed:7", "pubmed:8", "doi:10.1000/a", "doi:10.1000/b")),
        (
            "0",
            "10.1002/(SICI)1097(1996)77:1<1::AID-1>3.0.CO;2-X",
            ("doi:10.1002/(sici)1097(1996)77:1<1::aid-1>3.0.co;2-x",),
        ),
        ("0", "https://doi.org/10.1000/a.", ("doi:10.1000/a",)),
    ],
)
def test_retraction_entry_names_only_its_article(pmid: str, doi: str, targets: tuple[str, ...], tmp_path: Path) -> None:
    path = watch(tmp_path / "retraction_watch.csv", entry(1, "Retraction", pmid=pmid, doi=doi))
    assert list(read_retraction_watch(path)) == [ArticleStatement("retraction-watch:1", targets, "retracted", 20210531)]


def test_retraction_list_is_detected_by_header(tmp_path: Path) -> None:
    path = watch(tmp_path / "any name.csv", entry(1, "Retraction", pmid=5))
    assert is_retraction_watch(path)
    found = list(read_sources([path]))
    assert [type(item) for item in found] == [ArticleStatement, FileFingerprint]
    other = tmp_path / "other.csv"
    other.write_text("subject_id,text\n1,x\n", encoding="utf-8")
    assert not is_retraction_watch(other)
    with pytest.raises(InputError, match="no list of Retraction Watch"):
        list(read_sources([other], "retraction-watch"))


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b'Record ID,"', b"\x00" * 100, b"a" * 200_000])
def test_csv_without_retractions_is_rejected_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "list.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        list(read_sources([path], "retraction-watch"))
    assert "\n" not in raised.value.message


def test_entry_with_oversized_cell_is_skipped_and_rest_is_read(tmp_path: Path) -> None:
    long = entry(2, "Retraction", pmid="6" * 200_000)
    path = watch(tmp_path / "list.csv", entry(1, "Retraction", pmid=5), long, entry(3, "Retraction", pmid=7))
    first, broken, last = read_retraction_watch(path)
    assert isinstance(first, ArticleStatement)
    assert isinstance(broken, Skipped)
    assert (broken.where, broken.reason[:28]) == ("line 3", "a cell has 200,000 character")
    assert isinstance(last, ArticleStatement)


def notice(kind: str, revision: str | None = "20240101.01.0000000") -> Document:
    corrections = [{"type": kind, "pmid": "12", "source": "Lancet"}, {"type": "CommentOn", "pmid": "13"}]
    return Document("pubmed:99", "x", date="2024-02", metadata={"corrections": corrections}, revision=revision)


@pytest.mark.parametrize(
    ("kind", "mark"),
    [
        ("RetractionOf", "retracted"),
        ("RetractedandRepublishedFrom", "retracted"),
        ("ExpressionOfConcernFor", "expression-of-concern"),
        ("ErratumFor", "corrected"),
        ("CorrectedandRepublishedFrom", "corrected"),
    ],
)
def test_notice_marks_article_it_names(kind: str, mark: str) -> None:
    assert extract_statements(notice(kind)) == (ArticleStatement("pubmed:99", ("pubmed:12",), mark, 20240229),)


def test_only_pubmed_records_mark_other_articles() -> None:
    assert extract_statements(notice("RetractionIn")) == ()
    assert extract_statements(notice("RetractionOf", revision=None)) == ()


def test_document_is_identified_by_pmid_and_doi() -> None:
    assert article_names({"pmid": "012", "doi": "https://doi.org/10.1000/X"}) == ("pubmed:12", "doi:10.1000/x")
    assert article_names({"PMID": 12}) == ("pubmed:12",)
    assert article_names({"pmid": "PMC1", "doi": 3}) == ()
