"""The documentation site, opened from its folder as a reader without a network does (`make docs` builds it)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

from tests.support.browser import CHROMIUM

pytestmark = pytest.mark.browser
SITE = Path(__file__).parents[2] / "build" / "site"
PAGES = (
    "index",
    "tutorials/literature-question",
    "tutorials/patient-record",
    "tutorials/lost-in-the-middle",
    "tutorials/compare-models",
    "answers",
    "python",
    "records",
    "deployment",
    "reference/glossary",
    "reference/errata",
    "reference/commands",
    "reference/settings",
    "reference/python",
    "reference/http-api",
    "reference/file-formats",
    "reference/errors",
    "design/README",
    "design/answering",
    "benchmarks",
    "changelog",
)
"""Pages of every kind."""
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"needs Chromium at {CHROMIUM}: set CHROMIUM")
    if not SITE.exists():
        pytest.skip("needs the documentation site: make docs")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def find_address(name: str) -> str:
    """Return the address of a page of the site; of `README` that of its folder's index."""
    page = SITE / f"{name.removesuffix('README')}{'index' if name.endswith('README') else ''}.html"
    assert page.is_file(), name
    return page.as_uri()


def find_overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_site_fits_into_window_and_asks_no_other_host(browser: Browser, size: dict[str, int], scheme: str) -> None:
    context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    requests: list[str] = []
    errors: list[str] = []
    page = context.new_page()

    def note(request: Request) -> None:
        requests.append(request.url)

    page.on("request", note)
    page.on("pageerror", lambda error: errors.append(str(error)))
    wide: list[tuple[str, int]] = []
    for name in PAGES:
        page.goto(find_address(name))
        overflow = find_overflow(page)
        if overflow > 0:
            wide.append((name, overflow))
        assert page.locator("body").get_attribute("data-md-color-scheme") == (
            "slate" if scheme == "dark" else "default"
        )
    context.close()
    assert wide == []
    assert errors == []
    assert len(requests) > len(PAGES)
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_output_of_tutorials_is_not_torn_into_pieces(browser: Browser) -> None:
    """A command prints in pieces of 100 characters, which would begin new lines."""
    page = browser.new_page(viewport=DESKTOP)  # type: ignore[arg-type]
    for name in ("compare-models", "lost-in-the-middle"):
        page.goto(find_address(f"tutorials/{name}"))
        areas = page.locator(".jp-OutputArea").evaluate_all("areas => areas.map(area => area.children.length)")
        assert areas, "the tutorial was not executed"
        assert max(areas) <= 6
    page.close()


def test_search_finds_a_page_without_network(browser: Browser) -> None:
    page = browser.new_page(viewport=DESKTOP)  # type: ignore[arg-type]
    page.goto(find_address("index"))
    page.locator("[data-md-component=search-query]").fill("preflight check")
    result = page.locator(".md-search-result__item").first
    result.wait_for()
    assert "preflight" in result.inner_text().lower()
    page.close()
