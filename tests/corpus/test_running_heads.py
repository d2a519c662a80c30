"""Running heads, identifiers and OCR of PDF files."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from epicrisis.core.types import Document
from epicrisis.corpus import sandbox
from epicrisis.corpus.base.article_ids import find_article_ids, find_dois
from epicrisis.corpus.base.reader_base import FileRemark, OmittedText
from epicrisis.corpus.documents import ocr, pdf
from epicrisis.corpus.documents.pdf_pages import PageWords
from epicrisis.corpus.documents.pdf_text import OuterLine, find_running_lines
from tests.support.pdf_files import Line, column, placed_pdf, read_marked_characters

BODY = "Aspirin lowered the risk of stroke in women, as the trial {} showed. " * 8
STARTS = ("In women", "Of 1,776 people", "Adherence", "The control group", "Most events", "Age")


def _pages(count: int) -> list[list[Line]]:
    """Return pages with a head that alternates, a foot with a page number, and a line of the text in common."""
    pages: list[list[Line]] = []
    for number in range(1, count + 1):
        head = "Walsh et al." if number % 2 else "Journal of Trials 2019;12:1-9"
        body = column(f"{STARTS[number - 1]}: {BODY.replace('{}', str(number))}", 72, 650 - number, 80)
        pages.append([(72, 760, head), *body, (72, 300, "Table 1 has more."), (300, 30, f"Page {410 + number} of 500")])
    return pages


def _read(path: Path, pages: Sequence[Sequence[Line]], **more: object) -> tuple[Document, list[object]]:
    path.write_bytes(placed_pdf(pages, **more))  # type: ignore[arg-type]
    document, *others = pdf.read_document(path, path.name)
    assert isinstance(document, Document)
    return document, list(others)


def test_running_lines_are_left_out_and_listed(tmp_path: Path) -> None:
    document, others = _read(tmp_path / "a.pdf", _pages(6))
    assert "Walsh" not in document.text
    assert "Journal" not in document.text
    assert "Page 4" not in document.text
    assert document.text.count("Table 1 has more.") == 6, "the middle of a page is never a running line"
    (omitted,) = others
    assert isinstance(omitted, OmittedText)
    assert (omitted.kind, len(omitted.texts), omitted.texts[0]) == ("running-line", 12, "Walsh et al.")
    starts = document.metadata["pages"]
    assert [document.text[start:].partition(":")[0] for start in starts] == list(STARTS)


def test_two_pages_keep_their_lines(tmp_path: Path) -> None:
    document, others = _read(tmp_path / "a.pdf", _pages(2))
    assert "Walsh et al." in document.text
    assert not others


def test_irregular_numbers_in_the_margin_are_kept() -> None:
    def lines(texts: Sequence[str]) -> list[list[OuterLine]]:
        return [[OuterLine(number, 0, text, 0.05)] for number, text in enumerate(texts, 1)]

    assert find_running_lines(lines(["Dose 5 mg", "Dose 80 mg", "Dose 7 mg", "Dose 31 mg"])) == []
    assert len(find_running_lines(lines(["Dose 5 mg"] * 4))) == 4
    assert len(find_running_lines(lines(["11", "12", "13", "14"]))) == 4


def test_place_of_quotation_is_right_without_running_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    document, _ = _read(path, _pages(6))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    quotation = "as the trial 4 showed."
    before = document.text[document.metadata["pages"][3] : document.text.rindex(quotation)]
    letters = len("".join(filter(str.isalnum, before)))
    pages = sandbox.find_words(path, sha256, [PageWords(4, quotation, letters)])
    assert read_marked_characters(path, pages) == quotation.replace(" ", "")
    assert pages[0].boxes[0].top > 0.1


@pytest.mark.parametrize(
    ("page", "information", "data", "ids"),
    [
        ("Trial\nhttps://doi.org/10.1056/NEJMoa1200303. Received 2012", [], b"", {"doi": "10.1056/nejmoa1200303"}),
        ("10.1000/a1 and 10.1000/b2 are both named", [], b"", {}),
        ("doi:10.1016/j.\njacc.2019.01.001", [], b"", {}),
        ("doi:10.1016/j.jacc\n.2019.01.001\nText", [], b"", {}),
        ("Text\nReferences\n1. doi:10.1000/other PMID: 12345678", [], b"", {}),
        ("doi:10.1000/page1 PMID: 29768149", ["doi:10.1000/own2"], b"", {"doi": "10.1000/own2", "pmid": "29768149"}),
        (
            "doi:10.1000/page1 x",
            ["10.1000/info1"],
            b"<rdf><prism:doi>10.1000/xmp(3)</prism:doi></rdf>",
            {"doi": "10.1000/xmp(3)"},
        ),
        ("PMID 123 and PMID: 29768149, PMID: 29768150", [], b"", {}),
    ],
)
def test_article_ids_are_found_only_if_clear(
    page: str, information: list[str], data: bytes, ids: dict[str, str]
) -> None:
    assert find_article_ids(page, information, data) == ids


def test_doi_ends_before_punctuation() -> None:
    assert find_dois("(see 10.1000/AB(1)2). And 10.1000/cd; 10.1000/ab(1)2") == ["10.1000/ab(1)2", "10.1000/cd"]


def test_doi_of_first_page_is_metadata(tmp_path: Path) -> None:
    document, _ = _read(tmp_path / "a.pdf", [[(72, 700, "A trial. doi: 10.1000/xyz.12 (2019)")]])
    assert document.metadata["doi"] == "10.1000/xyz.12"


def _scan(path: Path, text: str) -> None:
    """Write a PDF with one page that is a picture of the text."""
    image = Image.new("L", (1700, 400), 255)
    ImageDraw.Draw(image).text((80, 120), text, fill=0, font=ImageFont.load_default(64))
    image.save(path, "PDF", resolution=200)


def test_page_without_text_names_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "list_languages", lambda: ())
    document, others = _read(tmp_path / "a.pdf", [[(72, 700, "Text.")], [], []])
    assert document.metadata["pages_without_text"] == [2, 3]
    assert others == [FileRemark("a.pdf", "page", f"without text: {ocr.INSTALL}", 2)]


@pytest.mark.slow
def test_page_read_by_ocr_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "list_languages", lambda: ("eng",))
    monkeypatch.setattr(ocr, "read_image", lambda image: f"Read from {image.width} pixels." if image else "")
    _scan(tmp_path / "a.pdf", "Aspirin")
    calls: list[int] = []
    document, remark = pdf.read_document(tmp_path / "a.pdf", "a.pdf", lambda: calls.append(1))
    assert isinstance(document, Document)
    assert document.text == "Read from 2550 pixels."
    assert document.metadata["pages_by_ocr"] == [1]
    assert isinstance(remark, FileRemark)
    assert "OCR" in remark.text
    assert calls == [1], "the limit of time is renewed for each page"


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_scanned_page_is_read_by_tesseract_in_the_sandbox(tmp_path: Path) -> None:
    _scan(tmp_path / "a.pdf", "Aspirin lowered the risk of stroke by 17 percent.")
    document, _ = sandbox.read_file("pdf", tmp_path / "a.pdf", "a.pdf")
    assert isinstance(document, Document)
    assert document.text == "Aspirin lowered the risk of stroke by 17 percent."
    assert document.metadata["pages_by_ocr"] == [1]
