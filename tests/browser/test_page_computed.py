"""Computed answers and measurements in Chromium: the table with its citations, by keyboard, and accessibility."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from playwright.async_api import Page

from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from tests.browser.test_page import find_violations
from tests.server.test_page_measurements import PATIENT, observation, read_bundle
from tests.support.browser import Visit, browse
from tests.support.pages import quoting_model
from tests.support.servers import open_library, open_resources

pytestmark = pytest.mark.browser
LOW = {"interpretation": [{"text": "low"}]}


def make_ward(folder: Path) -> tuple[FastAPI, str]:
    """Return the application over the record of a patient with structured entries, and the key of a user."""
    observations: list[dict[str, Any]] = []
    for day, value in enumerate((80, 110, 190, 140, 95), 1):
        observations.append(observation("Creatinine", f"2150-03-0{day}T08:00:00", value, "umol/L"))
    observations.append(observation("Hemoglobin", "2150-03-02T09:30:00", 9.1, "g/dL", **LOW))
    observations.append(observation("Hemoglobin", "2150-03-04T09:30:00", 10.2, "g/dL"))
    documents = read_bundle(folder, *observations)
    library = open_library(folder / "ward", quoting_model(), documents, strategy="evidence")
    key = UserStore(folder / "server" / USERS_FILE).add("doctor", "patient-reader")
    return create_app(open_resources(library), ServerOptions(folder=folder / "server")), key


async def ask_about_patient(visit: Visit, key: str, question: str, **window: Any) -> Page:
    """Return the page with the answer."""
    page = await visit.open("/sign-in", **window)
    await page.fill("#key", key)
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#question")
    # Chromium advises a field for a user name beside the key. There are no user names.
    visit.problems = [line for line in visit.problems if "username fields" not in line]
    await page.fill("#patient", PATIENT)
    await page.fill("#question", question)
    await page.click("button.primary")
    await page.wait_for_selector("article.answer", timeout=60_000)
    return page


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (390, "light"), (1280, "dark"), (1280, "light")])
def test_computed_table_is_read_by_keyboard_without_violation(
    tmp_path: Path, axe: str, width: int, scheme: str
) -> None:
    app, key = make_ward(tmp_path)

    async def steps(visit: Visit) -> None:
        page = await ask_about_patient(visit, key, "creatinine trend", width=width, scheme=scheme)
        section = page.locator("section[aria-labelledby=computed]")
        assert "from 80" in await page.locator("section.verdict p").first.inner_text()
        assert await section.locator("tbody tr").count() == 5
        assert await section.locator("svg circle").count() == 5
        assert await find_violations(page, axe) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        number = section.locator("tbody tr:nth-child(3) button.cite")
        await number.focus()
        await page.keyboard.press("Enter")
        card = page.locator(".card:popover-open")
        assert "Creatinine: 190 umol/L" in await card.inner_text()
        assert await find_violations(page, axe) == []
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        mark = page.locator("dialog[open] mark")
        await mark.wait_for()
        assert "Creatinine: 190 umol/L" in await mark.inner_text()
        assert await find_violations(page, axe) == []

    browse(app, steps)


def test_table_of_computed_values_scrolls_by_keyboard_in_narrow_window(tmp_path: Path) -> None:
    app, key = make_ward(tmp_path)

    async def steps(visit: Visit) -> None:
        page = await ask_about_patient(visit, key, "creatinine trend", width=320)
        region = page.get_by_role("region", name="Computed values")
        await region.focus()
        assert await region.evaluate("region => region === document.activeElement")
        cells = await region.locator("td").evaluate_all("cells => cells.map(cell => cell.innerText.trim())")
        assert all(cells)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    browse(app, steps)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_measurements_of_record_are_drawn_without_violation(tmp_path: Path, axe: str, width: int, scheme: str) -> None:
    app, key = make_ward(tmp_path)

    async def steps(visit: Visit) -> None:
        page = await ask_about_patient(visit, key, "last hemoglobin", width=width, scheme=scheme)
        assert "10.2" in await page.inner_text("section[aria-labelledby=computed]")
        await page.locator("a[href$='/record']").first.click()
        await page.locator(".measured > summary").first.click()
        await page.wait_for_selector(".measurements table")
        assert await page.locator(".measurements svg.course").first.evaluate("svg => svg.clientWidth") == 96
        assert await find_violations(page, axe) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.locator(".measurements button:has-text('9.1 (low)')").focus()
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog[open] .text")
        assert "Hemoglobin: 9.1 g/dL (low)" in await page.inner_text("dialog .text")

    browse(app, steps)
