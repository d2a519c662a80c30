"""The address under which clients reach the server, for the links it makes.

It comes from `--host-name`. Headers such as X-Forwarded-Host and X-Forwarded-Proto are never read, since
every client can send them.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.types import Scope


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """The names that clients use, and whether a proxy encrypts their connections."""

    names: tuple[str, ...] = ()
    """As in a header Host: with the port if it is not that of the scheme. The first is that of links."""
    behind_proxy: bool = False
    has_tls: bool = False
    """The server encrypts by itself."""

    @property
    def is_encrypted(self) -> bool:
        """Whether browsers reach the server by HTTPS, so that they send cookies over nothing else."""
        return self.behind_proxy or self.has_tls

    @property
    def origins(self) -> frozenset[str]:
        """The origins of the server's own pages behind a proxy, which may replace the header Host."""
        return frozenset(f"https://{name}" for name in self.names) if self.behind_proxy else frozenset()

    def find_schemes(self, host: str) -> tuple[str, ...]:
        """Return the schemes of the pages that the server has under this name, given without port."""
        is_encrypted = self.has_tls or (self.behind_proxy and any(split_port(name)[0] == host for name in self.names))
        return ("https",) if is_encrypted else ("http", "https")

    def correct(self, scope: Scope) -> None:
        """Put the public scheme and name into a request from the proxy. Links begin with them."""
        if not self.behind_proxy:
            return
        scope["scheme"] = "https"
        if not self.names:
            return
        headers = MutableHeaders(scope=scope)
        host, _ = split_port(headers.get("host", ""))
        matches = [name for name in self.names if split_port(name)[0] == host]
        headers["host"] = matches[0] if matches else self.names[0]
        scope["headers"] = headers.raw


def split_port(host: str) -> tuple[str, str]:
    """Return the name and the port of a header Host, in lower case; an IPv6 address keeps its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        name, _, port = host.partition("]:") if "]:" in host else (host.removesuffix("]"), "", "")
        return f"{name}]", port
    name, _, port = host.partition(":")
    return name, port
