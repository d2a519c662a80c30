"""A PDF page in Chromium: the marked place is in sight, at every width, without JavaScript, and on paper."""

from __future__ import annotations

from pathlib import Path

import pypdfium2
import pytest
from fastapi import FastAPI

from epicrisis.corpus import sandbox
from epicrisis.server.app import ServerOptions, create_app
from tests.browser.test_page import find_violations
from tests.server.test_page_pdf import CITED, LONG, QUESTION, make_files, quoting_planted_model
from tests.support.browser import Visit, ask, browse
from tests.support.pdf_files import read_files
from tests.support.servers import open_library, open_resources

pytestmark = pytest.mark.browser
FIRST = f".sources .quote:has-text('{CITED}') .cite"
IS_IN_SIGHT = """place => {
  const b = place.getBoundingClientRect();
  return b.top >= 0 && b.bottom <= innerHeight && b.left >= 0 && b.left < innerWidth;
}"""


def make_app(folder: Path) -> FastAPI:
    make_files(folder / "files")
    documents = read_files(folder / "files")
    library = open_library(
        folder / "lib",
        quoting_planted_model(),
        documents,
        encoder=LONG,
        unverified="keep",
        citing="quotes",
        check="off",
    )
    return create_app(open_resources(library), ServerOptions(folder=folder / "server"))


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark"), (2560, "light")])
def test_marked_place_is_in_sight_and_page_is_accessible(tmp_path: Path, axe: str, width: int, scheme: str) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open(width=width, scheme=scheme)
        await ask(page, QUESTION, "")
        await page.click(FIRST)
        place = page.locator("dialog[open] .place").first
        await place.wait_for()
        await page.locator("dialog .paper img").first.evaluate("image => image.decode()")
        assert await place.evaluate(IS_IN_SIGHT)
        found = await find_violations(page, axe)
        href = await page.get_attribute(FIRST, "href")
        await page.goto(f"{visit.address}{href}")
        found += await find_violations(page, axe)
        assert found == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    browse(make_app(tmp_path), steps)


def count_yellow(data: bytes) -> list[int]:
    """Return the pixels of the highlight's colour on each page of a printed PDF file."""
    counts: list[int] = []
    for page in pypdfium2.PdfDocument(data):
        image = page.render(scale=1).to_pil().convert("RGB")
        counts.append(sum(blue < 160 < red for red, _, blue in image.get_flattened_data()))
    return counts


def test_printed_page_keeps_image_place_and_highlight(tmp_path: Path) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open(scripts=False)
        await ask(page, QUESTION, "")
        href = await page.get_attribute(FIRST, "href")
        await page.goto(f"{visit.address}{href}")
        alone = await page.pdf(format="A4")
        assert sum(count_yellow(alone)) > 3_000
        text = "".join(sheet.get_textpage().get_text_bounded() for sheet in pypdfium2.PdfDocument(alone))
        assert "".join(CITED.split()) in "".join(text.split())
        images = [item for sheet in pypdfium2.PdfDocument(alone) for item in sheet.get_objects() if item.type == 3]
        assert len(images) == 1

    browse(make_app(tmp_path), steps)


def test_open_document_is_what_is_printed(tmp_path: Path) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open()
        await ask(page, QUESTION, "")
        answer = pypdfium2.PdfDocument(await page.pdf(format="A4"))
        assert "Studies" in answer[0].get_textpage().get_text_bounded()
        await page.click(FIRST)
        await page.locator("dialog[open] .place").first.wait_for()
        await page.locator("dialog .paper img").first.evaluate("image => image.decode()")
        printed = await page.pdf(format="A4")
        text = "".join(sheet.get_textpage().get_text_bounded() for sheet in pypdfium2.PdfDocument(printed))
        assert "The cited place is marked." in text
        assert "Evidence table" not in text
        assert sum(count_yellow(printed)) > 3_000

    browse(make_app(tmp_path), steps)


def teardown_module() -> None:
    """End the child process that drew the pages."""
    sandbox._VIEWER.end()
