"""The page of runs: the list, the report of a run, and which runs a caller sees."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from tests.server.test_runs import make_runs
from tests.support.pages import Page
from tests.support.servers import connect, open_library, open_resources


def get(parent: Path, *paths: str, key: str | None = None, has_runs: bool = True) -> list[httpx2.Response]:
    runs = parent / "runs" if has_runs else None
    options = ServerOptions(folder=parent / "server", runs=runs)
    app = create_app(open_resources(open_library(parent / "lib")), options)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}

    async def run() -> list[httpx2.Response]:
        async with connect(app, headers=headers) as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(run())


@pytest.mark.slow
def test_list_leads_to_report_that_runs_no_script(tmp_path: Path) -> None:
    make_runs(tmp_path / "runs")
    listed, report, ward, other = get(
        tmp_path, "/runs", "/runs/papers/report", "/runs/ward/report", "/runs/..%2fsecret/report"
    )
    page = Page(listed.text)
    assert [heading.text for heading in page.all("h2")] == ["papers"]
    assert "/runs/papers/report" in [link.attributes["href"] for link in page.all("a")]
    assert "40 answered" in page.one("article", "library").text
    assert "Report of papers" in report.text
    assert report.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert report.headers["cache-control"] == "no-store"
    assert [ward.status_code, other.status_code] == [404, 404]
    assert "unsafe" not in listed.headers["content-security-policy"]


@pytest.mark.slow
def test_patient_reader_sees_runs_about_patients(tmp_path: Path) -> None:
    make_runs(tmp_path / "runs")
    key = UserStore(tmp_path / "server" / USERS_FILE).add("maria", "patient-reader")
    listed, report = get(tmp_path, "/runs", "/runs/ward/report", key=key)
    assert [heading.text for heading in Page(listed.text).all("h2")] == ["papers", "ward"]
    assert report.status_code == 200


@pytest.mark.slow
def test_server_without_folder_of_runs_says_so(tmp_path: Path) -> None:
    listed, report = get(tmp_path, "/runs", "/runs/papers/report", has_runs=False)
    assert "started without a folder of runs" in Page(listed.text).one("p", "lead").text
    assert report.status_code == 404
