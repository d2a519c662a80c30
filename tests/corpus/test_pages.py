"""PDF and HTML files: what stands in them, and what is told where it cannot be read."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import FileRemark, Skipped
from epicrisis.corpus.documents import html, ocr, pdf


def made_pdf(pages: Sequence[Sequence[str]], title: str = "") -> bytes:
    """A PDF of these lines, each page's below each other; the smallest form that PDF has."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", font]
    kids = []
    for lines in pages:
        shown = b" ".join(b"(" + _escaped(line) + b") Tj T*" for line in lines)
        body = b"BT /F1 12 Tf 14 TL 72 720 Td " + shown + b" ET"
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(body), body))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> "
            b"/Contents %d 0 R >>" % len(objects)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    objects.append(b"<< /Title (" + _escaped(title) + b") >>")
    return _file(objects, b"/Root 1 0 R /Info %d 0 R" % len(objects))


def _escaped(text: str) -> bytes:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)").encode("cp1252")


def _file(objects: Sequence[bytes], trailer: bytes) -> bytes:
    out = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    head = b"xref\n0 %d\n0000000000 65535 f \n" % size
    return out + head + table + b"trailer << /Size %d %s >>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer, len(out))


def pdf_document(path: Path, data: bytes) -> Document:
    path.write_bytes(data)
    item, *_ = pdf.read_document(path, path.name)
    assert isinstance(item, Document)
    return item


def html_document(path: Path, data: bytes | str) -> Document:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    (item,) = html.read_document(path, path.name)
    assert isinstance(item, Document)
    return item


def reason(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    (item,) = (pdf if path.suffix == ".pdf" else html).read_document(path, path.name)
    assert isinstance(item, Skipped)
    assert (item.path, item.where) == (str(path), "")
    return item.reason


@pytest.fixture(autouse=True)
def _no_tesseract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "list_languages", lambda: ())


# -- PDF ------------------------------------------------------------------------------------------------------------


def test_pdf_text_is_read_by_page(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(made_pdf([["Café – one (p < 0.05).", "Two."], [], ["Three."]], "The title"))
    item, remark = pdf.read_document(path, "folder/a.pdf")
    assert item == Document(
        "file:folder/a.pdf",
        "Café – one (p < 0.05).\nTwo.\n\n\n\nThree.",
        title="The title",
        source="folder/a.pdf",
        metadata={"pages": [0, 29, 31], "pages_without_text": [2]},
    )
    assert remark == FileRemark("folder/a.pdf", "page", f"without text: {ocr.INSTALL}", 1)


def test_pdf_page_offsets_are_starts_of_pages(tmp_path: Path) -> None:
    document = pdf_document(tmp_path / "a.pdf", made_pdf([["First."], ["Second."], ["Third."]]))
    assert document.title == "a"
    pages = document.metadata["pages"]
    assert [document.text[start:].split()[0] for start in pages] == ["First.", "Second.", "Third."]


def test_pdf_hyphenated_word_is_joined_only_if_certain(tmp_path: Path) -> None:
    lines = ["Patients with fibril-", "lation and a well-", "known level of IL-", "6 were in atrial fibrillation."]
    document = pdf_document(tmp_path / "a.pdf", made_pdf([lines]))
    assert document.text == "Patients with fibrillation and a well-known level of IL-6 were in atrial fibrillation."


def test_pdf_without_text_is_reported(tmp_path: Path) -> None:
    assert reason(tmp_path / "a.pdf", made_pdf([[], []])) == (
        f"no text on any page, only pictures perhaps: {ocr.INSTALL}"
    )


def test_pdf_with_encryption_is_reported(tmp_path: Path) -> None:
    plain = made_pdf([["secret"]])
    rights = b"/Encrypt << /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P -4 >> /ID [<00> <00>]" % (
        b"41" * 32,
        b"42" * 32,
    )
    data = plain.replace(b"/Root 1 0 R", rights + b" /Root 1 0 R")
    assert reason(tmp_path / "a.pdf", data) == "encrypted; save a copy without a password"


@pytest.mark.parametrize("data", [b"", b"%PDF-1.4\n", b"plain text", made_pdf([["x"]])[:200]])
def test_file_without_pdf_content_is_reported(tmp_path: Path, data: bytes) -> None:
    assert reason(tmp_path / "a.pdf", data) == "not a PDF file, or broken; print it to a new PDF file"


def test_pdf_over_page_limit_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_CHARACTERS", 10)
    assert reason(tmp_path / "a.pdf", made_pdf([["six..."], ["seven.."]])).startswith("more than 10 characters")
    monkeypatch.setattr(pdf, "MAX_FILE_BYTES", 100)
    assert reason(tmp_path / "a.pdf", made_pdf([["x"]])).startswith("larger than 0 MB")


@pytest.mark.slow
def test_pdf_with_random_mutations_never_raises(tmp_path: Path) -> None:
    whole = made_pdf([[f"Line {n} of the first page." for n in range(20)], ["Second (page)."]], "T")
    dice = random.Random(7)
    path = tmp_path / "a.pdf"
    documents = 0
    for _ in range(500):
        data = bytearray(whole)
        for _ in range(dice.choice([1, 4, 30])):
            at = dice.randrange(len(data))
            data[at : at + dice.choice([0, 1, 9])] = dice.randbytes(dice.choice([0, 1, 1, 5]))
        path.write_bytes(data)
        item, *_ = pdf.read_document(path, "a.pdf")
        if isinstance(item, Document):
            documents += 1
            item.text.encode()
            assert "\0" not in item.text
            assert len(item.metadata["pages"]) >= 1
    assert 50 < documents < 500


# -- HTML -----------------------------------------------------------------------------------------------------------


def test_html_page_gives_title_and_text(tmp_path: Path) -> None:
    page = """<!DOCTYPE html><html><head><title> A &amp;
      B </title><style>p {}</style></head><body><nav><a href=x>Home</a></nav>
      <h1>Heading</h1><p>One <b>two</b>   &lt;5&nbsp;mg.<br>Next</p><div>a<p>b</p>c</div>
      <script>alert(1)</script><ul><li>first<li>second</ul><pre>x\n  <b>y</b> z\n</pre>
      <footer>Foot</footer></body></html>"""
    document = html_document(tmp_path / "a.html", page)
    assert document == Document(
        "file:a.html",
        "Heading\nOne two <5 mg.\nNext\na\nb\nc\nfirst\nsecond\nx\ny z\nFoot",
        title="A & B",
        source="a.html",
    )


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("<table><tr><th>Drug<th>Dose<tr><td>A<td><p>5 mg</p><tr><td><td>x</table>", "Drug | Dose\nA | 5 mg\n | x"),
        ("<table><tr><td><p>long</p><p>text</p><td>side</table>", "long\ntext\nside"),
        ("<table><tr><td>a<table><tr><td>1<td>2<tr><td>3<td>4</table></table>", "a\n1 | 2\n3 | 4"),
        ("before<table><tr></tr><tr><td></td></tr></table>after", "before\nafter"),
        ("<math><td>x</td></math>", "x"),
    ],
)
def test_html_tables_become_rows(tmp_path: Path, table: str, text: str) -> None:
    assert html_document(tmp_path / "a.html", table).text == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("10<sup>9</sup>/L and 10<sup>-3</sup>", "10^9/L and 10^-3"),
        ("H<sub>2</sub>O, Ca<sup>2+</sup>, 1<sup>st</sup>, m<sup> 2</sup>", "H2O, Ca2+, 1st, m 2"),
        ("x<sup></sup>1 5<sub>0</sub>", "x1 5_0"),
        ("by 12<sup><a href='#b'>3</a></sup> percent and 30%<sup>4,5</sup>", "by 12 [3] percent and 30% [4,5]"),
    ],
)
def test_html_superscript_does_not_merge_with_number(tmp_path: Path, markup: str, text: str) -> None:
    assert html_document(tmp_path / "a.html", markup).text == text


@pytest.mark.parametrize(
    "data",
    [
        "<p>naïve".encode(),
        b"\xef\xbb\xbf<p>na\xc3\xafve",
        b"\xff\xfe" + "<p>naïve".encode("utf-16-le"),
        b"<meta charset='ISO-8859-1'><p>na\xefve",
        b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1252"><p>na\xefve',
        b'<?xml version="1.0" encoding="latin1"?><p>na\xefve',
        b"<meta charset=utf-16><p>na\xc3\xafve",
    ],
)
def test_html_encodings_are_detected(tmp_path: Path, data: bytes) -> None:
    assert html_document(tmp_path / "a.html", data).text == "naïve"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"<meta charset=utf-8><p>na\xefve", "not utf-8 at byte 26; save it as UTF-8 with a declaration of UTF-8"),
        (b"<meta charset=klingon>x", "names an unknown encoding; save it as UTF-8"),
        (b"<meta charset=hex>x", "names an unknown encoding; save it as UTF-8"),
        (b"<meta charset=punycode>" + b"x" * 500_000, "names an unknown encoding; save it as UTF-8"),
        (b"<meta charset=unicode_escape>x", "names an unknown encoding; save it as UTF-8"),
        (b"", "holds no text; leave it out"),
        (b"<html><script>x</script>", "holds no text; leave it out"),
        (b"<frameset><frame src=x></frameset>", "holds no text; leave it out"),
        (b"<div>" * 10_001 + b"x", "elements nested deeper than 10,000; save it as text"),
        (b"<x></y>" * 257_000, "elements nested deeper than 10,000; save it as text"),
        (b"<b>" * 9_000 + b"</a>" * 200_000, "too many end tags for such deeply nested elements; save it as text"),
        (
            b"<p " + b" ".join(b"a%d" % n for n in range(120_000)) + b">x",
            "an element of more than 5,000 attributes; save it as text",
        ),
    ],
)
def test_html_unreadable_file_is_reported(tmp_path: Path, data: bytes, says: str) -> None:
    assert reason(tmp_path / "a.html", data) == says


def test_html_tag_with_long_values_is_within_attribute_limit(tmp_path: Path) -> None:
    path = "M 0 0 L 1 1 " * 5_000
    assert html_document(tmp_path / "a.html", f"<p data-path='{path}' title=\"{path}\">text</p>").text == "text"


def test_html_title_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "stem.html"
    assert html_document(path, "<h1>A <i>b</i></h1>x").title == "A b"
    assert html_document(path, "<title> </title>x").title == "stem"
    assert html_document(path, "<svg><title>drawing</title></svg>x").title == "stem"


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(["<p>", "</p>", "<td>", "<tr>", "<table>", "</table>", "<pre>", "<sup>", "a", " 1", "\n"]))
)
def test_html_text_is_kept_exactly(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    path = tmp_path_factory.mktemp("page") / "a.html"
    path.write_text("".join(parts))
    (item,) = html.read_document(path, "a.html")
    found = item.text if isinstance(item, Document) else ""
    letters = "".join(part.strip() for part in parts if not part.startswith("<"))
    # A row has "|" between its cells, and a raised number "^" before it or "[" and "]" around it.
    assert sorted(re.sub(r"[|^\[\]\s]", "", found)) == sorted(letters)


@pytest.mark.slow
def test_html_with_random_mutations_never_raises(tmp_path: Path) -> None:
    whole = (
        "<html><head><meta charset=utf-8><title>T</title></head><body><h1>Ä</h1><table><tr><td>1<td>2</table>"
        "<ul><li>x</ul><p>10<sup>9</sup></p><!-- c --><svg><td>y</td></svg><pre>a\nb</pre></body></html>"
    ).encode()
    dice = random.Random(7)
    path = tmp_path / "a.html"
    documents = 0
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(dice.choice([1, 4, 30])):
            at = dice.randrange(len(data))
            data[at : at + dice.choice([0, 1, 9])] = dice.choice([dice.randbytes(1), b"<", b">", b"&#0;", b"&#xd800;"])
        path.write_bytes(data)
        # A page whose declaration is damaged may be read in another encoding, with a remark.
        item, *remarks = html.read_document(path, "a.html")
        assert len(remarks) <= isinstance(item, Document)
        assert all(isinstance(remark, FileRemark) for remark in remarks)
        if isinstance(item, Document):
            documents += 1
            item.text.encode()
            assert "\0" not in item.text
            assert item.text.strip()
    assert 50 < documents < 400


@pytest.mark.parametrize("reader", [pdf, html])
def test_missing_page_file_raises(tmp_path: Path, reader: object) -> None:
    read = pdf.read_document if reader is pdf else html.read_document
    (gone,) = read(tmp_path / "none", "none")
    assert isinstance(gone, Skipped)
    assert gone.reason == "No such file or directory; check the file and its permissions"
