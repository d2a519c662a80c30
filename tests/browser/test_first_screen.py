"""What is readable without scrolling, at the sizes of a laptop and of a phone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page

from epicrisis.core.types import Document
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from tests.browser.test_page import find_violations
from tests.browser.test_pdf_page import FIRST
from tests.browser.test_pdf_page import make_app as make_pdf_app
from tests.server.test_page_pdf import QUESTION as PDF_QUESTION
from tests.support.browser import Visit, ask, browse, claiming_model, make_app
from tests.support.chart_documents import CHART_DOCUMENTS
from tests.support.pages import quoting_model
from tests.support.servers import open_library, open_resources

pytestmark = pytest.mark.browser
SIZES = [(1280, 900), (390, 844)]
LONG_QUESTION = (
    "Does low-dose aspirin, started before the sixteenth week, lower the risk of preterm pre-eclampsia in women at "
    "high risk, compared with placebo?"
)


async def show(page: Page, width: int, height: int) -> None:
    await page.set_viewport_size({"width": width, "height": height})
    await page.evaluate("scrollTo(0, 0)")


async def is_on_first_screen(part: Locator) -> bool:
    """Return whether all of an element is in the window, and nothing covers its middle."""
    return bool(
        await part.first.evaluate(
            """part => {
                const box = part.getBoundingClientRect();
                const at = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
                return scrollY === 0 && box.height > 0 && box.top >= 0 && box.bottom <= innerHeight
                    && box.right <= innerWidth && (part === at || part.contains(at) || at.contains(part));
            }"""
        )
    )


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_evidence_answer_shows_its_first_result_sentence(tmp_path: Path, width: int, height: int) -> None:
    app = make_app(tmp_path, strategy="evidence", not_in_library="ask")

    async def steps(visit: Visit) -> None:
        page = await visit.open(width=width)
        await show(page, width, height)
        await ask(page, LONG_QUESTION, "")
        await show(page, width, height)
        assert await is_on_first_screen(page.locator("#asked"))
        assert await is_on_first_screen(page.locator(".study .quote"))
        assert await is_on_first_screen(page.locator(".verdict h2"))
        assert not await page.is_visible("#question")
        await page.reload()
        assert await is_on_first_screen(page.locator(".study .quote"))
        # The answer stands left of its evidence, or above it.
        verdict, study = (
            await page.locator(".verdict").bounding_box(),
            await page.locator(".study").first.bounding_box(),
        )
        assert verdict is not None
        assert study is not None
        assert verdict["x"] + verdict["width"] <= study["x"] or verdict["y"] + verdict["height"] <= study["y"]

    browse(app, steps)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_very_long_title_leaves_room_for_the_sentence(tmp_path: Path, width: int, height: int) -> None:
    title = "Low-dose aspirin in women at high risk of preterm pre-eclampsia and other conditions " * 60
    documents = [Document("d1", "Aspirin lowered the risk of preterm pre-eclampsia.", title=title, date="2017")]
    library = open_library(tmp_path / "lib", None, documents)
    app = create_app(open_resources(library), ServerOptions(folder=tmp_path / "server"))

    async def steps(visit: Visit) -> None:
        page = await visit.open(width=width)
        await show(page, width, height)
        await ask(page, "Does aspirin lower the risk of preterm pre-eclampsia?", "")
        await show(page, width, height)
        assert await is_on_first_screen(page.locator(".study .quote"))

    browse(app, steps)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_model_answer_shows_verdict_and_first_claim(tmp_path: Path, width: int, height: int) -> None:
    model = claiming_model()
    app = make_app(tmp_path, model, strategy="rag", citing="numbers", k=8, check="off", not_in_library="ask")

    async def steps(visit: Visit) -> None:
        page = await visit.open(width=width)
        model.go_on()
        await ask(page, LONG_QUESTION)
        await show(page, width, height)
        assert await is_on_first_screen(page.locator(".verdict"))
        assert await is_on_first_screen(page.locator(".claims li"))

    browse(app, steps)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_abstention_shows_its_reason(tmp_path: Path, width: int, height: int) -> None:
    documents = [Document("d1", "The bridge was built of steel and painted green.", title="Bridges", date="2001")]
    library = open_library(tmp_path / "lib", None, documents, strategy="evidence")

    async def steps(visit: Visit) -> None:
        page = await visit.open(width=width)
        await ask(page, "Does lithium prevent relapse of bipolar disorder in pregnancy?", "")
        await show(page, width, height)
        assert await page.get_attribute(".verdict", "class") == "verdict abstained"
        assert "No answer" in await page.inner_text(".verdict h2")
        assert await is_on_first_screen(page.locator(".verdict p"))

    browse(create_app(open_resources(library), ServerOptions(folder=tmp_path / "server")), steps)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_source_in_pdf_shows_its_marked_words(tmp_path: Path, width: int, height: int) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open(width=width)
        await show(page, width, height)
        await ask(page, PDF_QUESTION, "")
        await page.click(FIRST)
        place = page.locator("dialog[open] .place")
        await place.first.wait_for()
        await page.locator("dialog .paper img").first.evaluate("image => image.decode()")
        box = await place.first.bounding_box()
        assert box is not None
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= height
        assert 0 <= box["x"] < width

    browse(make_pdf_app(tmp_path), steps)


@pytest.mark.parametrize(("width", "height", "scheme"), [(1280, 900, "light"), (390, 844, "dark")])
def test_patient_shows_allergies_problems_and_the_box_to_ask(
    tmp_path: Path, axe: str, width: int, height: int, scheme: str
) -> None:
    key = UserStore(tmp_path / "server" / USERS_FILE).add("doctor", "patient-reader")
    library = open_library(tmp_path / "ward", quoting_model(), CHART_DOCUMENTS, strategy="evidence")

    async def steps(visit: Visit) -> None:
        page = await visit.open("/sign-in", width=width, scheme=scheme)
        await page.fill("#key", key)
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#question")
        visit.problems = [line for line in visit.problems if "username fields" not in line]
        await page.goto(f"{visit.address}/patients")
        await page.click("text=p1")
        await show(page, width, height)
        parts = [".allergies", "#question", ".problems", ".medications"]
        for part in [*parts, ".last-stay", ".last-values"] if width > 1000 else parts:
            assert await is_on_first_screen(page.locator(part)), part
        assert await find_violations(page, axe) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # The allergy opens the document that states it.
        await page.click(".allergies button")
        await page.wait_for_selector("dialog[open] .text")
        assert "Penicillin" in await page.inner_text("dialog .text")
        await page.keyboard.press("Escape")
        shown = await page.locator(".note:visible").count()
        await page.select_option("#kind", "letter")
        assert await page.locator(".note:visible").count() == 1 < shown
        await page.fill("#question", "Was the patient sent home?")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("article.answer")
        assert not await page.is_visible(".record")
        # A random identifier, with no place for the patient's.
        assert re.fullmatch(r"/answers/[\w-]+", page.url.removeprefix(visit.address))

    browse(create_app(open_resources(library), ServerOptions(folder=tmp_path / "server")), steps)
