"""The command in a process of its own: it stops when it is told to, and needs no home folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from epicrisis.configuration import load_settings
from epicrisis.errors import SettingsError
from epicrisis.library.ingest import add_documents, open_or_create
from epicrisis.protocols import Encoder
from epicrisis.types import Document

START_SECONDS = 120.0


def find_port() -> int:
    """Return a free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


@pytest.mark.models
def test_server_that_is_told_to_stop_closes_everything_and_ends_with_zero(
    tmp_path: Path, encoder: Encoder, model_home: Path
) -> None:
    with open_or_create(tmp_path / "lib", encoder, "minilm") as library:
        add_documents(library, [Document("paper", "Aspirin was given for stroke.", title="Stroke")], encoder)
    port = find_port()
    command = [sys.executable, "-m", "epicrisis", "serve", str(tmp_path / "lib"), "--port", str(port)]
    command += ["--folder", str(tmp_path / "server")]
    environment = {**os.environ, "EPICRISIS_HOME": str(model_home)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        wait_until_ready(process, port)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in errors


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
