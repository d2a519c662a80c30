"""The pages of patients in Chromium: by keyboard, with accessibility checks, and a follow-up question."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.test_page import find_violations
from tests.server.test_page_patients import ANNA, Hospital
from tests.support.browser import Visit, browse

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_record_of_answer_opens_note_by_keyboard_without_violation(
    tmp_path: Path, axe: str, width: int, scheme: str
) -> None:
    hospital = Hospital(tmp_path)

    async def steps(visit: Visit) -> None:
        page = await visit.open("/sign-in", width=width, scheme=scheme)
        await page.fill("#key", hospital.keys["doctor"])
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#question")
        # Chromium advises a field for a user name beside the key. There are no user names.
        visit.problems = [line for line in visit.problems if "username fields" not in line]
        found: list[str] = []
        for place in ("/patients", "/runs"):
            await page.goto(visit.address + place)
            found += [f"{place} {line}" for line in await find_violations(page, axe)]
        await page.goto(visit.address)
        await page.fill("#patient", ANNA)
        await page.fill("#question", "Which drug was given during the first admission?")
        await page.click("button.primary")
        await page.wait_for_selector("article.answer", timeout=60_000)
        await page.fill("#follow-up", "Which drug was given in the clinic?")
        await page.click("text=Ask the follow-up")
        await page.wait_for_selector("article.answer .follow-up", timeout=60_000)
        found += [f"answer {line}" for line in await find_violations(page, axe)]
        await page.locator(".earlier h2 a").click()
        await page.wait_for_selector("a[href$='/record']")
        await page.locator("a[href$='/record']").click()
        await page.wait_for_selector(".timeline")
        found += [f"record {line}" for line in await find_violations(page, axe)]
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.locator(".note button.link").first.focus()
        await page.keyboard.press("Enter")
        await page.wait_for_selector("dialog[open] .text")
        assert "warfarin" in await page.inner_text("dialog .text")
        found += [f"note {line}" for line in await find_violations(page, axe)]
        await page.keyboard.press("Escape")
        assert ANNA not in page.url
        assert found == []

    browse(hospital.app, steps)
