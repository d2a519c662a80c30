"""Server processes that send spans and figures to a collector on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from epicrisis.core.protocols import Encoder
from epicrisis.core.types import Document
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.system.telemetry_export import ENDPOINT
from tests.server.test_process import start_server
from tests.support.collector import collecting

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def library_folder(tmp_path: Path, encoder: Encoder) -> Path:
    """The folder of a library `lib` made with minilm."""
    with open_or_create(tmp_path / "lib", encoder, "minilm") as library:
        add_documents(library, [Document("paper", "Aspirin was given for stroke.", title="Stroke")], encoder)
    return tmp_path


@pytest.mark.long
@pytest.mark.models
def test_two_server_processes_send_their_spans_and_figures(
    library_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        for folder in ("one", "two"):
            options = ["--folder", str(library_folder / folder), "--local-only"]
            with start_server(library_folder, *options) as (process, url):
                body = {"question": "Which drug was given for stroke?"}
                assert httpx2.post(f"{url}/api/v1/ask", json=body, headers=headers, timeout=60).status_code == 200
                process.send_signal(signal.SIGTERM)
                _, errors = process.communicate(timeout=60)
            assert process.returncode == 0
            assert "telemetry" not in errors
    assert len(collector.instances) == 2
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    names = [span.name for span in collector.spans]
    assert names.count("POST /api/v1/ask") == names.count("question") == 2
    assert {"encode question", "search words", "search vectors", "fetch passages"} <= set(names)
    assert {"http.server.request.duration", "epicrisis.question", "epicrisis.answers"} <= collector.figures
    sent = str(collector.traces) + str(collector.metrics)
    assert "Aspirin" not in sent
    assert "Which drug" not in sent
    assert str(library_folder) not in sent


def run_search(folder: Path, endpoint: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Search the library by words in a process of its own, with this collector."""
    command = [sys.executable, "-m", "epicrisis", "search", str(folder / "lib"), "aspirin", "--by", "bm25", *options]
    environment = {**os.environ, ENDPOINT: endpoint}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.models
def test_collector_on_another_machine_is_refused_in_one_line_under_local_only(library_folder: Path) -> None:
    done = run_search(library_folder, "http://collector.test:4318", "--local-only")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"epicrisis: {ENDPOINT}: local_only (--local-only) is on and collector.test is not this machine: name a "
        "collector on this machine, or unset the variable\n"
    )


@pytest.mark.models
def test_collector_that_is_not_there_costs_one_line_and_no_result(library_folder: Path) -> None:
    done = run_search(library_folder, "http://127.0.0.1:9")
    assert done.returncode == 0
    assert "Aspirin" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("telemetry: the collector at 127.0.0.1 did not accept what was sent")
