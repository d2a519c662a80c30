"""Write one answer as a Word file, with the content and order of the Markdown file.

    path.write_bytes(to_word(build_answer_content(answer)))

Texts are written as text runs, in which Word finds no field, link or markup. Only links built from checked identifiers
are links.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.core.printable import REPLACEMENT, printable
from epicrisis.report.answer_content import SUPPORT_NOTICE, AnswerContent, AnswerSection, SourceEntry
from epicrisis.report.computed_table import ValueTable

if TYPE_CHECKING:
    from docx.document import Document as WordDocument
    from docx.text.paragraph import Paragraph

    from epicrisis.core.references import Link

WORD_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_AUTHOR = "epicrisis ask"
_MARK = f"<cp:lastModifiedBy>{_AUTHOR}</cp:lastModifiedBy>".encode()
"""Word replaces the name when a person saves the file."""
_MAX_PROPERTIES = 100_000
"""Bytes of the properties of a file."""
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOTICES = (
    SUPPORT_NOTICE,
    "Made with epicrisis, a research tool and not a medical device.",
)


def to_word(content: AnswerContent, path: Sequence[str] = ()) -> bytes:
    """Return the answer as a Word file, with the steps of `path` at its end."""
    from docx import Document
    from docx.shared import Pt

    document = Document()
    _set_properties(document, content)
    document.add_heading(_clean(content.question), 1)
    verdict = document.add_paragraph()
    _add_text(verdict, f"{content.head}: ", bold=True)
    for number, line in enumerate(content.verdict):
        if number:
            verdict.add_run().add_break()
        _add_text(verdict, line).font.size = Pt(14)
    _add_list(document, content.claims)
    for warning in content.warnings:
        paragraph = document.add_paragraph()
        _add_text(paragraph, "Warning: ", bold=True)
        _add_text(paragraph, warning)
    for remark in content.remarks:
        _add_text(document.add_paragraph(), remark)
    for section in content.sections:
        _add_section(document, section)
    if path:
        document.add_heading("How the answer was found", 2)
        _add_list(document, path)
    for number, notice in enumerate(_NOTICES):
        paragraph = document.add_paragraph()
        paragraph.paragraph_format.space_before = Pt(0 if number else 18)
        _add_text(paragraph, notice).italic = True
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def is_word_answer(path: Path) -> bool:
    """Return whether `to_word` wrote the file, and no program has saved it since."""
    try:
        with zipfile.ZipFile(path) as file, file.open("docProps/core.xml") as properties:
            return _MARK in properties.read(_MAX_PROPERTIES)
    except (OSError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return False


def _set_properties(document: WordDocument, content: AnswerContent) -> None:
    properties = document.core_properties
    properties.author = properties.last_modified_by = _AUTHOR
    # Word limits a property to 255 characters.
    properties.title = _clean(content.question)[:255]
    properties.comments = ""
    properties.language = "en"


def _add_section(document: WordDocument, section: AnswerSection) -> None:
    document.add_heading(_clean(section.heading), 2)
    if section.lead:
        _add_text(document.add_paragraph(), section.lead)
    if section.table is not None:
        _add_table(document, section.table)
    for entry in section.entries:
        _add_entry(document, entry)
    _add_list(document, section.lines)


def _add_table(document: WordDocument, table: ValueTable) -> None:
    grid = document.add_table(rows=0, cols=len(table.columns), style="Light Grid")
    for number, row in enumerate((table.columns, *table.rows)):
        for cell, text in zip(grid.add_row().cells, row, strict=True):
            _add_text(cell.paragraphs[0], text, bold=number == 0)


def _add_entry(document: WordDocument, entry: SourceEntry) -> None:
    """Add a source, and its details one level below."""
    paragraph = document.add_paragraph(style="List Bullet")
    _add_text(paragraph, f"{entry.label} ")
    if entry.warning:
        _add_text(paragraph, f"{entry.warning} ", bold=True)
    _add_text(paragraph, entry.text)
    for detail in entry.details:
        _add_text(document.add_paragraph(style="List Bullet 2"), detail)
    if entry.links:
        paragraph = document.add_paragraph(style="List Bullet 2")
        for number, link in enumerate(entry.links):
            if number:
                _add_text(paragraph, ", ")
            _add_link(paragraph, link)


def _add_list(document: WordDocument, texts: Sequence[str]) -> None:
    for text in texts:
        _add_text(document.add_paragraph(style="List Bullet"), text)


def _add_text(paragraph: Paragraph, text: str, *, bold: bool = False) -> Any:
    """Add a text run and return it."""
    run = paragraph.add_run(_clean(text))
    run.bold = bold or None
    return run


def _add_link(paragraph: Paragraph, link: Link) -> None:
    """Add a link. python-docx reads links and has no function to write them."""
    from docx.opc.constants import RELATIONSHIP_TYPE
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn
    from docx.shared import RGBColor

    relation = paragraph.part.relate_to(link.url, RELATIONSHIP_TYPE.HYPERLINK, is_external=True)
    element = OxmlElement("w:hyperlink")
    element.set(qn("r:id"), relation)
    run = _add_text(paragraph, f"{link.label} {link.identifier}")
    run.font.underline = True
    run.font.color.rgb = RGBColor(0x0A, 0x5A, 0x8A)
    element.append(run._r)
    paragraph._p.append(element)


def _clean(text: str) -> str:
    """Return one printable line with characters that XML allows."""
    return _NOT_IN_XML.sub(REPLACEMENT, printable(text))
