"""The page of a library: counts, documents, and health, for literature and for patients' notes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from epicrisis.core.types import Document
from epicrisis.library.base.passage_table import ALL_COLUMNS, sql_in
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.libraries import shelves
from epicrisis.server.page.library_view import build_year_chart
from tests.library.test_document_list import NOTE, PAPERS
from tests.server.test_page_unsafe_text import EVIL
from tests.server.test_patients import NOTES, Ward
from tests.support.pages import Page
from tests.support.servers import connect, open_library, open_resources

FORM = {"content-type": "application/x-www-form-urlencoded"}


def make_app(folder: Path, documents: list[Document] | None = None) -> Any:
    library = open_library(folder / "lib", None, PAPERS if documents is None else documents)
    return create_app(open_resources(library), ServerOptions(folder=folder / "server"))


def send(app: Any, *requests: tuple[str, str, dict[str, str]], key: str | None = None) -> list[httpx2.Response]:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}

    async def run() -> list[httpx2.Response]:
        async with connect(app, headers=headers) as client:
            return [await client.request(method, path, data=data or None) for method, path, data in requests]

    return asyncio.run(run())


def erase_vector(folder: Path, passage_id: str) -> None:
    """Replace a vector of the library by zeros, as a faulty encoder would."""
    with LibraryStore.open(folder) as library:
        table = library.open_table()
        (columns,) = table.read_columns(ALL_COLUMNS, sql_in("id", [passage_id]))
        table.update({**columns, "vector": np.zeros_like(columns["vector"])})


@pytest.mark.slow
def test_page_of_literature_shows_counts_and_documents(tmp_path: Path) -> None:
    listed, response = send(make_app(tmp_path), ("GET", "/libraries", {}), ("GET", "/libraries/lib", {}))
    assert "/libraries/lib" in [link.attributes["href"] for link in Page(listed.text).all("a")]
    page = Page(response.text)
    text = " ".join(page.one("main").text.split())
    assert "Documents 1 to 4 of 4." in text
    assert "1 of 4 documents of literature" in text
    assert "RETRACTED" in text
    assert "1 has no date" in text
    assert "cohort study" in text
    assert "The parts of the library agree" in text
    bars = page.all("svg", "years")[0].attributes["aria-label"]
    assert bars == "Documents by year: 1999: 1, 2010: 1, 2011: 1"
    assert str(tmp_path) not in response.text


@pytest.mark.slow
def test_document_of_list_opens_with_its_text(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    (response,) = send(app, ("GET", "/libraries/lib", {}))
    href = next(link.attributes["href"] for link in Page(response.text).all("a") if "stroke" in link.text)
    (document,) = send(app, ("GET", href, {}))
    assert "zebrafish" in Page(document.text).one("div", "text").text


@pytest.mark.slow
def test_search_lists_matching_documents_and_keeps_words_out_of_addresses(tmp_path: Path) -> None:
    fields = {"words": "aspirin", "first_year": "2011", "last_year": "", "study_type": ""}
    (response,) = send(make_app(tmp_path), ("POST", "/libraries/lib", fields))
    page = Page(response.text)
    (item,) = page.all("li")
    assert item.text.startswith("Aspirin after surgery")
    assert all("aspirin" not in link.attributes["href"].lower() for link in page.all("a"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"first_year": "soon"}, "From year"),
        ({"page": "0"}, "Page"),
        ({"study_type": "poem"}, "Study type"),
        ({"words": "x" * 201}, "Words"),
    ],
)
def test_wrong_field_of_search_is_named(tmp_path: Path, fields: dict[str, str], words: str) -> None:
    (response,) = send(make_app(tmp_path), ("POST", "/libraries/lib", fields))
    assert response.status_code == 422
    assert f"{words}: " in response.text


@pytest.mark.slow
def test_library_of_notes_shows_counts_and_no_ids(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    for user in ("nurse", "doctor", "admin"):
        page, found, checked = send(
            ward.app,
            ("GET", "/libraries/ward", {}),
            ("POST", "/libraries/ward", {"words": "note"}),
            ("POST", "/libraries/ward/check", {}),
            key=ward.keys[user],
        )
        text = " ".join(Page(page.text).one("main").text.split())
        assert "2 patients" in text
        for response in (page, found):
            for hidden in ("note:", "10083814", "10083815", "Colchicine"):
                assert hidden not in response.text
        assert checked.status_code == (303 if user == "admin" else 403)
    (refused,) = send(ward.app, ("GET", "/libraries/ward", {}), key=ward.keys["reader"])
    assert refused.status_code == 403


async def check_fully(client: httpx2.AsyncClient, name: str) -> str:
    await client.post(f"/libraries/{name}/check")
    async with asyncio.timeout(20):
        stream = await client.get(f"/libraries/{name}/check", headers={"hx-request": "true"})
    assert stream.headers["content-type"].startswith("text/event-stream")
    return (await client.get(f"/libraries/{name}")).text


@pytest.mark.slow
def test_check_finds_passage_without_vector_and_names_cure(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    erase_vector(tmp_path / "lib", "paper:2#0")

    async def run() -> str:
        async with connect(app) as client:
            return await check_fully(client, "lib")

    text = asyncio.run(run())
    assert "1 passage without a usable vector" in text
    assert "paper:2#0" in text
    assert "add the files again" in text


@pytest.mark.slow
def test_check_of_notes_names_no_note(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    erase_vector(tmp_path / "ward", f"{NOTES[0].id}#0")

    async def run() -> str:
        async with connect(ward.app, headers={"authorization": f"Bearer {ward.keys['admin']}"}) as client:
            return await check_fully(client, "ward")

    text = asyncio.run(run())
    assert "1 passage without a usable vector" in text
    assert "note:" not in text


@pytest.mark.slow
def test_reader_of_server_with_users_starts_no_check(tmp_path: Path) -> None:
    key = UserStore(tmp_path / "server" / USERS_FILE).add("maria", "literature-reader")
    page, checked = send(
        make_app(tmp_path), ("GET", "/libraries/lib", {}), ("POST", "/libraries/lib/check", {}), key=key
    )
    assert "Check every passage" not in page.text
    assert checked.status_code == 403


@pytest.mark.slow
def test_full_disk_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "LOW_DISK_BYTES", 10**18)
    (response,) = send(make_app(tmp_path), ("GET", "/libraries/lib", {}))
    assert "free some space" in Page(response.text).one("p", "warning").text


@pytest.mark.slow
def test_hostile_titles_stay_text(tmp_path: Path) -> None:
    papers = [
        Document(
            "paper:x/../y?z#1", f"Text. {EVIL}", title=EVIL, source=EVIL, date="2000", metadata={"authors": [EVIL]}
        )
    ]
    app = make_app(tmp_path, papers)
    (response,) = send(app, ("GET", "/libraries/lib", {}))
    page = Page(response.text)
    assert page.all("img") == []
    assert len(page.all("script")) == 3
    link = next(link for link in page.all("a") if "documents/" in link.attributes["href"])
    (document,) = send(app, ("GET", link.attributes["href"], {}))
    assert document.status_code == 200


@pytest.mark.slow
def test_mixed_library_lists_neither_notes_nor_literature(tmp_path: Path) -> None:
    key = UserStore(tmp_path / "server" / USERS_FILE).add("maria", "patient-reader")
    (response,) = send(make_app(tmp_path, [*PAPERS, NOTE]), ("GET", "/libraries/lib", {}), key=key)
    assert "paper:1" not in response.text
    assert "note:1" not in response.text
    assert "4 has" not in response.text


def test_chart_groups_years_and_draws_every_document() -> None:
    assert build_year_chart({}) is None
    chart = build_year_chart({1800: 1, 1999: 500, 2020: 3})
    assert chart is not None
    assert sum(bar.documents for bar in chart.bars) == 504
    assert len(chart.bars) <= 41
    assert all(bar.height > 0 for bar in chart.bars if bar.documents)


@pytest.mark.slow
def test_list_of_mixed_library_is_refused_as_part_of_page(tmp_path: Path) -> None:
    key = UserStore(tmp_path / "server" / USERS_FILE).add("maria", "patient-reader")
    headers = {"authorization": f"Bearer {key}", "hx-request": "true"}

    async def run() -> httpx2.Response:
        async with connect(make_app(tmp_path, [*PAPERS, NOTE]), headers=headers) as client:
            return await client.post("/libraries/lib", data={"words": "aspirin"})

    response = asyncio.run(run())
    assert response.status_code == 403
    assert "paper:1" not in response.text
