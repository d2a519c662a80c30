"""The files that the page loads: our own, and those vendored with their version and sha256 (`static/vendored.json`).

A request names a file of a fixed list, so no part of it reaches the file system.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
NAMES = ("page.css", "page.js", "icon.svg", "htmx.min.js", "hx-sse.min.js")


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page."""

    content: bytes
    media_type: str
    digest: str
    """The first characters of its sha256, part of its address so that browsers may keep it."""


@cache
def read_static_files() -> Mapping[str, StaticFile]:
    """Return the files by name."""
    folder = resources.files("epicrisis.server.page").joinpath("static")
    files: dict[str, StaticFile] = {}
    for name in NAMES:
        content = folder.joinpath(name).read_bytes()
        suffix = name[name.rindex(".") :]
        files[name] = StaticFile(content, _MEDIA_TYPES[suffix], hashlib.sha256(content).hexdigest()[:12])
    return files


def static_address(name: str) -> str:
    """Return the address of a file, which changes with its content."""
    return f"/static/{name}?v={read_static_files()[name].digest}"
