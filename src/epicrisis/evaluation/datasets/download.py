"""Download of the files of a pinned question set into `home/datasets/<source>/`, with verification.

A file is complete when it has its name: it is first written to a temporary folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import TypeAlias

from epicrisis.core.errors import InputError, NetworkRefused, StorageError
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.datasets.load import (
    FOLDER,
    PinnedSet,
    SourceFile,
    find_pinned_set,
    load_catalogue,
    load_dataset,
)
from epicrisis.system.temporary_folders import TemporaryFolder

_TEMPORARY_PREFIX = ".download-"
TIMEOUT = 60.0
"""Seconds without data."""
LARGEST = 64 << 20
"""Bytes. No file of a question set is larger."""
BLOCK = 1 << 16
"""Bytes read at a time."""

DatasetProgress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with the name of a file, its bytes so far, and its size, or None if the server does not report it."""


def is_downloaded(name: str, home: Path, *, sets: Mapping[str, PinnedSet] | None = None) -> bool:
    """Return whether the questions of a pinned set can be read from the home folder."""
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
    """Return the set, after the download of files that are missing or not the pinned ones.

    Raises InputError for an unknown name, a source that cannot be reached, or a file that is not the pinned one, which
    is deleted; NetworkRefused if `local_only` forbids a download; StorageError for a problem of the disk.
    """
    catalogue = load_catalogue() if sets is None else sets
    files = find_pinned_set(name, catalogue).files
    try:
        return load_dataset(name, home, sets=catalogue)
    except InputError:
        if local_only:
            raise NetworkRefused(
                f"{name} is missing or incomplete, and --local-only is on: pull it once without that option"
            ) from None
    targets: list[Path] = []
    for file in files:
        if not file.url:
            raise InputError(
                f"{name} is not published as one file: build it from {file.built_from} "
                "(docs/evaluation.md#question-sets says how) "
                f"and put it at {home / FOLDER / file.path}, or give it with --data"
            )
        target = home / FOLDER / file.path
        # A file without a pinned hash is always fetched again.
        if not (target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == file.sha256):
            _fetch(file, target, partial(on_progress or (lambda *progress: None), target.name))
            targets.append(target)
    try:
        return load_dataset(name, home, sets=catalogue)
    except InputError:
        for target in targets:
            target.unlink(missing_ok=True)
        raise


def _fetch(file: SourceFile, target: Path, on_progress: Callable[[int, int | None], None]) -> None:
    content = _read(file.url, target, on_progress)
    sha256 = hashlib.sha256(content).hexdigest()
    if file.sha256 not in (None, sha256):
        raise InputError(f"{file.url} is not the pinned file: expected sha256 {file.sha256}, got {sha256}; try again")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # One for each process: two that download the same file must not write into one.
        with TemporaryFolder(_TEMPORARY_PREFIX, target.parent) as folder:
            with (folder / target.name).open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            (folder / target.name).replace(target)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        cure = "the disk is full: free some space" if full else f"{error.strerror}: check its permissions"
        raise StorageError(f"{target} cannot be written ({cure})") from error


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
