"""Finished runs and figures over HTTP: only those of the folder named at the start, and only what a role may read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from tests.support.run_folders import QUESTIONS, folder
from tests.support.servers import QUESTION, connect, open_library, open_resources


def make_runs(parent: Path) -> None:
    """Write a run about literature, and one about a patient."""
    parent.mkdir()
    folder(parent / "papers", lambda i, _: i < 24)
    folder(parent / "ward", lambda i, _: i < 3, questions=[replace(each, patient="1") for each in QUESTIONS[:4]])


async def get(parent: Path, *paths: str, key: str | None = None) -> list[httpx2.Response]:
    options = ServerOptions(folder=parent / "server", runs=parent / "runs")
    app = create_app(open_resources(open_library(parent / "lib")), options)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with connect(app, headers=headers) as client:
        return [await client.get(f"/api/v1/runs{path}") for path in paths]


@pytest.mark.slow
def test_runs_about_literature_are_listed_and_opened(tmp_path: Path) -> None:
    make_runs(tmp_path / "runs")
    listed, run, report = asyncio.run(get(tmp_path, "", "/papers", "/papers/report"))
    assert list(listed.json()) == ["papers"]
    assert run.json()["states"] == {"answered": 40}
    assert report.status_code == 200
    assert report.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert "Report of papers" in report.text
    assert "<script" not in report.text


@pytest.mark.slow
def test_run_about_patient_needs_role(tmp_path: Path) -> None:
    make_runs(tmp_path / "runs")
    for response in asyncio.run(get(tmp_path, "/ward", "/ward/report")):
        assert response.status_code == 404
    key = UserStore(tmp_path / "server" / USERS_FILE).add("maria", "patient-reader")
    (tmp_path / "again").mkdir()
    (tmp_path / "runs").rename(tmp_path / "again" / "runs")
    (tmp_path / "server").rename(tmp_path / "again" / "server")
    listed, run = asyncio.run(get(tmp_path / "again", "", "/ward", key=key))
    assert list(listed.json()) == ["papers", "ward"]
    assert run.status_code == 200


@pytest.mark.slow
def test_run_about_patients_is_hidden_from_reader_of_one_patient(tmp_path: Path) -> None:
    make_runs(tmp_path / "runs")
    key = UserStore(tmp_path / "server" / USERS_FILE).add("nurse", "patient-reader", ("2",))
    listed, run, report = asyncio.run(get(tmp_path, "", "/ward", "/ward/report", key=key))
    assert list(listed.json()) == ["papers"]
    assert (run.status_code, report.status_code) == (404, 404)


@pytest.mark.slow
def test_name_of_run_opens_no_other_folder(tmp_path: Path) -> None:
    make_runs(tmp_path / "runs")
    folder(tmp_path / "secret", lambda i, _: True)
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "secret")
    paths = ("/..%2fsecret", "/link", "/%2e%2e%2fsecret", "/papers%2f..%2f..%2fsecret/report", "/..%2fsecret/report")
    for response in asyncio.run(get(tmp_path, *paths)):
        assert response.status_code == 404


def test_figures_count_requests_and_answers_without_ids(tmp_path: Path) -> None:
    async def read() -> str:
        app = create_app(open_resources(open_library(tmp_path / "lib")))
        async with connect(app) as client:
            await client.post("/api/v1/ask", json={"question": QUESTION})
            await client.get("/api/v1/libraries/lib/documents/paper:1")
            await client.get("/api/v1/libraries/lib/documents/nobody")
            return (await client.get("/metrics")).text

    text = asyncio.run(read())
    assert 'epicrisis_answers_total{state="answered",strategy="rag"} 1.0' in text
    request = 'http_server_request_duration_seconds_count{http_request_method="GET",http_response_status_code='
    route = 'http_route="/api/v1/libraries/{library}/documents/{id:path}"'
    assert f'{request}"200",{route}}} 1.0' in text
    assert f'{request}"404",{route}}} 1.0' in text
    assert 'gen_ai_client_token_usage_count{gen_ai_operation_name="chat",gen_ai_request_model="' in text
    assert 'epicrisis_question_seconds_count{strategy="rag"} 1.0' in text
    assert "epicrisis_running_questions 0.0" in text
    assert "paper:1" not in text
    assert "nobody" not in text
