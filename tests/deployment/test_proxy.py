"""Which requests the proxy sends again, with servers that only return a status."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.deployment import NAMES, Cluster

# The mark of `make test-deployment`.
pytestmark = pytest.mark.postgresql


class StatusServers:
    """Three servers that are ready, and return `status` to the first request and 200 to all others."""

    def __init__(self, folder: Path) -> None:
        self.status = 200
        self.requests: list[str] = []
        self.cluster = Cluster(folder, 0, "http://127.0.0.1:9/v1#m")
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler()) for _ in NAMES]
        for name, server in zip(NAMES, self._servers, strict=True):
            self.cluster.ports[name] = server.server_port
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """End the proxy and the servers."""
        self.cluster.stop()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def send(self, path: str, status: int) -> tuple[int, int]:
        """Post to the proxy. Return the status of its reply, and how many requests reached the servers."""
        self.status, self.requests[:] = status, []
        with self.cluster.connect() as client:
            return client.post(path, json={}).status_code, len(self.requests)

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(200)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                owner.requests.append(self.path)
                self._reply(owner.status if len(owner.requests) == 1 else 200)

            def _reply(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        return Handler


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StatusServers]:
    servers = StatusServers(tmp_path_factory.mktemp("proxy"))
    try:
        servers.cluster.start_proxy()
        yield servers
    finally:
        servers.close()


def test_write_whose_confirmation_was_lost_is_sent_once(servers: StatusServers) -> None:
    assert servers.send("/api/v1/jobs", 504) == (504, 1)
    assert servers.send("/api/v1/jobs", 500) == (500, 1)


def test_write_that_stored_nothing_is_sent_to_another_server(servers: StatusServers) -> None:
    assert servers.send("/api/v1/jobs", 503) == (200, 2)
