"""The routes of the page: asking with and without JavaScript, stored answers, their owners, files and deletion."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import stat
from importlib import resources as package_files
from pathlib import Path

import httpx2
import pytest
from docx import Document as WordDocument
from fastapi import FastAPI

from epicrisis.core.answers import Answer
from epicrisis.core.types import Question
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.page.exports import FORMATS
from epicrisis.server.page.static_files import NAMES, read_static_files
from epicrisis.server.state.stored_answers import AnswerStore, StoredAnswer
from tests.support.pages import Page, ask, demo_documents, open_page, quoting_model
from tests.support.servers import connect, open_library, open_resources

TEXT = "Does low-dose aspirin lower the risk of preterm pre-eclampsia?"
MAX_PAGE_BYTES = 150_000


def make_app(folder: Path) -> FastAPI:
    library = open_library(
        folder / "lib",
        quoting_model(),
        demo_documents(),
        k=16,
        partition=4,
        unverified="keep",
        preflight={"enabled": False},
    )
    return create_app(open_resources(library), ServerOptions(folder=folder / "server"))


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    return make_app(tmp_path)


def get(app: FastAPI, *addresses: str) -> list[httpx2.Response]:
    async def run() -> list[httpx2.Response]:
        async with connect(app) as client:
            return [await client.get(address) for address in addresses]

    return asyncio.run(run())


@pytest.mark.slow
def test_every_page_forbids_what_is_inline_and_is_kept_by_no_cache(app: FastAPI) -> None:
    for response in get(app, "/", "/history", "/libraries", "/answers/unknown"):
        assert response.headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe" not in response.headers["content-security-policy"]
        assert response.headers["cache-control"] == "no-store"
        # With no-referrer a browser sends a form without JavaScript from the origin null, which the guard refuses.
        assert response.headers["referrer-policy"] == "same-origin"
        Page(response.text)


@pytest.mark.slow
def test_answer_without_javascript_has_address_that_opens_it_again(app: FastAPI) -> None:
    async def run() -> tuple[str, Page, Page]:
        async with connect(app) as client:
            address = await ask(client, TEXT, strategy="brief-context", options="yes, no")
            return address, await open_page(client, address), await open_page(client, address)

    address, first, again = asyncio.run(run())
    assert first.html == again.html
    assert "aspirin" not in address
    assert first.one("article", "answer").attributes["data-question"] == TEXT
    headings = [element.text for element in first.all("h2")]
    assert headings.index("Answer") < headings.index("Studies") < headings.index("Evidence map")
    assert len(first.all("svg", "strip")) == 1


@pytest.mark.slow
def test_stream_begins_with_steps_and_ends_with_whole_answer(app: FastAPI) -> None:
    async def run() -> tuple[httpx2.Response, str]:
        async with connect(app) as client:
            headers = {"Accept": "text/html, text/event-stream", "HX-Request": "true"}
            data = {"question": TEXT, "strategy": "brief-context"}
            response = await client.post("/ask", data=data, headers=headers)
            # The answer is followed by the form of its follow-up question.
            *_, last = [block for block in response.text.split("\n\n") if 'article class="answer"' in block]
            html = "\n".join(line[6:] for line in last.split("\n"))
            address = Page(html).one("article", "answer").attributes["data-href"]
            return response, (await client.get(address)).text

    response, page = asyncio.run(run())
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.index("not checked yet") < response.text.index("The search found")
    assert response.text.index("Reading part 1") < response.text.index("Part 1 found evidence")
    assert "event:" not in response.text
    assert TEXT in page


@pytest.mark.slow
def test_source_for_htmx_is_part_of_page(app: FastAPI) -> None:
    async def run() -> tuple[str, str]:
        async with connect(app) as client:
            address = await ask(client, TEXT, strategy="evidence")
            part = await client.get(f"{address}/sources/1", headers={"HX-Request": "true"})
            return part.text, (await client.get(f"{address}/sources/1")).text

    part, whole = asyncio.run(run())
    assert "<html" not in part
    assert "<html" in whole
    assert "<mark>" in part


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["sources/999", "studies/999/size", "studies/1/text", "ranks/0", "ranks/999", "export.exe"]
)
def test_unknown_part_of_answer_is_not_found(app: FastAPI, place: str) -> None:
    async def run() -> httpx2.Response:
        async with connect(app) as client:
            return await client.get(f"{await ask(client, TEXT, strategy='evidence')}/{place}")

    response = asyncio.run(run())
    assert response.status_code in (404, 422)
    assert Page(response.text).all("h1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"question": ""}, "Question"),
        ({"question": TEXT, "k": "5000"}, "Documents to read"),
        ({"question": TEXT, "since": "yesterday"}, "Published since"),
        ({"question": TEXT, "strategy": "magic"}, "How to answer"),
        ({"question": TEXT, "patient": "P1"}, "patient"),
        ({"question": TEXT, "library": "../lib"}, "library"),
    ],
)
def test_wrong_field_is_named_in_plain_words(app: FastAPI, fields: dict[str, str], words: str) -> None:
    async def run() -> httpx2.Response:
        async with connect(app) as client:
            return await client.post("/ask", data=fields)

    response = asyncio.run(run())
    assert response.status_code in (404, 422)
    assert words in response.text
    Page(response.text)


@pytest.mark.slow
def test_form_that_is_no_form_is_refused(app: FastAPI) -> None:
    async def run() -> list[int]:
        statuses = []
        async with connect(app) as client:
            for body in (b"\xff\xfe", b"question=%FF", b"&".join([b"a=1"] * 100), b""):
                headers = {"Content-Type": "application/x-www-form-urlencoded"}
                statuses.append((await client.post("/ask", content=body, headers=headers)).status_code)
        return statuses

    assert asyncio.run(run()) == [422, 422, 422, 422]


@pytest.mark.slow
def test_answer_is_hidden_from_other_users(tmp_path: Path) -> None:
    app_folder = tmp_path / "server"
    users = UserStore(app_folder / USERS_FILE)
    keys = [users.add(name, "literature-reader") for name in ("ann", "ben")]
    app = make_app(tmp_path)

    async def run() -> list[int]:
        ann, ben = ({"Authorization": f"Bearer {key}"} for key in keys)
        async with connect(app, headers=ann) as client:
            address = await ask(client, TEXT, strategy="evidence")
            own = (await client.get(address)).status_code
        statuses = [own]
        async with connect(app, headers=ben) as client:
            for place in ("", "/sources/1", "/ranks/1", "/export.json"):
                statuses.append((await client.get(f"{address}{place}")).status_code)
            statuses.append((await client.post(f"{address}/delete")).status_code)
        async with connect(app, headers=ann) as client:
            statuses.append((await client.get(address)).status_code)
        return statuses

    assert asyncio.run(run()) == [200, 404, 404, 404, 404, 404, 200]


@pytest.mark.slow
def test_browser_without_key_signs_in_and_wrong_keys_are_limited(tmp_path: Path) -> None:
    key = UserStore(tmp_path / "server" / USERS_FILE).add("ann", "literature-reader")
    app = make_app(tmp_path)

    async def run() -> None:
        async with connect(app, headers={"Accept": "text/html"}) as client:
            response = await client.get("/")
            assert (response.status_code, response.headers["location"]) == (303, "/sign-in")
            Page((await client.get("/sign-in")).text)
            wrong = await client.post("/sign-in", data={"key": "epicrisis-wrong"})
            assert wrong.status_code == 401
            assert "set-cookie" not in wrong.headers
            asked = await client.get("/runs")
            assert asked.headers["location"] == "/sign-in?next=%2Fruns"
            form = Page((await client.get(asked.headers["location"])).text)
            assert [
                field.attributes["value"] for field in form.all("input") if field.attributes["type"] == "hidden"
            ] == ["/runs"]
            back = await client.post("/sign-in", data={"key": key, "next": "/runs"})
            assert back.headers["location"] == "/runs"
            other = await client.post("/sign-in", data={"key": key, "next": "//evil.example"})
            assert other.headers["location"] == "/"
            client.cookies.clear()
            right = await client.post("/sign-in", data={"key": key})
            cookie = right.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=lax" in cookie
            assert (await client.get("/")).status_code == 200
            await client.post("/sign-out")
            assert (await client.get("/")).status_code == 303
            statuses = [(await client.post("/sign-in", data={"key": "x"})).status_code for _ in range(30)]
            assert statuses[-1] == 429
            # A program gets a problem, not a page.
            refused = await client.get("/api/v1/libraries", headers={"Accept": "application/json"})
            assert refused.status_code == 401
            # Behind a proxy all senders have one address: the guesses of one lock out nobody with a key.
            assert (await client.post("/sign-in", data={"key": key})).status_code == 303

    asyncio.run(run())


@pytest.mark.slow
def test_browser_with_old_cookie_reaches_sign_in(tmp_path: Path) -> None:
    key = UserStore(tmp_path / "server" / USERS_FILE).add("maria", "literature-reader")
    app = create_app(open_resources(open_library(tmp_path / "lib")), ServerOptions(folder=tmp_path / "server"))

    async def run() -> None:
        old = {"Accept": "text/html", "Cookie": "epicrisis_session_80=replaced"}
        async with connect(app, headers=old) as client:
            for _ in range(30):
                assert (await client.get("/sign-in")).status_code == 200
                assert (await client.get("/static/page.css")).status_code == 200
            assert (await client.post("/sign-in", data={"key": key})).status_code == 303

    asyncio.run(run())


@pytest.mark.slow
def test_folded_form_of_an_answer_has_its_question_and_settings(app: FastAPI) -> None:
    async def run() -> Page:
        async with connect(app) as client:
            address = await ask(client, TEXT, strategy="evidence", options="yes, no", k="5", since="2010")
            return await open_page(client, address)

    page = asyncio.run(run())
    assert "open" not in page.one("details", "ask").attributes
    fields = {field.attributes.get("name"): field.attributes.get("value") for field in page.all("input")}
    assert [fields[name] for name in ("options", "k", "since")] == ["yes, no", "5", "2010"]
    assert page.all("textarea")[0].text == TEXT
    chosen = [option.text for option in page.all("option") if "selected" in option.attributes]
    assert chosen == ["Sentences only, no chat model"]


@pytest.mark.slow
def test_deleted_answer_is_gone_from_memory_and_disk(app: FastAPI, tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        async with connect(app) as client:
            address = await ask(client, TEXT, strategy="evidence")
            deleted = await client.post(f"{address}/delete")
            return deleted.status_code, (await client.get(address)).status_code

    assert asyncio.run(run()) == (303, 404)
    assert list((tmp_path / "server" / "answers").glob("*.json")) == []


@pytest.mark.slow
def test_every_export_holds_the_answer(app: FastAPI) -> None:
    async def run() -> dict[str, httpx2.Response]:
        async with connect(app) as client:
            address = await ask(client, TEXT, strategy="evidence")
            files = {}
            for suffix in FORMATS:
                files[suffix] = await client.get(f"{address}/export.{suffix}")
            return files

    files = asyncio.run(run())
    for suffix, response in files.items():
        assert response.status_code == 200
        assert response.headers["content-disposition"] == f'attachment; filename="answer.{suffix}"'
        if suffix != "docx":
            assert "spirin" in response.text
    paragraphs = [paragraph.text for paragraph in WordDocument(io.BytesIO(files["docx"].content)).paragraphs]
    assert paragraphs[0] == TEXT
    assert "Sentences" in paragraphs
    assert any("spirin" in paragraph for paragraph in paragraphs[2:])
    assert json.loads(files["json"].text)["state"] == "answered"
    assert files["ris"].text.count("TY  - ") == files["ris"].text.count("ER  - ") == files["bib"].text.count("@misc")


@pytest.mark.slow
def test_page_with_its_files_is_light(app: FastAPI) -> None:
    async def run() -> int:
        async with connect(app) as client:
            address = await ask(client, TEXT, strategy="brief-context", options="yes, no")
            return len((await client.get(address)).content)

    static = sum(len(file.content) for file in read_static_files().values())
    assert asyncio.run(run()) + static < MAX_PAGE_BYTES


def test_vendored_files_are_those_of_the_manifest() -> None:
    folder = package_files.files("epicrisis.server.page").joinpath("static")
    entries = json.loads(folder.joinpath("vendored.json").read_text(encoding="utf-8"))
    for entry in entries:
        assert hashlib.sha256(folder.joinpath(entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
        assert entry["version"]
    own = {"page.css", "page.js", "icon.svg"}
    assert {entry["file"] for entry in entries} | own == set(NAMES)
    present = {path.name for path in folder.iterdir()}
    assert present == {*NAMES, "vendored.json"}


@pytest.mark.slow
def test_static_files_are_served_from_a_fixed_list(app: FastAPI) -> None:
    found, *missing = get(
        app, "/static/page.css", "/static/vendored.json", "/static/..%2f__init__.py", "/static/%2e%2e/routes.py"
    )
    assert found.status_code == 200
    assert "immutable" in found.headers["cache-control"]
    assert [response.status_code for response in missing] == [404, 404, 404]


def test_stored_answer_is_private_and_survives_a_restart(tmp_path: Path) -> None:
    answer = Answer(
        question=Question("Q?", options={"A": "yes"}),
        strategy="rag",
        state="answered",
        text="It does.",
        choice="A",
        distribution={"A": 0.5},
    )
    stored = AnswerStore(tmp_path).add(StoredAnswer(answer=answer, library="lib", owner="ann"))
    (path,) = tmp_path.glob("*/*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert AnswerStore(tmp_path).find(stored.id, "ann") == stored
    assert AnswerStore(tmp_path).find(stored.id, "ben") is None


@pytest.mark.parametrize("id_", ["", "../x", "a" * 32 + "/..", "x" * 31, "%2e%2e"])
def test_id_that_is_none_reads_no_file(tmp_path: Path, id_: str) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert AnswerStore(tmp_path / "answers").find(id_) is None


def test_damaged_file_of_answer_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / f"{'a' * 32}.json").write_text('{"id": 1}')
    assert AnswerStore(tmp_path).find("a" * 32) is None


@pytest.fixture
def keyed(tmp_path: Path) -> tuple[FastAPI, UserStore, str]:
    """A server with a user, and the user's key."""
    users = UserStore(tmp_path / "server" / USERS_FILE)
    key = users.add("maria", "literature-reader")
    return (
        create_app(open_resources(open_library(tmp_path / "lib")), ServerOptions(folder=tmp_path / "server")),
        users,
        key,
    )


async def sign_in(client: httpx2.AsyncClient, key: str) -> str:
    """Sign in, and return the header with the cookie, as a thief would have it."""
    response = await client.post("/sign-in", data={"key": key})
    assert response.status_code == 303
    (cookie,) = client.cookies.jar
    assert key not in str(cookie.value)
    assert "Max-Age=36000" in response.headers["set-cookie"]
    return f"{cookie.name}={cookie.value}"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["sign-out", "new key", "removed user", "new sign-in"])
def test_session_of_a_key_ends_on_the_server(end: str, keyed: tuple[FastAPI, UserStore, str]) -> None:
    app, users, key = keyed

    async def run() -> None:
        async with connect(app) as client, connect(app) as thief:
            stolen = {"cookie": await sign_in(client, key)}
            assert (await thief.get("/api/v1/libraries", headers=stolen)).status_code == 200
            if end == "sign-out":
                assert (await client.post("/sign-out")).status_code == 303
                assert not client.cookies
            elif end == "new key":
                users.add("maria", "literature-reader")
            elif end == "removed user":
                users.remove("maria")
                users.add("other", "literature-reader")
            else:
                await sign_in(client, key)
                assert (await client.get("/api/v1/libraries")).status_code == 200
            assert (await thief.get("/api/v1/libraries", headers=stolen)).status_code == 401

    asyncio.run(run())


@pytest.mark.slow
def test_session_has_the_rights_that_the_key_has_now(keyed: tuple[FastAPI, UserStore, str]) -> None:
    app, users, key = keyed

    async def run() -> tuple[str, str]:
        async with connect(app) as client:
            await sign_in(client, key)
            before = (await client.get("/")).text
            user = users.users()["maria"].model_copy(update={"requests_per_minute": 1})
            users._change(lambda _: {"maria": user})
            await client.get("/")
            return before, str((await client.get("/")).status_code)

    before, after = asyncio.run(run())
    assert "maria" in before
    assert after == "429"
