"""Blind reviews in Chromium: by keys and by pointer, what is kept, and accessibility at every width."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.test_page import find_violations
from tests.support.browser import Visit, browse
from tests.support.reviews import OURS, RIVAL, SECRETS, find_leaks, make_app, make_two_runs

pytestmark = pytest.mark.browser
SETTLED = 450
"""Milliseconds after which the keys of a page choose."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of six questions."""
    return make_two_runs(tmp_path_factory.mktemp("runs"))


async def start(visit: Visit, **criteria: bool) -> str:
    """Start a review with the form, and return its address."""
    page = await visit.open("/reviews/new")
    await page.select_option("#ours", OURS)
    await page.select_option("#rival", RIVAL)
    for criterion in criteria:
        await page.check(f"input[value={criterion}]")
    await page.click("button.primary")
    await page.wait_for_selector("a.primary")
    address = page.url.removeprefix(visit.address)
    await page.close()
    return address


def test_review_is_judged_by_keys_and_changed(tmp_path: Path, runs: Path) -> None:
    async def steps(visit: Visit) -> None:
        review = await start(visit)
        page = await visit.open(review)
        await page.click("a.primary")
        # A digit in a remark is text.
        await page.focus("#remark")
        await page.keyboard.type("1 mg")
        assert page.url.endswith("/questions/1")
        await page.focus("main")
        await page.wait_for_selector("#saved:not(:empty)")
        for number, key in enumerate("102s0", 1):
            assert f"/questions/{number}" in page.url
            await page.wait_for_timeout(SETTLED)
            await page.keyboard.press(key)
            await page.wait_for_url(f"**/questions/{number + 1}?saved={number}")
        assert "4 of 6 judged" in await page.inner_text("#progress-words")
        await page.goto(f"{visit.address}{review}/questions/1")
        assert await page.input_value("#remark") == "1 mg"
        assert (await page.inner_text("button.chosen")).startswith("Answer 1")
        await page.click("button[value='2']")
        await page.goto(f"{visit.address}{review}/questions/1")
        assert (await page.inner_text("button.chosen")).startswith("Answer 2")
        assert find_leaks(await page.content(), SECRETS) == []

    browse(make_app(tmp_path, runs), steps)


def test_nothing_is_judged_by_enter_in_a_field_or_by_keys_that_are_off(tmp_path: Path, runs: Path) -> None:
    async def steps(visit: Visit) -> None:
        review = await start(visit, correctness=True)
        page = await visit.open(f"{review}/questions/1")
        await page.focus("input[name=correctness] >> nth=1")
        await page.keyboard.press("Space")
        await page.wait_for_selector("#saved:not(:empty)")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("p.fault:text('choose which answer is better')")
        await page.uncheck("#keys")
        await page.focus("main")
        await page.wait_for_timeout(SETTLED)
        await page.keyboard.press("1")
        await page.goto(f"{visit.address}{review}/questions/1")
        assert not await page.is_checked("#keys")
        assert await page.is_checked("input[name=correctness] >> nth=1"), "the click was kept"
        assert "0 of 6 judged" in await page.inner_text("#progress-words")

    browse(make_app(tmp_path, runs), steps)


@pytest.mark.parametrize("width", [390, 1280, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_reviews_are_accessible(tmp_path: Path, runs: Path, axe: str, width: int, scheme: str) -> None:
    async def steps(visit: Visit) -> None:
        review = await start(visit, correctness=True, faithfulness=True)
        page = await visit.open("/reviews/new", width=width, scheme=scheme)
        found = await find_violations(page, axe)
        for place in ("", "/questions/1", "/questions/2"):
            await page.goto(f"{visit.address}{review}{place}")
            found += await find_violations(page, axe)
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{place} is {wide} px wider than the window"
            if place:
                tops = await page.eval_on_selector_all(".half", "halves => halves.map(half => half.offsetTop)")
                assert (tops[0] == tops[1]) == (width > 800), "side by side, or one below the other"
                await page.fill("#remark", "The second cites the trial.")
                await page.click("button[value='1']")
        await page.goto(f"{visit.address}{review}")
        await page.click("text=Close the review")
        await page.wait_for_selector(".rater")
        found += await find_violations(page, axe)
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        await page.goto(f"{visit.address}/reviews")
        found += await find_violations(page, axe)
        assert found == []

    browse(make_app(tmp_path, runs), steps)
