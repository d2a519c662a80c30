"""The server's folder, which only its owner may read: users, access log, answers, jobs and reviews."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from epicrisis.core.errors import StorageError
from epicrisis.system.local_only import HAS_OWNERS, OWNER_ONLY, restrict_to_owner

_LOGGER = logging.getLogger("epicrisis.server")
_FOLDERS = frozenset({"answers", "jobs", "originals", "reviews", "uploads"})
_FILES = ("users.", "access.", "identity-provider.")
"""How the names of the server's files begin; locks and files that are being replaced have other endings."""


def make_private_folder(folder: Path) -> None:
    """Create the folder for its owner alone, or take the rights of others from it and from what the server wrote.

    A folder with other things in it keeps its mode, and the log says so: it may be shared on purpose. What the server
    wrote there is private in any case. Raises StorageError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise StorageError(f"{folder} cannot be created: {error.strerror}") from error
    server_entries = [name for name in names if name in _FOLDERS or name.startswith(_FILES)]
    if len(server_entries) == len(names):
        restrict_to_owner(folder)
        return
    for name in server_entries:
        _restrict(folder / name)
    if HAS_OWNERS and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        _LOGGER.warning(
            "other users of this machine can list %s, which also holds other files: name a folder of its own with "
            "--folder, or run chmod 700",
            folder,
        )


def _restrict(path: Path) -> None:
    """Take the rights of others from one file or folder of this user."""
    if not HAS_OWNERS:
        return
    status = path.lstat()
    if status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode):
        path.chmod(0o700 if stat.S_ISDIR(status.st_mode) else OWNER_ONLY)
