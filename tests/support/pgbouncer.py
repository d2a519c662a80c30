"""A PgBouncer in front of a test's server, from the package pgbouncer."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.postgresql_server import PASSWORDS, PostgresqlServer, find_free_port

PROGRAM = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
_CONFIGURATION = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = plain
auth_file = {users}
pool_mode = {mode}
max_client_conn = 200
default_pool_size = 20
logfile = {folder}/log
pidfile =
"""


@contextmanager
def run_pgbouncer(server: PostgresqlServer, mode: str) -> Iterator[int]:
    """Run PgBouncer in this mode, `session` or `transaction`, and return its port."""
    assert PROGRAM is not None
    folder = server.folder / f"pgbouncer-{mode}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    users = folder / "users"
    users.write_text("".join(f'"{name}" "{password}"\n' for name, password in PASSWORDS.items()))
    own = find_free_port()
    values = {"host": server.host, "port": server.port, "own": own, "users": users, "mode": mode, "folder": folder}
    (folder / "pgbouncer.ini").write_text(_CONFIGURATION.format(**values))
    process = server.spawn(PROGRAM, folder / "pgbouncer.ini")
    try:
        _wait_for(own, process)
        yield own
    finally:
        process.terminate()
        process.wait(timeout=30)
        shutil.rmtree(folder)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(100):
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None
        time.sleep(0.05)
