"""The application over a real embedded library and a scripted chat model, and a real server of it on loopback."""

from __future__ import annotations

import asyncio
import atexit
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette

from epicrisis.core.protocols import ChatModel
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.corpus.base.reader_base import ReaderItem
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import Roster, holds_patients
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.privacy.access_log import NAME
from epicrisis.retrieval.retriever import Retriever
from epicrisis.server.libraries.resources import OpenLibrary, Resources, list_possible_strategies
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.open_libraries import OPENED
from tests.support.patient_records import ENCODER, library, papers, recorder

QUESTION = "Which drug was given for stroke?"
BASE = "http://127.0.0.1:8080"


@cache
def _template() -> Path:
    """Return a library of four papers, created once for all tests."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library(folder / "lib", papers()).close()
    return folder / "lib"


def open_library(
    folder: Path,
    model: ChatModel | None = None,
    documents: Iterable[ReaderItem] | None = None,
    *,
    encoder: HashingEncoder = ENCODER,
    **settings: Any,
) -> OpenLibrary:
    """Return a library of these documents, or of four papers, with this chat model in every role."""
    if documents is None:
        shutil.copytree(_template(), folder)
    else:
        library(folder, documents, encoder).close()
    return open_existing(folder, model, encoder=encoder, **settings)


def open_existing(
    folder: Path, model: ChatModel | None = None, *, encoder: HashingEncoder = ENCODER, **settings: Any
) -> OpenLibrary:
    """Return the library in this folder with this chat model in every role. It is closed after the test."""
    opened = LibraryStore.open(folder)
    OPENED.append(opened)
    retriever = Retriever(opened, encoder, remedy="segments", sentences=find_sentences, analyze=analyze_words)
    search = LibrarySearch(opened, retriever, rosters=(Roster(opened),))
    models = {"writer": {"name": "http://127.0.0.1:9/v1#scripted"}}
    made = Settings(**{"strategy": "rag", "k": 4, "models": models, **settings})
    pipeline = Pipeline(made, dict.fromkeys(ROLES, model or recorder()), search)
    return OpenLibrary(folder.name, pipeline, holds_patients(folder), list_possible_strategies(made))


def open_resources(*libraries: OpenLibrary) -> Resources:
    """Return the shared resources of these libraries."""
    return Resources({library.name: library for library in libraries})


def connect(app: FastAPI, **more: Any) -> httpx2.AsyncClient:
    """Return a client of the application without a socket. Its errors are responses, as behind a socket."""
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=BASE, **more)


@asynccontextmanager
async def running(app: Starlette, **options: Any) -> AsyncIterator[str]:
    """Serve the application on a free port of loopback, and give its address."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", access_log=False, **options)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    (socket,) = server.servers[0].sockets
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


def read_events(text: str) -> list[tuple[str, Any]]:
    """Return the names and data of server-sent events."""
    events: list[tuple[str, Any]] = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            name = lines[0].removeprefix("event: ")
            data = "\n".join(line.removeprefix("data: ") for line in lines[1:])
            events.append((name, json.loads(data)))
    return events


def read_access_log(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of the access log in the server's folder, none if nothing was logged."""
    path = folder / NAME
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
