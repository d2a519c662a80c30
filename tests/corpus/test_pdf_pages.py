"""Places on pages of PDF files: the boxes cover exactly the words, and hostile files cost one page."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from PIL import Image

from epicrisis.core.references import list_page_starts
from epicrisis.core.types import Document, Passage
from epicrisis.corpus import sandbox
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.corpus.documents import pdf, pdf_pages
from epicrisis.corpus.documents.pdf_pages import PageWords, find_words, fold_letters, render_page
from epicrisis.server.page.document_view import Highlight
from epicrisis.server.page.pdf_view import list_places
from tests.corpus.test_sandbox import slow_pdf
from tests.support.pdf_files import HEIGHT, WIDTH, Line, column, placed_pdf, read_boxed_text, read_marked_characters

__all__ = ["slow_pdf"]

TRIAL = (
    "Background: pre-eclampsia is frequent (3-5%). We gave 150 mg of aspirin daily to 1,776 women from 11 to 14 weeks. "
    "Preterm pre-eclampsia occurred in 1.6% of the treated and in 4.3% of the con\xadtrol women (odds ratio 0.38). "
    "Adherence was good; the con\xadtrol group took placebo. Fewer infants were admitted. No harm was seen. "
    "The committee stopped nothing, and 98% of women were followed to the end of the trial."
)
OTHER = (
    "Methods: dose was chosen by weight. The trial ran at 13 centres of six countries, each with its own monitor. "
    "No harm was seen. Blinding held: 59% of women guessed wrongly. The sponsors had no part in the analysis."
)


@pytest.fixture(autouse=True)
def _new_child() -> Iterator[None]:
    """Start each test without a child, and leave none with a test's limits."""
    sandbox._VIEWER.end()
    yield
    sandbox._VIEWER.end()


def put(folder: Path, pages: Sequence[Sequence[Line]], **more: object) -> tuple[Path, str]:
    path = folder / "trial.pdf"
    path.write_bytes(placed_pdf(pages, **more))  # type: ignore[arg-type]
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def read(path: Path) -> tuple[Document, Passage]:
    """Return the document of a file, and its text as one passage with the pages as a library keeps them."""
    item, *_ = pdf.read_document(path, path.name)
    assert isinstance(item, Document)
    starts = item.metadata["pages"]
    assert isinstance(starts, list)
    metadata = {"page": 1, "page_starts": [[start, number] for number, start in enumerate(starts, 1)][1:]}
    return item, Passage(
        id="p#0",
        document_id=item.id,
        ordinal=0,
        start=0,
        end=len(item.text),
        text=item.text,
        title=item.title,
        metadata=metadata,
    )


def check_every_sentence(path: Path, sha256: str) -> int:
    """Compare the characters in the boxes of each sentence with the sentence. Return how many were compared."""
    document, passage = read(path)
    compared = 0
    for start, end in find_sentences(document.text):
        if not fold_letters(document.text[start:end]):
            continue
        places = list_places([passage], Highlight((start, end)))
        pages = sandbox.find_words(path, sha256, places)
        assert [page.page for page in pages] == [place.page for place in places]
        wanted = document.text[start:end]
        marked = read_marked_characters(path, pages)
        # A word divided at the end of a line is joined in the text of the document.
        assert marked.replace("-", "") == "".join(wanted.split()).replace("-", ""), (wanted, marked)
        compared += 1
    return compared


@pytest.mark.slow
def test_boxes_cover_exactly_each_sentence_of_one_column(tmp_path: Path) -> None:
    path, sha256 = put(tmp_path, [[(72, 750, "The Trial Journal 377"), *column(TRIAL, 72, 700, 90), (300, 30, "7")]])
    assert check_every_sentence(path, sha256) >= 7


@pytest.mark.slow
def test_boxes_cover_exactly_each_sentence_of_two_columns(tmp_path: Path) -> None:
    # The sentence that ends the left column begins the right one.
    left = column(f"{TRIAL} Of {OTHER}", 60, 700, 44)
    right = column(OTHER, 320, 700, 44)
    first = [(x, y, text) for x, y, text in left if y > 540]
    rest = [(320.0, 700 - 13.0 * number, text) for number, (_, _, text) in enumerate(left[len(first) :])]
    assert {y for _, y, _ in first} & {y for _, y, _ in rest}, "the columns stand beside each other"
    path, sha256 = put(tmp_path, [[*first, *rest], [*right, *column(TRIAL, 60, 700, 44)]])
    assert check_every_sentence(path, sha256) >= 14


def test_text_in_each_box_is_a_line_of_the_sentence(tmp_path: Path) -> None:
    path, sha256 = put(tmp_path, [column(TRIAL, 72, 700, 50)])
    (page,) = find_words(path, sha256, [PageWords(1, "Adherence was good; the control group took placebo.")])
    assert read_boxed_text(path, page) == ["Adherence was good;", "the con-", "trol group took placebo."]


@pytest.mark.slow
def test_place_across_two_pages_is_on_both(tmp_path: Path) -> None:
    path, sha256 = put(tmp_path, [[(72, 60, "In 1,776 women aspirin")], [(72, 700, "lowered the risk. It was safe.")]])
    document, passage = read(path)
    end = document.text.index(" It was safe")
    places = list_places([passage], Highlight((0, end)))
    assert [(place.page, place.words.strip()) for place in places] == [
        (1, "In 1,776 women aspirin"),
        (2, "lowered the risk."),
    ]
    pages = sandbox.find_words(path, sha256, places)
    assert [read_boxed_text(path, page) for page in pages] == [["In 1,776 women aspirin"], ["lowered the risk."]]


def test_sentence_that_occurs_twice_is_marked_where_it_is_cited(tmp_path: Path) -> None:
    lines: list[Line] = [(72, 700, "No harm was seen."), (72, 600, "Other words."), (72, 500, "No harm was seen.")]
    path, sha256 = put(tmp_path, [lines])
    document, passage = read(path)
    for start, top in ((0, 700), (document.text.rindex("No harm"), 500)):
        (place,) = list_places([passage], Highlight((start, start + 17)))
        ((box,),) = [page.boxes for page in find_words(path, sha256, [place])]
        assert box.top * HEIGHT == pytest.approx(HEIGHT - top - 8, abs=4)


def test_words_that_are_not_on_the_page_have_no_box(tmp_path: Path) -> None:
    path, sha256 = put(tmp_path, [column(TRIAL, 72, 700, 90)])
    for words in ("These words are not there.", "Aspirin", "...", ""):
        (page,) = find_words(path, sha256, [PageWords(1, words)])
        assert bool(page.boxes) == (words == "Aspirin")
        assert (page.width, page.height) == (WIDTH, HEIGHT)


@pytest.mark.parametrize("entries", [b"/Rotate 90", b"/Rotate 180", b"/Rotate 270", b"/CropBox [40 500 400 760]"])
def test_boxes_cover_the_ink_of_rotated_and_cropped_pages(tmp_path: Path, entries: bytes) -> None:
    path, sha256 = put(
        tmp_path, [[(72, 700, "Aspirin lowered the risk."), (72, 600, "Not this.")]], page_entries=entries
    )
    (page,) = find_words(path, sha256, [PageWords(1, "Aspirin lowered the risk.")])
    image = Image.open(io.BytesIO(render_page(path, sha256, 1)))
    assert image.width / image.height == pytest.approx(page.width / page.height, rel=0.01)
    inside, outside = image.copy(), image.copy()
    inside.paste(255, (0, 0, *image.size))
    for box in page.boxes:
        edges = (box.left, box.top, box.left + box.width, box.top + box.height)
        sides = (image.width, image.height, image.width, image.height)
        place = tuple(round(share * side) for share, side in zip(edges, sides, strict=True))
        inside.paste(image.crop(place), place)  # type: ignore[arg-type]
        outside.paste(255, place)  # type: ignore[arg-type]
    # Only the other line is left outside the boxes.
    alone, _ = put(tmp_path, [[(72, 600, "Not this.")]], page_entries=entries)
    rest = Image.open(io.BytesIO(render_page(alone, hashlib.sha256(alone.read_bytes()).hexdigest(), 1)))
    assert _ink(outside) == _ink(rest)
    assert _ink(inside) != _ink(outside)


def _ink(image: Image.Image) -> bytes:
    """Return the dark pixels. The faint edges of letters may lie outside a box."""
    return image.point(lambda grey: 0 if grey < 128 else 255).tobytes()


@pytest.mark.slow
def test_image_of_page_is_limited_in_size(tmp_path: Path) -> None:
    path, sha256 = put(tmp_path, [[(72, 700, "x")]])
    usual = Image.open(io.BytesIO(sandbox.render_page(path, sha256, 1)))
    assert (usual.size, usual.mode) == ((2 * WIDTH, 2 * HEIGHT), "L")
    for box, size in ((b"[0 0 14400 14400]", (1733, 1733)), (b"[0 0 14400 2]", (4000, 1))):
        path.write_bytes(placed_pdf([[]]).replace(b"[0 0 612 792]", box))
        drawn = Image.open(io.BytesIO(sandbox.render_page(path, hashlib.sha256(path.read_bytes()).hexdigest(), 1)))
        assert drawn.size == pytest.approx(size, abs=2)


@pytest.mark.slow
def test_changed_missing_and_wrong_files_are_refused_with_reason(tmp_path: Path) -> None:
    path, sha256 = put(tmp_path, [[(72, 700, "x")]])
    with pytest.raises(ValueError, match="has no page 2"):
        sandbox.render_page(path, sha256, 2)
    with pytest.raises(ValueError, match="has no page 0"):
        sandbox.find_words(path, sha256, [PageWords(0, "x")])
    path.write_bytes(placed_pdf([[(72, 700, "y")]]))
    with pytest.raises(ValueError, match="has changed since it was added"):
        sandbox.render_page(path, sha256, 1)
    path.write_bytes(b"plain")
    with pytest.raises(ValueError, match="not a PDF file"):
        sandbox.render_page(path, hashlib.sha256(b"plain").hexdigest(), 1)
    path.unlink()
    with pytest.raises(ValueError, match="not where it was"):
        sandbox.render_page(path, sha256, 1)
    os.mkfifo(path)
    with pytest.raises(ValueError, match="not where it was"):
        sandbox.render_page(path, sha256, 1)


@pytest.mark.long
def test_slow_and_large_pages_are_stopped_and_next_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_pdf: bytes
) -> None:
    path, sha256 = put(tmp_path, [[(72, 700, "x")]])
    slow = tmp_path / "slow.pdf"
    slow.write_bytes(slow_pdf)
    digest = hashlib.sha256(slow_pdf).hexdigest()
    monkeypatch.setattr(sandbox, "VIEW_SECONDS", 1)
    with pytest.raises(ValueError, match="too much time or memory"):
        sandbox.render_page(slow, digest, 1)
    monkeypatch.setattr(sandbox, "VIEW_SECONDS", 20)
    monkeypatch.setattr(sandbox, "VIEW_MEMORY", 96 * 1024**2)
    with pytest.raises(ValueError, match="too much time or memory"):
        sandbox.render_page(slow, digest, 1)
    monkeypatch.setattr(sandbox, "VIEW_MEMORY", 1024**3)
    assert sandbox.render_page(path, sha256, 1)


@pytest.mark.long
def test_pages_are_drawn_while_a_file_is_read(tmp_path: Path, slow_pdf: bytes) -> None:
    path, sha256 = put(tmp_path, [[(72, 700, "x")]])
    slow = tmp_path / "slow.pdf"
    slow.write_bytes(slow_pdf)
    reader = threading.Thread(target=lambda: list(sandbox.read_file("pdf", slow, "slow.pdf")))
    reader.start()
    begin = time.monotonic()
    assert sandbox.render_page(path, sha256, 1)
    drawn = time.monotonic() - begin
    is_reading = reader.is_alive()
    assert sandbox._CHILD._process is not None
    sandbox._CHILD._process.kill()
    reader.join()
    assert is_reading
    assert drawn < 10


def test_page_starts_are_those_of_the_passages(tmp_path: Path) -> None:
    path, _ = put(tmp_path, [[(72, 700, "One.")], [], [(72, 700, "Three.")]])
    document, passage = read(path)
    assert list_page_starts([passage]) == [(0, 1), (6, 2), (8, 3)]
    assert document.text[8:] == "Three."
    assert list_page_starts([]) == []
    assert pdf_pages.fold_letters("ﬁ Ⅳ, É-2") == "fiivé2"
