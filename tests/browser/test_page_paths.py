"""Every other path of the page in Chromium: sign-in, errors, settings, filters, exports, print and deletion."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page

from epicrisis.server.app import create_app
from tests.browser.test_page import find_violations
from tests.server.test_page_patients import ANNA, Hospital
from tests.support.browser import QUESTION, Visit, arguing_model, ask, browse, make_app
from tests.support.pages import demo_documents
from tests.support.servers import open_library, open_resources

pytestmark = pytest.mark.browser
WINDOWS = [(390, "dark"), (1280, "light"), (2560, "dark")]

MAX_DOWNLOADS = 8
"""Chromium stops a page that downloads more than ten files."""


async def inspect(page: Page, axe: str, name: str) -> list[str]:
    """Return the violations of a page, and whether it is wider than its window."""
    found = [f"{name} {line}" for line in await find_violations(page, axe)]
    if not await page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
        found.append(f"{name} is wider than the window")
    return found


def forget_advice(visit: Visit) -> None:
    """Forget what the console tells of statuses, and its advice on a field for user names."""
    visit.problems = [line for line in visit.problems if "status of" not in line and "username fields" not in line]


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
def test_sign_in_and_error_pages_have_no_violation(tmp_path: Path, axe: str, width: int, scheme: str) -> None:
    hospital = Hospital(tmp_path)

    async def steps(visit: Visit) -> None:
        page = await visit.open("/", width=width, scheme=scheme)
        assert page.url.endswith("/sign-in")
        found = await inspect(page, axe, "sign-in")
        await page.fill("#key", "a wrong key")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".fault")
        found += await inspect(page, axe, "wrong key")
        await page.fill("#key", hospital.keys["reader"])
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".failed")
        assert "patient" in await page.inner_text("main")
        found += await inspect(page, axe, "403")
        await page.goto(f"{visit.address}/answers/{'a' * 32}")
        found += await inspect(page, axe, "404")
        await page.context.clear_cookies()
        await page.goto(f"{visit.address}/sign-in")
        await page.fill("#key", hospital.keys["doctor"])
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#question")
        await page.fill("#question", QUESTION)
        await page.click("form[action='/ask'] button.primary")
        await page.wait_for_selector("#answer .failed:has-text('field “Patient”')")
        assert "--" not in await page.inner_text("#answer")
        found += await inspect(page, axe, "422")
        hospital.app.state.questions.refuse_new()
        await page.fill("#patient", ANNA)
        await page.click("form[action='/ask'] button.primary")
        await page.wait_for_selector("#answer .failed:has-text('stopping')")
        found += await inspect(page, axe, "503")
        forget_advice(visit)
        assert found == []

    browse(hospital.app, steps)


def test_stopping_server_answers_form_without_scripts_with_page(tmp_path: Path, axe: str) -> None:
    app = make_app(tmp_path)
    app.state.questions.refuse_new()

    async def steps(visit: Visit) -> None:
        page = await visit.open(scripts=False)
        await page.fill("#question", QUESTION)
        await page.click("button.primary")
        await page.wait_for_selector("main .failed")
        assert "stopping" in await page.inner_text("main")
        forget_advice(visit)

    browse(app, steps)


@pytest.mark.parametrize(
    ("name", "words"),
    [("http://127.0.0.1:9/v1#m", "none outside"), ("https://llm.example.org/v1#m", "llm.example.org")],
)
def test_settings_show_which_hosts_are_contacted(tmp_path: Path, name: str, words: str) -> None:
    library = open_library(tmp_path / "lib", arguing_model(), demo_documents(), models={"writer": {"name": name}})

    async def steps(visit: Visit) -> None:
        page = await visit.open()
        await page.click(".options-fold > summary")
        facts = await page.inner_text("details .facts")
        assert words in facts.partition("Hosts contacted")[2]
        hint = await page.inner_text(".actions .hint")
        assert ("llm.example.org" in hint) == ("example" in name)

    browse(create_app(open_resources(library)), steps)


@pytest.mark.parametrize(("width", "scheme"), WINDOWS)
def test_filters_exports_print_and_deletion(tmp_path: Path, axe: str, width: int, scheme: str) -> None:
    async def steps(visit: Visit) -> None:
        page = await visit.open(width=width, scheme=scheme)
        await page.click(".options-fold > summary")
        await page.fill("#k", "5")
        await page.fill("#since", "2010")
        await ask(page)
        address = page.url
        assert "k 5, since 2010" in await page.inner_text("#follow-up-form")
        await page.click(".tabs a[href='#table']")
        years = await page.locator("#studies tbody td:nth-child(3)").all_inner_texts()
        assert years
        assert min(int(year) for year in years if year.isdecimal()) >= 2010
        suffixes: list[str] = []
        for number, link in enumerate(await page.locator("#save-as a").all()):
            if number < MAX_DOWNLOADS:
                if not await link.is_visible():
                    await page.click("[popovertarget='save-as']")
                async with page.expect_download() as download:
                    await link.click()
                file = await download.value
                suffixes.append(file.suggested_filename.rpartition(".")[2])
                size = Path(await file.path()).stat().st_size
            else:
                export = await page.request.get(f"{visit.address}{await link.get_attribute('href')}")
                suffixes.append(export.headers["content-disposition"].rpartition(".")[2].strip('"'))
                size = len(await export.body())
            # A list of references may be one line.
            assert size > 50
        assert {"md", "html", "json", "csv", "bib", "ris", "txt"} <= set(suffixes)
        await page.emulate_media(media="print")
        assert not await page.is_visible("form.question")
        assert not await page.is_visible(".tabs")
        for part in (".verdict", ".claims", ".sources", "#studies", ".strip"):
            assert await page.is_visible(part), part
        await page.emulate_media(media="screen")
        found = await inspect(page, axe, "answer")
        await page.click(".made > summary")
        await page.click("text=Delete this answer from the server")
        await page.wait_for_url("**/history")
        found += await inspect(page, axe, "history")
        assert await page.locator("#history li").count() == 0
        response = await page.goto(address)
        assert response is not None
        assert response.status == 404
        forget_advice(visit)
        assert found == []

    browse(make_app(tmp_path), steps)
