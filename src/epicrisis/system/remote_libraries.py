"""Libraries outside the file system, named by a URL such as `postgresql://reader@db.example.org/hospital`.

    folder = library_folder("postgresql://reader@db.example.org/hospital")

Such a library has a folder on this machine as well, private to its user. It holds what no other machine needs: cached
replies, the permission to send notes to other machines, and lists of skipped items. Everything that takes the folder of
a library takes this one. The password of a URL stays in the memory of this process.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from epicrisis.core.errors import InputError
from epicrisis.system.local_only import local_path, open_private

SCHEMES = {"postgresql": "postgresql", "postgres": "postgresql", "s3": "s3"}
"""The schemes of libraries outside the file system, and how each is written here."""
ADDRESS_FILE = "address"
"""The file of the folder with the URL of the library, without its password."""
_REMOTE = "remote"
"""The folder, among the data of this user, of the folders of all libraries with a URL."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}")
_SECRETS = frozenset(("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"))
_NAME = re.compile(r"[^\w.-]+")
_MAX_NAME = 100
_MAX_SCHEMA_BYTES = 63
"""PostgreSQL cuts longer names."""
_RESERVED_SCHEMA = re.compile(r"pg_.*|public|information_schema", re.DOTALL)
"""Schemas of the server, and the one of extensions, whose rights a library would change."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_KEY = re.compile(r"[A-Za-z0-9!_.*'()-]+")
"""A part of a key that needs no escape in any S3 server."""


@dataclass(frozen=True, slots=True)
class LibraryAddress:
    """The URL of a library outside the file system."""

    url: str
    """With the password, if it has one. Never shown or written."""

    def __repr__(self) -> str:
        """Return the URL without its password."""
        return f"<LibraryAddress {self.public}>"

    @property
    def scheme(self) -> str:
        """The scheme, in lower case."""
        return urlsplit(self.url).scheme

    @property
    def public(self) -> str:
        """The URL without password."""
        parts = urlsplit(self.url)
        user, mark, hosts = parts.netloc.rpartition("@")
        parameters = [(name, value) for name, value in parse_parameters(parts.query) if name not in _SECRETS]
        netloc = f"{user.partition(':')[0]}{mark}{hosts}"
        return parts._replace(netloc=netloc, query=format_parameters(parameters), fragment="").geturl()

    @property
    def name(self) -> str:
        """A short name: that of the database, and of the schema if the URL names one; on S3 the end of the key."""
        parts = urlsplit(self.url)
        if parts.scheme == "s3":
            return PurePath(parts.netloc, parts.path.strip("/")).name
        schema = dict(parse_parameters(parts.query)).get("schema", "")
        names = filter(None, (unquote(parts.path).strip("/"), schema))
        return _NAME.sub("-", "-".join(names))[:_MAX_NAME].strip(".") or parts.scheme


def parse_parameters(query: str) -> list[tuple[str, str]]:
    """Return the parameters of a URL as libpq reads them: `+` is no space."""
    return parse_qsl(query.replace("+", "%2B"))


def format_parameters(parameters: Iterable[tuple[str, str]]) -> str:
    """Return the parameters as part of a URL that `parse_parameters` and libpq read."""
    return urlencode(list(parameters), safe="/", quote_via=quote)


_addresses: dict[Path, LibraryAddress] = {}
"""The addresses that this process has been given, by the folder of each library."""
_listeners: list[Callable[[str], object]] = []


def library_folder(library: str | PurePath) -> Path:
    """Return the folder of a library, which is named by this folder or by a URL.

    Raises InputError for a URL that cannot be read, or of an unknown kind.
    """
    match = _URL.match(str(library))
    if match is None or match[1].lower() not in SCHEMES:
        return local_path(library)
    # A path has lost one of the two slashes.
    scheme, rest = SCHEMES[match[1].lower()], str(library)[match.end() :]
    address = _parse_bucket(rest) if scheme == "s3" else _parse(scheme, rest)
    digest = hashlib.sha256(address.public.encode()).hexdigest()[:12]
    folder = _data_folder() / _REMOTE / digest / address.name
    _addresses[folder] = address
    return folder


def find_address(folder: Path) -> LibraryAddress | None:
    """Return the address of the library that this folder represents, or None if the folder is the library.

    An address counts only among the data of this user. A library from elsewhere could name any server.
    """
    if folder in _addresses:
        return _addresses[folder]
    path = folder / ADDRESS_FILE
    if not path.is_file() or (_data_folder() / _REMOTE).resolve() not in path.resolve().parents:
        return None
    try:
        return LibraryAddress(path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path} cannot be read: name the library by its URL") from None


def listen(listener: Callable[[str], object]) -> None:
    """Set the function that receives a sentence before slow work of a library, such as a download."""
    _listeners[:] = [listener]


def announce(sentence: str) -> None:
    """Pass a sentence to the listener, if there is one."""
    for listener in _listeners:
        listener(sentence)


def is_remote(folder: Path) -> bool:
    """Return whether this folder represents a library outside the file system."""
    return find_address(folder) is not None


def record_address(folder: Path, address: LibraryAddress) -> None:
    """Write the address into the folder, without password, so that the folder names the library for later commands."""
    text = f"{address.public}\n"
    path = folder / ADDRESS_FILE
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
        return
    descriptor = open_private(path, os.O_WRONLY | os.O_TRUNC)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def show_library(folder: Path) -> str:
    """Return how a reader names a library: by its folder, or by its URL without password."""
    address = find_address(folder)
    return str(folder) if address is None else address.public


def _parse(scheme: str, rest: str) -> LibraryAddress:
    url = f"{scheme}://{rest}"
    try:
        parts = urlsplit(url)
        # Characters that end a part of a URL would put the end of a password into another part.
        is_readable = "@" not in parts.path and not parts.fragment and parts.netloc.count("@") <= 1
    except ValueError:
        is_readable = False
    if not is_readable:
        raise InputError(
            f"the URL of the library ({scheme}://...) cannot be read: write {scheme}://USER@HOST:PORT/DATABASE, with "
            "/ @ # ? and % of a user or password as %2F %40 %23 %3F and %25"
        )
    schema = dict(parse_parameters(parts.query)).get("schema", "")
    if "\0" in schema or len(schema.encode()) > _MAX_SCHEMA_BYTES or _RESERVED_SCHEMA.fullmatch(schema):
        raise InputError(
            "the schema in the URL of the library is reserved by PostgreSQL, or longer than "
            f"{_MAX_SCHEMA_BYTES} bytes: choose another name, such as schema=ward7"
        )
    return LibraryAddress(url)


def _parse_bucket(rest: str) -> LibraryAddress:
    bucket, *keys = re.split(r"[/\\]", rest.rstrip("/\\"))
    if not _BUCKET.fullmatch(bucket) or not all(_KEY.fullmatch(key) and key.strip(".") for key in keys):
        raise InputError(
            "the URL of the library (s3://...) cannot be read: write s3://BUCKET/FOLDER, with letters, digits and "
            "!_.*'()- in the names of folders"
        )
    return LibraryAddress("/".join((f"s3://{bucket}", *keys)))


def _data_folder() -> Path:
    """Return the folder of this user's data, as the setting `home` names it without a file of settings."""
    if home := os.environ.get("EPICRISIS_HOME"):
        return local_path(home).absolute()
    if data := os.environ.get("XDG_DATA_HOME"):
        return Path(data).absolute() / "epicrisis"
    try:
        return Path("~/.local/share/epicrisis").expanduser()
    except RuntimeError:
        raise InputError(
            "this user has no home folder: set EPICRISIS_HOME to a folder for the data of this user"
        ) from None
