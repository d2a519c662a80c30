"""The ask page: what the libraries hold, questions that they can answer, the menu, and no command line on any page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx2
import pytest

from epicrisis.core.types import Document
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.page.overview import phrase_question
from tests.server.test_page_patients import ANNA, Hospital
from tests.support.pages import Page, ask, demo_documents, open_page, quoting_model
from tests.support.servers import connect, open_library, open_resources

OPTION = re.compile(r"(?<![\w-])--[a-z]|epicrisis (?:library|serve|ask|users|audit|doctor|patient)\b")
HIDDEN = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)


@pytest.mark.parametrize(
    ("title", "question"),
    [
        (
            "Effect of zinc on the duration of diarrhoea: a trial",
            "What is the effect of zinc on the duration of diarrhoea?",
        ),
        (
            "Apixaban versus warfarin in atrial fibrillation",
            "How does apixaban compare with warfarin in atrial fibrillation?",
        ),
        ("Aspirin for the prevention of stroke", "Does aspirin prevent stroke?"),
        ("HIV drugs in the treatment of hepatitis", "Does HIV drugs help to treat hepatitis?"),
        ("Is tea good for the heart?", "Is tea good for the heart?"),
        ("Intensive versus conventional glucose control in intensive care", ""),
        ("A nurse's day", ""),
    ],
)
def test_question_is_made_of_a_title_that_compares(title: str, question: str) -> None:
    assert phrase_question(title) == question


@pytest.mark.slow
def test_ask_page_offers_three_questions_that_the_library_answers(tmp_path: Path) -> None:
    library = open_library(tmp_path / "lib", None, demo_documents(), strategy="evidence", not_in_library="ask")
    app = create_app(open_resources(library), ServerOptions(folder=tmp_path / "server"))

    async def run() -> tuple[Page, list[Page]]:
        async with connect(app) as client:
            page = await open_page(client, "/")
            hidden = [field.attributes for field in page.all("input") if field.attributes.get("type") == "hidden"]
            questions = [field["value"] for field in hidden if field["name"] == "question"]
            return page, [await open_page(client, await ask(client, question)) for question in questions]

    page, answers = asyncio.run(run())
    assert "lib 62 documents, the newest of 2021" in " ".join(page.one("section", "overview").text.split())
    assert len(answers) == 3
    for answer in answers:
        assert "answered" in answer.one("section", "verdict").classes


@pytest.mark.slow
def test_menu_names_only_what_has_something_to_show(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    app = create_app(
        open_resources(open_library(tmp_path / "lib")),
        ServerOptions(folder=tmp_path / "server", runs=tmp_path / "runs"),
    )

    async def run() -> Page:
        async with connect(app) as client:
            return await open_page(client, "/")

    (menu, *_) = asyncio.run(run()).all("nav")
    assert menu.text.split() == ["Ask", "Libraries", "History"]


@pytest.mark.slow
def test_document_without_title_is_named_by_its_id(tmp_path: Path) -> None:
    documents = [
        Document("file:leaflet.html", "Aspirin lowers the risk of stroke in men.", title="about:blank", date="2001"),
        Document("file:report.pdf", "Aspirin raised the risk of bleeding in men.", title="Untitled", date="2002"),
    ]
    app = create_app(open_resources(open_library(tmp_path / "lib", None, documents)), ServerOptions(folder=tmp_path))

    async def run() -> list[str]:
        async with connect(app) as client:
            address = await ask(client, "Does aspirin lower the risk of stroke?", strategy="evidence")
            files = [f"{address}/export.{suffix}" for suffix in ("md", "html", "csv", "bib", "ris")]
            places = ("/libraries/lib", address, f"{address}/sources/1", *files)
            return [(await client.get(place)).text for place in places]

    for html in asyncio.run(run()):
        assert "about:blank" not in html
        assert "Untitled" not in html
        assert "file:" in html


@pytest.mark.slow
def test_no_page_shows_text_of_the_command_line(tmp_path: Path) -> None:
    library = open_library(tmp_path / "lib", quoting_model(), demo_documents(), strategy="brief-context", k=4)
    app = create_app(open_resources(library), ServerOptions(folder=tmp_path / "server"))
    hospital = Hospital(tmp_path / "hospital")
    question = "Does low-dose aspirin lower the risk of preterm pre-eclampsia?"

    async def run() -> list[httpx2.Response]:
        responses: list[httpx2.Response] = []
        async with connect(app) as client:
            places = ["/", "/history", "/libraries", "/libraries/lib", "/runs", "/runs/none/report", "/reviews"]
            places += ["/reviews/new", "/comparisons?first=a&second=b", "/patients", f"/answers/{'a' * 32}", "/sign-in"]
            for strategy in ("evidence", "brief-context"):
                address = await ask(client, question, strategy=strategy)
                places += [address, f"{address}/sources/1", f"{address}/ranks/1"]
            # Nothing answers this one.
            places.append(await ask(client, "Who built the bridge of Firth?", strategy="evidence"))
            responses += [await client.get(place) for place in places]
            for fields in ({"question": ""}, {"question": question, "patient": "p"}):
                responses.append(await client.post("/ask", data=fields))
        async with hospital.connect("doctor") as client:
            address = await ask(client, "Which drug was given during the first admission?", patient=ANNA)
            responses += [await client.get(place) for place in ("/", "/patients", address, f"{address}/record")]
            responses += [await client.get("/libraries/ward"), await client.get("/libraries")]
            responses.append(await client.post("/ask", data={"question": question}))
            responses.append(await client.post("/patients/record", data={"patient": ANNA}))
        return responses

    for response in asyncio.run(run()):
        text = HIDDEN.sub(" ", response.text)
        found = OPTION.search(text)
        assert found is None, (response.url, text[max(0, found.start() - 200) : found.end() + 60])
