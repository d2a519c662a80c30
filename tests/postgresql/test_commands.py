"""The commands and servers of the program on a library in PostgreSQL, and one line for what fails."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner, Result

from epicrisis.cli.program import app
from epicrisis.core.errors import LibraryError, NetworkRefused, StorageError
from epicrisis.core.types import Scope
from epicrisis.library.base.passage_table import Columns
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import Roster
from epicrisis.library.postgresql import database as databases
from epicrisis.library.postgresql import database_schema as schemas
from epicrisis.library.postgresql import database_table as table
from epicrisis.pipeline.additions import AddOptions, add_files
from epicrisis.settings.settings import Settings
from epicrisis.system.local_only import guard_network
from epicrisis.system.remote_libraries import find_address, library_folder
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.stores import DIMENSIONS, build_stored_document
from tests.postgresql.conftest import LibraryDatabase, close_connections
from tests.support.ccda_documents import EPIC_ROOT, section
from tests.support.ccda_documents import document as clinical_document
from tests.support.postgresql_server import OWNER, PASSWORDS, READER, WRITER, find_free_port

pytestmark = pytest.mark.postgresql
NOTES = """patient,time,text,patient-name
anna,2015-06-01,"Aspirin was given.",Anna Muster
berta,2016-01-01,"No aspirin.",Berta Beispiel
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def read(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    path = tmp_path / "papers.jsonl"
    rows = [{"id": f"p{number}", "text": f"Aspirin lowers risk {number}.", "title": "Trial"} for number in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.models
def test_commands_work_on_a_database_as_on_a_folder(database: LibraryDatabase, papers: Path, tmp_path: Path) -> None:
    owner, writer, reader = map(database.url, (OWNER, WRITER, READER))
    assert "5 documents added" in read("library", "add", owner, str(papers))
    papers.write_text(papers.read_text().replace("risk 3", "risk three"))
    assert "1 replaced, 4 unchanged" in read("library", "add", writer, str(papers))
    folder = tmp_path / "lib"
    read("library", "add", str(folder), str(papers))
    close_connections()
    assert "5 documents, 5 passages" in read("library", "info", reader).splitlines()[0]
    for command in (["search", "{}", "aspirin three", "--json"], ["ask", "{}", "Does aspirin lower risk?", "--json"]):
        answers = []
        for library in (reader, str(folder)):
            output = json.loads(read(*(part.format(library) for part in command)))
            answers.append(find_passages(output))
        assert answers[0] == answers[1] != []
    assert "papers.jsonl" in read("library", "list", reader)
    assert "risk three" in read("library", "show", reader, "p3")
    assert len(read("library", "export", reader).splitlines()) == 5
    assert "1 document deleted" in read("library", "delete", writer, "p3")
    assert json.loads(read("library", "info", reader, "--json"))["documents"] == 4
    assert PASSWORDS[READER] not in read("library", "info", reader, "--json")


def find_passages(output: object) -> list[object]:
    """Return all passage ids and scores in a result, in order."""
    if isinstance(output, dict):
        own = [value for key, value in output.items() if key in ("id", "passage_id", "score")]
        return own + [item for value in output.values() for item in find_passages(value)]
    return [item for value in output for item in find_passages(value)] if isinstance(output, list) else []


@pytest.mark.models
def test_notes_are_added_listed_and_answered_for_their_patient(database: LibraryDatabase, tmp_path: Path) -> None:
    notes = tmp_path / "notes.csv"
    notes.write_text(NOTES)
    columns = [f"--column={role}={role}" for role in ("patient", "time", "text", "patient-name")]
    assert "2 documents added" in read("library", "add", database.url(OWNER), str(notes), *columns)
    close_connections()
    reader = database.url(READER)
    patients = json.loads(read("library", "patients", reader, "--json"))
    assert [(record["id"], record["name"]) for record in patients] == [
        ("anna", "Anna Muster"),
        ("berta", "Berta Beispiel"),
    ]
    answer = json.loads(read("search", reader, "aspirin", "--patient", "anna", "--json"))
    assert "Aspirin was given." in str(answer)
    assert "No aspirin" not in str(answer)
    refused = run("ask", reader, "Was aspirin given?", "--model", "http://192.0.2.1/v1#m", "--patient", "anna")
    assert refused.exit_code == 2
    assert "holds patients' notes and 192.0.2.1 is not this machine" in refused.stderr
    refused = run("library", "add", reader, str(notes), *columns)
    assert refused.exit_code == 2
    assert "adding and deleting one of epicrisis_writer" in refused.stderr


def test_faults_are_one_line_with_a_cure_and_without_password(
    database: LibraryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.create().close()
    close_connections()
    url = database.url(READER)
    server = f"127.0.0.1:{database.server.port}"
    cases: dict[str, str] = {
        database.url(READER, password="wrong-secret"): "put it into ~/.pgpass (mode 0600) or PGPASSWORD",
        f"postgresql://{READER}@{server}/{database.name}": "the server wants a password",
        f"postgresql://nobody:wrong-secret@{server}/{database.name}": "put it into ~/.pgpass",
        url.replace(database.name, "nodatabase"): "the server knows no such user or database",
        f"postgresql://{READER}:wrong-secret@127.0.0.1:{find_free_port()}/x": "check that it runs, and host and port",
        f"{url}&nothing=1": "the URL has an unknown parameter",
        database.url(READER, "other"): "epicrisis library add",
        f"postgresql://{READER}:wrong-secret/x@{server}/x": "cannot be read: write postgresql://USER@HOST",
    }
    for address, cure in cases.items():
        result = run("library", "info", address)
        assert result.exit_code == 2, address
        assert cure in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert "secret" not in result.stderr
        assert PASSWORDS[READER] not in result.stderr


def test_server_is_looked_up_where_no_other_machine_may_be_contacted() -> None:
    """The psycopg client looks names up in Python, where the network guard sees it."""
    with guard_network(), pytest.raises(StorageError, match="the server cannot be reached"):
        LibraryStore.open("postgresql://ward_app@DB.invalid:5999,other.invalid/hospital")
    with guard_network(), pytest.raises(NetworkRefused):
        socket.getaddrinfo("elsewhere.invalid", 80)


def test_missing_extension_is_named_with_the_command(database: LibraryDatabase) -> None:
    database.server.execute("CREATE DATABASE bare", f"GRANT CREATE ON DATABASE bare TO {OWNER}")
    with pytest.raises(LibraryError, match=r"lacks the extension vector: .* runs CREATE EXTENSION vector"):
        LibraryDatabase(database.server, "bare").create()


def test_missing_extra_is_named(database: LibraryDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pgvector", None)
    with pytest.raises(LibraryError, match=r"need the extra postgresql: `pip install 'epicrisis\[postgresql\]'`"):
        LibraryStore.open(database.url(READER))


def test_tables_of_other_versions_are_refused_or_upgraded(
    database: LibraryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.create() as library:
        library.add([build_stored_document("a", "aspirin", patient="anna")])
    version = len(schemas.MIGRATIONS)
    steps = (*schemas.MIGRATIONS, "ALTER TABLE library ADD COLUMN colour text")
    older = rf"tables of version {version}, and this program reads {version + 1}: .*library optimize"
    newer = f"has tables of version {version + 1}, this program reads up to {version}: install a newer"
    with monkeypatch.context() as patch:
        patch.setattr(schemas, "MIGRATIONS", steps)
        with pytest.raises(LibraryError, match=older):
            database.read()
        with pytest.raises(LibraryError, match="creating and upgrading the owner of the schema"):
            LibraryStore.open(database.url(WRITER), write=True)
        LibraryStore.open(database.url(OWNER), write=True).close()
        assert [hit.id for hit in database.read().search_words("aspirin", 3, Scope(patient="anna"))] == ["a#0"]
    with pytest.raises(LibraryError, match=newer):
        database.read()


def test_folder_of_a_library_names_it_without_password(database: LibraryDatabase) -> None:
    database.create().close()
    folder = library_folder(database.url(READER))
    LibraryStore.open(folder).close()
    text = (folder / "address").read_text()
    assert text.startswith(f"postgresql://{READER}@127.0.0.1")
    assert (folder / "address").stat().st_mode & 0o077 == folder.stat().st_mode & 0o077 == 0
    for path in folder.parents[1].rglob("*"):
        assert not path.is_file() or PASSWORDS[READER] not in path.read_text()
    assert PASSWORDS[READER] not in repr(find_address(folder))


@pytest.mark.parametrize("moment", ["after an addition", "during an addition", "within a transaction"])
def test_server_that_dies_loses_nothing(
    database: LibraryDatabase, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledged documents are found by vectors and words at once."""
    axis = np.eye(DIMENSIONS, dtype=np.float32)[0]
    monkeypatch.setattr(databases, "_POOL_WAIT_S", 8)
    insert = table.insert_passages
    with database.create() as writer:
        writer.add([build_stored_document("a", "aspirin")])
        reader = database.read()
        if moment == "after an addition":
            writer.compact()
        if moment == "within a transaction":
            writer.compact()

            def insert_and_die(connection: psycopg.Connection[Any], columns: Columns) -> None:
                insert(connection, columns)
                database.server.stop("immediate")

            monkeypatch.setattr(table, "insert_passages", insert_and_die)
        else:
            database.server.stop("immediate")
        with pytest.raises(StorageError, match=r"the connection was lost .* Everything acknowledged so far is saved"):
            writer.add([build_stored_document("b", "aspirin")])
        with pytest.raises(StorageError, match="check the server"):
            reader.count()
        database.server.start()
    monkeypatch.setattr(table, "insert_passages", insert)
    assert [hit.id for hit in reader.search_vectors(axis, 3, Scope())] == ["a#0"]
    assert [hit.id for hit in reader.search_words("aspirin", 3, Scope())] == ["a#0"]
    with LibraryStore.open(database.url(WRITER), write=True) as writer:
        writer.add([build_stored_document("b", "aspirin")])
    assert [hit.id for hit in reader.search_words("aspirin", 3, Scope())] == ["a#0", "b#0"]
    assert reader.count() == (2, 2)


@contextmanager
def serve(url: str, folder: Path) -> Iterator[Callable[[str], list[str]]]:
    """Run `epicrisis serve` in a process of its own, and give a function that searches through it."""
    port = find_free_port()
    command = [sys.executable, "-m", "epicrisis", "serve", url, "--port", str(port), "--folder", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def find(query: str) -> list[str]:
        body = json.dumps({"query": query, "settings": {"k": 3, "by": "bm25"}}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/v1/search", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            return [hit["passage"]["document_id"] for hit in json.load(reply)["hits"]]

    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
                break
            except (URLError, ConnectionError):
                assert process.poll() is None, process.stdout.read() if process.stdout else ""
                time.sleep(0.2)
        yield find
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.mark.models
def test_two_servers_on_one_database_see_an_addition_at_once(
    database: LibraryDatabase, papers: Path, tmp_path: Path
) -> None:
    read("library", "add", database.url(OWNER), str(papers))
    reader = database.url(READER)
    with serve(reader, tmp_path / "one") as first, serve(reader, tmp_path / "two") as second:
        assert first("aspirin") == second("aspirin") == ["p0", "p1", "p2"]
        papers.write_text(json.dumps({"id": "new", "text": "Zolpidem was compared with placebo."}) + "\n")
        read("library", "add", database.url(WRITER), str(papers))
        assert first("zolpidem") == second("zolpidem") == ["new"]


def test_later_document_of_a_patient_is_recognised_in_a_database(database: LibraryDatabase, tmp_path: Path) -> None:
    """By the record number and the birth date, as in a folder."""
    resources = [
        {
            "resourceType": "Patient",
            "id": "p1",
            "identifier": [{"system": f"urn:oid:{EPIC_ROOT}", "value": "4711"}],
            "birthDate": "1950-12-31",
        },
        {
            "resourceType": "ClinicalImpression",
            "id": "n1",
            "status": "completed",
            "subject": {"reference": "Patient/p1"},
            "summary": "Seen in clinic.",
        },
    ]
    export, summary = tmp_path / "export.ndjson", tmp_path / "summary.xml"
    export.write_text("".join(json.dumps(resource) + "\n" for resource in resources))
    summary.write_text(clinical_document([section("Course", "Uneventful.")]))
    library = library_folder(database.url(OWNER))
    encoder = HashingEncoder(DIMENSIONS), "hashing"
    assert add_files(Settings(), library, [export], AddOptions(), encoder=encoder).joined == ()
    report = add_files(Settings(), library, [summary], AddOptions(), encoder=encoder)
    assert report.joined == ((f"urn:oid:{EPIC_ROOT}|4711", "p1"),)
    close_connections()
    with LibraryStore.open(database.url(READER)) as store:
        assert {id_: record.notes for id_, record in Roster(store).patients().items()} == {"p1": 2}
