"""Start or join a cluster of Ray, for work too slow on one machine (extra `ray`).

    with join_cluster(parse_cluster("ray://head.example.org:10001")) as ray:
        ...

This process is always a client, even of the cluster that `local` starts here: if the cluster dies, the caller gets a
ClusterError, and this process goes on. A cluster started here listens on this machine only, has its own token, and
keeps its files in a private temporary folder.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epicrisis.core.errors import ClusterError, EpicrisisError, InputError, ModelMissing
from epicrisis.core.printable import printable
from epicrisis.system.local_only import permit_host, silence_dependency_logs

if TYPE_CHECKING:
    import subprocess

LOCAL = "local"
DEFAULT_PORT = 10001
"""The port of Ray's client server."""
REMEDY = "what was finished is kept: run the same command again when the cluster is there"
_SCHEME = "ray://"
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_USAGE_STATS_PROMPT_ENABLED": "0", "RAY_LOG_TO_DRIVER": "0"}
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Read on every system: Ray then uses 127.0.0.1 as the address of this machine, and listens on it alone."""
_CONNECT_SECONDS = 10.0
_START_SECONDS = "240"
"""Ray waits 30 s for its own processes unless told otherwise, which a busy machine may exceed."""
_STOP_SECONDS = 20.0
_OBJECT_STORE_BYTES = 256 << 20
_FAILED_CONNECTIONS = 3


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The cluster that `--on` names: one to start here, or one to join."""

    host: str = "127.0.0.1"
    port: int | None = None
    """None: start a cluster here."""

    def __str__(self) -> str:
        """Return what `--on` was given."""
        return LOCAL if self.port is None else f"{_SCHEME}{self.host}:{self.port}"

    @property
    def is_remote(self) -> bool:
        """Whether text leaves this machine. A cluster joined through this machine may have other nodes."""
        return self.port is not None


def parse_cluster(text: str) -> ClusterAddress:
    """Return the cluster named by `local` or `ray://HOST:PORT` (port 10001 by default). Raises InputError."""
    if text == LOCAL:
        return ClusterAddress()
    host, _, port = text.removeprefix(_SCHEME).rstrip("/").rpartition(":")
    if not host or not port.isascii() or not port.isdecimal():
        host, port = text.removeprefix(_SCHEME).rstrip("/"), str(DEFAULT_PORT)
    if not text.startswith(_SCHEME) or not _HOST.fullmatch(host) or not 0 < int(port) < 1 << 16:
        raise InputError(f"--on {text}: write local, or the cluster's client address, ray://HOST:{DEFAULT_PORT}")
    return ClusterAddress(host, int(port))


@contextmanager
def join_cluster(address: ClusterAddress, cores: int | None = None) -> Iterator[Any]:
    """Start or join the cluster for the time of the block, and give Ray's module.

    `cores` is how many of this machine a cluster started here uses, by default all that this process may use. Raises
    ClusterError if it cannot be started or joined, and for the errors of Ray inside the block; ModelMissing without the
    extra `ray`.
    """
    if importlib.util.find_spec("ray") is None or importlib.util.find_spec("grpc") is None:
        raise ModelMissing('--on needs Ray: pip install "epicrisis[ray]", with the version of the cluster')
    # Ray reads them when it is imported.
    os.environ.update(_QUIET)
    with ExitStack() as resources:
        if not address.is_remote:
            address = resources.enter_context(_start_cluster(cores or len(os.sched_getaffinity(0))))
        ray = _connect(address)
        resources.callback(_disconnect, ray)
        with _translate_errors(ray, address):
            yield ray


def _connect(address: ClusterAddress) -> Any:
    """Return Ray's module, connected as a client. Raises ClusterError."""
    with permit_host(address.host):
        try:
            socket.create_connection((address.host.strip("[]"), address.port or 0), _CONNECT_SECONDS).close()
        except OSError as error:
            raise ClusterError(
                f"no cluster answers at {address} ({printable(str(error))}): name the head node and the port of its "
                f"client server ({DEFAULT_PORT} unless `ray start --ray-client-server-port` says another)"
            ) from None
    import grpc
    import ray

    # Its lines name hosts and, in tracebacks, may quote arguments. Its import, and `init` by default, set the level.
    silence_dependency_logs()
    # Ray's client advises larger tasks once 10 MB have been sent, which every long addition reaches.
    warnings.filterwarnings("ignore", "More than 10MB of messages", UserWarning)
    for attempt in range(_FAILED_CONNECTIONS):
        try:
            with warnings.catch_warnings(action="ignore"):
                ray.init(str(address), configure_logging=False)
        except (OSError, RuntimeError, ray.exceptions.RayError, grpc.RpcError) as error:
            _disconnect(ray)
            if not _may_pass(error) or attempt + 1 == _FAILED_CONNECTIONS:
                raise ClusterError(f"the cluster at {address} cannot be joined: {_explain(error)}") from None
        else:
            break
    return ray


def _may_pass(error: Exception) -> bool:
    """Return whether another attempt to join may succeed.

    Ray waits 30 s for its own process, and a busy head may need longer. Ray also looks through all processes of the
    head, and fails if one ends meanwhile.
    """
    text = str(error)
    return "client server failed" in text or "psutil." in text


def _disconnect(ray: Any) -> None:
    # The connection may be gone already.
    with suppress(Exception):
        ray.shutdown()


@contextmanager
def _translate_errors(ray: Any, address: ClusterAddress) -> Iterator[None]:
    """Raise ClusterError for a lost connection, and for the errors of Ray that no one else explained."""
    try:
        yield
    except ConnectionError as error:
        raise ClusterError(f"the connection to the cluster at {address} was lost: {REMEDY}") from error
    except EpicrisisError:
        raise
    except Exception as error:
        # Ray's client raises a bare Exception too, where a head that is dying no longer knows a task.
        if not isinstance(error, ray.exceptions.RayError) and not _is_raised_in(ray.__name__, error):
            raise
        raise ClusterError(f"the cluster at {address} failed ({type(error).__name__}): {REMEDY}") from error


def _is_raised_in(package: str, error: Exception) -> bool:
    """Return whether the package's code was running when the error was raised."""
    names = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(name.split(".")[0] == package for name in names)


def _explain(error: Exception) -> str:
    """Return the cause in one line, with the cure if it is known."""
    text = str(error)
    if "uthenticat" in text or "auth token" in text.lower():
        return "it wants a token: set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH to the file of its token"
    # Ray says which versions of Python or Ray differ, in a sentence, before advice of several lines.
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = lines[-1] if lines and lines[0].startswith("Initialization failure") else "".join(lines[:1])
    return printable(reason or type(error).__name__)


@contextmanager
def _start_cluster(cores: int) -> Iterator[ClusterAddress]:
    """Start a cluster of this machine alone, give its address, and stop it. Raises ClusterError."""
    import secrets
    import subprocess

    from epicrisis.system.temporary_folders import TemporaryFolder

    port = _find_free_port()
    private = {
        **_LOOPBACK,
        "RAY_raylet_start_wait_time_s": _START_SECONDS,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    with ExitStack() as resources:
        # Ray gives everyone rights in its folder, so that it lies in a private one.
        folder = resources.enter_context(TemporaryFolder("epicrisis-ray-"))
        log = resources.enter_context((folder / "start.log").open("wb"))
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "epicrisis.models.local_cluster"),
                *(str(port), str(cores), str(_OBJECT_STORE_BYTES), str(folder / "r")),
            ],
            env={**os.environ, **private},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # Ctrl-C is for this process, which stops the cluster after its commit.
            start_new_session=True,
        )
        resources.callback(_stop, process)
        if process.stdout is None or not process.stdout.readline():
            lines = (folder / "start.log").read_text(encoding="utf-8", errors="replace").split("\n")
            reason = next((line.strip() for line in reversed(lines) if line.strip()), "no reason was given")
            raise ClusterError(f"Ray could not be started on this machine: {printable(reason)}")
        resources.enter_context(_environment(private))
        yield ClusterAddress("127.0.0.1", port)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the process of the cluster, which stops those of Ray."""
    import subprocess

    try:
        process.communicate(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the time of the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
