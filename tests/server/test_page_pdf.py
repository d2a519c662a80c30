"""A citation of a PDF file opens its page with the place marked, and only while the file is the one that was read."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from PIL import Image

from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest
from epicrisis.corpus import sandbox
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.page import pdf_view
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.corpus.test_sandbox import pdf_that_unpacks_to
from tests.server.test_page_patients import NOTES
from tests.support.pages import Page, ask, open_page
from tests.support.pdf_files import Line, column, placed_pdf, read_boxes, read_files, read_marked_characters
from tests.support.replies import fill
from tests.support.servers import connect, open_library, open_resources, read_access_log

QUESTION = "Does aspirin prevent pre-eclampsia?"
CITED = "Aspirin lowered the risk of preterm pre-eclampsia from 4.3% to 1.6% in women at high risk"
BEFORE, AFTER = "Adherence to the daily tablets was good until the", "very end and aspirin harmed no woman"
PLAIN = "Aspirin tablets of 150 mg are taken in the evening until the end of pregnancy"
PAGES: list[list[Line]] = [
    column(f"We asked whether aspirin helps. {CITED}. {BEFORE}", 72, 700, 40),
    column(f"{AFTER}. The control group took placebo.", 72, 700, 60),
]
LONG = HashingEncoder(32, max_tokens=120)
"""Reads both pages in one passage."""
Steps = Callable[[httpx2.AsyncClient, str], Awaitable[None]]


@pytest.fixture(autouse=True)
def _new_child() -> Iterator[None]:
    yield
    sandbox._VIEWER.end()


def quoting_planted_model() -> ScriptedModel:
    """Return a model that quotes the planted sentences that it reads, and one that nobody wrote."""

    def script(request: ChatRequest) -> str:
        quotes: list[dict[str, Any]] = []
        for number, text in enumerate(unfence(request.messages[-1].content), 1):
            for sentence in (CITED, f"{BEFORE} {AFTER}", PLAIN):
                if sentence in " ".join(text.split()):
                    quotes.append({"doc": number, "quote": sentence})
            if CITED in " ".join(text.split()):
                quotes.append({"doc": number, "quote": "Aspirin is of no use to anybody."})
        return json.dumps(fill(request.schema or {}, {"found": True, "quotes": quotes}, "Aspirin helps."))

    return ScriptedModel(script)


def make_files(folder: Path, pdf: bytes | None = None) -> Path:
    """Write a trial as a PDF file and a leaflet as text, and return the PDF file."""
    folder.mkdir(exist_ok=True)
    (folder / "leaflet.txt").write_text(PLAIN)
    path = folder / "trial.pdf"
    path.write_bytes(pdf or placed_pdf(PAGES, title="Aspirin for pre-eclampsia"))
    return path


def visit(tmp_path: Path, steps: Steps, *, documents: list[Any] | None = None, **connection: Any) -> None:
    """Ask the question of a server with the files, and run the steps with the address of the answer."""
    chosen = read_files(tmp_path / "files") if documents is None else documents
    library = open_library(
        tmp_path / "lib", quoting_planted_model(), chosen, encoder=LONG, unverified="keep", citing="quotes", check="off"
    )
    app = create_app(open_resources(library), ServerOptions(folder=tmp_path / "server"))

    async def run() -> None:
        async with connect(app, **connection) as client:
            await steps(client, await ask(client, QUESTION))

    asyncio.run(run())


async def open_citation(client: httpx2.AsyncClient, address: str, quotation: str) -> Page:
    """Return the page of the citation with this quotation."""
    answer = await open_page(client, address)
    numbers = [
        item.text.split()[0].rstrip("?")
        for item in answer.all("p", "quote")
        if quotation in " ".join(item.text.split())
    ]
    (number,) = numbers
    return await open_page(client, f"{address}/sources/{number}")


@pytest.mark.slow
def test_citation_of_pdf_shows_its_page_with_the_sentence_marked(tmp_path: Path) -> None:
    path = make_files(tmp_path / "files")

    async def steps(client: httpx2.AsyncClient, address: str) -> None:
        page = await open_citation(client, address, CITED)
        (sheet,) = read_boxes(page)
        assert sheet.page == 1
        assert read_marked_characters(path, [sheet]) == "".join(CITED.split())
        assert page.one("mark").text.split() == CITED.split()
        assert "Page 1 of the PDF file. The cited place is marked." in page.one("figcaption").text
        response = await client.get(page.one("img").attributes["src"])
        assert response.headers["content-type"] == "image/png"
        assert response.headers["cache-control"] == "private, no-cache"
        image = Image.open(io.BytesIO(response.content))
        assert image.size == (round(2 * sheet.width), round(2 * sheet.height))
        assert {0, 255} <= set(image.convert("L").tobytes())
        again = await client.get(page.one("img").attributes["src"], headers={"if-none-match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")

    visit(tmp_path, steps)


@pytest.mark.slow
def test_document_of_list_shows_all_pages_of_its_file(tmp_path: Path) -> None:
    make_files(tmp_path / "files")

    async def steps(client: httpx2.AsyncClient, _: str) -> None:
        listed = await open_page(client, "/libraries/lib")
        (href,) = [link.attributes["href"] for link in listed.all("a") if "pre-eclampsia" in link.text]
        page = await open_page(client, href)
        assert [sheet.page for sheet in read_boxes(page)] == [1, 2]
        assert "could not be found" not in page.one("main").text
        for image in page.all("img"):
            response = await client.get(image.attributes["src"])
            assert (response.status_code, response.headers["content-type"]) == (200, "image/png")
        (text,) = [link.attributes["href"] for link in listed.all("a") if "leaflet" in link.attributes["href"]]
        assert (await client.get(f"{text}/pages/1.png")).status_code == 404
        assert (await client.get(f"{href}/pages/3.png")).status_code == 404
        (tmp_path / "files" / "trial.pdf").unlink()
        page = await open_page(client, href)
        assert page.all("img") == []
        assert "The pages of the PDF are not shown" in page.one("main").text

    visit(tmp_path, steps)


@pytest.mark.long
def test_sentence_across_two_pages_is_marked_on_both(tmp_path: Path) -> None:
    path = make_files(tmp_path / "files")

    async def steps(client: httpx2.AsyncClient, address: str) -> None:
        page = await open_citation(client, address, BEFORE)
        sheets = read_boxes(page)
        assert [sheet.page for sheet in sheets] == [1, 2]
        for sheet, words in zip(sheets, (BEFORE, AFTER), strict=True):
            assert read_marked_characters(path, [sheet]) == "".join(words.split())
        for image in page.all("img"):
            assert (await client.get(image.attributes["src"])).status_code == 200

    visit(tmp_path, steps)


@pytest.mark.long
def test_unverified_quotation_marks_the_passage_that_was_read(tmp_path: Path) -> None:
    path = make_files(tmp_path / "files")

    async def steps(client: httpx2.AsyncClient, address: str) -> None:
        page = await open_citation(client, address, "Aspirin is of no use to anybody.")
        assert "The highlight is the passage that was read." in page.html
        whole = " ".join(text for lines in PAGES for _, _, text in lines)
        assert read_marked_characters(path, read_boxes(page)) == "".join(whole.split())

    visit(tmp_path, steps)


@pytest.mark.slow
def test_text_file_has_no_page(tmp_path: Path) -> None:
    make_files(tmp_path / "files")

    async def steps(client: httpx2.AsyncClient, address: str) -> None:
        page = await open_citation(client, address, PLAIN)
        assert page.one("mark").text == PLAIN
        assert not page.all("figure")
        assert "PDF" not in page.html
        responses = [await client.get(f"{address}/documents/{number}/pages/1.png") for number in range(3)]
        assert sorted(response.status_code for response in responses) == [200, 404, 404]

    visit(tmp_path, steps)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["changed", "missing", "folder"])
def test_pdf_that_is_not_the_one_that_was_read_is_not_shown(tmp_path: Path, change: str) -> None:
    path = make_files(tmp_path / "files")
    other = placed_pdf([[(72, 700, "A secret of another file.")]])

    async def steps(client: httpx2.AsyncClient, address: str) -> None:
        src = (await open_citation(client, address, CITED)).one("img").attributes["src"]
        path.unlink()
        if change == "changed":
            path.write_bytes(other)
        elif change == "folder":
            path.mkdir()
        page = await open_citation(client, address, CITED)
        reason = "has changed since it was added" if change == "changed" else "is not where it was"
        assert reason in page.html
        assert not page.all("img")
        assert page.one("mark").text.split() == CITED.split()
        image = await client.get(src)
        assert image.status_code == 404
        assert reason in image.text
        assert str(tmp_path) not in image.text + page.html

    visit(tmp_path, steps)


@pytest.mark.slow
def test_pdf_of_unknown_file_shows_text_and_cure(tmp_path: Path) -> None:
    make_files(tmp_path / "files")
    documents = [item.document if hasattr(item, "document") else item for item in read_files(tmp_path / "files")]

    async def steps(client: httpx2.AsyncClient, address: str) -> None:
        page = await open_citation(client, address, CITED)
        assert "the library does not know its file; add the file again" in page.html
        assert page.one("mark").text.split() == CITED.split()

    visit(tmp_path, steps, documents=documents)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        "documents/7/pages/1.png",
        "documents/-1/pages/1.png",
        "documents/0/pages/0.png",
        "documents/0/pages/99.png",
        "documents/0/pages/..%2f..%2ftrial.png",
        "documents/..%2f..%2fetc%2fpasswd/pages/1.png",
        "documents/file:trial.pdf/pages/1.png",
    ],
)
def test_unknown_page_is_refused(tmp_path: Path, place: str) -> None:
    make_files(tmp_path / "files")

    async def steps(client: httpx2.AsyncClient, address: str) -> None:
        response = await client.get(f"{address}/{place}")
        assert response.status_code in (404, 422)
        assert "image" not in response.headers["content-type"]

    visit(tmp_path, steps)


@pytest.mark.long
def test_slow_page_is_stopped_and_the_server_still_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_files(tmp_path / "files")
    # More than the memory for pages, should a machine be faster than the limit of time.
    slow_pdf = pdf_that_unpacks_to(sandbox.VIEW_MEMORY)

    async def steps(client: httpx2.AsyncClient, address: str) -> None:
        monkeypatch.setattr(sandbox, "VIEW_SECONDS", 2)
        # The file that was read is replaced by one that hangs, and the hash with it.
        path.write_bytes(slow_pdf)
        digest = hashlib.sha256(slow_pdf).hexdigest()
        find_file = pdf_view.find_file

        async def find_slow(*arguments: Any) -> Any:
            return replace(await find_file(*arguments), sha256=digest)

        monkeypatch.setattr(pdf_view, "find_file", find_slow)
        slow = asyncio.create_task(open_citation(client, address, CITED))
        await asyncio.sleep(0.3)
        assert (await client.get("/healthz")).status_code == 200
        assert (await open_page(client, address)).one("h1").text
        assert not slow.done()
        page = await slow
        assert "drawing it took too much time or memory, or failed" in page.html
        assert page.one("mark").text.split() == CITED.split()

    visit(tmp_path, steps)


@pytest.mark.slow
def test_more_pages_than_may_wait_are_refused_and_text_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(tmp_path / "files")
    monkeypatch.setattr(pdf_view, "MAX_WAITING", 2)

    async def steps(client: httpx2.AsyncClient, address: str) -> None:
        pages = await asyncio.gather(*(open_page(client, f"{address}/sources/1") for _ in range(12)))
        shown = [len(page.all("figure")) for page in pages]
        assert 2 <= sum(shown) < 12
        assert all("many pages are being drawn" in page.html or page.all("figure") for page in pages)
        assert all(page.one("mark").text for page in pages)
        # None of them keeps its place in the queue.
        assert (await open_page(client, f"{address}/sources/1")).all("figure")

    visit(tmp_path, steps)


@pytest.mark.slow
def test_page_of_another_users_answer_is_hidden_and_access_is_logged(tmp_path: Path) -> None:
    make_files(tmp_path / "files")
    users = UserStore(tmp_path / "server" / USERS_FILE)
    keys = {name: users.add(name, "patient-reader") for name in ("doctor", "other")}
    documents = [*NOTES, *read_files(tmp_path / "files")]

    async def steps(client: httpx2.AsyncClient, address: str) -> None:
        src = (await open_citation(client, address, CITED)).one("img").attributes["src"]
        before = len(read_access_log(tmp_path / "server"))
        assert (await client.get(src)).status_code == 200
        entries = read_access_log(tmp_path / "server")[before:]
        assert any("file:trial.pdf" in entry["documents"] and entry["user"] == "doctor" for entry in entries)
        refused = await client.get(src, headers={"authorization": f"Bearer {keys['other']}"})
        assert refused.status_code == 404
        assert (await client.get(src, headers={"authorization": "Bearer nobody"})).status_code == 401

    headers = {"authorization": f"Bearer {keys['doctor']}"}
    visit(tmp_path, steps, documents=documents, headers=headers)
