"""Network namespaces for the nodes of a cluster: a bridge, and for each node a link that can be cut. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

BRIDGE, HEAD = "epi-br", "10.77.0.1"
"""The bridge, and the address of this machine on it."""
NODES = {"node-0": "10.77.0.2", "node-1": "10.77.0.3"}
"""The namespaces, which have the names of their nodes, and their addresses."""


def may_make_namespaces() -> bool:
    """Return whether this process may make network namespaces."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


@contextmanager
def make_namespaces() -> Iterator[None]:
    """Make the bridge and the namespaces for the time of the block."""
    _remove()
    try:
        _ip(f"link add {BRIDGE} type bridge", f"addr add {HEAD}/24 dev {BRIDGE}", f"link set {BRIDGE} up")
        for name, address in NODES.items():
            _ip(
                f"netns add {name}",
                f"link add v-{name} type veth peer name eth0 netns {name}",
                f"link set v-{name} master {BRIDGE} up",
                f"-n {name} addr add {address}/24 dev eth0",
                f"-n {name} link set eth0 up",
                f"-n {name} link set lo up",
            )
        yield
    finally:
        _remove()


def set_link(name: str, state: str) -> None:
    """Cut the link of a node (`down`), or join it again (`up`)."""
    _ip(f"link set v-{name} {state}")


def _remove() -> None:
    for name in NODES:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"v-{name}"], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


def _ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True, capture_output=True)
