"""How a folder with patients' texts is protected on this machine: encryption at rest, and the rights of other users.

    check_encryption(Path("~/ward").expanduser())  # EncryptionState("encrypted", "dm-crypt (LUKS)")

Only Linux tells an ordinary user whether a disk is encrypted. Encryption inside a drive, by a hypervisor, a cloud or a
file server is not visible from here, so "unknown" is an answer of its own.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from epicrisis.system.local_only import HAS_OWNERS

EncryptionAnswer: TypeAlias = Literal["encrypted", "not encrypted", "unknown"]
_GET_POLICY = 0xC0096616
"""FS_IOC_GET_ENCRYPTION_POLICY_EX of Linux. It takes the size of a policy, and answers with one of up to 24 bytes."""
_POLICY_BYTES = 24
_ENCRYPTING_TYPES = {"ecryptfs": "eCryptfs", "fuse.gocryptfs": "gocryptfs", "fuse.encfs": "EncFS"}
_MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class EncryptionState:
    """Whether a folder is encrypted at rest, and how that is known."""

    answer: EncryptionAnswer
    reason: str


@dataclass(frozen=True, slots=True)
class _Mount:
    folder: Path
    device: str
    """`major:minor`."""
    kind: str
    """The type of the file system."""


def check_encryption(folder: Path, system: Path = Path("/")) -> EncryptionState:
    """Return whether the files of a folder are encrypted at rest. `system` is the root of /proc and /sys."""
    if not sys.platform.startswith("linux"):
        return EncryptionState("unknown", "look at FileVault on macOS, at BitLocker on Windows")
    try:
        mount = _find_mount(folder.resolve(), system)
    except OSError as error:
        return EncryptionState("unknown", f"the mounts of this machine cannot be read ({error.strerror})")
    if mount is None:
        return EncryptionState("unknown", "the mount of the folder was not found")
    if mount.kind in _ENCRYPTING_TYPES:
        return EncryptionState("encrypted", _ENCRYPTING_TYPES[mount.kind])
    if _has_policy(folder):
        return EncryptionState("encrypted", "fscrypt")
    device = system / "sys/dev/block" / mount.device
    if not device.exists():
        return EncryptionState("unknown", f"{mount.kind} has no disk of its own here: ask who runs its storage")
    layers = _count_layers(device, 0)
    if layers == {"crypt"}:
        return EncryptionState("encrypted", "dm-crypt (LUKS)")
    if "crypt" in layers:
        return EncryptionState("not encrypted", "only some of its disks are encrypted by dm-crypt")
    if mount.kind == "zfs":
        return EncryptionState("unknown", "ask zfs get encryption")
    return EncryptionState("not encrypted", "no dm-crypt, fscrypt or eCryptfs; a drive may encrypt itself")


def list_open_files(folder: Path) -> list[str]:
    """Return the files and folders that other users of this machine may read, with their modes, below this folder."""
    if not HAS_OWNERS:
        return []
    accessible: list[str] = []
    for parent, _, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            try:
                status = path.lstat()
            except OSError:
                continue
            if not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o077:
                accessible.append(f"{path} ({stat.S_IMODE(status.st_mode):04o})")
    return accessible


def _find_mount(folder: Path, system: Path) -> _Mount | None:
    """Return the mount of a folder, the innermost one."""
    best: _Mount | None = None
    for line in (system / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        mount = _Mount(Path(fields[4].replace("\\040", " ")), fields[2], after.split()[0])
        is_inside = folder == mount.folder or mount.folder in folder.parents
        # A later line covers an earlier one of the same folder.
        if is_inside and (best is None or len(mount.folder.parts) >= len(best.folder.parts)):
            best = mount
    return best


def _count_layers(device: Path, depth: int) -> set[str]:
    """Return what the disks below a device are: `crypt` where dm-crypt lies between, else `plain`."""
    try:
        if (device / "dm/uuid").read_text(encoding="ascii", errors="replace").startswith("CRYPT-"):
            return {"crypt"}
    except OSError:
        pass
    slaves = device / "slaves"
    if not slaves.is_dir() and (device / "partition").exists():
        slaves = device.resolve().parent / "slaves"
    below = sorted(slaves.iterdir()) if slaves.is_dir() and depth < _MAX_DEPTH else []
    if not below:
        return {"plain"}
    return set().union(*(_count_layers(slave, depth + 1) for slave in below))


def _has_policy(folder: Path) -> bool:
    """Return whether Linux encrypts the files of this folder by fscrypt."""
    import fcntl

    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.ioctl(descriptor, _GET_POLICY, bytearray(_POLICY_BYTES.to_bytes(8, sys.byteorder) + bytes(_POLICY_BYTES)))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
