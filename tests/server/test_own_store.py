"""Stores and readers of other packages: the commands of docs/python.md, the server, a store that ignores the scope."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from epicrisis.cli.program import app
from epicrisis.core.errors import LibraryError
from epicrisis.core.types import Passage, Scope
from epicrisis.library.core.checked_store import CheckedStore
from epicrisis.library.core.passage_lookup import read_document_passages
from epicrisis.testing.stores import MemoryStore, build_stored_document
from tests.server.test_process import wait_until_ready
from tests.server.test_uploads import list_ids, upload
from tests.support.import_encoders import PlainEncoder, offer_encoder
from tests.test_python_page import MODULE, PAGE, SECTIONS, install_metadata

SECTION = "Your own encoder, chat model, reranker, file format or store"
COMMAND = re.compile(r"^epicrisis .+", re.MULTILINE)
COMMANDS = [shlex.split(line)[1:] for line in COMMAND.findall(PAGE.partition(f"## {SECTION}")[2].partition("\n## ")[0])]


def install_package(folder: Path) -> Path:
    """Write the package of the page into a folder of packages, and return it."""
    site = folder / "site"
    for language, code in SECTIONS[SECTION]:
        if language == "toml":
            install_metadata(site, tomllib.loads(code)["project"])
        elif module := MODULE.match(code):
            (site / f"{module[1]}.py").write_text(code, encoding="utf-8")
    return site


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a file to read, as the working folder, with the package of the page on the path."""
    monkeypatch.syspath_prepend(str(install_package(tmp_path)))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "gout.our").write_text("Colchicine helps in gout.", encoding="utf-8")
    yield tmp_path
    sys.modules.pop("our_package", None)


def ask_server(command: Sequence[str], place: Path) -> tuple[list[Any], list[httpx2.Response]]:
    """Run `epicrisis serve`, and return its libraries and the responses to one request of each kind."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line = [sys.executable, "-m", "epicrisis", *command, "--port", str(port), "--folder", str(place / "server")]
    paths = [str(place / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        wait_until_ready(process, port)
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            responses = [
                client.post("/api/v1/ask", json={"question": "What helps in gout?"}),
                client.post("/api/v1/document", json={"id": "file:gout.our"}),
                client.post("/api/v1/ask", json={"question": "What helps in gout?", "patient": "anna"}),
                client.get("/libraries/theirs", headers={"Accept": "text/html"}),
            ]
            return client.get("/api/v1/libraries").json(), responses
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
def test_commands_of_python_page_use_own_components_in_library_and_server(place: Path) -> None:
    assert len(COMMANDS) == 6
    *commands, serve = COMMANDS
    outputs = []
    for command in commands:
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        outputs.append(result.output)
    assert "1 document added" in outputs[0]
    assert "1 document added" in outputs[2]
    for output in (outputs[3], outputs[4]):
        assert "Colchicine helps in gout." in output
    libraries, (answer, document, of_patient, page) = ask_server(serve, place)
    assert [(library["name"], library["documents"]) for library in libraries] == [("theirs", 1)]
    assert answer.json()["citations"][0]["quotation"] == "Colchicine helps in gout."
    assert document.json()["text"] == "Colchicine helps in gout."
    assert (of_patient.status_code, page.status_code) == (404, 404)
    assert "holds no patients" in of_patient.json()["detail"]
    assert "is a store of another package: it can be searched here" in page.text


@pytest.mark.slow
def test_upload_is_read_by_own_reader(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(place / "site"), os.environ.get("PYTHONPATH", "")]))
    offer_encoder(place / "packages", monkeypatch, PlainEncoder)
    status = upload(place, ("pain.our", b"Colchicine lowers the pain of gout."), ("pain.their", b"Nothing."))
    assert (status["state"], status["result"]["added"], status["result"]["skipped"]) == ("done", 1, 1)
    assert "file:pain.our" in list_ids(place)


class LeakyStore(MemoryStore):
    """Returns what the scope hides."""

    def fetch(self, passage_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        return super().fetch(passage_ids, Scope(patient="anna"))

    def fetch_record(self, scope: Scope) -> tuple[Passage, ...]:
        return super().fetch_record(Scope(patient="anna"))


def test_passage_outside_scope_of_own_store_ends_search() -> None:
    note = build_stored_document("note:1", "Colchicine was started.", patient="anna")
    leaky = LeakyStore()
    leaky.add([note])
    store = CheckedStore(leaky, "leaky", Path("place"))
    message = "the store leaky returned a passage outside the scope"
    for read in (
        lambda: store.fetch(["note:1#0"], Scope()),
        lambda: store.fetch_record(Scope(patient="bert")),
        lambda: read_document_passages(store, ["note:1"], Scope()),
    ):
        with pytest.raises(LibraryError, match=message):
            read()
    assert store.fetch(["note:1#0"], Scope(patient="anna")) == note.passages


def test_documents_of_own_store_are_read_in_order_and_within_scope() -> None:
    inner = MemoryStore()
    inner.add([build_stored_document("a", "One.", "Two."), build_stored_document("n", "Note.", patient="anna")])
    store = CheckedStore(inner, "memory", Path("place"))
    documents = read_document_passages(store, ["n", "a", "missing"], Scope())
    assert {id_: [passage.text for passage in passages] for id_, passages in documents.items()} == {
        "a": ["One.", "Two."]
    }
    assert store.fetch(["n#0"], Scope()) == ()
