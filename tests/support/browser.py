"""A server with a scripted model, and Chromium that looks at it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from playwright.async_api import Browser, Page, async_playwright

from epicrisis.core.errors import EndpointUnreachable
from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatReply, ChatRequest, DeltaCallback
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.testing.chat import Script, ScriptedModel
from tests.support.pages import demo_documents
from tests.support.replies import fill
from tests.support.servers import open_library, open_resources, running
from tests.support.strategies import stage_of

QUESTION = "Does low-dose aspirin lower the risk of preterm pre-eclampsia?"
CLAIMS = ("Aspirin lowered the risk of preterm pre-eclampsia.", "Doses were below 150 mg.", "Few women bled.")
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
AXE = os.environ.get("AXE_CORE", "build/axe-core-4.14.1/axe.min.js")


class SlowModel(ScriptedModel):
    """Replies after a moment, so that the steps can be seen."""

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        await asyncio.sleep(0.15)
        return await super().complete(request, on_delta)


class WritingModel(ScriptedModel):
    """Streams its reply, and keeps the end of it back until `go_on` is called, so that the page can be looked at."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._gate = asyncio.Event()

    def go_on(self) -> None:
        """Send the end of the reply that is being written."""
        self._gate.set()

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        pieces: list[str] = []
        reply = await super().complete(request, lambda piece: pieces.append(piece or ""))
        if on_delta is not None:
            for piece in pieces[:-1]:
                await asyncio.sleep(0)
                on_delta(piece)
            await self._gate.wait()
            self._gate.clear()
            on_delta(pieces[-1])
        return reply


def claiming_model() -> WritingModel:
    """Return a model that makes three claims of the sentences it was offered."""

    def script(request: ChatRequest) -> str:
        prompt = request.messages[-1].content
        if "Last question:" in prompt:
            return json.dumps({"question": "Does low-dose aspirin lower the risk in women with chronic hypertension?"})
        claims = [{"text": text, "sentences": [number]} for number, text in enumerate(CLAIMS, 1)]
        values = {"found": True, "claims": claims, "sentences": [1], "choice": "yes"}
        return json.dumps(fill(request.schema or {}, values, CLAIMS[0]))

    return WritingModel(script)


def arguing_model() -> ScriptedModel:
    """Return a model whose parts disagree: yes, a failure, no, nothing."""
    calls = 0
    copied: list[str] = []

    def script(request: ChatRequest) -> str:
        nonlocal calls
        documents = unfence(request.messages[-1].content)
        if stage_of(request) != "map":
            values = {"found": True, "sources": [1, 2], "choice": "A"}
            # A claim in other words than its sentences would cite none of them.
            return json.dumps(fill(request.schema or {}, values, copied[0]))
        calls += 1
        if calls % 4 == 2:
            raise EndpointUnreachable("the model does not reply: start it again")
        if calls % 4 == 0:
            return json.dumps({"result": {"found": False}})
        quote = " ".join(documents[0].splitlines()[-1].split()[:20])
        copied.append(quote)
        values = {
            "found": True,
            "quotes": [{"doc": 1, "quote": quote}],
            "choice": "A" if calls % 4 == 1 else "B",
        }
        return json.dumps(fill(request.schema or {}, values, "The trial reports an effect."))

    return SlowModel(script)


def make_app(folder: Path, model: ScriptedModel | None = None, **settings: Any) -> FastAPI:
    """Return the application over the demo's documents."""
    chosen = {"strategy": "brief-context", "k": 16, "partition": 4, "check": "rules", "citing": "quotes", **settings}
    preflight = {"signal": "overlap", "n": 10, "threshold": 0.999}
    library = open_library(folder / "lib", model or arguing_model(), demo_documents(), preflight=preflight, **chosen)
    return create_app(open_resources(library), ServerOptions(folder=folder / "server"))


@dataclass
class Visit:
    """A browser at a server, and what went wrong in it."""

    address: str
    browser: Browser
    problems: list[str] = field(default_factory=list)
    """Messages of the console, faults of scripts, and requests to other machines."""
    other_address: str = ""
    """The address of a second server that the test uses, such as an identity provider."""

    async def open(self, place: str = "/", *, width: int = 1280, scheme: str = "light", scripts: bool = True) -> Page:
        """Return a page of the server in a window of its own."""
        context = await self.browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            java_script_enabled=scripts,
        )
        page = await context.new_page()
        page.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.problems.append(f"fault: {error}"))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._check_host(request.url))
        await page.goto(self.address + place)
        return page

    def _check_host(self, url: str) -> None:
        if not url.startswith((self.address, self.other_address or self.address)):
            self.problems.append(f"request: {url}")


@asynccontextmanager
async def visiting(app: FastAPI) -> AsyncIterator[Visit]:
    """Serve the application and start Chromium. Fails if anything went wrong in the browser."""
    async with running(app) as address, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        visit = Visit(address, browser)
        yield visit
        await browser.close()
        assert visit.problems == [], visit.problems


def browse(app: FastAPI, steps: Callable[[Visit], Awaitable[None]]) -> None:
    """Run the steps of a test in a browser at the application."""

    async def run() -> None:
        async with visiting(app) as visit:
            await steps(visit)

    asyncio.run(run())


async def fill_form(page: Page, question: str = QUESTION, options: str = "yes, no") -> None:
    """Unfold the form with its settings, and fill in a question and its options."""
    for summary in (".ask > summary", ".options-fold > summary"):
        fold = page.locator(f"details:not([open]){summary}:visible")
        if await fold.count():
            await fold.click()
    await page.fill("#question", question)
    await page.fill("#options", options)


async def ask(page: Page, question: str = QUESTION, options: str = "yes, no") -> None:
    """Ask with the form and wait for the answer."""
    await fill_form(page, question, options)
    await page.click(".question button.primary")
    await page.wait_for_selector("article.answer", timeout=60_000)
