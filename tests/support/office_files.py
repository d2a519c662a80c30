"""Office files made with the libraries that people write them with: python-docx, python-pptx, XlsxWriter and odfdo."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import docx
import odfdo
import pptx
import xlsxwriter
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from pptx.util import Inches

ROWS = (("Arm", "n", "CRP"), ("Aspirin", "60", "2.1"), ("Placebo", "60", "3.4"))
RTF = rb"""{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0 Times;}}{\info{\title RTF title}}{\header HEADER}{\footer FOOTER}
\pard We enrolled 120 pati\'ebnts, \u945?-blocker, {\deleted DELETED }10{\super 9}, p < 0.05{\v HIDDEN}.\par
\trowd\cellx1000\cellx2000 Arm\cell n\cell\row\trowd\cellx1000\cellx2000 Aspirin\cell 60\cell\row\pard After.\par}"""
_REVISION = f'{nsdecls("w")} w:id="1" w:author="A" w:date="2020-01-01T00:00:00Z"'
_DELETION = f"<w:del {_REVISION}><w:r><w:delText>DELETED 500 mg</w:delText></w:r></w:del>"
_INSERTION = f"<w:ins {_REVISION}><w:r><w:t>100 mg</w:t></w:r></w:ins>"
_MOVE = f"<w:moveFrom {_REVISION}><w:r><w:t>MOVED</w:t></w:r></w:moveFrom>"
_HIDDEN = f"<w:r {nsdecls('w')}><w:rPr><w:vanish/></w:rPr><w:t>HIDDEN</w:t></w:r>"
_ANNOTATED = (
    '<text:p>Before<text:change text:change-id="c1"/> after.<office:annotation><dc:creator>R</dc:creator>'
    "<text:p>COMMENT</text:p></office:annotation> Noted<text:note text:note-class='footnote'><text:note-citation>1"
    "</text:note-citation><text:note-body><text:p>Body of the note.</text:p></text:note-body></text:note>.</text:p>"
)
_DELETED = (
    '<text:tracked-changes><text:changed-region text:id="c1"><text:deletion><office:change-info>'
    "<dc:creator>A</dc:creator></office:change-info><text:p>DELETED</text:p></text:deletion></text:changed-region>"
    "</text:tracked-changes>"
)


def write_docx(path: Path) -> None:
    """Write a text with headings, a table, lists, tracked changes, a comment, hidden text, a header and a footer."""
    document = docx.Document()
    document.sections[0].header.paragraphs[0].text = "HEADER"
    document.sections[0].footer.paragraphs[0].text = "FOOTER"
    document.add_heading("Aspirin and CRP", 0)
    document.add_heading("Methods", 1)
    paragraph = document.add_paragraph("We counted 10")
    paragraph.add_run("9").font.superscript = True
    paragraph.add_run(" cells; H")
    paragraph.add_run("2").font.subscript = True
    paragraph.add_run("O, p < 0.05 * [a_b].")
    dose = document.add_paragraph("The dose was ")
    for markup in (_DELETION, _INSERTION, _MOVE, _HIDDEN):
        dose._p.append(parse_xml(markup))
    struck = document.add_paragraph("Give ")
    struck.add_run("warfarin").font.strike = True
    run = document.add_paragraph("A sentence with a comment.").runs[0]
    document.add_comment(runs=run, text="COMMENT", author="Reviewer", initials="R")
    document.add_heading("Results", 1)
    document.add_heading("Primary", 2)
    table = document.add_table(rows=len(ROWS), cols=3)
    for number, row in enumerate(ROWS):
        for column, cell in enumerate(row):
            table.cell(number, column).text = cell
    document.add_paragraph("First item", style="List Bullet")
    document.add_paragraph("One", style="List Number")
    document.add_paragraph("Two", style="List Number")
    document.save(str(path))


def write_pptx(path: Path) -> None:
    """Write two slides: bullets with speaker notes, then a table and a text box."""
    slides = pptx.Presentation()
    first = slides.slides.add_slide(slides.slide_layouts[1])
    first.shapes.title.text = "Background"
    first.placeholders[1].text = "Bullet A\nBullet B"
    first.notes_slide.notes_text_frame.text = "Say this."
    second = slides.slides.add_slide(slides.slide_layouts[5])
    second.shapes.title.text = "Results"
    table = second.shapes.add_table(2, 2, Inches(1), Inches(2), Inches(4), Inches(1)).table
    for number, row in enumerate((("Arm", "n"), ("Aspirin", "60"))):
        for column, cell in enumerate(row):
            table.cell(number, column).text = cell
    box = second.shapes.add_textbox(Inches(1), Inches(4), Inches(4), Inches(1))
    box.text_frame.text = "In a box"
    slides.save(str(path))


def write_xlsx(path: Path) -> None:
    """Write two sheets with numbers, a date, a formula and its result, a raised digit; the second sheet is hidden."""
    book = xlsxwriter.Workbook(str(path))
    sheet = book.add_worksheet("Labs")
    sheet.write_row(0, 0, ["Test", "Value", "Date"])
    sheet.write_row(1, 0, ["CRP", 2.1])
    sheet.write_datetime(1, 2, datetime(2020, 3, 4), book.add_format({"num_format": "yyyy-mm-dd"}))
    sheet.write(2, 0, "INR")
    sheet.write_formula(2, 1, "=1+1", None, 2)
    sheet.set_row(2, None, None, {"hidden": True})
    sheet.write_rich_string(4, 0, "10", book.add_format({"font_script": 1}), "9", " cells")
    hidden = book.add_worksheet("More")
    hidden.write(0, 0, "In a hidden sheet")
    hidden.hide()
    book.close()


def write_odt(path: Path) -> None:
    """Write a text with headings, a list, a table, a deletion, a comment and a footnote."""
    document = odfdo.Document("text")
    body = document.body
    body.clear()
    body.append(odfdo.Element.from_tag(_DELETED))
    body.append(odfdo.Header(1, "Methods"))
    body.append(odfdo.Paragraph("We enrolled 120 patients."))
    body.append(odfdo.List(["Item A", "Item B"]))
    body.append(odfdo.Element.from_tag(_ANNOTATED))
    body.append(_odf_table())
    document.save(str(path))


def write_ods(path: Path, rows: str = "") -> None:
    """Write a sheet of OpenDocument, of these rows in its markup if there are any."""
    document = odfdo.Document("spreadsheet")
    document.body.clear()
    table = odfdo.Element.from_tag(f'<table:table table:name="Sheet1">{rows}</table:table>') if rows else _odf_table()
    document.body.append(table)
    document.save(str(path))


def write_rtf(path: Path) -> None:
    """Write `RTF`."""
    path.write_bytes(RTF)


def _odf_table() -> odfdo.Table:
    table = odfdo.Table("Sheet1", width=2, height=2)
    for place, value in {"A1": "Arm", "B1": "n", "A2": "Aspirin"}.items():
        table.set_value(place, value)
    table.set_value("B2", 60)
    return table


WRITERS = {
    ".docx": write_docx,
    ".pptx": write_pptx,
    ".xlsx": write_xlsx,
    ".odt": write_odt,
    ".ods": write_ods,
    ".rtf": write_rtf,
}
