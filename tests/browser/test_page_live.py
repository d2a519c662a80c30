"""An answer while it is written, follow-up questions, and the cards of citations, in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from playwright.async_api import Page

from tests.browser.test_page import find_violations
from tests.support.browser import CLAIMS, Visit, WritingModel, browse, claiming_model, fill_form, make_app

pytestmark = pytest.mark.browser
TOPS = """() => Object.fromEntries([['question', '#asked'], ['verdict', '.verdict'], ['claims', 'ol.claims']]
    .map(([name, selector]) => [name, Math.round(document.querySelector(selector).getBoundingClientRect().top)]))"""

WARNED = """() => [...document.querySelectorAll('.verdict + .warning')]
    .reduce((sum, { nextElementSibling, previousElementSibling, offsetHeight }) => sum + offsetHeight + 17, 0)"""


def make_writing_app(folder: Path, model: WritingModel) -> FastAPI:
    return make_app(folder, model, strategy="rag", citing="numbers", k=8, check="off", not_in_library="ask")


async def ask_and_answer(page: Page, model: WritingModel) -> None:
    """Ask a question with options, and let the model finish its reply."""
    model.go_on()
    await press_ask(page)
    await page.wait_for_selector("article.answer", timeout=60_000)


async def press_ask(page: Page, options: str = "yes, no") -> None:
    await fill_form(page, options=options)
    await page.click(".question button.primary")


@pytest.mark.parametrize(("width", "options"), [(390, "yes, no"), (1280, "yes, no"), (1280, "")])
def test_claims_arrive_unchecked_in_the_places_of_the_answer(tmp_path: Path, width: int, options: str) -> None:
    model = claiming_model()

    async def steps(visit: Visit) -> None:
        page = await visit.open(width=width)
        await press_ask(page, options)
        last = 3 if options else 2
        await page.wait_for_selector(f"#live-claim-{last}:has-text('{CLAIMS[-1]}')")
        assert await page.locator("article.answer").count() == 0
        texts = await page.locator("#live-claims li > span:first-child").all_inner_texts()
        assert [text.strip() for text in texts] == list(CLAIMS[3 - last :])
        assert await page.locator("#live-claims .support:text('not checked yet')").count() >= 2
        assert "not checked yet" in await page.inner_text(".pending h2")
        assert await page.locator("[role=status]:visible").count() == 1
        before = await page.evaluate(TOPS)
        model.go_on()
        await page.wait_for_selector("article.answer")
        after = await page.evaluate(TOPS)
        # Only a warning of the answer comes between the verdict and the claims.
        warned = await page.evaluate(WARNED)
        assert (after["question"], after["verdict"]) == (before["question"], before["verdict"])
        assert abs(after["claims"] - before["claims"] - warned) <= 2
        assert "not checked yet" not in await page.inner_text("#answer")
        assert await page.locator(".claims .cite").count() >= 2

    browse(make_writing_app(tmp_path, model), steps)


@pytest.mark.parametrize("width", [390, 1280])
def test_sentences_are_readable_within_two_seconds_while_model_writes(tmp_path: Path, axe: str, width: int) -> None:
    model = claiming_model()

    async def steps(visit: Visit) -> None:
        page = await visit.open(width=width)
        await fill_form(page, options="")
        await page.click(".question button.primary")
        await page.wait_for_selector("#live-proof .study q", timeout=2_000)
        await page.wait_for_selector("#live-verdict:not(:empty)")
        # The model has not finished, and nothing is called an answer.
        assert await page.locator("article.answer").count() == 0
        assert "still being written" in await page.inner_text("#live-proof")
        headings = await page.locator("#answer h2:visible").all_inner_texts()
        assert "Answer" not in headings
        assert await find_violations(page, axe) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.locator("#live-proof h3 a").first.click()
        await page.wait_for_selector("dialog[open] .text")
        await page.keyboard.press("Escape")
        model.go_on()
        await page.wait_for_selector("article.answer")
        assert await page.locator("#live-proof").count() == 0

    browse(make_writing_app(tmp_path, model), steps)


def test_follow_up_shows_steps_below_earlier_answer(tmp_path: Path) -> None:
    model = claiming_model()

    async def steps(visit: Visit) -> None:
        page = await visit.open()
        await ask_and_answer(page, model)
        first = page.url
        words = "And with chronic hypertension?"
        for _ in range(2):
            await page.fill("#follow-up", words)
            await page.focus("text=Ask the follow-up")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#steps li")
            assert "Completing the question" in await page.inner_text("#steps")
            await page.wait_for_selector("#live-verdict:not(:empty)")
            assert "Aspirin lowered" in await page.inner_text(".earlier")
            assert await page.evaluate("document.activeElement.id") == "asked"
            assert "chronic hypertension" in await page.inner_text(".live h1")
            model.go_on()
            await page.wait_for_selector("article.answer")
            assert words in await page.inner_text("article.answer .follow-up")
            assert await page.input_value("#follow-up") == ""
        assert page.url != first
        shown = await page.inner_text("#answer")
        await page.reload()
        assert await page.inner_text("#answer") == shown

    browse(make_writing_app(tmp_path, model), steps)


async def open_card(page: Page, at: int) -> str:
    """Open the card of a number by keyboard, and return the highlighted words."""
    await page.locator(".claims .cite").nth(at).focus()
    await page.keyboard.press("Enter")
    card = page.locator(".card:popover-open")
    await card.wait_for()
    return str(await card.locator("mark").inner_text())


@pytest.mark.parametrize("scripts", [True, False])
def test_number_opens_card_by_keyboard_and_gets_the_focus_back(tmp_path: Path, scripts: bool) -> None:
    model = claiming_model()

    async def steps(visit: Visit) -> None:
        page = await visit.open(scripts=scripts)
        await ask_and_answer(page, model)
        for at in range(await page.locator(".claims .cite").count()):
            words = await open_card(page, at)
            card = page.locator(".card:popover-open")
            number = (await page.locator(".claims .cite").nth(at).inner_text()).strip()
            quotation = await page.locator(f".sources .quote:has(.cite:text-is('{number}')) q").inner_text()
            assert words.split() == quotation.strip("\u201c\u201d").split()
            facts = await card.inner_text()
            for fact in ("Year", "Retraction", "Support", f"Source {number}"):
                assert fact in facts
            await page.keyboard.press("Escape")
            assert await page.locator(".card:popover-open").count() == 0
            assert await page.locator(".claims .cite:focus").inner_text() == number
        await open_card(page, 0)
        await page.click(".card:popover-open >> text=Open the document")
        if not scripts:
            await page.wait_for_selector("main .document mark")
            return
        await page.wait_for_selector("dialog[open] mark")
        assert await page.locator(".card:popover-open").count() == 0
        await page.keyboard.press("Escape")
        assert await page.locator(".claims .cite:focus").count() == 1

    browse(make_writing_app(tmp_path, model), steps)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light"), (2560, "dark")])
def test_card_is_in_sight_without_violation_and_not_printed(tmp_path: Path, axe: str, width: int, scheme: str) -> None:
    model = claiming_model()

    async def steps(visit: Visit) -> None:
        page = await visit.open(width=width, scheme=scheme)
        await press_ask(page)
        await page.wait_for_selector("#live-claim-1:not(:empty)")
        found = [f"live {line}" for line in await find_violations(page, axe)]
        model.go_on()
        await page.wait_for_selector("article.answer")
        await open_card(page, 0)
        box: Any = await page.locator(".card:popover-open").bounding_box()
        assert box["x"] >= 0
        assert box["y"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= 900
        found += [f"card {line}" for line in await find_violations(page, axe)]
        assert found == []
        await page.emulate_media(media="print")
        assert await page.locator(".card:visible").count() == 0
        assert await page.locator(".sources q:visible").count() >= 2

    browse(make_writing_app(tmp_path, model), steps)
