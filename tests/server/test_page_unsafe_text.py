"""No text of a document, a question or a model becomes markup: no script, image, link or event handler."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Document
from epicrisis.server.app import create_app
from epicrisis.testing.chat import ScriptedModel
from tests.support.pages import Page, ask
from tests.support.replies import fill
from tests.support.servers import connect, open_library, open_resources
from tests.support.unsafe_text import unsafe_in

EVIL = (
    "<script>alert(1)</script> <img src=x onerror=alert(2)> ![pixel](https://evil.example/p.png) "
    "[link](https://evil.example) https://evil.example/plain </textarea></title><hx-partial hx-target='#asked'>x"
    "</hx-partial> <b hx-on:click='alert(3)'>\u202e\u200b {{ 7 * 7 }} \x07"
)
SENTENCE = f"Aspirin significantly lowered the risk of stroke in adults {EVIL} in the trial"
DOCUMENTS = [
    Document(
        "d1",
        f"Stroke is common. Adults were given aspirin or placebo. {SENTENCE}.",
        title=f"Title {EVIL}",
        source=f"Source {EVIL}",
        date="2015",
    ),
    Document("d<script>2", "Aspirin for stroke was compared with placebo.", title="Other", source="S", date="2016"),
]


def evil_model() -> ScriptedModel:
    def script(request: ChatRequest) -> str:
        values = {"found": True, "quotes": [{"doc": 1, "quote": SENTENCE}]}
        return json.dumps(fill(request.schema or {}, values, f"Claim: {SENTENCE}"))

    return ScriptedModel(script)


def check_page(html: str) -> Page:
    page = Page(html)
    for element in page.elements:
        assert element.name not in {"img", "iframe", "object", "embed", "style", "template", "b"}, element
        assert not element.name.startswith("hx-"), element
        for name, value in element.attributes.items():
            assert not name.startswith(("on", "hx-on")), element
            assert name != "style", element
            if name in ("href", "src", "action", "hx-get", "hx-post"):
                assert value.startswith(("/", "#")), element
                assert not value.startswith("//"), element
    for script in page.all("script"):
        assert script.attributes["src"].startswith("/static/")
        assert script.text == ""
    assert unsafe_in(html) == []
    return page


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["rag", "brief-context", "evidence"])
def test_pages_never_render_text_as_markup(tmp_path: Path, strategy: str) -> None:
    app = create_app(open_resources(open_library(tmp_path / "lib", evil_model(), DOCUMENTS, partition=1)))

    async def run() -> list[str]:
        pages: list[str] = []
        async with connect(app) as client:
            address = await ask(client, f"Does aspirin help in stroke? {EVIL}", strategy=strategy)
            answer = (await client.get(address)).text
            pages.append(answer)
            links = {element.attributes["href"] for element in Page(answer).all("a")}
            parts = {"HX-Request": "true"}
            for link in sorted(link for link in links if link.startswith(f"{address}/") and "export" not in link):
                pages.append((await client.get(link)).text)
                pages.append((await client.get(link, headers=parts)).text)
        return pages

    pages = asyncio.run(run())
    assert len(pages) >= 3
    for html in pages:
        check_page(html)
    assert "alert(1)" in pages[0]


@pytest.mark.slow
def test_stream_never_sends_text_as_markup(tmp_path: Path) -> None:
    app = create_app(open_resources(open_library(tmp_path / "lib", evil_model(), DOCUMENTS, partition=1)))

    async def run() -> str:
        async with connect(app) as client:
            headers = {"Accept": "text/html, text/event-stream", "HX-Request": "true"}
            data = {"question": f"Does aspirin help? {EVIL}", "strategy": "rag"}
            return (await client.post("/ask", data=data, headers=headers)).text

    pieces: list[str] = []
    for block in asyncio.run(run()).split("\n\n"):
        lines = [line.removeprefix("data: ").removeprefix("data:") for line in block.split("\n") if line[:5] == "data:"]
        pieces.append("\n".join(lines))
    assert any("Claim" in piece and "hx-partial" in piece for piece in pieces)
    for piece in filter(None, pieces):
        own = piece.replace("<hx-partial ", "<div ").replace("</hx-partial>", "</div>")
        check_page(own)
    assert any("<article" in piece for piece in pieces[-3:])


@pytest.mark.slow
def test_fault_in_form_never_repeats_text_as_markup(tmp_path: Path) -> None:
    app = create_app(open_resources(open_library(tmp_path / "lib", evil_model(), DOCUMENTS)))

    async def run() -> tuple[int, str]:
        async with connect(app) as client:
            response = await client.post("/ask", data={"question": EVIL, "options": EVIL, "k": EVIL, "since": EVIL})
            return response.status_code, response.text

    status, html = asyncio.run(run())
    assert status == 422
    check_page(html)
