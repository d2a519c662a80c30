"""What may leave this machine, and what may be written down: the network guard of `--local-only`, which names are
another machine's, addresses without their secrets, private files, and libraries below that neither report nor log.

The guard is an audit hook below every Python client: it sees each connection and each name look-up and refuses all but
this machine, whoever asks. Native code that opens sockets of its own and child processes do not pass here: for the one
the settings refuse remote addresses, of the others there are readers of files and pip, which is not started. Knows no
settings and no client.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from epicrisis.errors import InputError, NetworkRefused

OWNER_ONLY = 0o600

_state = {"installed": False, "local_only": False}

# A Path has one of the two slashes left; a single letter is a drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_OPEN_PARAMETERS = {"api-version", "model"}
"""Of a URL's query: what is no secret. Keys travel there too (`?key=...`)."""

TELEMETRY_OFF = {"ORT_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
"""onnxruntime's wheels report to their maker, from native code, unless told otherwise before they are loaded."""
os.environ.update(TELEMETRY_OFF)

_LIBRARIES = ("openai", "httpx2", "httpcore2", "httpx", "httpcore", "lancedb", "genai-prices", "huggingface_hub")


def is_local(host: object) -> bool:
    """True for loopback addresses, `localhost`, and no host at all (Unix sockets).

    Other spellings are another machine's: `localhost.` and `localhost.localdomain` are looked up at a name server,
    `127.1` and `0.0.0.0` mean this machine on some systems alone.
    """
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host is None or host == "":
        return True
    if not isinstance(host, str):
        return False
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


# -- the guard ------------------------------------------------------------------------------------------------------


def set_local_only(on: bool) -> None:
    """Turns the guard on or off for this process. The hook itself, once installed, stays (Python has no way back).

    Whoever reads settings turns it on and never off: a second pipeline that asks for less must not loosen what the
    first was promised. Off is for a caller who says so.
    """
    if on and not _state["installed"]:
        sys.addaudithook(_hook)
        _state["installed"] = True
    _state["local_only"] = on


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _state["local_only"]:
        return
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        asker, address = arguments
        if address is None or asker.family == getattr(socket, "AF_UNIX", None):
            return
        host = (address[0] or "0.0.0.0") if isinstance(address, tuple) else address
        if not is_local(host):
            _refuse(host)
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"):
        host = arguments[0][0] if event == "socket.getnameinfo" else arguments[0]
        if not is_local(host):
            _refuse(host)


def _refuse(host: object) -> None:
    raise NetworkRefused(
        f"--local-only is on and something asked for {host}: name a model on this machine, or leave --local-only out"
    )


# -- addresses ------------------------------------------------------------------------------------------------------


def parse_host(url: str) -> str | None:
    """The host of a URL, lower-cased; `None` where it has none, or none that can be read."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def remote_host(value: str | PurePath) -> str | None:
    """What beyond this machine a setting names: a host, a share, or the scheme of a store. `None` for plain names, for
    local paths and for URLs of this machine."""
    text = str(value)
    if text.startswith("\\\\"):
        return text.split("\\")[2] or text
    found = _SCHEME.match(text)
    if found is None:
        return None
    host = parse_host(text)
    if found[1].lower() in ("http", "https"):
        return None if host and is_local(host) else host or strip_secrets(text)
    return f"{found[1]}://{host or ''}"


def local_path(path: str | PurePath) -> Path:
    """The path, `~` expanded. Raises InputError for a URI: only folders and files of this machine are read."""
    found = _SCHEME.match(str(path))
    if found is not None:
        raise InputError(f"{found[1]}:// is no folder or file of this machine: copy it here and name the copy")
    return Path(path).expanduser()


def strip_secrets(url: str) -> str:
    """The URL without user, password and what its query may hold of keys. Whatever is no URL stays as it is."""
    scheme, mark, _ = url.partition("://")
    if not mark or not _SCHEME.match(url):
        return url
    try:
        parts = urlsplit(url)
        readable = parts.port != 0 and "@" not in parts.path and not ("@" in parts.netloc and "@" in parts.fragment)
    except ValueError:
        readable = False
    if not readable:
        # Such as a password with a slash or a # in it that nobody escaped: where it ends, no reader of URLs can tell.
        return f"{scheme}://..."
    query = [(key, value if key in _OPEN_PARAMETERS else "...") for key, value in parse_qsl(parts.query)]
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(query, safe=".")).geturl()


# -- files ----------------------------------------------------------------------------------------------------------


def open_private(path: Path, flags: int) -> int:
    """A descriptor of the file, readable and writable by its owner alone from its first byte on.

    It is made where it is not there, in a folder that is made likewise; its name is durable there. Whoever else could
    read the file so far no longer can, whatever the umask; a file of another owner stays as it is. Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = not path.exists()
    descriptor = os.open(path, flags | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), OWNER_ONLY)
    if os.name == "posix":
        there = os.fstat(descriptor)
        # Not what is no file: /dev/stderr is everybody's.
        if stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid() and there.st_mode & 0o777 != OWNER_ONLY:
            os.fchmod(descriptor, OWNER_ONLY)
        if new:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    return descriptor


def restrict_to_owner(folder: Path) -> None:
    """Take every right of others from a folder and all that is in it: 0700 for folders, 0600 for files.

    What another user owns stays as it is, and so does what a link points to. A file system that keeps no modes takes
    none.
    """
    if os.name != "posix":
        return
    # The folder may be named by a link; what lies in it is not followed.
    _close(folder.resolve())
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            _close(Path(place, name))


def _close(path: Path) -> None:
    # A writer beside this one may remove a file meanwhile; a mode that cannot be changed is no reason to fail.
    with suppress(OSError):
        there = path.lstat()
        if there.st_uid != os.geteuid() or not (stat.S_ISDIR(there.st_mode) or stat.S_ISREG(there.st_mode)):
            return
        wanted = 0o700 if stat.S_ISDIR(there.st_mode) else OWNER_ONLY
        if there.st_mode & 0o777 != wanted:
            path.chmod(wanted)


# -- the libraries below --------------------------------------------------------------------------------------------


def silence_dependency_logs() -> None:
    """Keeps the libraries below from logging requests: their texts may be a patient's.

    What their loggers say reaches no handler but one that was put on them directly, whatever level they are set to
    later. OpenAI's client sets its own where OPENAI_LOG asks for that when it is imported, and gives the root logger a
    handler that would show everybody's: it is not told.
    """
    os.environ.pop("OPENAI_LOG", None)
    for name in _LIBRARIES:
        logger = logging.getLogger(name)
        logger.setLevel(logging.CRITICAL)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
