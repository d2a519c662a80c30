"""`epicrisis mcp` in a process of its own: the official client, what stands on standard output, and its refusals."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from typer.testing import CliRunner

from epicrisis.cli.program import app
from tests.support.patient_records import recorder
from tests.support.served_models import served
from tests.support.servers import read_access_log

pytestmark = pytest.mark.models

PAPERS = [
    {"id": "a", "title": "Aspirin", "text": "Aspirin lowers the risk of preterm pre-eclampsia.", "date": "2017"},
    {"id": "b", "title": "Zinc", "text": "Zinc shortens acute diarrhoea in children.", "date": "2002-05"},
]
NOTES = [
    {"id": "n1", "text": "Anna was given aspirin. Her secret is opal.", "date": "2150-01-01", "patient": "P-100"},
    {"id": "n2", "text": "Berta was given aspirin. Her secret is jade.", "date": "2150-01-01", "patient": "P-200"},
]
QUESTION = "Does aspirin lower the risk of pre-eclampsia?"


def make_library(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """Create a library with the embedded encoder, by the program itself."""
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = CliRunner().invoke(app, ["library", "add", str(folder / "library"), str(file)])
    assert result.exit_code == 0, result.output
    return folder / "library"


def start(*arguments: object) -> StdioServerParameters:
    """Return how the official client starts the program."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "epicrisis", "mcp", *map(str, arguments)], env=dict(os.environ)
    )


def run_raw(library: Path, *arguments: object, lines: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program with these lines on standard input, until it ends by itself."""
    command = [sys.executable, "-m", "epicrisis", "mcp", library, *arguments]
    return subprocess.run(
        list(map(str, command)), input=lines, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.long
def test_official_client_asks_a_real_process(tmp_path: Path, model_home: Path) -> None:
    library = make_library(tmp_path, PAPERS)

    async def run(url: str) -> None:
        async with Client(
            start(library, "--model", url, "--strategy", "rag", "-k", 2, "--setting", "check=off")
        ) as client:
            result = await client.call_tool("ask", {"question": QUESTION})
            assert not result.is_error, result.content
            answer = result.structured_content
            assert (answer["state"], answer["strategy"]) == ("answered", "rag")
            resource = await client.read_resource(answer["citations"][0]["uri"])
            assert answer["citations"][0]["quotation"] in str(resource.contents[0])
            found = await client.call_tool("evidence", {"question": QUESTION, "sentences": 1})
            assert found.structured_content["claims"][0]["text"] == PAPERS[0]["text"]

    with served(recorder()) as server:
        asyncio.run(run(server.url))


@pytest.mark.long
def test_legacy_handshake_writes_nothing_but_the_protocol(tmp_path: Path, model_home: Path) -> None:
    library = make_library(tmp_path, PAPERS)
    initialize = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    calls: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": initialize},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "evidence", "arguments": {"question": QUESTION}}},
        {"id": 3, "method": "tools/call", "params": {"name": "search", "arguments": {"query": ""}}},
        {"id": 4, "method": "nonsense"},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **call}) + "\n" for call in calls)
    command = [sys.executable, "-m", "epicrisis", "mcp", str(library)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines)
        process.stdin.flush()
        replies = [json.loads(process.stdout.readline()) for _ in range(4)]
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert rest == ""
    assert errors == ""
    by_id = {reply["id"]: reply for reply in replies}
    assert by_id[1]["result"]["protocolVersion"] == "2025-06-18"
    assert by_id[2]["result"]["structuredContent"]["claims"]
    assert by_id[3]["result"]["isError"]
    assert "error" in by_id[4]


@pytest.mark.long
def test_library_of_notes_without_patient_is_refused_in_one_line(tmp_path: Path, model_home: Path) -> None:
    result = run_raw(make_library(tmp_path, NOTES))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") <= 2
    assert "name the patient with --patient" in result.stderr


@pytest.mark.long
def test_process_started_for_one_patient_reads_that_record_only(tmp_path: Path, model_home: Path) -> None:
    library = make_library(tmp_path, NOTES)

    async def run() -> None:
        async with Client(start(library, "--patient", "P-100", "--folder", tmp_path / "server")) as client:
            own = await client.call_tool("evidence", {"question": "Which secret?", "patient": "P-100"})
            assert "opal" in str(own)
            assert "jade" not in str(own)
            other = await client.call_tool("evidence", {"question": "Which secret?", "patient": "P-200"})
            nobody = await client.call_tool("evidence", {"question": "Which secret?"})
            assert other.is_error
            assert nobody.is_error

    asyncio.run(run())
    # The log of the server that also serves the library.
    entries = read_access_log(tmp_path / "server")
    assert {entry["patient"] for entry in entries if entry["outcome"] == "allowed"} == {"P-100"}
    assert "refused" in {entry["outcome"] for entry in entries}
