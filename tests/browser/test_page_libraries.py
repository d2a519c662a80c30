"""Libraries, uploads and comparisons in Chromium: search, a document, a check, an upload, two runs, accessibility."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI

from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.work.upload_reception import UploadLimits
from tests.browser.test_page import find_violations
from tests.corpus.test_pages import made_pdf
from tests.server.test_page_comparison import PAIR, make_pair
from tests.support.browser import Visit, browse
from tests.support.import_encoders import PlainEncoder, offer_encoder
from tests.support.pages import demo_documents
from tests.support.servers import open_library, open_resources

pytestmark = pytest.mark.browser


def make_app(folder: Path) -> FastAPI:
    make_pair(folder / "runs")
    options = ServerOptions(folder=folder / "server", runs=folder / "runs", uploads=UploadLimits(free_bytes=0))
    return create_app(open_resources(open_library(folder / "lib", None, demo_documents())), options)


def test_library_is_searched_checked_and_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_encoder(tmp_path / "packages", monkeypatch, PlainEncoder)

    async def steps(visit: Visit) -> None:
        page = await visit.open("/libraries/lib")
        await page.fill("#words", "aspirin")
        await page.press("#words", "Enter")
        await page.wait_for_selector("#documents .summary:text('of 6')")
        assert page.url == f"{visit.address}/libraries/lib"
        await page.click("#documents li a >> nth=0")
        await page.wait_for_selector("dialog[open] .document")
        assert "aspirin" in (await page.inner_text("dialog[open] .document")).lower()
        await page.keyboard.press("Escape")
        await page.click("text=Check every passage")
        await page.wait_for_selector("#check .sound", timeout=60_000)
        pdf = made_pdf([["Melatonin shortened sleep onset."]], "Melatonin for sleep")
        files = [("melatonin.pdf", pdf), ("slides.key", b"PK")]
        chosen = [{"name": name, "mimeType": "text/plain", "buffer": content} for name, content in files]
        await page.set_input_files("#upload-files", chosen)  # type: ignore[arg-type]
        await page.click("form[enctype] button")
        await page.wait_for_selector("#upload .sound", timeout=60_000)
        assert "1 document added" in await page.inner_text("#upload")
        assert "slides.key: its ending is not one of" in await page.inner_text("#upload")
        await page.goto(f"{visit.address}/libraries/lib")
        await page.fill("#words", "melatonin sleep")
        await page.press("#words", "Enter")
        await page.wait_for_selector("#documents .summary:text('1 to 1')")

    browse(make_app(tmp_path), steps)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_no_page_of_libraries_and_runs_violates_accessibility(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, axe: str, width: int, scheme: str
) -> None:
    offer_encoder(tmp_path / "packages", monkeypatch, PlainEncoder)

    async def steps(visit: Visit) -> None:
        page = await visit.open("/libraries/lib", width=width, scheme=scheme)
        await page.click("text=Check every passage")
        await page.wait_for_selector("#check .sound", timeout=60_000)
        found = [f"library {line}" for line in await find_violations(page, axe)]
        chosen = {"name": "slides.key", "mimeType": "text/plain", "buffer": b"PK"}
        await page.set_input_files("#upload-files", [chosen])  # type: ignore[arg-type]
        await page.click("form[enctype] button")
        await page.wait_for_selector("#upload .sound", timeout=60_000)
        found += [f"upload {line}" for line in await find_violations(page, axe)]
        for place in ("/libraries/lib", "/runs", f"/comparisons?{PAIR}", f"/comparisons/questions/1?{PAIR}"):
            await page.goto(visit.address + place)
            found += [f"{place} {line}" for line in await find_violations(page, axe)]
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
        assert found == []

    browse(make_app(tmp_path), steps)
