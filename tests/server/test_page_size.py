"""The page is small: it loads fast in a hospital's network."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from epicrisis.server.app import create_app
from tests.support.servers import connect, open_library, open_resources

MAX_BYTES = 150_000
LOADED = re.compile(r'(?:src|href)="(/static/[^"]+)"')


@pytest.mark.slow
def test_page_with_everything_that_it_loads_is_below_150_kb(tmp_path: Path) -> None:
    async def measure() -> dict[str, int]:
        async with connect(create_app(open_resources(open_library(tmp_path / "lib", by="bm25")))) as client:
            page = await client.get("/", headers={"Accept": "text/html"})
            assert page.status_code == 200
            sizes = {"/": len(page.content)}
            for path in set(LOADED.findall(page.text)):
                response = await client.get(path)
                assert response.status_code == 200
                sizes[path] = len(response.content)
            return sizes

    sizes = asyncio.run(measure())
    assert any(path.partition("?")[0].endswith(".js") for path in sizes)
    assert any(path.partition("?")[0].endswith(".css") for path in sizes)
    assert sum(sizes.values()) < MAX_BYTES, sizes
