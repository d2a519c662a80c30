"""The server's folder: only its owner reads it, also if it existed with the rights of others."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from tests.support.servers import open_library, open_resources


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def make_open_folder(folder: Path) -> list[Path]:
    """Return the files of a server's folder that everybody can read."""
    UserStore(folder / USERS_FILE).add("maria", "literature-reader")
    names = ("access.jsonl", "answers/a.json", "jobs/b/job.json", "originals/c.pdf", "uploads/d/e.pdf", USERS_FILE)
    files = [folder / name for name in names]
    for path in files:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.touch()
        path.chmod(0o644)
        path.parent.chmod(0o755)
    folder.chmod(0o755)
    return files


def start(tmp_path: Path, folder: Path) -> None:
    create_app(open_resources(open_library(tmp_path / "lib")), ServerOptions(folder=folder))


def test_start_takes_rights_of_others_from_existing_folder_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    files = make_open_folder(folder)
    start(tmp_path, folder)
    assert mode_of(folder) == 0o700
    assert {mode_of(path) for path in files} == {0o600}
    assert mode_of(folder / "jobs" / "b") == 0o700


def test_folder_with_other_things_keeps_its_mode_and_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "shared"
    make_open_folder(folder)
    other = folder / "notes.txt"
    other.touch()
    other.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        start(tmp_path, folder)
    assert (mode_of(folder), mode_of(other)) == (0o755, 0o644)
    assert {mode_of(folder / name) for name in ("access.jsonl", USERS_FILE)} == {0o600}
    assert {mode_of(folder / name) for name in ("answers", "jobs")} == {0o700}
    assert "chmod 700" in caplog.text
