"""What the places of characters show on a PDF page: line numbers, columns, raised numbers, fonts without letters."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise, zip_longest
from pathlib import Path

import pytest

from epicrisis.answering.citations import build_citation
from epicrisis.core.answers import Quotation
from epicrisis.core.references import build_reference
from epicrisis.core.types import Document, Passage
from epicrisis.corpus.base.chunking import build_passages
from epicrisis.corpus.base.reader_base import FileRemark, OmittedText, Skipped
from epicrisis.corpus.documents import ocr, pdf
from epicrisis.corpus.documents.pdf import is_title
from epicrisis.corpus.documents.pdf_pages import PageWords, find_words
from epicrisis.corpus.documents.pdf_text import is_garbled
from epicrisis.library.base.splitters import describe_places, split_document
from epicrisis.library.write.document_export import restore_document
from tests.support.pdf_files import Line, column, placed_pdf, read_marked_characters

ASPIRIN = (
    "The outcome was preterm preeclampsia before thirty seven weeks of gestation. It occurred in 1.6 percent of women "
    "in the aspirin group and in 4.3 percent in the placebo group, where more women had stopped their tablets early."
)
COLCHICINE = (
    "Colchicine was studied in a second trial. Recurrent infarction occurred in 9.1 percent of placebo patients and in "
    "6.2 percent of treated patients. The trial was stopped after three years and did not reach its planned size."
)


def read(data: bytes) -> tuple[Document, Sequence[object]]:
    """Return the document of a file, and the other items."""
    document, *others = pdf.read_pdf(data, "a.pdf")
    assert isinstance(document, Document)
    return document, others


def rows(words: str, left: float, top: float = 740, characters: int = 44) -> list[Line]:
    return column(words, left, top, characters)


def in_turn(*columns: Sequence[Line]) -> list[Line]:
    """Return the lines of the columns row by row."""
    return [line for row in zip_longest(*columns) for line in row if line is not None]


def numbered(lines: Sequence[Line], first: int, left: float = 40, step: int = 1) -> list[Line]:
    """Return numbers beside the lines."""
    values = [(first + index, y) for index, (_, y, _) in enumerate(lines)]
    return [(left, y, str(value)) for value, y in values if value % step == 0]


PAGES = [rows(f"{ASPIRIN} {COLCHICINE} " * 2, 80, 740 - 12 * index) for index in range(3)]
COUNT = len(PAGES[0])


@pytest.mark.parametrize(
    "pages",
    [
        [in_turn(numbered(lines, 1 + COUNT * index), lines) for index, lines in enumerate(PAGES)],
        [[*lines, *numbered(lines, 1 + COUNT * index, 560)] for index, lines in enumerate(PAGES)],
        [[*numbered(lines, 1 + COUNT * index, step=5), *lines] for index, lines in enumerate(PAGES)],
        [[*numbered(lines, 1 + 19 * index, step=5), *lines] for index, lines in enumerate(page[:19] for page in PAGES)],
        [in_turn(numbered(lines, 1), lines) for lines in (*PAGES, PAGES[0][:3])],
        [in_turn(numbered(PAGES[0], 1), PAGES[0])],
    ],
    ids=[
        "beside each line",
        "right, drawn last",
        "every fifth, drawn first",
        "every fifth of few",
        "from 1 on each page",
        "one page",
    ],
)
def test_line_numbers_are_left_out_and_listed(pages: Sequence[Sequence[Line]]) -> None:
    document, (omitted,) = read(placed_pdf(pages))
    assert "preterm preeclampsia before thirty seven weeks of gestation." in document.text
    assert not any(word.isdigit() for word in document.text.split())
    assert isinstance(omitted, OmittedText)
    assert (omitted.kind, len(omitted.texts)) == ("line-numbers", len(pages))


@pytest.mark.parametrize(
    "pages",
    [
        [
            *PAGES,
            [(60, 740 - 14 * index, f"{index + 1}   Smith J. A title. Gut {1990 + index}.") for index in range(12)],
        ],
        [in_turn(numbered(PAGES[0], 40), PAGES[0])],
        [[(60, 740 - 14 * index, f"{index * index}    points were given") for index in range(20)]],
    ],
    ids=["list of references", "one page that does not begin with 1", "irregular"],
)
def test_other_numbers_stay(pages: Sequence[Sequence[Line]]) -> None:
    document, others = read(placed_pdf(pages))
    assert others == []
    assert sum(word.isdigit() for word in document.text.split()) >= 12


LEFT, RIGHT = rows(ASPIRIN, 60), rows(COLCHICINE, 320)


@pytest.mark.parametrize(
    "page",
    [
        in_turn(LEFT, RIGHT),
        in_turn(LEFT, [(x, y - 5, text) for x, y, text in RIGHT]),
        [
            (60, 770, "Two trials of old drugs, with a heading that goes over both of the columns"),
            *in_turn(LEFT, RIGHT),
        ],
        [*LEFT, *RIGHT],
    ],
    ids=["one height", "other heights", "below a heading", "already in order"],
)
def test_columns_are_read_one_after_the_other(page: Sequence[Line]) -> None:
    text = " ".join(read(placed_pdf([page]))[0].text.split())
    assert f"{ASPIRIN} {COLCHICINE}" in text


def test_word_divided_at_the_end_of_a_column_is_joined() -> None:
    left = rows(ASPIRIN.replace("preeclampsia", "pree\xadclampsia"), 60)
    (document, others) = read(placed_pdf([[*in_turn(left, RIGHT), (60, 300, "Preeclampsia is a disease.")]]))
    assert "preterm preeclampsia before" in document.text
    assert others == []


def test_table_is_read_by_rows() -> None:
    cells = ("Death from any cause at a year", "Stroke at one year of follow-up", "Bleeding of any kind")
    values = ("12 of 400 women (3.0%)", "18 of 400 women (4.5%)", "20 of 400 women (5.0%)")
    page = in_turn(
        [(60, 700 - 14 * i, t) for i, t in enumerate(cells)], [(320, 700 - 14 * i, t) for i, t in enumerate(values)]
    )
    document, others = read(placed_pdf([page]))
    assert "Stroke at one year of follow-up 18 of 400 women (4.5%)" in document.text
    assert others == []


def test_rows_that_may_be_columns_are_named() -> None:
    left = [
        (60, 700 - 14 * i, t)
        for i, t in enumerate(
            (
                "Aspirin lowered the risk of",
                "Stroke fell in older women",
                "Death was as common in both",
                "and bleeding rose in them all",
            )
        )
    ]
    right = [
        (320, 700 - 14 * i, t)
        for i, t in enumerate(
            (
                "Statins were taken by some",
                "Colchicine lowered the rate of",
                "infarction in a large trial, and",
                "of stroke in a smaller one",
            )
        )
    ]
    _, (remark,) = read(placed_pdf([in_turn(left, right)]))
    assert isinstance(remark, FileRemark)
    assert "columns that were read across" in remark.text


@pytest.mark.parametrize(
    ("drawn", "text"),
    [
        ("fell by 12^{3} percent, from 100^{5}.", "fell by 12 [3] percent, from 100 [5]."),
        ("were 150 x 10^{9}/L, or 10^{6}cells or 10^{-9} mol", "were 150 x 10^9/L, or 10^6cells or 10^-9 mol"),
        ("seen.^{12} Later trials^{3,4} and^{5-7} agree", "seen. [12] Later trials [3,4] and [5-7] agree"),
        ("31 kg/m^{2} and 1.73 m^{2}, R^{2} = 0.4, 12 mm^{7}", "31 kg/m^2 and 1.73 m^2, R^2 = 0.4, 12 mm [7]"),
        ("^{18}F-FDG, [^{13}C] and Ca^{2+}, the 2^{nd} of 2010^{4}", "18F-FDG, [13C] and Ca2+, the 2nd of 2010 [4]"),
    ],
)  # fmt: skip
def test_raised_number_is_set_apart(drawn: str, text: str) -> None:
    document, _ = read(placed_pdf([[(60, 740, f"Platelets {drawn}"), (60, 720, "The next line.")]]))
    assert document.text.replace("\n", " ") == f"Platelets {text} The next line."


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (in_turn(LEFT, RIGHT), "It occurred in 1.6 percent of women in the aspirin group and in 4.3 percent"),
        (in_turn(numbered(PAGES[0], 1), PAGES[0]), "occurred in 1.6 percent of women in the aspirin group"),
    ],
)
def test_quotation_over_lines_is_found_on_its_page(tmp_path: Path, page: Sequence[Line], words: str) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(placed_pdf([page]))
    assert words in read(path.read_bytes())[0].text
    pages = find_words(path, hashlib.sha256(path.read_bytes()).hexdigest(), [PageWords(1, words)])
    assert read_marked_characters(path, pages) == words.replace(" ", "")


SMALL_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def shifted(text: str, distance: int) -> str:
    return "".join(sign if sign == " " else chr(ord(sign) + distance) for sign in text)


@pytest.mark.parametrize(
    ("text", "garbled"),
    [
        (shifted(ASPIRIN.lower(), -29), True),
        (shifted(f"{ASPIRIN} We were not told of it by all that are on this drug for long.".lower(), 12), True),
        (shifted(ASPIRIN, 0xF000), True),
        ("".join(" " if sign == " " else "�" for sign in ASPIRIN), True),
        (f"{ASPIRIN} {COLCHICINE}".translate(str.maketrans(SMALL_LETTERS, "fghijklmnopqrstuvwxyzabcde")), True),
        ("At 12 months | 3 months | 24 months | baseline | lengths | strengths " * 9, False),
        (ASPIRIN.translate({ord(sign): 0xA1 + ord(sign) % 80 for sign in SMALL_LETTERS}), True),
        ("Schwartz JD, Krzysztof Wlodarczyk, Schmidt HH, Ngo TD, Wright S, Przybylski J, " * 9, False),
        ("methotrexate hydroxychloroquine sulfasalazine cyclophosphamide mycophenolate " * 9, False),
        ("Tutkimukseen osallistui potilasta jotka saaneet insuliinia verensokeri kuluttua matalampi " * 6, False),
        (ASPIRIN, False),
        ("Celem badania była ocena aspiryny u kobiet wysokiego ryzyka, leczonych przed ciążą " * 3, False),
        ("Первичной конечной точкой была частота преэклампсии " * 5, False),
        ("TP53 BRCA1 EGFR KRAS NRAS BRAF PTEN RB1 MYC ALK MET RET " * 5, False),
        ("MKTLLVLCLLFVAGSWRQPG " * 30, False),
        ("12.3 (4.5) 33 45 2.2 34.1 " * 9, False),
        ("Methods 4 Results 9 Discussion 15 References 20 Appendix 30 Tables 33 Figures 40 Glossary 45 Index 5", False),
    ],
)  # fmt: skip
def test_garbled_text_is_recognised(text: str, garbled: bool) -> None:
    assert is_garbled(text) == garbled


def test_text_of_font_without_letters_is_readable_or_not() -> None:
    assert not is_garbled(ASPIRIN, unmapped=1.0)
    assert is_garbled("Zvy qzx wvu tsr qpo " * 9, unmapped=1.0)


def test_garbled_file_is_refused_and_garbled_page_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "list_languages", lambda: ())
    garbled = rows(shifted(ASPIRIN.lower(), -29), 60)
    (skipped,) = pdf.read_pdf(placed_pdf([garbled]), "a.pdf")
    assert isinstance(skipped, Skipped)
    assert skipped.reason.startswith("its fonts do not say which letters they show: install tesseract")
    document, (remark,) = read(placed_pdf([LEFT, garbled]))
    assert document.text.startswith("The outcome")
    assert document.metadata["pages_unreadable"] == [2]
    assert isinstance(remark, FileRemark)
    assert remark.text.startswith("not read, its fonts do not say which letters they show")


@pytest.mark.parametrize(
    ("title", "is_one"),
    [
        ("untitled", False),
        ("Microsoft Word - manuscript_final_v3.docx", False),
        ("PII: S0140-6736(20)30183-5", False),
        ("10.1136/bmj.n71", False),
        ("doi:10.1016/j.jacc.2020.01.001", False),
        ("NEJMoa1704559 1..12", False),
        ("jama_smith_2020_oi_2000", False),
        ("main.dvi", False),
        ("Layout 1", False),
        ("30183", False),
        ("Acrobat PDFMaker 10.1 for Word", False),
        ("Full Page Photo", False),
        ("Paper ID #1234", False),
        ("Adobe stock and illustrations in surgery", True),
        ("Aspirin for the prevention of preterm preeclampsia", True),
        ("Preeclampsia", True),
        ("Main results of a trial of 1,776 women", True),
        ("Role of node.js in hospitals", True),
    ],
)
def test_title_of_a_program_is_none(title: str, is_one: bool) -> None:
    assert is_title(title) == is_one
    assert read(placed_pdf([LEFT], title=title))[0].title == (title if is_one else "a")


LABELS = b"/PageLabels << /Nums [0 << /S /r /St 11 >> 2 << /S /D /P (S) /St 703 >>] >>"


def test_quotation_has_the_printed_pages_of_its_beginning_and_end() -> None:
    pages = [
        rows(text, 60)
        for text in (
            "Contents of the report. All chapters are listed on this page for the reader of the whole report, and",
            "here the list ends.",
            "Nitrofurantoin cured most of the women within the first seven days of the treatment, and after these",
            "days it cured no more of them. Fosfomycin cured fewer.",
        )
    ]
    document, _ = read(placed_pdf(pages, catalog_entries=LABELS))
    assert document.metadata["page_labels"] == ["xi", "xii", "S703", "S704"]
    (passage,) = split_document(document, "whole", lambda text: [], 100, 0)

    def describe(first: str, last: str) -> str:
        start, end = passage.text.index(first), passage.text.index(last) + len(last)
        quotation = Quotation(passage.id, passage.text[start:end], start, end)
        return build_citation(1, quotation, passage).reference.describe_place()

    assert describe("Fosfomycin", "fewer.") == "page S704 (4 of the file)"
    assert describe("after these", "of them.") == "pages S703-S704 (3-4 of the file)"
    assert describe("All", "chapters") == "page xi (1 of the file)"
    assert restore_document([passage]).metadata == document.metadata
    parts = split_by_page(document)
    assert [part.metadata.get("page_labels") for part in parts] == [
        [[1, "xi"]],
        [[2, "xii"]],
        [[3, "S703"]],
        [[4, "S704"]],
    ]
    assert restore_document(parts).metadata == document.metadata


def split_by_page(document: Document) -> list[Passage]:
    """Return the pages of a document as passages, as splitters make them."""
    starts = [*document.metadata["pages"], len(document.text)]
    pieces = build_passages(document, list(pairwise(starts)))
    return [describe_places(piece) for piece in pieces]


def test_pages_without_other_labels_keep_their_numbers() -> None:
    document, _ = read(placed_pdf([LEFT, RIGHT]))
    assert "page_labels" not in document.metadata
    (passage,) = split_document(document, "whole", lambda text: [], 100, 0)
    reference = build_reference(passage, 0, len(passage.text))
    assert (reference.describe_place(), reference.page, reference.last_page) == ("pages 1-2", 1, 2)
    assert build_reference(passage, 0, 20).describe_place() == "page 1"
