"""The page with the embedded chat model on real abstracts: nothing is scripted."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from epicrisis.core.protocols import Encoder
from epicrisis.core.types import Document
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.libraries.resources import Resources
from epicrisis.settings.configuration import load_settings
from tests.browser.test_page import find_violations
from tests.support.browser import fill_form, visiting

pytestmark = [pytest.mark.browser, pytest.mark.models, pytest.mark.data]
ABSTRACTS = 60
"""Encoded in a few seconds. Their texts are as long and as much alike as any."""
SECONDS = 300_000
"""Milliseconds for an answer of the embedded model on a busy machine."""


def read_abstracts(folder: Path) -> Iterator[Document]:
    """Yield the first real abstracts."""
    with gzip.open(folder / "abstracts" / "abstracts.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line, _ in zip(lines, range(ABSTRACTS), strict=False):
            row: dict[str, Any] = json.loads(line)
            yield Document(row["id"], row["text"], title=row["title"], source="PubMed")


async def ask(page: Page, question: str, strategy: str) -> None:
    await fill_form(page, question, "")
    await page.select_option("#strategy", strategy)
    await page.click("form[action='/ask'] button.primary")


def test_embedded_model_answers_from_real_abstracts(
    tmp_path: Path, data_folder: Path, encoder: Encoder, model_home: Path, axe: str
) -> None:
    documents = list(read_abstracts(data_folder))
    with open_or_create(tmp_path / "abstracts", encoder, "minilm") as library:
        add_documents(library, documents, encoder)
    settings = load_settings(
        {
            "home": model_home,
            "models": {"writer": {"name": "smollm2-135m"}},
            "strategy": "rag",
            "k": 1,
            "citing": "numbers",
        }
    )

    async def run() -> None:
        async with await Resources.open(settings, [tmp_path / "abstracts"]) as resources:
            app = create_app(resources, ServerOptions(folder=tmp_path / "server"))
            async with visiting(app) as visit:
                page = await visit.open()
                await page.click(".options-fold > summary")
                assert "smollm2-135m" in await page.inner_text("details .facts")
                assert "stays on this machine" in await page.inner_text(".actions .hint")
                await ask(page, documents[0].title + "?", "rag")
                await page.wait_for_selector("#steps li")
                await page.wait_for_selector("#answer article.answer, #answer .failed", timeout=SECONDS)
                # Whatever so small a model says, the page says what became of it, and shows what was searched.
                state = await page.get_attribute(".verdict", "class")
                assert state in {f"verdict {name}" for name in ("answered", "abstained", "unparsed", "failed")}
                assert documents[0].title[:40] in await page.inner_text("#answer")
                await page.click(".tabs a[href='#read']")
                await page.click("text=Two searches compared")
                assert await page.locator(".rankings:visible").count() == 1
                found = [f"rag {line}" for line in await find_violations(page, axe)]
                await page.locator("#read ~ .documents a").first.click()
                await page.wait_for_selector("dialog[open] .text")
                assert documents[0].text[:60] in await page.inner_text("dialog .text")
                await page.keyboard.press("Escape")
                # Sentences only: each is in the abstract that it names, word for word.
                await ask(page, documents[1].title + "?", "evidence")
                await page.wait_for_selector(f"article.answer[data-question='{documents[1].title}?']", timeout=SECONDS)
                found += [f"evidence {line}" for line in await find_violations(page, axe)]
                texts = {document.title: document.text for document in documents}
                quotations = await page.locator(".sources q").all_inner_texts()
                assert len(quotations) >= 3
                for quotation in quotations:
                    words = quotation.strip("\u201c\u201d")
                    assert any(words in text for text in (*texts.values(), *texts)), words
                assert found == []

    asyncio.run(run())
