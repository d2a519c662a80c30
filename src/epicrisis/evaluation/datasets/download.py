"""Fetches the files of a pinned question set into `home/datasets/<source>/`, verified.

What lies there under its name is whole: bytes are written beside it first. Knows no format: what is in a file is
checked by reading the set anew.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import TypeAlias

from epicrisis.errors import InputError, NetworkRefused, StorageError
from epicrisis.evaluation.datasets.catalogue import PinnedSet, SourceFile, find_pinned_set, load_catalogue
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.datasets.load import FOLDER, load_dataset

_LEFT_BEHIND_SECONDS = 3600.0
TIMEOUT = 60.0
"""Seconds without a byte."""
LARGEST = 64 << 20
"""Bytes; no file of a question set is larger."""
BLOCK = 1 << 16
"""Bytes read at a time."""

DatasetProgress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with (name of a file, its bytes so far, all its bytes or `None` where its source does not say)."""


def is_downloaded(name: str, home: Path, *, sets: Mapping[str, PinnedSet] | None = None) -> bool:
    """Whether the pinned questions can be read from there."""
    try:
        load_dataset(name, home, sets=sets)
    except InputError:
        return False
    return True


def download_dataset(
    name: str,
    home: Path,
    on_progress: DatasetProgress | None = None,
    *,
    local_only: bool = False,
    sets: Mapping[str, PinnedSet] | None = None,
) -> Dataset:
    """The set, its files fetched where they are not there, or are not what is pinned.

    Raises InputError (unknown name, source not reachable, a file that is not the pinned one: it is not kept),
    NetworkRefused (`local_only`, and something would have to be fetched), StorageError (the disk).
    """
    known = load_catalogue() if sets is None else sets
    files = find_pinned_set(name, known).files
    try:
        return load_dataset(name, home, sets=known)
    except InputError:
        if local_only:
            raise NetworkRefused(
                f"{name} is not here, or not whole, and --local-only is on; pull it once without that option"
            ) from None
    targets = {home / FOLDER / file.path: file for file in files}
    wanted = {target: file for target, file in targets.items() if not _is_there(file, target)}
    for target, file in wanted.items():
        _fetch(file, target, partial(on_progress or _silent, target.name))
    try:
        return load_dataset(name, home, sets=known)
    except InputError:
        for target in wanted:
            target.unlink(missing_ok=True)
        raise


def _is_there(file: SourceFile, target: Path) -> bool:
    """Whether these are the pinned bytes; of a file whose bytes are not pinned nobody can tell."""
    return target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == file.sha256


def _silent(file: str, done: int, total: int | None) -> None:
    """Nobody watches."""


def _fetch(file: SourceFile, target: Path, on_progress: Callable[[int, int | None], None]) -> None:
    # By process: two that fetch the same file must not write into one another's.
    _remove_left_behind(target)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.partial")
    content = _read(file.url, target, on_progress)
    got = hashlib.sha256(content).hexdigest()
    if file.sha256 not in (None, got):
        raise InputError(f"{file.url} is not the pinned file: expected sha256 {file.sha256}, got {got}; try again")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        full = error.errno == errno.ENOSPC
        cure = "the disk is full: free some space" if full else f"{error.strerror}: check its permissions"
        raise StorageError(f"{target} cannot be written ({cure})") from error


def _remove_left_behind(target: Path) -> None:
    """Remove what killed processes left of this file; it is written within seconds once all of it was fetched."""
    for path in target.parent.glob(f"{glob.escape(target.name)}.*.partial"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _LEFT_BEHIND_SECONDS:
                path.unlink()


def _read(url: str, target: Path, on_progress: Callable[[int, int | None], None]) -> bytes:
    cure = f"check the network, or download it elsewhere and put it at {target}"
    content = bytearray()
    try:
        with urllib.request.urlopen(urllib.request.Request(url), timeout=TIMEOUT) as response:
            total: int | None = response.length
            while len(content) <= LARGEST and (block := response.read(BLOCK)):
                content += block
                on_progress(len(content), total)
    except urllib.error.HTTPError as error:
        raise InputError(f"{url} cannot be fetched (status {error.code}): {cure}") from error
    except (OSError, HTTPException) as error:
        raise InputError(f"{url} cannot be fetched ({error}): {cure}") from error
    if len(content) > LARGEST:
        raise InputError(f"{url} sends more than {LARGEST >> 20} MiB, which no question set has: {cure}")
    return bytes(content)
