"""The network guard: nothing leaves this machine under --local-only. An audit hook stays for good, so each test that
turns it on does so in a process of its own."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap

import pytest

from epicrisis.privacy import is_local, quiet_logs


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("localhost.", True),
        ("localhost.localdomain", True),
        ("127.0.0.1", True),
        ("127.0.0.2", True),
        ("127.255.255.254", True),
        ("::1", True),
        ("::1%lo", True),
        ("0:0:0:0:0:0:0:1", True),
        ("::ffff:127.0.0.1", True),
        (b"localhost", True),
        (b"127.0.0.1", True),
        ("", True),
        (b"", True),
        (None, True),
        ("0.0.0.0", False),
        ("::", False),
        ("203.0.113.7", False),
        ("::ffff:203.0.113.7", False),
        ("10.0.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("fe80::1%eth0", False),
        ("2001:db8::1", False),
        ("localhost.evil.com", False),
        ("evil.localhost.com", False),
        ("127.0.0.1.evil.com", False),
        ("127.1", False),
        ("0x7f.1", False),
        ("2130706433", False),
        ("example.org", False),
        (b"example.org", False),
        (b"\xff", False),
        (127, False),
    ],
)
def test_what_is_this_machine(host: object, local: bool) -> None:
    assert is_local(host) is local


def run(code: str) -> str:
    """What the code prints, in a fresh interpreter; anything on standard error fails the test."""
    head = """
        import asyncio, socket, threading, urllib.request
        from http.server import BaseHTTPRequestHandler, HTTPServer
        from epicrisis.errors import NetworkRefused
        from epicrisis.privacy import set_local_only

        def outcome(work):
            try:
                work()
            except NetworkRefused as error:
                assert "--local-only" in error.message
                print("refused", error.message.split(" asked for ")[1].split(":")[0])
            except OSError as error:
                print("failed", type(error).__name__)
            else:
                print("done")

        def connect(address, family=socket.AF_INET, kind=socket.SOCK_STREAM):
            with socket.socket(family, kind) as client:
                client.settimeout(0.05)
                client.connect(address)

        async def open_connection(host, port):
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), 0.05)
            writer.close()
            await writer.wait_closed()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def test_remote_hosts_are_refused_whoever_asks() -> None:
    out = run("""
        set_local_only(True)
        outcome(lambda: connect(("203.0.113.7", 80)))
        outcome(lambda: connect(("2001:db8::1", 80, 0, 0), socket.AF_INET6))
        outcome(lambda: connect(("203.0.113.7", 53), kind=socket.SOCK_DGRAM))
        outcome(lambda: connect(("0.0.0.0", 80)))
        outcome(lambda: socket.create_connection(("example.org", 80), 0.05))
        outcome(lambda: socket.getaddrinfo("example.org", 80))
        outcome(lambda: socket.gethostbyname("example.org"))
        outcome(lambda: socket.gethostbyname_ex("example.org"))
        outcome(lambda: socket.gethostbyaddr("203.0.113.7"))
        outcome(lambda: socket.getnameinfo(("203.0.113.7", 80), 0))
        outcome(lambda: asyncio.run(open_connection("203.0.113.7", 80)))
        outcome(lambda: asyncio.run(open_connection("example.org", 80)))
        outcome(lambda: urllib.request.urlopen("http://203.0.113.7/", timeout=0.05))
        outcome(lambda: urllib.request.urlopen("http://example.org/", timeout=0.05))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            outcome(lambda: client.sendto(b"x", ("203.0.113.7", 53)))
            outcome(lambda: client.sendmsg([b"x"], [], 0, ("203.0.113.7", 53)))
    """)
    asked = [line.removeprefix("refused ") for line in out.splitlines()]
    address, name = "203.0.113.7", "example.org"
    assert asked == [
        address,
        "2001",
        address,
        "0.0.0.0",
        name,
        name,
        name,
        name,
        address,
        address,
        address,
        name,
        address,
        name,
        address,
        address,
    ]


def test_this_machine_is_reached_all_the_same() -> None:
    out = run("""
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"here")

            def log_message(self, *arguments):
                pass

        set_local_only(True)
        server = HTTPServer(("127.0.0.1", 0), Handler)
        port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        outcome(lambda: connect(("127.0.0.1", port)))
        outcome(lambda: asyncio.run(open_connection("localhost", port)))
        print(urllib.request.urlopen(f"http://localhost:{port}/").read().decode())
        one, other = socket.socketpair()
        one.sendall(b"pair")
        print(other.recv(4).decode())
        one.sendmsg([b"pair"])
        print(other.recv(4).decode())
        server.shutdown()
    """)
    assert out.split() == ["done", "done", "here", "pair", "pair"]


def test_unix_sockets_are_this_machine() -> None:
    out = run("""
        import os, tempfile
        set_local_only(True)
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            path = os.path.join(folder, "s")
            server.bind(path)
            server.listen()
            outcome(lambda: connect(path, socket.AF_UNIX))
    """)
    assert out.split() == ["done"]


def test_without_the_guard_nothing_is_refused_by_us() -> None:
    """Whether a datagram gets anywhere is the machine's affair: only that we do not refuse it counts."""
    out = run("""
        def send():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.connect(("203.0.113.7", 9))

        outcome(send)
        set_local_only(False)
        outcome(send)
        set_local_only(True)
        outcome(send)
        set_local_only(False)
        outcome(send)
        set_local_only(True)
        outcome(send)
    """)
    lines = out.splitlines()
    assert [line.startswith("refused") for line in lines] == [False, False, True, False, True]


def test_the_libraries_below_log_no_requests() -> None:
    logger = logging.getLogger("openai._base_client")
    before = logging.getLogger("openai").level
    try:
        logging.getLogger("openai").setLevel(logging.DEBUG)
        assert logger.isEnabledFor(logging.DEBUG)
        quiet_logs()
        assert not logger.isEnabledFor(logging.ERROR)
        assert not logging.getLogger("httpx2").isEnabledFor(logging.INFO)
    finally:
        logging.getLogger("openai").setLevel(before)
