"""What may leave this machine: the network guard of `--local-only`, and quiet logs.

The guard is an audit hook below every Python client: it sees each connection and each name look-up and refuses all but
this machine, whoever asks. Native code that opens sockets of its own does not pass here; the settings refuse remote
addresses for such parts.
"""

from __future__ import annotations

import ipaddress
import logging
import sys
from typing import Any

from epicrisis.errors import NetworkRefused

_state = {"installed": False, "local_only": False}


def is_local(host: object) -> bool:
    """True for this machine's own loopback names and addresses, and for Unix sockets (no host at all)."""
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host is None or host == "":
        return True
    if not isinstance(host, str):
        return False
    if host.lower().rstrip(".") in ("localhost", "localhost.localdomain"):
        return True
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _refuse(host: object) -> None:
    raise NetworkRefused(
        f"--local-only is on and something asked for {host}: name a model on this machine, or leave --local-only out"
    )


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _state["local_only"]:
        return
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        if isinstance(address, tuple) and not is_local(address[0]):
            _refuse(address[0])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"):
        host = arguments[0][0] if event == "socket.getnameinfo" else arguments[0]
        if not is_local(host):
            _refuse(host)


def set_local_only(on: bool) -> None:
    """Turns the guard on or off for this process. The hook itself, once installed, stays (Python has no way back)."""
    if on and not _state["installed"]:
        sys.addaudithook(_hook)
        _state["installed"] = True
    _state["local_only"] = on


def quiet_logs() -> None:
    """Keeps the libraries below from logging requests: their texts may be a patient's."""
    for name in ("openai", "httpx2", "httpcore2", "httpx", "httpcore", "lancedb"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
