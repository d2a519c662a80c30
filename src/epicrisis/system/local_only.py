"""Keep data on this machine and private: the network guard of `--local-only`, addresses without secrets, private files,
and silence for the logs and telemetry of dependencies.

The guard is an audit hook below every Python client. It sees each connection and each name look-up, and refuses all
except those of this machine. Native code with its own sockets and child processes do not pass through it: the settings
refuse remote addresses for the former; the latter are only file readers and pip, which is not started.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import socket
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from epicrisis.core.errors import InputError, NetworkRefused, SettingsError

if TYPE_CHECKING:
    import ssl

OWNER_ONLY = 0o600
HAS_OWNERS = hasattr(os, "geteuid")
"""Whether files have owners and modes. Windows has access lists instead: a file there has the rights of its folder."""
TELEMETRY_OFF = {"ORT_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
"""onnxruntime's wheels report usage from native code, unless these are set before they are loaded."""
os.environ.update(TELEMETRY_OFF)

_state = {"installed": False, "local_only": False}
_permitted_hosts: set[str] = set()
_may_connect: ContextVar[bool] = ContextVar("may_connect", default=False)
_is_guarded: ContextVar[bool] = ContextVar("is_guarded", default=False)

# A Path keeps one of the two slashes; a single letter is a drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_NEXT_URL = re.compile(r",\s*(?=[Hh][Tt][Tt][Pp][Ss]?://)")
"""Between the URLs of several endpoints of one model."""
_PUBLIC_PARAMETERS = {"api-version", "model"}
"""Query parameters without secrets. Others may be keys (`?key=...`)."""
_LIBRARIES = (
    "httpx2",
    "httpcore2",
    "httpx",
    "httpcore",
    "lancedb",
    "genai-prices",
    "huggingface_hub",
    "mcp",
    "authlib",
    "boto3",
    "botocore",
    "s3transfer",
    "urllib3",
    "psycopg",
    "ray",
    "opentelemetry",
)
_LOOKUP_EVENTS = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"}


def is_local(host: object) -> bool:
    """Return whether the host is this machine: a loopback address, `localhost`, or empty (Unix sockets).

    Other spellings count as remote: `localhost.` and `localhost.localdomain` are looked up at a name server, and
    `127.1` and `0.0.0.0` mean this machine on some systems only.
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


def set_local_only(on: bool) -> None:
    """Turn the network guard of this process on or off.

    Code that reads settings only turns it on: a second pipeline with weaker settings must not weaken the first. Python
    cannot remove an audit hook, so turning it off only disables it.
    """
    if on:
        _install_guard()
    _state["local_only"] = on


def is_local_only() -> bool:
    """Return whether `--local-only` is on in this process."""
    return _state["local_only"]


def _install_guard() -> None:
    if not _state["installed"]:
        sys.addaudithook(_refuse_remote)
        _state["installed"] = True


@contextmanager
def guard_network() -> Iterator[None]:
    """Refuse connections to other machines inside the block. Other threads and tasks are not affected."""
    _install_guard()
    token = _is_guarded.set(True)
    try:
        yield
    finally:
        _is_guarded.reset(token)


@contextmanager
def permit_host(host: str) -> Iterator[None]:
    """Permit connections to a host inside the block, despite the guard. For hosts without access to library text.

    The look-up of the name runs in other threads, so it stays permitted after the block. It reveals only the name.
    """
    _permitted_hosts.add(host.lower())
    token = _may_connect.set(True)
    try:
        yield
    finally:
        _may_connect.reset(token)


def _refuse_remote(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise NetworkRefused if the audit event contacts another machine."""
    if not (_state["local_only"] or _is_guarded.get()):
        return
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        connection, address = arguments
        if address is None or connection.family == getattr(socket, "AF_UNIX", None):
            return
        host = (address[0] or "0.0.0.0") if isinstance(address, tuple) else address
        if _may_connect.get():
            return
    elif event in _LOOKUP_EVENTS:
        host = arguments[0][0] if event == "socket.getnameinfo" else arguments[0]
        if host in _permitted_hosts:
            return
    else:
        return
    if not is_local(host):
        raise NetworkRefused(
            f"--local-only is on and a connection to {host} was attempted: choose a model on this machine, or leave "
            "out --local-only"
        )


def parse_host(url: str) -> str | None:
    """Return the host of a URL in lower case; None if it has none, or cannot be parsed."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def split_addresses(name: str) -> tuple[str, ...]:
    """Return each address of `URL,URL#MODEL` with the model; a name, a path or a single URL alone."""
    *urls, last = _NEXT_URL.split(name)
    _, mark, model = last.partition("#")
    return (*(f"{url}{mark}{model}" for url in urls), last)


def remote_host(value: str | PurePath) -> str | None:
    """Return the other machine a setting names: a host, a share, or the scheme of a store.

    None for plain names, for local paths and for URLs of this machine.
    """
    text = str(value)
    if text.startswith("\\\\"):
        return text.split("\\")[2] or text
    match = _SCHEME.match(text)
    if match is None:
        return None
    host = parse_host(text)
    if match[1].lower() in ("http", "https"):
        return None if host and is_local(host) else host or strip_secrets(text)
    return f"{match[1]}://{host or ''}"


def local_path(path: str | PurePath) -> Path:
    """Return the path with `~` expanded. Raises InputError for a URI, as only local files and folders are read.

    A value of another type is refused in the same way.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"a path is {type(path).__name__}, and must be text or a pathlib.Path: write it in quotes")
    match = _SCHEME.match(str(path))
    if match is not None:
        raise InputError(
            f"{match[1]}:// is not a folder or file on this machine: copy it here and give the path of the copy"
        )
    return Path(path).expanduser()


def strip_secrets(url: str) -> str:
    """Return the URL without user, password and possible keys in its query. Other text is returned unchanged.

    Of several URLs with commas between them, each.
    """
    if len(urls := _NEXT_URL.split(url)) > 1:
        return ",".join(map(strip_secrets, urls))
    scheme, mark, _ = url.partition("://")
    if not mark or not _SCHEME.match(url):
        return url
    try:
        parts = urlsplit(url)
        readable = parts.port != 0 and "@" not in parts.path and not ("@" in parts.netloc and "@" in parts.fragment)
    except ValueError:
        readable = False
    if not readable:
        # For example a password with an unescaped slash or #: no parser can find its end.
        return f"{scheme}://..."
    query = [(key, value if key in _PUBLIC_PARAMETERS else "...") for key, value in parse_qsl(parts.query)]
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(query, safe=".")).geturl()


def open_private(path: Path, flags: int) -> int:
    """Return a descriptor of a file that only its owner can read and write from the first byte on.

    Creates the file and its folders if needed; the new name is durable. An existing file of this user loses the rights
    of others, for any umask; a file of another user keeps its mode. Raises OSError.
    """
    new = not path.exists()
    if new:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # On Windows a descriptor would else change the ends of lines.
    flags |= os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, OWNER_ONLY)
    if HAS_OWNERS:
        status = os.fstat(descriptor)
        # Only regular files: /dev/stderr belongs to all.
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & 0o777 != OWNER_ONLY:
            os.fchmod(descriptor, OWNER_ONLY)
        if new:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    return descriptor


def replace_file(path: Path, new: Path, pieces: Iterable[bytes]) -> None:
    """Write the pieces to the file `new` for its owner alone, then put it in the place of `path`. Raises OSError."""
    with os.fdopen(open_private(new, os.O_WRONLY | os.O_TRUNC), "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def restrict_to_owner(folder: Path) -> None:
    """Remove all rights of others from a folder and its contents: 0700 for folders, 0600 for files.

    Files of other users and targets of links stay unchanged. File systems without modes are left alone.
    """
    if not HAS_OWNERS:
        return
    # The folder itself may be given as a link; links inside it are not followed.
    _restrict(folder.resolve())
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            _restrict(Path(parent, name))


def _restrict(path: Path) -> None:
    # Another process may delete a file meanwhile, and a mode that cannot be changed is not an error.
    with suppress(OSError):
        status = path.lstat()
        if status.st_uid != os.geteuid() or not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
            return
        mode = 0o700 if stat.S_ISDIR(status.st_mode) else OWNER_ONLY
        if status.st_mode & 0o777 != mode:
            path.chmod(mode)


def silence_dependency_logs() -> None:
    """Stop the dependencies from logging requests, since these may contain patient data.

    Their loggers reach only handlers attached to them directly, regardless of levels set later.
    """
    for name in _LIBRARIES:
        logger = logging.getLogger(name)
        logger.setLevel(logging.CRITICAL)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def make_tls_context(*, secure: bool) -> ssl.SSLContext | bool:
    """Return what checks the certificates of a server, on this machine too: the authorities that the environment names.

    `secure`: whether the address is https; others need no authorities, which take time to load. Raise SettingsError if
    SSL_CERT_FILE or SSL_CERT_DIR cannot be read.
    """
    import httpx2

    if not secure:
        return False
    try:
        context = httpx2.create_ssl_context()
        # httpx reads the folder only without the file; OpenSSL reads both.
        folder = os.environ.get("SSL_CERT_DIR")
        if folder and os.environ.get("SSL_CERT_FILE"):
            context.load_verify_locations(capath=folder)
        return context
    except OSError as error:
        raise SettingsError(
            f"the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read ({error.strerror}): correct the "
            "variable, or unset it"
        ) from None
