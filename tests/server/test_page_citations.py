"""Each number of an answer opens its passage: every citation of 120 answers, through the routes of the page.

The documents are abstracts, PDF files of two columns and several pages, and full texts in JATS. In a PDF file the boxes
on its pages must cover exactly the cited words.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from epicrisis.core.types import CitingMode, Document
from epicrisis.corpus.base.reader_base import FileDocument
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.libraries.resources import OpenLibrary
from epicrisis.server.state.stored_answers import AnswerStore
from epicrisis.testing.chat import ScriptedModel
from tests.support.pages import Page, ask, demo_documents, open_page, quoting_model, texts_by_id
from tests.support.pdf_files import placed_pdf, read_boxes, read_files, read_marked_characters, two_columns
from tests.support.replies import fill
from tests.support.servers import connect, open_library, open_resources

FILES = 8
"""PDF files, and full texts, of three abstracts each."""


def make_documents(folder: Path) -> list[FileDocument | Document]:
    """Return the documents of the demo, and others made of their texts, as files."""
    demo = demo_documents()
    folder.mkdir()
    for number in range(FILES):
        parts = demo[3 * number : 3 * number + 3]
        pages = two_columns(" ".join(part.text for part in parts), "Journal of the Demo 2020;1")
        (folder / f"report-{number}.pdf").write_bytes(placed_pdf(pages, title=f"Report: {parts[0].title}"))
        parts = demo[len(demo) - 3 * number - 3 : len(demo) - 3 * number]
        sections = "".join(f"<sec><title>Part</title><p>{escape(part.text)}</p></sec>" for part in parts)
        title = f"<title-group><article-title>Review: {escape(parts[0].title)}</article-title></title-group>"
        meta = f'<article-id pub-id-type="pmc">{number + 1}</article-id>{title}'
        article = f"<article><front><article-meta>{meta}</article-meta></front><body>{sections}</body></article>"
        (folder / f"{number}.nxml").write_text(article, "utf-8")
    return [*demo, *read_files(folder)]


@pytest.mark.long
@pytest.mark.parametrize(("citing", "answers", "least"), [("quotes", 100, 250), ("numbers", 20, 40)])
def test_every_number_of_an_answer_opens_its_sentence(
    citing: CitingMode, answers: int, least: int, tmp_path: Path
) -> None:
    items = make_documents(tmp_path / "files")
    documents = [item.document if isinstance(item, FileDocument) else item for item in items]
    texts = texts_by_id(documents)
    paths = {item.document.id: Path(item.origin.path) for item in items if isinstance(item, FileDocument)}
    resources = open_resources(
        open_library(tmp_path / "lib", quoting_model(), items, k=6, partition=2, unverified="keep", citing=citing)
    )
    app = create_app(resources, ServerOptions(folder=tmp_path / "server"))
    store = AnswerStore(tmp_path / "server" / "answers")
    opened = unverified = 0
    kinds: Counter[str] = Counter()

    async def check(number: int) -> None:
        nonlocal opened, unverified
        title = documents[7 * number % len(documents)].title
        strategy = ("evidence", "rag", "brief-context")[number % 3]
        async with connect(app) as client:
            address = await ask(client, f"What is known of {title}?", strategy=strategy)
            page = await open_page(client, address)
            stored = store.find(address.rpartition("/")[2], "local")
            assert stored is not None
            citations = {citation.number: citation for citation in stored.answer.shown_citations}
            links = page.all("a", "cite")
            assert {int(link.attributes["href"].rpartition("/")[2]) for link in links} == set(citations)
            for link in {link.attributes["href"]: link for link in links}.values():
                citation = citations[int(link.text.split()[0].rstrip("?"))]
                source = await open_page(client, link.attributes["href"])
                expected = texts[citation.document_id][citation.start : citation.end]
                (marked,) = source.all("mark")
                assert marked.text == expected
                if citation.verified:
                    assert expected.split() == citation.quotation.split()
                else:
                    unverified += 1
                    assert "?" in link.text
                    assert "Not found in the document" in source.html
                opened += 1
                kinds[citation.document_id.partition(":")[0]] += 1
                sheets = read_boxes(source)
                assert bool(sheets) == (citation.document_id in paths and paths[citation.document_id].suffix == ".pdf")
                if sheets:
                    boxed = read_marked_characters(paths[citation.document_id], sheets)
                    assert boxed.replace("-", "") == "".join(expected.split()).replace("-", "")
                    kinds["pages"] += len(sheets)

    async def run() -> None:
        for number in range(answers):
            await check(number)

    asyncio.run(run())
    assert opened >= least
    assert min(kinds["file"], kinds["pmc"]) >= answers / 4
    assert kinds["pages"] >= kinds["file"]
    # A numbered sentence is always found; some quotations of this model are in no document.
    assert (unverified > 0) == (citing == "quotes")


def test_answer_that_cites_nothing_stands_beside_the_nearest_results(tmp_path: Path) -> None:
    claim = "Taking it early halves how often birth comes too soon."
    model = ScriptedModel(lambda request: json.dumps(fill(request.schema or {}, {"sentences": [1]}, claim)))
    library = open_library(tmp_path / "lib", model, demo_documents(), k=2, citing="numbers")

    async def run() -> tuple[Page, Page]:
        app = create_app(open_resources(library), ServerOptions(folder=tmp_path / "server"))
        async with connect(app) as client:
            address = await ask(client, "Does aspirin lower the risk of preterm pre-eclampsia?", strategy="rag")
            return await open_page(client, address), await open_page(client, f"{address}/sources/1")

    answer, source = asyncio.run(run())
    assert "compare it with the nearest results that were read" in answer.html
    assert [heading.text for heading in answer.all("h2") if heading.attributes.get("id") == "sources"] == [
        "Nearest results"
    ]
    assert source.one("mark").text in answer.html


@pytest.mark.long
def test_number_opens_stored_passage_after_document_changed(tmp_path: Path) -> None:
    documents = demo_documents()
    library = open_library(tmp_path / "lib", quoting_model(), documents, k=2)
    changed = open_library(tmp_path / "other", quoting_model(), [_with_preface(document) for document in documents])
    options = ServerOptions(folder=tmp_path / "server")

    async def run() -> tuple[str, Page, Page]:
        async with connect(create_app(open_resources(library), options)) as client:
            address = await ask(client, "Does aspirin prevent pre-eclampsia?")
            before = await open_page(client, f"{address}/sources/1")
        # The server is started again with another version of the library under the same name.
        resources = open_resources(_renamed(changed, library.name))
        async with connect(create_app(resources, options)) as client:
            return address, before, await open_page(client, f"{address}/sources/1")

    _, before, after = asyncio.run(run())
    assert after.one("mark").text == before.one("mark").text
    assert "has changed since this answer" in after.html
    assert "has changed since this answer" not in before.html


def _with_preface(document: Document) -> Document:
    return replace(document, text=f"This text was revised. {document.text}")


def _renamed(library: OpenLibrary, name: str) -> OpenLibrary:
    return replace(library, name=name)
