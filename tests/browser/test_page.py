"""The page in Chromium: an answer that arrives step by step, its sources, table, map, history, and accessibility."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from epicrisis.server.app import create_app
from tests.server.test_page_unsafe_text import DOCUMENTS, EVIL, evil_model
from tests.support.browser import QUESTION, Visit, ask, browse, make_app
from tests.support.servers import open_library, open_resources

pytestmark = pytest.mark.browser
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
}


async def find_violations(page: Page, axe: str) -> list[str]:
    await page.evaluate(axe)
    result: dict[str, Any] = await page.evaluate(f"axe.run(document, {json.dumps(RULES)})")
    found = []
    for violation in result["violations"]:
        for node in violation["nodes"]:
            found.append(f"{violation['id']}: {node['html'][:160]} {node['failureSummary'][:200]}")
    return found


def test_question_is_answered_step_by_step_and_reload_shows_the_same(tmp_path: Path) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open()
        # By keyboard alone.
        await page.focus("#question")
        await page.keyboard.type(QUESTION)
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        await page.keyboard.type("yes, no")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#steps li")
        assert "The search found" in await page.inner_text("#steps")
        await page.wait_for_selector("article.answer", timeout=60_000)
        assert "/answers/" in page.url
        assert "aspirin" not in page.url
        assert await page.evaluate("document.activeElement.id") == "asked"
        shown = await page.inner_text("article.answer")
        assert shown.index("A. yes") < shown.index("Why") < shown.index("Studies")
        await page.reload()
        assert await page.inner_text("article.answer") == shown

    browse(make_app(tmp_path), steps)


def test_number_opens_document_with_sentence_in_sight(tmp_path: Path) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open()
        await ask(page)
        for fold in await page.locator(".more > summary").all():
            await fold.click()
        links = page.locator(".sources .cite")
        for index in range(await links.count()):
            quotation = await page.locator(".sources q").nth(index).inner_text()
            await links.nth(index).focus()
            await page.keyboard.press("Enter")
            mark = page.locator("dialog[open] mark")
            await mark.wait_for()
            assert (await mark.inner_text()).split() == quotation.strip("“”").split()
            assert await mark.evaluate(
                "m => { const b = m.getBoundingClientRect(); return b.top >= 0 && b.bottom <= innerHeight }"
            )
            await page.keyboard.press("Escape")
            assert await page.locator("dialog[open]").count() == 0
            assert await links.nth(index).evaluate("link => link === document.activeElement")
        assert await links.count() >= 1

    browse(make_app(tmp_path), steps)


def test_table_is_sorted_and_filtered(tmp_path: Path) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open()
        await page.click(".options-fold > summary")
        await page.select_option("#strategy", "evidence")
        await ask(page, "What prevents pre-eclampsia?", "")
        await page.click(".tabs a[href='#table']")
        years = page.locator("#studies tbody tr td:nth-child(3)")
        await page.click("#studies thead button:text('Year')")
        ascending = [text for text in await years.all_inner_texts() if text.isdecimal()]
        await page.click("#studies thead button:text('Year')")
        descending = [text for text in await years.all_inner_texts() if text.isdecimal()]
        assert ascending == sorted(ascending)
        assert descending == sorted(descending, reverse=True)
        assert len(set(ascending)) > 1
        await page.fill("#filter", descending[0])
        shown = await page.locator("#studies tbody tr:visible").count()
        assert 0 < shown < len(await years.all_inner_texts())
        assert (await page.inner_text("#filter-count")).startswith(f"{shown} of ")

    browse(make_app(tmp_path), steps)


def test_history_is_kept_in_this_browser_and_deletable(tmp_path: Path) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open()
        await ask(page)
        address = page.url
        await page.goto(f"{visit.address}/history")
        assert await page.inner_text("#history a") == QUESTION
        await page.click("#history a")
        assert page.url == address
        await page.goto(f"{visit.address}/history")
        await page.click("[data-clear-history]")
        assert await page.locator("#history li").count() == 0
        assert await page.evaluate("localStorage.getItem('epicrisis-history')") == "[]"
        other = await visit.open("/history")
        assert await other.locator("#history li").count() == 0

    browse(make_app(tmp_path), steps)


def test_page_works_without_javascript(tmp_path: Path) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open(scripts=False)
        await ask(page)
        await page.click(".sources .cite >> nth=0")
        await page.wait_for_selector(".document mark")
        assert await page.inner_text(".document mark")

    browse(make_app(tmp_path), steps)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_no_page_violates_accessibility_or_overflows(tmp_path: Path, axe: str, width: int, scheme: str) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open(width=width, scheme=scheme)
        found = [f"ask {line}" for line in await find_violations(page, axe)]
        await page.click(".options-fold > summary")
        found += [f"settings {line}" for line in await find_violations(page, axe)]
        await ask(page)
        address = page.url.removeprefix(visit.address)
        found += [f"answer {line}" for line in await find_violations(page, axe)]
        for tab in await page.locator(".tabs a").all():
            await tab.click()
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            found += [f"{await tab.inner_text()} {line}" for line in await find_violations(page, axe)]
        await page.click(".tabs a[href='#sources']")
        await page.click("button[popovertarget='save-as']")
        found += [f"menu {line}" for line in await find_violations(page, axe)]
        await page.keyboard.press("Escape")
        await page.click(".sources .cite >> nth=0")
        await page.wait_for_selector("dialog[open] mark")
        found += [f"dialog {line}" for line in await find_violations(page, axe)]
        source = await page.locator(".sources .cite").first.get_attribute("href")
        assert source is not None
        for place in (address, source, f"{address}/ranks/3", "/history", "/libraries"):
            await page.goto(visit.address + place)
            found += [f"{place} {line}" for line in await find_violations(page, axe)]
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
        assert found == []

    browse(make_app(tmp_path), steps)


def test_hostile_text_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    app = create_app(open_resources(open_library(tmp_path / "lib", evil_model(), DOCUMENTS, partition=1)))

    async def steps(visit: Visit) -> None:
        page = await visit.open()
        await ask(page, f"Does aspirin help in stroke? {EVIL.replace(chr(7), '')}", "")
        assert await page.locator("main img, main script, main iframe").count() == 0
        # Only the program's own addresses are links.
        hrefs = await page.locator("main a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
        assert [href for href in hrefs if not href.startswith(("/", "#"))] == []
        await page.click(".sources .cite >> nth=0")
        await page.wait_for_selector("dialog[open] mark")
        assert await page.locator("dialog img, dialog script").count() == 0

    browse(app, steps)


def test_failed_answer_and_unknown_address_are_said_in_words(tmp_path: Path) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open()
        await page.fill("#question", QUESTION)
        await page.evaluate("document.getElementById('k').value = '5000'")
        await page.evaluate("document.querySelector('form.question').noValidate = true")
        await page.click("button.primary")
        await page.wait_for_selector("#answer .failed")
        assert "Documents to read" in await page.inner_text("#answer")
        visit.problems.clear()  # the console tells of the status 422
        await page.goto(f"{visit.address}/answers/{'a' * 32}")
        assert "no such answer" in await page.inner_text("main")
        visit.problems.clear()

    browse(make_app(tmp_path), steps)
