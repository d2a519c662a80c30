"""Encryption at rest and open files, on made-up trees of /proc and /sys, since no test can encrypt a disk."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from epicrisis.operations.storage_protection import check_encryption, list_open_files
from tests.cli.conftest import run

__all__ = ["run"]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and /sys")


def make_system(root: Path, mounts: str, disks: dict[str, str]) -> Path:
    """Write the mounts, and for each disk `major:minor` the uuid of its device mapper, empty for a plain disk."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mounts)
    for device, uuid in disks.items():
        folder = root / "sys/dev/block" / device
        folder.mkdir(parents=True)
        if uuid:
            (folder / "dm").mkdir()
            (folder / "dm/uuid").write_text(uuid)
    return root


def mount(device: str, folder: str, kind: str = "ext4") -> str:
    return f"30 1 {device} / {folder} rw,relatime - {kind} /dev/x rw\n"


@pytest.mark.parametrize(
    ("mounts", "disks", "answer"),
    [
        (mount("253:0", "/"), {"253:0": "CRYPT-LUKS2-abc-root"}, "encrypted"),
        (mount("8:1", "/"), {"8:1": ""}, "not encrypted"),
        (mount("8:1", "/") + mount("253:0", "{folder}"), {"8:1": "", "253:0": "CRYPT-PLAIN-x"}, "encrypted"),
        (mount("0:40", "/", "nfs4"), {}, "unknown"),
        (mount("0:41", "/", "ecryptfs"), {}, "encrypted"),
        ("", {}, "unknown"),
    ],
)
def test_encryption_of_mount_is_told(mounts: str, disks: dict[str, str], answer: str, tmp_path: Path) -> None:
    folder = tmp_path / "ward"
    folder.mkdir()
    system = make_system(tmp_path / "system", mounts.replace("{folder}", str(folder)), disks)
    assert check_encryption(folder, system).answer == answer


@pytest.mark.parametrize(("second", "answer"), [("CRYPT-LUKS2-b", "encrypted"), ("", "not encrypted")])
def test_volume_over_two_disks_needs_both_encrypted(second: str, answer: str, tmp_path: Path) -> None:
    disks = {"253:2": "LVM-volume", "253:0": "CRYPT-LUKS2-a", "8:2": second}
    system = make_system(tmp_path / "system", mount("253:2", "/"), disks)
    slaves = system / "sys/dev/block/253:2/slaves"
    slaves.mkdir()
    for device in ("253:0", "8:2"):
        (slaves / device.replace(":", "-")).symlink_to(system / "sys/dev/block" / device)
    assert check_encryption(tmp_path, system).answer == answer


def test_files_open_to_others_are_listed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "private").touch(mode=0o600)
    (tmp_path / "open").touch()
    (tmp_path / "open").chmod(0o644)
    assert list_open_files(tmp_path) == [f"{tmp_path / 'open'} (0644)"]


@pytest.mark.long
def test_doctor_shows_protection_of_library(tmp_path: Path, run) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "ward").mkdir(mode=0o755)
    report = json.loads(run("doctor", "--library", tmp_path / "ward", "--json").stdout)
    rows = {row["folder"]: row for row in report["protection"]}
    row = rows[str(tmp_path / "ward")]
    assert row["encryption"]["answer"] in ("encrypted", "not encrypted", "unknown")
    assert row["open_files"] == [f"{tmp_path / 'ward'} (0755)"]
    assert "encryption at rest" in run("doctor", "--library", tmp_path / "ward").stdout
    assert run("doctor", "--library", tmp_path / "none").exit_code == 2
    refused = run("doctor", "--library", "postgresql://owner:secret@db.example.org/hospital")
    assert refused.exit_code == 2
    assert "--cluster URL" in refused.stderr
    assert "secret" not in refused.stderr
