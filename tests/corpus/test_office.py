"""Office files: what of them becomes text, what is left out, and what is refused."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from docx import Document as WordDocument

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus import sandbox
from epicrisis.corpus.base.reader_base import FileRemark, Skipped
from epicrisis.corpus.documents import office, office_markup
from epicrisis.corpus.readers.sources import read_sources
from tests.support import office_files


def _read(folder: Path, suffix: str) -> tuple[Document, list[FileRemark]]:
    path = folder / f"a{suffix}"
    office_files.WRITERS[suffix](path)
    kind = "spreadsheet" if suffix in (".xlsx", ".ods") else "office"
    document, *others = sandbox.read_file(kind, path, path.name)
    assert isinstance(document, Document), document
    return document, [item for item in others if isinstance(item, FileRemark)]


def _sections(document: Document) -> list[tuple[str, str]]:
    sections = []
    for start, end, title in document.metadata["sections"]:
        sections.append((title, document.text[start:end]))
    return sections


def test_docx_gives_headings_lists_tables_and_raised_digits(tmp_path: Path) -> None:
    document, remarks = _read(tmp_path, ".docx")
    assert document.title == "Aspirin and CRP"
    assert document.text == (
        "Aspirin and CRP\nMethods\nWe counted 10^9 cells; H2O, p < 0.05 * [a_b].\nThe dose was 100 mg\n"
        "Give [struck out: warfarin]\nA sentence with a comment.\nResults / Primary\nArm | n | CRP\n"
        "Aspirin | 60 | 2.1\nPlacebo | 60 | 3.4\n- First item\n1. One\n2. Two"
    )
    assert _sections(document)[2] == ("Results / Primary", document.text[document.text.index("Results / ") :])
    assert [(remark.count, remark.noun) for remark in remarks] == [(1, "piece")]
    assert "hidden text" in remarks[0].text


def test_pptx_gives_slides_as_sections(tmp_path: Path) -> None:
    document, remarks = _read(tmp_path, ".pptx")
    assert _sections(document) == [
        ("Background", "Background\n- Bullet A\n- Bullet B\nSpeaker notes: Say this."),
        ("Results", "Results\nArm | n\nAspirin | 60\nIn a box"),
    ]
    assert not remarks


def test_xlsx_gives_hidden_rows_and_sheets(tmp_path: Path) -> None:
    document, _ = _read(tmp_path, ".xlsx")
    assert _sections(document) == [
        ("Labs", "Labs\nTest | Value | Date\nCRP | 2.1 | 2020-03-04\nINR | 2\n10^9 cells"),
        ("More", "More\nIn a hidden sheet"),
    ]


def test_odt_leaves_out_deletions_and_comments(tmp_path: Path) -> None:
    document, _ = _read(tmp_path, ".odt")
    assert document.text.split("\n", 1)[1] == (
        "We enrolled 120 patients.\n- Item A\n- Item B\nBefore after. Noted [note 1].\nArm | n\nAspirin | 60\n"
        "Notes\nnote 1: Body of the note."
    )


def test_ods_gives_rows(tmp_path: Path) -> None:
    document, _ = _read(tmp_path, ".ods")
    assert document.text == "Sheet1\nArm | n\nAspirin | 60"


def test_spreadsheet_of_empty_and_repeated_cells_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "a.ods"
    row = (
        '<table:table-cell office:value-type="string"><text:p>Arm</text:p></table:table-cell>'
        '<table:table-cell table:number-columns-repeated="9000"/>'
        '<table:table-cell table:number-columns-repeated="5000" office:value-type="string"><text:p>x</text:p>'
        "</table:table-cell>"
    )
    rows = f'<table:table-row table:number-rows-repeated="300">{row}</table:table-row>'
    office_files.write_ods(path, rows + f"<table:table-row>{row.replace('Arm', 'n')}</table:table-row>")
    (document,) = sandbox.read_file("spreadsheet", path, path.name)
    assert isinstance(document, Document)
    assert document.text == "Sheet1\nArm | x (5,000 times) (300 times)\nn | x (5,000 times)"


def test_rtf_leaves_out_deleted_and_hidden_text(tmp_path: Path) -> None:
    document, remarks = _read(tmp_path, ".rtf")
    assert document.text == ("We enrolled 120 patiënts, α-blocker, 10^9, p < 0.05.\nArm | n\nAspirin | 60\nAfter.")
    assert [remark.count for remark in remarks] == [1]


def test_number_raised_behind_a_number_is_a_power_of_ten_or_a_citation(tmp_path: Path) -> None:
    (tmp_path / "a.rtf").write_bytes(rb"{\rtf1\ansi Deaths fell by 12{\super 3} percent of 10{\super 9} cells.\par}")
    word = WordDocument()
    paragraph = word.add_paragraph("Deaths fell by 12")
    for text, is_raised in (("3", True), (" percent of 10", False), ("9", True), (" cells.", False)):
        paragraph.add_run(text).font.superscript = is_raised
    word.save(str(tmp_path / "a.docx"))
    for name in ("a.rtf", "a.docx"):
        (document,) = sandbox.read_file("office", tmp_path / name, name)
        assert isinstance(document, Document)
        assert document.text == "Deaths fell by 12 [3] percent of 10^9 cells."


def _reason(path: Path, kind: str = "office") -> str:
    (item,) = sandbox.read_file(kind, path, path.name)
    assert isinstance(item, Skipped), item
    return item.reason


@pytest.mark.parametrize("suffix", [".docx", ".pptx", ".odt", ".rtf", ".xlsx", ".ods"])
def test_broken_file_is_skipped_with_a_cure(tmp_path: Path, suffix: str) -> None:
    kind = "spreadsheet" if suffix in (".xlsx", ".ods") else "office"
    path = tmp_path / f"a{suffix}"
    office_files.WRITERS[suffix](path)
    whole = path.read_bytes()
    for data in (b"plain text", whole[: len(whole) // 2]) if suffix != ".rtf" else (b"plain text",):
        path.write_bytes(data)
        assert "save it again" in _reason(path, kind)


def test_encrypted_docx_is_skipped_with_a_cure(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    office_files.write_docx(path)
    data = bytearray(path.read_bytes())
    # The flag of encryption in the headers of the first part.
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    path.write_bytes(data)
    assert "save" in _reason(path)


@pytest.mark.long
def test_zip_bomb_is_skipped_with_a_cure(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    office_files.write_docx(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file, file.open("word/media/x.bin", "w") as part:
        for _ in range(office_markup.MAX_UNPACKED_BYTES // 2**24 + 1):
            part.write(bytes(2**24))
    assert path.stat().st_size < 2_000_000
    assert _reason(path) == "it unpacks to more than 512 MB; split it"


def test_file_without_text_is_skipped_with_a_cure(tmp_path: Path) -> None:
    path = tmp_path / "a.rtf"
    path.write_bytes(rb"{\rtf1 }")
    assert _reason(path) == "holds no text, only pictures perhaps; save it as PDF and OCR it"


def test_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.docx"
    office_files.write_docx(path)
    monkeypatch.setitem(sys.modules, "anydoc", None)
    (item,) = office.read_document(path, path.name)
    assert item == Skipped(str(path), "", 'needs the extra `office`: pip install "epicrisis[office]"')


@pytest.mark.parametrize("suffix", [".doc", ".ppt"])
def test_old_format_is_refused_with_the_command_that_converts_it(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"letter{suffix}"
    path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    with pytest.raises(InputError, match=f"soffice --headless --convert-to {suffix[1:]}x"):
        read_sources([path])
    (tmp_path / "note.txt").write_text("text")
    reasons = [item.reason for item in read_sources([tmp_path]) if isinstance(item, Skipped)]
    assert len(reasons) == 1
    assert f"soffice --headless --convert-to {suffix[1:]}x *{suffix}" in reasons[0]


def test_rtf_called_doc_is_read(tmp_path: Path) -> None:
    path = tmp_path / "letter.doc"
    path.write_bytes(rb"{\rtf1\ansi The patient was given aspirin.\par}")
    document, *_ = read_sources([path])
    assert isinstance(document, Document)
    assert (document.id, document.text) == ("file:letter.doc", "The patient was given aspirin.")
