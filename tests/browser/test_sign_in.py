"""Sign in with the identity provider of a hospital in Chromium, and out again, with accessibility checks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Page

from tests.browser.test_page import find_violations
from tests.server.test_identity_provider import Clinic
from tests.support.browser import visiting
from tests.support.hospital_provider import HospitalProvider

pytestmark = pytest.mark.browser


async def check_page(page: Page, axe: str, name: str) -> list[str]:
    """Return the violations of a page, and whether it is wider than the window."""
    found = [f"{name}: {line}" for line in await find_violations(page, axe)]
    if not await page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
        found.append(f"{name}: wider than the window")
    return found


@pytest.mark.parametrize(
    ("width", "scheme", "scripts"), [(390, "dark", True), (1280, "light", True), (1280, "light", False)]
)
def test_user_signs_in_at_provider_and_out_without_violation(
    tmp_path: Path, axe: str, width: int, scheme: str, scripts: bool
) -> None:
    hospital = HospitalProvider()

    async def steps() -> None:
        async with hospital.serve():
            clinic = Clinic(tmp_path, hospital)
            async with visiting(clinic.app) as visit:
                visit.other_address = hospital.address
                page = await visit.open("/", width=width, scheme=scheme, scripts=scripts)
                found = await check_page(page, axe, "sign-in") if scripts else []
                await page.get_by_role("link", name="Sign in at 127.0.0.1").focus()
                await page.keyboard.press("Enter")
                await page.fill("#user", "maria")
                await page.keyboard.press("Enter")
                await page.wait_for_selector("#question")
                assert page.url == f"{visit.address}/"
                assert "Maria Weber" in await page.inner_text(".account")
                cookies = {cookie["name"]: cookie for cookie in await page.context.cookies()}
                (name,) = [name for name in cookies if name.startswith("epicrisis_session_")]
                assert cookies[name]["httpOnly"]
                if scripts:
                    found += await check_page(page, axe, "ask")
                    assert "epicrisis_session" not in await page.evaluate("document.cookie")
                await page.click("text=Sign out")
                await page.wait_for_selector("text=You are signed out")
                found += await check_page(page, axe, "signed out") if scripts else []
                await page.click("text=too")
                await page.wait_for_url(f"{visit.address}/sign-in")
                assert hospital.asked[-1] == "/end"
                await page.goto(visit.address)
                assert page.url == f"{visit.address}/sign-in"
                assert found == []

    asyncio.run(steps())


def test_refused_sign_in_is_a_page_without_violation(tmp_path: Path, axe: str) -> None:
    hospital = HospitalProvider()

    async def steps() -> None:
        async with hospital.serve():
            clinic = Clinic(tmp_path, hospital)
            async with visiting(clinic.app) as visit:
                visit.other_address = hospital.address
                page = await visit.open("/sign-in/provider", width=390)
                await page.fill("#user", "guest")
                await page.keyboard.press("Enter")
                await page.wait_for_selector("text=Your account has no role here")
                # Chromium logs the status of the refusal.
                visit.problems = [line for line in visit.problems if "403" not in line]
                assert await check_page(page, axe, "refusal") == []
                await page.click("text=Back to the sign-in")
                assert page.url == f"{visit.address}/sign-in"

    asyncio.run(steps())
