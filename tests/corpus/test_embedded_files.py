"""Files embedded in records: the format by their content, and what is not read."""

from __future__ import annotations

import pytest

from epicrisis.corpus import sandbox
from tests.support.pdf_files import placed_pdf

RTF = rb"{\rtf1\ansi{\fonttbl{\f0 Arial;}}\f0 Findings: mass in the \b left\b0  breast.\par Second line.}"
PAGE = b"<html><body><h1>Report</h1><p>Ejection fraction 35 %</p></body></html>"


@pytest.mark.parametrize("content_type", ["application/rtf", "text/plain", "application/octet-stream", ""])
def test_rtf_of_any_declared_type_is_text(content_type: str) -> None:
    text = sandbox.read_embedded(RTF, content_type).text
    assert text.split("\n") == ["Findings: mass in the left breast.", "Second line."]


def test_pdf_called_text_is_text_of_its_pages() -> None:
    pdf = placed_pdf([[(72, 700, "Creatinine 1.4 mg/dL")], []])
    embedded = sandbox.read_embedded(pdf, "text/plain")
    assert "Creatinine 1.4 mg/dL" in embedded.text
    assert embedded.remarks[0].startswith("1 page without text: ")


def test_page_called_pdf_is_its_visible_text() -> None:
    assert sandbox.read_embedded(PAGE, "application/pdf").text == "Report\nEjection fraction 35 %"


def test_text_in_declared_charset_is_decoded() -> None:
    assert sandbox.read_embedded("Größe".encode("utf-16-le"), "text/plain; charset=utf-16-le").text == "Größe"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xd8\xff\xe0JFIF", "a picture (JPEG), which is not read"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "a Word file of the old format"),
        (b"PK\x03\x04garbage", "a broken ZIP file"),
        (b"%PDF-1.7 cut off", "not a PDF file, or broken"),
        (b"  \n", "holds no text"),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]><ClinicalDocument>&a;</ClinicalDocument>", "declares its own entities"),
    ],
)
def test_unreadable_file_is_refused_with_its_kind(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match="^" + reason.replace("(", r"\(").replace(")", r"\)")):
        sandbox.read_embedded(data, "application/octet-stream")
