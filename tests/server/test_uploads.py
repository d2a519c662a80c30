"""Uploads: files that are sent to the server and added to a library, what is skipped and why, kills, and refusals."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from epicrisis.library.core.document_list import DocumentFilter, list_documents
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.work import import_process
from epicrisis.server.work.import_process import ReceivedFile
from epicrisis.server.work.upload_reception import UploadLimits, clean_name
from epicrisis.server.work.uploads import UploadFile, Uploads, UploadState
from epicrisis.system.local_only import set_local_only
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.corpus.test_pages import made_pdf
from tests.corpus.test_sandbox import pdf_that_unpacks_to
from tests.server.test_patients import Ward
from tests.support import import_encoders as encoders
from tests.support.pages import Page
from tests.support.servers import BASE, connect, open_existing, open_library, open_resources

DOCUMENTS = "/api/v1/libraries/lib/documents"
TRIAL = json.dumps(
    {"id": "trial:1", "title": "Zinc for colds", "text": "Zinc shortened colds by two days in adults.", "date": "2021"}
)
MARKED = f"# Colchicine and gout\n\nColchicine with {encoders.MARK} lowered pain.".encode()
TEXT = b"# Colchicine and gout\n\nColchicine lowered pain within a day."
HTML = b"<html><head><title>Iron</title></head><body><p>Iron tablets raised haemoglobin in women.</p></body></html>"

File = tuple[str, bytes]
Offer = Callable[[type[HashingEncoder]], Path]


@pytest.fixture(autouse=True)
def offer(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Offer an encoder to the processes of imports, and return the file in which it says that it waits."""
    folder = tmp_path_factory.mktemp("packages")
    encoders.offer_encoder(folder, monkeypatch, encoders.PlainEncoder)
    return lambda encoder: encoders.offer_encoder(folder, monkeypatch, encoder)


def make_app(folder: Path, limits: UploadLimits | None = None) -> FastAPI:
    library = open_existing(folder / "lib") if (folder / "lib").exists() else open_library(folder / "lib")
    options = ServerOptions(folder=folder / "server", uploads=limits or UploadLimits(free_bytes=0))
    return create_app(open_resources(library), options)


async def wait(client: httpx2.AsyncClient, id_: str) -> dict[str, Any]:
    """Return the status of an upload once it has ended."""
    async with asyncio.timeout(60):
        while True:
            status: dict[str, Any] = (await client.get(f"/api/v1/uploads/{id_}")).json()
            if status["state"] not in ("waiting", "running"):
                return status
            # Users may send only so many requests in a minute.
            await asyncio.sleep(0.1)


async def send(client: httpx2.AsyncClient, *files: File, **fields: str) -> dict[str, Any]:
    response = await client.post(DOCUMENTS, files=[("files", file) for file in files], data=fields)
    assert response.status_code == 202, response.text
    return await wait(client, response.json()["id"])


def upload(folder: Path, *files: File, limits: UploadLimits | None = None, **fields: str) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async with connect(make_app(folder, limits)) as client:
            return await send(client, *files, **fields)

    return asyncio.run(run())


def list_ids(folder: Path) -> set[str]:
    with LibraryStore.open(folder / "lib") as library:
        return {entry.id for entry in list_documents(library, DocumentFilter(), 0, 1_000).documents}


def stored_files(folder: Path) -> list[str]:
    """Return the names of the files in the server's folder, without the descriptions of uploads."""
    paths = [path for path in (folder / "server").rglob("*") if path.is_file() and path.name != "upload.json"]
    return sorted(str(path.relative_to(folder / "server")) for path in paths)


@pytest.mark.slow
def test_files_of_several_formats_are_in_the_library_and_answers_use_them(tmp_path: Path) -> None:
    async def run() -> tuple[dict[str, Any], list[Any], int]:
        async with connect(make_app(tmp_path)) as client:
            before = (await client.get("/api/v1/libraries")).json()[0]["documents"]
            pdf = made_pdf([["Melatonin shortened sleep onset by seven minutes."], ["It was safe."]], "Melatonin")
            files = (("a.jsonl", TRIAL.encode()), ("gout.md", TEXT), ("iron.html", HTML), ("melatonin.pdf", pdf))
            status = await send(client, *files)
            found = []
            for query in ("zinc colds", "colchicine gout", "iron haemoglobin", "melatonin sleep"):
                body = {"query": query, "settings": {"k": 1, "by": "bm25"}}
                hits = (await client.post("/api/v1/search", json=body)).json()["hits"]
                found.append(hits[0]["passage"]["document_id"])
            after = (await client.get("/api/v1/libraries")).json()[0]["documents"]
            return status, found, after - before

    status, found, new = asyncio.run(run())
    assert (status["state"], status["result"]["added"], status["result"]["skipped"]) == ("done", 4, 0)
    assert found == ["trial:1", "file:gout.md", "file:iron.html", "file:melatonin.pdf"]
    assert new == 4
    # Only the PDF is kept, whose pages are shown as images.
    (kept,) = stored_files(tmp_path)
    assert kept.startswith("originals/")
    assert kept.endswith(".pdf")
    path = tmp_path / "server" / kept
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with LibraryStore.open(tmp_path / "lib") as library:
        origin = library.origins(["file:melatonin.pdf"])["file:melatonin.pdf"]
        assert origin.path == str(path.resolve())
        assert [file.name for file in library.sources()] == ["a.jsonl", "gout.md", "iron.html", "melatonin.pdf"]


@pytest.mark.slow
def test_files_that_cannot_be_read_are_skipped_with_reasons(tmp_path: Path) -> None:
    files: dict[str, tuple[bytes, str]] = {
        "empty.txt": (b"", "the file is empty"),
        "report.docx": (b"PK\x03\x04", "broken, or not the kind of file that its name says; save it again"),
        "report.doc": (b"PK\x03\x04", "its ending is not one of"),
        "page.pdf": (b"not a PDF", "not a PDF file, or broken"),
        "image.txt": (b"\x89PNG\r\n\x1a\n\0\xff", "not UTF-8"),
        "notes.csv": (b"subject_id,charttime,text\n1,2150-01-01,Aspirin.\n", "notes of patients"),
        "bundle.json": (b'{"resourceType": "Bundle", "entry": []}', "notes of patients"),
        "note.jsonl": (b'{"id": "n:1", "text": "Aspirin was given.", "patient": "1"}\n', "notes of patients"),
        "broken.jsonl": (b'{"id": "n:1", "text"\n', "not JSON"),
        "bomb.xml.gz": (gzip.compress(b"\0" * 3_000_000), ""),
    }
    status = upload(tmp_path, *((name, content) for name, (content, _) in files.items()), ("good.txt", TEXT))
    assert status["state"] == "done"
    assert (status["result"]["added"], status["result"]["skipped"]) == (1, len(files))
    reasons = {
        re.split("[:,]", name)[0]: entry["reason"] for entry in status["result"]["reasons"] for name in entry["names"]
    }
    assert reasons.keys() == files.keys()
    for name, (_, reason) in files.items():
        assert reason in reasons[name]
        assert "/" not in reasons[name].replace("and/or", "")
    assert {id_ for id_ in list_ids(tmp_path) if not id_.startswith("paper:")} == {"file:good.txt"}
    assert stored_files(tmp_path) == []


@pytest.mark.long
def test_pdf_that_kills_its_reader_costs_one_file(tmp_path: Path, offer: Offer) -> None:
    offer(encoders.HastyEncoder)
    status = upload(tmp_path, ("slow.pdf", pdf_that_unpacks_to(192 * 1024**2)), ("good.txt", TEXT))
    assert (status["state"], status["result"]["added"], status["result"]["skipped"]) == ("done", 1, 1)
    assert "its parser took longer than 1 s and was stopped" in status["result"]["reasons"][0]["reason"]
    assert stored_files(tmp_path) == []


@pytest.mark.long
def test_copy_is_unchanged_and_other_file_of_same_name_gets_another_id(tmp_path: Path) -> None:
    first = upload(tmp_path, ("gout.md", TEXT), ("a.pdf", made_pdf([["Zinc helped."]])))
    again = upload(tmp_path, ("gout.md", TEXT), ("a.pdf", made_pdf([["Zinc helped."]])))
    other = upload(tmp_path, ("gout.md", b"Allopurinol lowered urate."))
    replaced = upload(tmp_path, ("gout.md", b"Febuxostat lowered urate."), replace="true")
    assert first["result"]["added"] == 2
    assert (again["result"]["added"], again["result"]["unchanged"]) == (0, 2)
    assert other["result"]["added"] == 1
    assert "is another file" in other["result"]["remarks"][0]
    assert replaced["result"]["replaced"] == 1
    ids = [id_ for id_ in list_ids(tmp_path) if id_.startswith("file:gout.md")]
    assert len(ids) == 2
    assert len(stored_files(tmp_path)) == 1


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("../../etc/passwd.txt", "passwd.txt"),
        ("C:\\Users\\x\\a.txt", "a.txt"),
        ("/abs/olute.txt", "olute.txt"),
        ("..", ""),
        (".hidden.txt", "hidden.txt"),
        ("x" * 5_000 + ".xml.gz", "x" * 143 + ".xml.gz"),
    ],
)
def test_name_of_file_is_cut_to_text(name: str, cleaned: str) -> None:
    assert clean_name(name) == cleaned


@pytest.mark.slow
def test_name_of_file_is_no_path(tmp_path: Path) -> None:
    names = ["../../escape1.txt", "/tmp/escape2.txt", "..\\escape3.txt", "a\u202e\x07escape4.txt"]
    status = upload(tmp_path, *((name, f"Trial {name}.".encode()) for name in names))
    assert status["result"]["added"] == 4
    assert list(tmp_path.rglob("*escape*")) == []
    ids = [id_ for id_ in list_ids(tmp_path) if "escape" in id_]
    assert len(ids) == 4
    assert not any("/" in id_ for id_ in ids)
    assert all(id_.isprintable() for id_ in ids)


def refuse(folder: Path, *requests: httpx2.Request, limits: UploadLimits | None = None) -> list[httpx2.Response]:
    """Send the requests, and assert that nothing is left of them."""

    async def run() -> list[httpx2.Response]:
        async with connect(make_app(folder, limits)) as client:
            return [await client.send(request) for request in requests]

    responses = asyncio.run(run())
    assert list((folder / "server" / "uploads").glob("*")) == []
    return responses


def form(*files: File, path: str = DOCUMENTS, **headers: str) -> httpx2.Request:
    return httpx2.Request("POST", BASE + path, files=[("files", file) for file in files], headers=headers)


@pytest.mark.slow
def test_body_over_a_limit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    limits = UploadLimits(file_bytes=1_000, upload_bytes=3_000_000, files=3, free_bytes=0)
    large, many = refuse(
        tmp_path,
        form(("a.txt", b"x" * 1_001)),
        form(*(("a.txt", TEXT) for _ in range(4))),
        limits=limits,
    )
    assert (large.status_code, many.status_code) == (413, 400)
    assert "larger than 0 MB" in large.json()["detail"]
    assert "more than 3 files" in many.json()["detail"]
    (whole,) = refuse(tmp_path, form(("a.txt", b"x" * 5_000_000)), limits=limits)
    assert whole.status_code == 413


@pytest.mark.slow
def test_malformed_bodies_are_refused(tmp_path: Path) -> None:
    kind = "multipart/form-data; boundary=x"
    part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\nText.'
    fields = b"".join(b'--x\r\nContent-Disposition: form-data; name="%d"\r\n\r\n1\r\n' % n for n in range(5_000))
    bodies = [
        (kind, part),
        (kind, b"--y\r\n"),
        (kind, b"--x--\r\n"),
        (kind, b""),
        (kind, fields + b"--x--\r\n"),
        (kind, b"--x\r\n" + b"A: b\r\n" * 5_000 + b"\r\n\r\n--x--\r\n"),
        (kind, b'--x\r\nContent-Disposition: form-data; name="files"; filename=""\r\n\r\n\r\n--x--\r\n'),
        ("multipart/form-data", part),
        ("application/json", b"{}"),
        ("multipart/form-data; boundary=" + "b" * 300, part),
    ]
    requests = []
    for media_type, body in bodies:
        requests.append(httpx2.Request("POST", BASE + DOCUMENTS, content=body, headers={"content-type": media_type}))
    for request, response in zip(requests, refuse(tmp_path, *requests), strict=True):
        assert response.status_code == 400, (request.content[:60], response.text)
        assert response.json()["kind"] == "UploadRefused"


def test_page_of_another_site_cannot_upload(tmp_path: Path) -> None:
    page = "/libraries/lib/uploads"
    responses = refuse(
        tmp_path,
        form(("a.txt", TEXT), origin="https://evil.example"),
        form(("a.txt", TEXT), origin="null"),
        form(("a.txt", TEXT), path=page, origin="https://evil.example"),
        form(("a.txt", TEXT), host="evil.example"),
    )
    assert [response.status_code for response in responses] == [421] * 4


@pytest.mark.slow
def test_server_without_upload_takes_no_file(tmp_path: Path) -> None:
    app = create_app(open_resources(open_library(tmp_path / "lib")), ServerOptions(folder=tmp_path / "server"))

    async def run() -> tuple[int, int, str]:
        async with connect(app) as client:
            api = await client.post(DOCUMENTS, files=[("files", ("a.txt", TEXT))], follow_redirects=True)
            page = await client.post("/libraries/lib/uploads", files=[("files", ("a.txt", TEXT))])
            return api.status_code, page.status_code, (await client.get("/libraries/lib")).text

    api, page, shown = asyncio.run(run())
    assert (api, page) == (405, 404)
    assert not (tmp_path / "server" / "uploads").exists()
    assert "Documents cannot be added on this page" in shown
    assert 'type="file"' not in shown


@pytest.mark.long
def test_only_administrator_uploads_on_server_with_users(tmp_path: Path) -> None:
    users = UserStore(tmp_path / "server" / USERS_FILE)
    keys = {role: users.add(role, role) for role in ("literature-reader", "patient-reader", "administrator")}

    async def run() -> list[list[int]]:
        statuses = []
        for key in keys.values():
            async with connect(make_app(tmp_path), headers={"authorization": f"Bearer {key}"}) as client:
                sent = await client.post(DOCUMENTS, files=[("files", ("a.txt", TEXT))])
                listed = await client.get("/api/v1/uploads")
                page = await client.get("/libraries/lib")
                statuses.append([sent.status_code, listed.status_code, 'type="file"' in page.text])
                if sent.status_code == 202:
                    await wait(client, sent.json()["id"])
        return statuses

    assert asyncio.run(run()) == [[403, 403, False], [403, 403, False], [202, 200, True]]


@pytest.mark.slow
def test_library_of_notes_takes_no_upload(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    library = open_existing(tmp_path / "ward")
    app = create_app(open_resources(library), ServerOptions(folder=ward.folder, uploads=UploadLimits(free_bytes=0)))

    async def run() -> tuple[httpx2.Response, str]:
        async with connect(app, headers={"authorization": f"Bearer {ward.keys['admin']}"}) as client:
            sent = await client.post("/api/v1/libraries/ward/documents", files=[("files", ("a.txt", TEXT))])
            return sent, (await client.get("/libraries/ward")).text

    sent, page = asyncio.run(run())
    assert sent.status_code == 403
    assert "epicrisis library add" in sent.json()["detail"]
    assert "Notes are not taken as uploads" in page


@pytest.mark.slow
def test_refused_upload_to_library_of_notes_is_in_the_access_log(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    library = open_existing(tmp_path / "ward")
    app = create_app(open_resources(library), ServerOptions(folder=ward.folder, uploads=UploadLimits(free_bytes=0)))

    async def run() -> int:
        async with connect(app, headers={"authorization": f"Bearer {ward.keys['reader']}"}) as client:
            sent = await client.post("/api/v1/libraries/ward/documents", files=[("files", ("a.txt", TEXT))])
            return sent.status_code

    assert asyncio.run(run()) == 403
    (entry,) = ward.entries()
    assert (entry["action"], entry["outcome"]) == ("upload", "refused")


def many(count: int, first: int = 0) -> bytes:
    numbers = range(first * count, (first + 1) * count)
    lines = [json.dumps({"id": f"m:{n}", "title": f"T{n}", "text": f"Drug {n} helped."}) for n in numbers]
    return "\n".join(lines).encode()


@contextmanager
def run_server(folder: Path) -> Iterator[tuple[httpx2.Client, int]]:
    """Give a client of a server in a process of its own, and the id of this process. It is killed at the end."""
    open_library(folder / "lib")
    command = [sys.executable, "-m", "tests.support.upload_child", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            with httpx2.Client(base_url=process.stdout.readline().strip()) as client:
                yield client, process.pid
        finally:
            process.kill()


@pytest.mark.long
def test_import_continues_after_kill_of_server(tmp_path: Path, offer: Offer) -> None:
    offer(encoders.SlowEncoder)
    with run_server(tmp_path) as (client, _):
        id_ = client.post(DOCUMENTS, files=[("files", ("many.jsonl", many(500)))]).json()["id"]
        end = time.monotonic() + 60
        while time.monotonic() < end:
            progress = client.get(f"/api/v1/uploads/{id_}").json()["progress"]
            if progress is not None and progress["saved"] > 0:
                break
            time.sleep(0.05)
    assert 0 < progress["saved"] < 500

    async def run() -> dict[str, Any]:
        app = make_app(tmp_path)
        async with app.router.lifespan_context(app), connect(app) as client:
            return await wait(client, id_)

    status = asyncio.run(run())
    assert status["state"] == "done"
    assert status["result"]["added"] + status["result"]["unchanged"] == 500
    assert status["result"]["unchanged"] > 0
    assert len([id_ for id_ in list_ids(tmp_path) if id_.startswith("m:")]) == 500
    assert stored_files(tmp_path) == []


@pytest.mark.long
def test_process_of_import_ends_when_the_server_is_killed(tmp_path: Path, offer: Offer) -> None:
    sign = offer(encoders.WaitingEncoder)
    with run_server(tmp_path) as (client, server):
        client.post(DOCUMENTS, files=[("files", ("gout.md", MARKED))])
        process = asyncio.run(wait_for_sign(sign))
        assert [running.parent for running in list_group(process)] == [server]
        # Where memory is short, the system ends this process and not the server.
        assert Path(f"/proc/{process}/oom_score_adj").read_text(encoding="ascii") == "1000\n"
        os.kill(server, signal.SIGKILL)
    time.sleep(1)
    assert list_group(process) == []


@pytest.mark.long
def test_busy_parser_of_import_ends_when_the_server_is_killed(tmp_path: Path) -> None:
    file = ("slow.pdf", pdf_that_unpacks_to(256 * 1024**2))
    with run_server(tmp_path) as (client, server):
        client.post(DOCUMENTS, files=[("files", file)])
        end, parser = time.monotonic() + 30, None
        while parser is None and time.monotonic() < end:
            time.sleep(0.02)
            running = list_processes()
            imports = [process.id for process in running if process.parent == server]
            second = os.sysconf("SC_CLK_TCK")
            parser = next(
                (process for process in running if process.parent in imports and process.ticks > second), None
            )
        os.kill(server, signal.SIGKILL)
    assert parser is not None
    time.sleep(1)
    assert parser.id not in [process.id for process in list_processes()]


@pytest.mark.slow
def test_import_during_which_the_server_was_killed_twice_is_not_continued(tmp_path: Path) -> None:
    folder = tmp_path / "server" / "uploads" / ("a" * 32)
    folder.mkdir(parents=True)
    (folder / "0123.md").write_bytes(TEXT)
    files = (ReceivedFile("gout.md", "0123.md", len(TEXT)),)
    killed = UploadFile(id=folder.name, library="lib", owner="local", created="2026-01-01T00:00:00+00:00", files=files)
    description = folder / "upload.json"
    description.write_text(killed.model_copy(update={"state": "running", "kills": 1}).model_dump_json())

    async def run() -> tuple[dict[str, Any], dict[str, Any]]:
        app = make_app(tmp_path)
        async with app.router.lifespan_context(app), connect(app) as client:
            stopped = await wait(client, folder.name)
            await client.post(f"/api/v1/uploads/{folder.name}/resume")
            return stopped, await wait(client, folder.name)

    stopped, done = asyncio.run(run())
    assert stopped["state"] == "stopped"
    assert "the server ended 2 times while it imported these files" in stopped["problem"]
    assert (done["state"], done["result"]["added"]) == ("done", 1)


@pytest.mark.slow
def test_import_that_the_server_stopped_itself_does_not_count_as_killed(tmp_path: Path) -> None:
    async def run() -> UploadFile:
        app = make_app(tmp_path)
        async with app.router.lifespan_context(app), connect(app) as client:
            id_ = (await client.post(DOCUMENTS, files=[("files", ("many.jsonl", many(5_000)))])).json()["id"]
            while (await client.get(f"/api/v1/uploads/{id_}")).json()["state"] == "waiting":
                await asyncio.sleep(0.01)
        content = (tmp_path / "server" / "uploads" / id_ / "upload.json").read_bytes()
        return UploadFile.model_validate_json(content)

    upload = asyncio.run(run())
    assert (upload.state, upload.kills) == ("waiting", 0)


async def wait_for_sign(sign: Path) -> int:
    """Return the id of the process that gives the sign."""
    async with asyncio.timeout(60):
        while not sign.exists():
            await asyncio.sleep(0.02)
    return int(sign.read_text(encoding="ascii"))


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """What the system says of a process that has not ended."""

    id: int
    parent: int
    group: int
    ticks: int
    """Of processor time."""


def list_processes() -> list[RunningProcess]:
    processes = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (place / "stat").read_text(errors="replace").rpartition(") ")[2].split()
            if fields[0] != "Z":
                processes.append(RunningProcess(int(place.name), int(fields[1]), int(fields[2]), int(fields[11])))
    return processes


def list_group(group: int) -> list[RunningProcess]:
    return [process for process in list_processes() if process.group == group]


@pytest.mark.slow
@pytest.mark.parametrize("encoder", [encoders.WaitingEncoder, encoders.DeafEncoder])
def test_cancelling_ends_the_process_and_leaves_a_library_that_takes_the_files(
    tmp_path: Path, offer: Offer, monkeypatch: pytest.MonkeyPatch, encoder: type[HashingEncoder]
) -> None:
    sign = offer(encoder)
    if encoder is encoders.DeafEncoder:
        monkeypatch.setattr(import_process, "END_SECONDS", 0.2)

    async def run() -> tuple[str, float, list[RunningProcess], list[RunningProcess], dict[str, Any]]:
        async with connect(make_app(tmp_path)) as client:
            id_ = (await client.post(DOCUMENTS, files=[("files", ("gout.txt", MARKED))])).json()["id"]
            process = await wait_for_sign(sign)
            before, started = list_group(process), time.monotonic()
            state = (await client.post(f"/api/v1/uploads/{id_}/cancel")).json()["state"]
            seconds, after = time.monotonic() - started, list_group(process)
            offer(encoders.PlainEncoder)
            await client.post(f"/api/v1/uploads/{id_}/resume")
            return state, seconds, before, after, await wait(client, id_)

    state, seconds, before, after, done = asyncio.run(run())
    assert state == "cancelled"
    assert seconds < 5
    assert len(before) == 1
    assert after == []
    assert (done["state"], done["result"]["added"]) == ("done", 1)


@pytest.mark.slow
def test_signal_of_a_service_manager_to_all_processes_leaves_the_import_to_the_server(
    tmp_path: Path, offer: Offer
) -> None:
    sign = offer(encoders.PausingEncoder)

    async def run() -> dict[str, Any]:
        async with connect(make_app(tmp_path)) as client:
            id_ = (await client.post(DOCUMENTS, files=[("files", ("gout.txt", MARKED))])).json()["id"]
            os.kill(await wait_for_sign(sign), signal.SIGTERM)
            sign.unlink()
            return await wait(client, id_)

    status = asyncio.run(run())
    assert (status["state"], status["result"]["added"]) == ("done", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoder", "problem"),
    [
        # A busy machine takes seconds to give out a gigabyte, so only the endless one has few.
        (encoders.GreedyEncoder, "the import needed more than 1.0 GB of memory while it read gout.md"),
        (encoders.MisledEncoder, "the import needed more than 1.0 GB of memory while it read gout.md"),
        (encoders.EndlessEncoder, "the import took more than 2 s of processor time without progress while it read"),
        (encoders.CrashingEncoder, "the import crashed (SIGSEGV) or ran out of memory while it read gout.md"),
    ],
)
def test_import_that_reaches_a_limit_or_crashes_is_stopped_with_cure_and_the_server_goes_on(
    tmp_path: Path, offer: Offer, encoder: type[HashingEncoder], problem: str
) -> None:
    offer(encoder)
    seconds = 2 if encoder is encoders.EndlessEncoder else 60
    limits = UploadLimits(free_bytes=0, memory_bytes=1024**3, processor_seconds=seconds)

    async def run() -> tuple[dict[str, Any], dict[str, Any]]:
        async with connect(make_app(tmp_path, limits)) as client:
            stopped = await send(client, ("a.jsonl", TRIAL.encode()), ("gout.md", MARKED))
            return stopped, await send(client, ("iron.html", HTML))

    stopped, done = asyncio.run(run())
    assert stopped["state"] == "stopped"
    assert problem in stopped["problem"]
    assert "delete the upload, split gout.md or save it as text, and send the files again" in stopped["problem"]
    assert (done["state"], done["result"]["added"]) == ("done", 1)


@pytest.mark.long
def test_import_that_works_long_may_take_more_processor_time_than_its_limit(tmp_path: Path) -> None:
    """The limit is of the time without progress."""
    limits = UploadLimits(free_bytes=0, processor_seconds=2)
    status = upload(tmp_path, *((f"{number}.jsonl", many(4_000, number)) for number in range(4)), limits=limits)
    assert (status["state"], status["result"]["added"]) == ("done", 16_000)


@pytest.mark.slow
def test_import_of_a_server_that_is_local_only_contacts_no_other_machine(tmp_path: Path, offer: Offer) -> None:
    offer(encoders.CallingEncoder)
    set_local_only(True)
    try:
        status = upload(tmp_path, ("gout.md", MARKED))
    finally:
        set_local_only(False)
    assert status["state"] == "stopped"
    assert "encoder.example" in status["problem"]
    assert "local" in status["problem"]


@pytest.mark.slow
def test_fault_of_import_is_logged_by_its_place_without_text(
    tmp_path: Path, offer: Offer, caplog: pytest.LogCaptureFixture
) -> None:
    offer(encoders.FaultyEncoder)
    status = upload(tmp_path, ("gout.md", MARKED))
    assert status["state"] == "stopped"
    assert "its place is in the log of the server. Resume the upload, or delete it" in status["problem"]
    assert "fault ZeroDivisionError at" in caplog.text
    assert encoders.MARK not in caplog.text + status["problem"]


@pytest.mark.slow
def test_upload_cut_off_by_kill_is_removed_at_start(tmp_path: Path) -> None:
    part = tmp_path / "server" / "uploads" / ("a" * 32)
    part.mkdir(parents=True)
    (part / "0123.pdf").write_bytes(b"%PDF half")

    async def run() -> list[Any]:
        app = make_app(tmp_path)
        async with app.router.lifespan_context(app), connect(app) as client:
            return list((await client.get("/api/v1/uploads")).json())

    assert asyncio.run(run()) == []
    assert not part.exists()


@pytest.mark.long
def test_busy_library_stops_import_with_cure_and_resume_finishes_it(tmp_path: Path) -> None:
    async def run() -> tuple[dict[str, Any], dict[str, Any], int]:
        async with connect(make_app(tmp_path)) as client:
            with LibraryStore.open(tmp_path / "lib", write=True):
                stopped = await send(client, ("gout.md", TEXT))
            await client.post(f"/api/v1/uploads/{stopped['id']}/resume")
            done = await wait(client, stopped["id"])
            removed = await client.delete(f"/api/v1/uploads/{stopped['id']}")
            return stopped, done, removed.status_code

    stopped, done, removed = asyncio.run(run())
    assert stopped["state"] == "stopped"
    assert "another process is writing to lib" in stopped["problem"]
    assert "Resume" in stopped["problem"]
    assert str(tmp_path) not in stopped["problem"]
    assert (done["state"], done["result"]["added"], removed) == ("done", 1, 204)
    assert list((tmp_path / "server" / "uploads").iterdir()) == []


@pytest.mark.long
def test_deleted_upload_leaves_no_pdf_of_its_own_and_keeps_those_of_the_library(tmp_path: Path, offer: Offer) -> None:
    async def run() -> tuple[str, list[str], list[str]]:
        async with connect(make_app(tmp_path)) as client:
            await send(client, ("added.pdf", made_pdf([["Zinc shortened colds by two days in adults."]])))
            before = stored_files(tmp_path)
            offer(encoders.FullDiskEncoder)
            stopped = await send(client, ("stopped.pdf", made_pdf([[f"Iron and {encoders.MARK} raised haemoglobin."]])))
            during = stored_files(tmp_path)
            await client.delete(f"/api/v1/uploads/{stopped['id']}")
            return stopped["state"], before, during

    state, before, during = asyncio.run(run())
    assert state == "stopped"
    assert len(before) == 1
    assert len(during) == 2
    assert stored_files(tmp_path) == before


@pytest.mark.long
def test_cancelled_upload_keeps_its_files_and_resumes(tmp_path: Path) -> None:
    async def run() -> tuple[dict[str, Any], dict[str, Any]]:
        async with connect(make_app(tmp_path)) as client:
            sent = await client.post(DOCUMENTS, files=[("files", ("many.jsonl", many(3_000)))])
            id_ = sent.json()["id"]
            cancelled = (await client.post(f"/api/v1/uploads/{id_}/cancel")).json()
            await client.post(f"/api/v1/uploads/{id_}/resume")
            return cancelled, await wait(client, id_)

    cancelled, done = asyncio.run(run())
    assert cancelled["state"] == "cancelled"
    assert done["state"] == "done"
    assert len([id_ for id_ in list_ids(tmp_path) if id_.startswith("m:")]) >= 950


@pytest.mark.slow
def test_upload_cancelled_while_its_state_is_stored_stays_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The description is written by one thread at a time, and the last word is that of the cancellation."""
    begun, proceed, ended = threading.Event(), threading.Event(), threading.Event()
    write = Uploads._write

    def write_slowly(uploads: Uploads, upload: UploadFile) -> None:
        if upload.state != "running" or begun.is_set():
            write(uploads, upload)
            return
        begun.set()
        assert proceed.wait(30)
        write(uploads, upload)
        ended.set()

    async def run() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        async with connect(make_app(tmp_path)) as client:
            sent = await client.post(DOCUMENTS, files=[("files", ("a.jsonl", TRIAL.encode()))])
            id_ = sent.json()["id"]
            assert await asyncio.to_thread(begun.wait, 30)
            cancelling = asyncio.create_task(client.post(f"/api/v1/uploads/{id_}/cancel"))
            # Time enough for a cancellation that does not wait for the write.
            await asyncio.sleep(0.3)
            proceed.set()
            await cancelling
            assert await asyncio.to_thread(ended.wait, 30)
            cancelled = (await client.get(f"/api/v1/uploads/{id_}")).json()
            (path,) = (tmp_path / "server").rglob("upload.json")
            stored = json.loads(path.read_text(encoding="utf-8"))
            await client.post(f"/api/v1/uploads/{id_}/resume")
            return cancelled, stored, await wait(client, id_)

    monkeypatch.setattr(Uploads, "_write", write_slowly)
    cancelled, stored, done = asyncio.run(run())
    assert (cancelled["state"], stored["state"]) == ("cancelled", "cancelled")
    assert (done["state"], done["result"]["added"]) == ("done", 1)


@pytest.mark.slow
def test_upload_that_ran_before_a_restart_can_be_cancelled_while_it_waits(tmp_path: Path, offer: Offer) -> None:
    def place(id_: str, created: str, state: UploadState) -> None:
        files = (ReceivedFile("gout.md", "0123.md", len(MARKED)),)
        description = UploadFile(id=id_, library="lib", owner="local", created=created, files=files, state=state)
        folder = tmp_path / "server" / "uploads" / id_
        folder.mkdir(parents=True)
        (folder / "0123.md").write_bytes(MARKED)
        (folder / "upload.json").write_text(description.model_dump_json(), encoding="utf-8")

    async def run() -> tuple[dict[str, Any], dict[str, Any]]:
        app = make_app(tmp_path)
        async with app.router.lifespan_context(app), connect(app) as client:
            await wait_for_sign(sign)
            async with asyncio.timeout(30):
                cancelled = (await client.post(f"/api/v1/uploads/{later}/cancel")).json()
            return (await client.get(f"/api/v1/uploads/{earlier}")).json(), cancelled

    sign = offer(encoders.WaitingEncoder)
    earlier, later = "a" * 32, "b" * 32
    place(earlier, "2026-01-01T00:00:00+00:00", "waiting")
    place(later, "2026-01-02T00:00:00+00:00", "running")
    first, second = asyncio.run(run())
    assert (first["state"], second["state"]) == ("running", "cancelled")


@pytest.mark.long
def test_questions_are_answered_while_documents_are_added(tmp_path: Path) -> None:
    async def run() -> tuple[list[int], dict[str, Any]]:
        async with connect(make_app(tmp_path)) as client:
            sent = await client.post(DOCUMENTS, files=[("files", ("many.jsonl", many(2_000)))])
            id_ = sent.json()["id"]
            statuses = []
            for _ in range(5):
                asked = await client.post("/api/v1/ask", json={"question": "Which drug was given for stroke?"})
                statuses.append(asked.status_code)
            return statuses, await wait(client, id_)

    statuses, done = asyncio.run(run())
    assert statuses == [200] * 5
    assert done["result"]["added"] == 2_000


@pytest.mark.slow
def test_events_end_with_result(tmp_path: Path) -> None:
    async def run() -> str:
        async with connect(make_app(tmp_path)) as client:
            sent = await client.post(DOCUMENTS, files=[("files", ("many.jsonl", many(300)))])
            return (await client.get(f"/api/v1/uploads/{sent.json()['id']}/events")).text

    events = [line.removeprefix("data: ") for line in asyncio.run(run()).splitlines() if line.startswith("data: ")]
    last = json.loads(events[-1])
    assert (last["state"], last["result"]["added"]) == ("done", 300)


@pytest.mark.slow
def test_form_of_page_leads_to_progress_and_result(tmp_path: Path) -> None:
    async def run() -> tuple[Page, Page, str]:
        async with connect(make_app(tmp_path)) as client:
            files = [("files", ("gout.md", TEXT)), ("files", ("<b>x.xyz", b"PK"))]
            sent = await client.post("/libraries/lib/uploads", files=files)
            assert sent.status_code == 303
            address = sent.headers["location"]
            await wait(client, address.rpartition("/")[2])
            stream = await client.get(address, headers={"hx-request": "true"})
            page = Page((await client.get(address)).text)
            return page, Page((await client.get("/libraries/lib")).text), stream.text

    page, library, stream = asyncio.run(run())
    text = " ".join(page.one("main").text.split())
    assert "1 document added, 0 replaced, 0 unchanged, 1 skipped" in text
    assert "<b>x.xyz: its ending is not one of" in text
    assert page.all("b") == []
    assert "State:" in stream
    assert "gout.md" in library.one("ul", "uploads").text


@pytest.mark.slow
def test_full_disk_refuses_upload_with_cure(tmp_path: Path) -> None:
    (response,) = refuse(tmp_path, form(("a.txt", TEXT)), limits=UploadLimits(free_bytes=10**18))
    assert response.status_code == 507
    assert "free some space" in response.json()["detail"]


@pytest.mark.long
def test_number_of_pubmed_file_stays_in_stored_name(tmp_path: Path) -> None:
    citation = (
        "<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID Version='1'>77</PMID><Article><ArticleTitle>{}"
        "</ArticleTitle><Abstract><AbstractText>Zinc.</AbstractText></Abstract></Article></MedlineCitation>"
        "</PubmedArticle></PubmedArticleSet>"
    )
    new = upload(tmp_path, ("pubmed26n0009.xml", citation.format("New").encode()))
    old = upload(tmp_path, ("pubmed26n0003.xml", citation.format("Old").encode()))
    assert (new["result"]["added"], old["result"]["added"], old["result"]["replaced"]) == (1, 0, 0)
    with LibraryStore.open(tmp_path / "lib") as library:
        (entry,) = list_documents(library, DocumentFilter(words="pubmed:77")).documents
    assert entry.title == "New"
