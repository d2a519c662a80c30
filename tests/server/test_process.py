"""The command in a process of its own: it stops when it is told to, loses no answer, and needs no home folder."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from epicrisis.core.errors import SettingsError
from epicrisis.core.protocols import Encoder
from epicrisis.core.types import Document
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.settings.configuration import load_settings
from tests.support.hostile import HostileServer

START_SECONDS = 120.0


def wait_until_ready(process: subprocess.Popen[str], port: int) -> None:
    """Return when the server accepts questions."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
                if response.status == 200:
                    return
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")


@contextmanager
def start_server(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `epicrisis serve` over the library in this folder, and give the process and the address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "epicrisis", "serve", str(folder / "lib"), "--port", str(port), *options]
    command += ["--folder", str(folder / "server")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
    try:
        wait_until_ready(process, port)
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def library_folder(tmp_path: Path, encoder: Encoder) -> Path:
    """The folder of a library `lib` made with minilm."""
    with open_or_create(tmp_path / "lib", encoder, "minilm") as library:
        add_documents(library, [Document("paper", "Aspirin was given for stroke.", title="Stroke")], encoder)
    return tmp_path


@pytest.mark.long
@pytest.mark.models
def test_server_that_is_told_to_stop_closes_everything_and_ends_with_zero(library_folder: Path) -> None:
    with start_server(library_folder) as (process, _):
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors


@pytest.mark.long
@pytest.mark.models
def test_server_killed_in_the_middle_loses_no_finished_answer(library_folder: Path) -> None:
    questions = [{"question": f"Which drug was given for stroke in trial {number}?"} for number in range(12)]
    with HostileServer(delay=0.2) as model:
        options = ["--model", f"{model.url}#hostile", "--strategy", "rag", "--setting", "models.writer.concurrency=1"]
        with start_server(library_folder, *options) as (process, url):
            body = {"model": "epicrisis/rag", "messages": [{"role": "user", "content": "Which drug was given?"}]}
            reply = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()
            page = reply["epicrisis"]["page"].removeprefix(url)
            job = httpx2.post(f"{url}/api/v1/jobs", json={"questions": questions}, timeout=60).json()["id"]
            while sum(httpx2.get(f"{url}/api/v1/jobs/{job}").json()["answers"].values()) < 3:
                time.sleep(0.05)
            finished = httpx2.get(f"{url}/api/v1/jobs/{job}/answers").text.splitlines()
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
        with start_server(library_folder, *options) as (_, url):
            while httpx2.get(f"{url}/api/v1/jobs/{job}").json()["state"] == "running":
                time.sleep(0.05)
            state = httpx2.get(f"{url}/api/v1/jobs/{job}").json()
            answers = httpx2.get(f"{url}/api/v1/jobs/{job}/answers").text.splitlines()
            assert httpx2.get(f"{url}{page}").status_code == 200
        calls = model.ledger.calls
    assert 3 <= len(finished) < len(questions)
    assert state["state"] == "done"
    assert len(answers) == len(questions)
    assert set(finished) <= set(answers)
    # One call for the first question, one for each of the job, and those in flight at the kill.
    assert calls <= 1 + len(questions) + 2


def test_user_without_home_folder_reads_the_settings_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def find_nobody(_: int) -> None:
        raise KeyError("no such user")

    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "EPICRISIS_HOME", "EPICRISIS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", find_nobody)
    with pytest.raises(SettingsError, match="EPICRISIS_HOME"):
        load_settings()
    monkeypatch.setenv("EPICRISIS_HOME", "/data")
    assert load_settings().home == Path("/data")
