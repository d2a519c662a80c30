"""A folder of mixed files for `benchmarks/first_fifteen_minutes.py`: 19 texts of the demo, and six bad files.

Run as a module of the project, since it uses the writers of the tests: python -m benchmarks.rivals.mixed_folder FOLDER
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path
from typing import Any

import docx
from PIL import Image, ImageDraw

from tests.support.pdf_files import Line, column, placed_pdf

PDF, DOCX, HTML, TEXT, NBIB = range(5), range(5, 8), range(8, 11), range(11, 15), range(15, 19)
"""Which documents of the demo are written in which format. The third, about pre-eclampsia, is a PDF."""


def write_mixed_folder(folder: Path, documents: Path) -> None:
    """Write 16 files with 19 texts, and six files that cannot be read, are empty or hold no text."""
    folder.mkdir(parents=True)
    texts = [json.loads(line) for line in documents.read_text().splitlines()]
    for number in PDF:
        (folder / f"{_name(texts[number])}.pdf").write_bytes(_build_pdf(texts[number]))
    for number in DOCX:
        document = docx.Document()
        document.add_heading(texts[number]["title"])
        document.add_paragraph(texts[number]["text"])
        document.save(str(folder / f"{_name(texts[number])}.docx"))
    for number in HTML:
        title, text = escape(texts[number]["title"]), escape(texts[number]["text"])
        page = f"<html><head><title>{title}</title></head><body><h1>{title}</h1><p>{text}</p></body></html>"
        (folder / f"{_name(texts[number])}.html").write_text(page)
    for number in TEXT:
        (folder / f"{_name(texts[number])}.txt").write_text(f"{texts[number]['title']}\n\n{texts[number]['text']}\n")
    records = [_build_record(texts[number], number) for number in NBIB]
    (folder / "pubmed-export.nbib").write_text("\n".join(records))
    _write_bad_files(folder)


def _write_bad_files(folder: Path) -> None:
    image = Image.new("L", (600, 200), 255)
    ImageDraw.Draw(image).line((0, 0, 600, 200))
    image.save(folder / "scan-without-text.pdf", "PDF")
    image.save(folder / "figure.png")
    (folder / "damaged.docx").write_text("This is something else.")
    (folder / "damaged.pdf").write_bytes(b"%PDF-1.4\nThis is something else.")
    (folder / "empty.txt").touch()
    (folder / "old-word.doc").write_bytes(bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512))


def _build_pdf(text: dict[str, Any]) -> bytes:
    """Return two pages: title, source and the first half of the text, then the second half."""
    source = text["metadata"]["sources"][0]
    words = text["text"].split()
    halves = [" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])]
    head: list[Line] = [(72, 740, text["title"]), (72, 722, source)]
    pages = [[*head, *column(halves[0], 72, 690, 80)], column(halves[1], 72, 740, 80)]
    return placed_pdf(pages, title=text["title"])


def _build_record(text: dict[str, Any], number: int) -> str:
    lines = [f"PMID- {90000000 + number}", f"DP  - {text['date']}", f"TI  - {text['title']}", f"AB  - {text['text']}"]
    return "\n".join([*lines, "FAU - Example, Ann", "AU  - Example A", "JT  - Demo texts", ""])


def _name(text: dict[str, Any]) -> str:
    return str(text["id"]).removeprefix("demo:")


if __name__ == "__main__":
    write_mixed_folder(Path(sys.argv[1]), Path(__file__).parents[2] / "demo" / "documents.jsonl")
