"""Forty files of many kinds in one folder, made by real writers: what a user drops into a library at once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import docx
from PIL import Image, ImageDraw

from tests.support import office_files, pubmed_xml
from tests.support.pdf_files import Line, column, placed_pdf

READ = 29
"""Files of which something is read."""
REFUSED = {
    "broken.docx": "broken, or not the kind of file that its name says; save it again",
    "broken.pdf": "not a PDF file, or broken; print it to a new PDF file",
    "broken.xlsx": "not a spreadsheet that can be read, or broken; save it again as .xlsx",
    "empty.txt": "the file is empty",
    "mixed.txt": "two encodings are mixed, one of them UTF-8; save all of it as UTF-8",
    "nothing.ris": "no entries of nbib, RIS, BibTeX or CSL-JSON in it; check what file this is",
    "old.doc": "Word's old format, in which deleted text is text; convert it: soffice --headless --convert-to docx",
    "picture.png": "a picture; save it as PDF",
    "scan.pdf": "no text on any page, only pictures perhaps",
    "table.csv": "a table with other columns than",
    "wrong.xml": "other XML or JSON than",
}
"""The files that are refused, and the beginning or a part of the line that says why and what to do."""
_TEXT = "Aspirin lowered the risk of stroke in women of the trial number {}, who took it for ten years."
_GERMAN = "Die Patientin hatte Fieber über 39 °C und Übelkeit; Müdigkeit, Schwäche. Größe 170 cm, {}."
_META = (
    '<meta name="citation_title" content="A paper on a page"><meta name="citation_author" content="Walsh, P">'
    '<meta name="citation_doi" content="10.1000/page.1"><meta name="citation_publication_date" content="2019/05/01">'
)


def write_forty_files(folder: Path) -> None:
    """Write the files into a new folder."""
    folder.mkdir()
    _write_texts(folder)
    _write_pages_and_articles(folder)
    _write_pdfs(folder)
    _write_office_files(folder)
    _write_references(folder)
    _write_refused(folder)


def _write_texts(folder: Path) -> None:
    (folder / "a.txt").write_text(_TEXT.format(1))
    (folder / "b.md").write_text(f"# A heading\n\n{_TEXT.format(2)}")
    (folder / "c.markdown").write_text(_TEXT.format(3))
    (folder / "german.txt").write_bytes(_GERMAN.format(4).encode("cp1252"))
    (folder / "utf16.txt").write_bytes(_GERMAN.format(5).encode("utf-16"))
    (folder / "japanese.txt").write_bytes("患者は発熱と咳を訴えた。アスピリンは脳卒中を減らした。".encode("shift_jis"))
    lines = [json.dumps({"id": f"line-{number}", "text": _TEXT.format(f"J{number}")}) for number in range(3)]
    (folder / "d.jsonl").write_text("\n".join(lines))
    (folder / "e.jsonl.gz").write_bytes(gzip.compress(json.dumps({"id": "z", "text": _TEXT.format(6)}).encode()))


def _write_pages_and_articles(folder: Path) -> None:
    (folder / "f.html").write_text(f"<html><head>{_META}</head><body><p>{_TEXT.format(7)}")
    (folder / "g.htm").write_bytes(f"<p>{_GERMAN.format(8)}".encode("cp1252"))
    (folder / "h.xhtml").write_text(f"<html><body><p>{_TEXT.format(9)}</p></body></html>")
    article = f"<article><front/><body><sec><title>Results</title><p>{_TEXT.format(10)}</p></sec></body></article>"
    (folder / "i.nxml").write_text(article)
    for number, name in ((11, "j.xml"), (12, "k.xml.gz")):
        abstract = f"<Abstract><AbstractText>{_TEXT.format(number)}</AbstractText></Abstract>"
        text = pubmed_xml.article_set([pubmed_xml.article(number, title="A record.", abstract=abstract)])
        (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def _write_pdfs(folder: Path) -> None:
    pages: list[list[Line]] = []
    for number in range(1, 5):
        body = column(_TEXT.format(f"P{number}"), 72, 650, 70)
        pages.append([(72, 760, "Walsh et al."), *body, (300, 30, str(number))])
    (folder / "l.pdf").write_bytes(placed_pdf(pages, title="A paper with running heads"))
    (folder / "m.pdf").write_bytes(
        placed_pdf([column(f"doi: 10.1000/abc.2 and text. {_TEXT.format(12)}", 72, 700, 70)])
    )
    (folder / "n.pdf").write_bytes(placed_pdf([column(_TEXT.format(13), 72, 700, 70), []]))


def _write_office_files(folder: Path) -> None:
    for number, suffix in enumerate(office_files.WRITERS):
        office_files.WRITERS[suffix](folder / f"office-{number}{suffix}")
    plain = docx.Document()
    plain.add_paragraph(_TEXT.format(14))
    plain.save(str(folder / "plain.docx"))


def _write_references(folder: Path) -> None:
    (folder / "o.nbib").write_text(f"PMID- 77\nDP  - 2018\nTI  - A title.\nAB  - {_TEXT.format(15)}\nFAU - Hart, R\n")
    (folder / "p.ris").write_text(
        f"TY  - JOUR\nTI  - A title\nAB  - {_TEXT.format(16)}\nTY  - JOUR\nTI  - No abstract\nER  - \n"
    )
    bibtex = f"@article{{x, title={{T}}, abstract={{{_TEXT.format(17)}}}}}\n"
    described = "@article{y, title={Described}, author={Walsh, P}, doi={10.1000/abc.2}, abstract={Unused.}}\n"
    (folder / "q.bib").write_text(bibtex + described)
    entry = {"id": "z", "type": "book", "title": "A book", "abstract": _TEXT.format(18)}
    (folder / "r.json").write_text(json.dumps([entry]))
    (folder / "pubmed-export.txt").write_text(f"PMID- 78\nTI  - Another.\nAB  - {_TEXT.format(19)}\n")


def _write_refused(folder: Path) -> None:
    for name in ("broken.docx", "broken.pdf", "broken.xlsx", "nothing.ris", "old.doc"):
        (folder / name).write_text("This is something else.")
    (folder / "empty.txt").touch()
    (folder / "mixed.txt").write_bytes("naïve\n".encode() + "naïve".encode("cp1252"))
    (folder / "table.csv").write_text("a,b\n1,2\n")
    (folder / "wrong.xml").write_text("<plist/>")
    image = Image.new("L", (600, 200), 255)
    ImageDraw.Draw(image).line((0, 0, 600, 200))
    image.save(folder / "picture.png")
    image.save(folder / "scan.pdf", "PDF")
