"""Follow-up questions of the page: completed from the answer before them, with its patient and its settings."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI

from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Document
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.testing.chat import ScriptedModel
from tests.server.test_page_unsafe_text import EVIL, check_page
from tests.support.pages import Page, ask, open_page
from tests.support.replies import schema_reply
from tests.support.servers import QUESTION, connect, open_library, open_resources

COMPLETED = "Which drug was given for stroke in trial 2?"
ANNA, BERT = "10083814", "10083815"


def completing(reply: str = COMPLETED) -> ScriptedModel:
    """Return a model that completes follow-up questions with `reply`, and answers others."""

    def script(request: ChatRequest) -> str:
        if "Last question:" in request.messages[-1].content:
            return json.dumps({"question": reply})
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        return schema_reply({"messages": messages, "response_format": {"json_schema": {"schema": request.schema}}})

    return ScriptedModel(script)


def make_app(folder: Path, model: ScriptedModel) -> FastAPI:
    return create_app(open_resources(open_library(folder / "lib", model)))


async def follow(client: httpx2.AsyncClient, address: str, words: str) -> Page:
    response = await client.post(f"{address}/follow-up", data={"question": words})
    assert response.status_code == 303, response.text
    return await open_page(client, response.headers["location"])


@pytest.mark.slow
def test_follow_up_is_completed_from_answer_and_shows_both_questions(tmp_path: Path) -> None:
    model = completing()

    async def run() -> tuple[str, Page]:
        async with connect(make_app(tmp_path, model)) as client:
            address = await ask(client, QUESTION, k="2")
            return address, await follow(client, address, "And in trial 2?")

    address, page = asyncio.run(run())
    assert page.one("article", "answer").attributes["data-question"] == COMPLETED
    remark = page.one("p", "follow-up")
    assert "Completed from the answer above." in remark.text
    assert "And in trial 2?" in remark.text
    assert address in [link.attributes["href"] for link in page.all("a")]
    assert "rag, k 2" in page.html
    (prompt,) = [
        request.messages[-1].content for request in model.requests if "Last question:" in request.messages[-1].content
    ]
    assert QUESTION in prompt
    assert "assistant:" in prompt


@pytest.mark.slow
def test_follow_up_that_is_being_completed_finishes_although_the_server_stops(tmp_path: Path) -> None:
    model = completing()
    app = make_app(tmp_path, model)
    script = model._script

    def stop_and_complete(request: ChatRequest) -> str:
        if "Last question:" in request.messages[-1].content:
            app.state.questions.refuse_new()
        return script(request)

    async def run() -> tuple[Page, int]:
        async with connect(app) as client:
            address = await ask(client, QUESTION)
            model._script = stop_and_complete
            page = await follow(client, address, "And in trial 2?")
            return page, (await client.post("/ask", data={"question": QUESTION})).status_code

    page, refused = asyncio.run(run())
    assert page.one("article", "answer").attributes["data-question"] == COMPLETED
    assert refused == 503


@pytest.mark.slow
@pytest.mark.parametrize("reply", ["Does metformin cure diabetes?", "no question"])
def test_follow_up_that_cannot_be_completed_is_asked_alone_and_says_so(reply: str, tmp_path: Path) -> None:
    async def run() -> Page:
        async with connect(make_app(tmp_path, completing(reply))) as client:
            return await follow(client, await ask(client, QUESTION), "Which drug was given in trial 2?")

    page = asyncio.run(run())
    assert page.one("article", "answer").attributes["data-question"] == "Which drug was given in trial 2?"
    assert "could not complete the question" in page.html


@pytest.mark.slow
def test_streamed_follow_up_shows_completed_question_before_answer(tmp_path: Path) -> None:
    async def run() -> str:
        async with connect(make_app(tmp_path, completing())) as client:
            address = await ask(client, QUESTION)
            headers = {"Accept": "text/html, text/event-stream", "HX-Request": "true"}
            return (
                await client.post(f"{address}/follow-up", data={"question": "And in trial 2?"}, headers=headers)
            ).text

    text = asyncio.run(run())
    completed = f'hx-target="#asked" hx-swap="innerHTML">{COMPLETED}<'
    assert text.index("Completing the question") < text.index(completed) < text.index("The search found")
    # The earlier answer stays above the steps and above the answer, and the form is replaced after it.
    assert [text.count('class="earlier"'), text.count('class="answer"')] == [2, 1]
    assert text.index('class="earlier"') < text.index("data-live") < text.index('class="answer"')
    assert text.index('class="answer"') < text.index('hx-target="#follow-up-form"')


@pytest.mark.slow
def test_page_of_follow_up_shows_earlier_answer_until_it_is_deleted(tmp_path: Path) -> None:
    async def run() -> tuple[Page, Page]:
        async with connect(make_app(tmp_path, completing())) as client:
            address = await ask(client, QUESTION)
            page = await follow(client, address, "And in trial 2?")
            await client.post(f"{address}/delete")
            return page, await open_page(client, page.one("article", "answer").attributes["data-href"])

    page, after = asyncio.run(run())
    assert QUESTION in page.one("section", "earlier").text
    assert after.all("section", "earlier") == []


def test_empty_follow_up_is_refused_with_page(tmp_path: Path) -> None:
    async def run() -> httpx2.Response:
        async with connect(make_app(tmp_path, completing())) as client:
            address = await ask(client, QUESTION)
            return await client.post(f"{address}/follow-up", data={"question": " "})

    response = asyncio.run(run())
    assert response.status_code == 422
    Page(response.text)


@pytest.mark.slow
def test_words_of_follow_up_never_become_markup(tmp_path: Path) -> None:
    async def run() -> Page:
        async with connect(make_app(tmp_path, completing())) as client:
            return await follow(client, await ask(client, QUESTION), f"And in trial 2? {EVIL}")

    check_page(asyncio.run(run()).html)


@pytest.mark.slow
def test_follow_up_about_patient_keeps_patient_and_refuses_another(tmp_path: Path) -> None:
    notes = [
        Document(f"note:{patient}", f"{drug} was given on the ward.", date="2150-01", patient=patient)
        for patient, drug in ((ANNA, "Colchicine"), (BERT, "Warfarin"))
    ]
    folder = tmp_path / "server"
    key = UserStore(folder / USERS_FILE).add("doctor", "patient-reader")
    other = UserStore(folder / USERS_FILE).add("other", "patient-reader")
    model = completing("Which drug was given on the ward later?")
    library = open_library(tmp_path / "ward", model, notes)
    app = create_app(open_resources(library), ServerOptions(folder=folder))

    async def run() -> tuple[Page, list[int]]:
        async with connect(app, headers={"authorization": f"Bearer {key}"}) as client:
            address = await ask(client, "Which drug was given on the ward?", patient=ANNA)
            page = await follow(client, address, "And later on the ward?")
            refused = await client.post(f"{address}/follow-up", data={"question": f"And to patient {BERT}?"})
        async with connect(app, headers={"authorization": f"Bearer {other}"}) as client:
            stranger = await client.post(f"{address}/follow-up", data={"question": "And later?"})
        return page, [refused.status_code, stranger.status_code]

    page, statuses = asyncio.run(run())
    assert "data-patient" in page.one("article", "answer").attributes
    assert f"patient {ANNA}" in page.html
    assert statuses == [422, 404]
    for request in model.requests:
        assert "Warfarin" not in request.messages[-1].content
