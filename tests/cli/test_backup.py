"""Copies of folders, as docs/deployment.md makes them, are whole and can be verified."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from epicrisis.privacy.access_log import build_entry
from epicrisis.server.state.state import open_state
from tests.cli.conftest import Run


@pytest.mark.long
@pytest.mark.models
def test_copied_library_is_checked_and_searched(run: Run, small_library: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    subprocess.run(["cp", "-a", str(small_library), str(backup)], check=True)
    assert run("library", "check", backup).exit_code == 0
    assert "Zinc" in run("search", backup, "zinc").stdout
    data = backup / "passages.sqlite"
    content = bytearray(data.read_bytes())
    place = content.index(b"Zinc shortens")
    content[place : place + 4] = b"Sink"
    data.write_bytes(content)
    assert run("library", "check", backup).exit_code == 2


@pytest.mark.slow
def test_copied_server_folder_is_verified_against_its_hash(run: Run, tmp_path: Path) -> None:
    server, backup = tmp_path / "server", tmp_path / "backup"
    server.mkdir(mode=0o700)
    state = open_state(server)
    state.log.append(build_entry("maria", "search", "lib", "anna", ["note"]))
    head = run("audit", "verify", "--folder", server).stdout.split()[-1]
    subprocess.run(["cp", "-a", str(server), str(backup)], check=True)
    assert run("audit", "verify", "--folder", backup, "--head", head).exit_code == 0
    log = state.log.path.name
    (backup / log).write_text("")
    assert run("audit", "verify", "--folder", backup, "--head", head).exit_code == 2
