"""Skip the tests of the page where there is no Chromium or no axe-core, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import AXE, CHROMIUM


@pytest.fixture(autouse=True)
def _chromium() -> None:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"needs Chromium at {CHROMIUM}: set CHROMIUM")


@pytest.fixture(scope="session")
def axe() -> str:
    """The program that checks accessibility."""
    if not Path(AXE).exists():
        pytest.skip("needs axe-core: make test-browser")
    return Path(AXE).read_text(encoding="utf-8")
