"""What a folder says of other machines: written down for good, and taken back."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from epicrisis.core.errors import LibraryDamaged
from epicrisis.library.base.remote_consent import NAME, RemoteConsent, allow_remote, forbid_remote, read_remote


def test_read_remote_without_consent_allows_nothing(tmp_path: Path) -> None:
    assert read_remote(tmp_path) == RemoteConsent(allowed=False, hosts=(), since=None)
    forbid_remote(tmp_path)
    assert not (tmp_path / NAME).exists()


def test_allow_remote_writes_only_new_hosts(tmp_path: Path) -> None:
    for hosts in (["b.example.org"], ["b.example.org"], [], ["a.example.org", "b.example.org"]):
        allow_remote(tmp_path, hosts)
    lines = [json.loads(line) for line in (tmp_path / NAME).read_text().splitlines()]
    assert [line["hosts"] for line in lines] == [["b.example.org"], ["a.example.org", "b.example.org"]]
    now = read_remote(tmp_path)
    assert (now.allowed, now.hosts, now.since) == (True, ("a.example.org", "b.example.org"), lines[0]["at"])


def test_forbid_remote_keeps_record_and_clears_hosts(tmp_path: Path) -> None:
    allow_remote(tmp_path, ["a.example.org"])
    forbid_remote(tmp_path)
    forbid_remote(tmp_path)
    assert (read_remote(tmp_path).allowed, read_remote(tmp_path).hosts) == (False, ())
    allow_remote(tmp_path, ["c.example.org"])
    assert read_remote(tmp_path).hosts == ("c.example.org",)
    assert [json.loads(line)["allowed"] for line in (tmp_path / NAME).read_text().splitlines()] == [True, False, True]


def test_remote_consent_file_is_private(tmp_path: Path) -> None:
    allow_remote(tmp_path, ["a.example.org"])
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"at": "x", "allowed": "yes", "hosts": []}', "\ufffd"])
def test_read_remote_damaged_file_raises_library_damaged(line: str, tmp_path: Path) -> None:
    allow_remote(tmp_path, ["a.example.org"])
    with (tmp_path / NAME).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(LibraryDamaged, match="no other machine is allowed: delete it, and pass --allow-remote again"):
        read_remote(tmp_path)
