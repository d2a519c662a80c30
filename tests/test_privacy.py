"""The network guard: nothing leaves this machine under --local-only. An audit hook stays for good, so each test that
turns it on does so in a process of its own. And what is written down: addresses, files, logs of the libraries below."""

from __future__ import annotations

import ast
import logging
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

import epicrisis
from epicrisis.core.errors import InputError
from epicrisis.system.local_only import (
    is_local,
    local_path,
    open_private,
    parse_host,
    remote_host,
    silence_dependency_logs,
    strip_secrets,
)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        # These two are looked up at a name server, where the machine's own list does not have them.
        ("localhost.", False),
        ("localhost.localdomain", False),
        ("foo.localhost", False),
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
def test_is_local_host_recognizes_this_machine(host: object, local: bool) -> None:
    assert is_local(host) is local


def run(code: str) -> str:
    """What the code prints, in a fresh interpreter; anything on standard error fails the test."""
    head = """
        import asyncio, socket, threading, urllib.request
        from http.server import BaseHTTPRequestHandler, HTTPServer
        from epicrisis.core.errors import NetworkRefused
        from epicrisis.system.local_only import set_local_only

        def outcome(work):
            try:
                work()
            except NetworkRefused as error:
                assert "--local-only" in error.message
                print("refused", error.message.split(" connection to ")[1].split(" was ")[0])
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


@pytest.mark.slow
def test_guard_permits_one_host_inside_its_block_only() -> None:
    out = run("""
        from epicrisis.system.local_only import permit_host

        set_local_only(True)
        outcome(lambda: socket.getaddrinfo("login.invalid", 443))
        with permit_host("login.invalid"):
            outcome(lambda: socket.getaddrinfo("login.invalid", 443))
            outcome(lambda: socket.getaddrinfo("other.invalid", 443))
            outcome(lambda: connect(("203.0.113.7", 443)))
            thread = threading.Thread(target=outcome, args=(lambda: connect(("203.0.113.7", 443)),))
            thread.start()
            thread.join()
        outcome(lambda: connect(("203.0.113.7", 443)))
    """)
    before, name, other, inside, elsewhere, after = out.splitlines()
    assert before == "refused login.invalid"
    assert not name.startswith("refused")
    assert other == "refused other.invalid"
    assert not inside.startswith("refused")
    assert elsewhere == after == "refused 203.0.113.7"


@pytest.mark.slow
def test_guard_rejects_remote_hosts_for_all_clients() -> None:
    out = run("""
        set_local_only(True)
        outcome(lambda: connect(("203.0.113.7", 80)))
        outcome(lambda: connect(("2001:db8::1", 80, 0, 0), socket.AF_INET6))
        outcome(lambda: connect(("203.0.113.7", 53), kind=socket.SOCK_DGRAM))
        outcome(lambda: connect(("0.0.0.0", 80)))
        outcome(lambda: connect(("", 80)))
        outcome(lambda: connect(("::ffff:203.0.113.7", 80, 0, 0), socket.AF_INET6))
        outcome(lambda: connect(("fe80::1%1", 80, 0, 1), socket.AF_INET6))
        outcome(lambda: socket.getaddrinfo("localhost.", 80))
        outcome(lambda: socket.getaddrinfo("2130706433", 80))
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
        with socket.socket() as client:
            outcome(lambda: client.connect_ex(("203.0.113.7", 80)))
    """)
    asked = [line.removeprefix("refused ") for line in out.splitlines()]
    address, name = "203.0.113.7", "example.org"
    assert asked == [
        address,
        "2001:db8::1",
        address,
        "0.0.0.0",
        "0.0.0.0",
        "::ffff:203.0.113.7",
        "fe80::1%1",
        "localhost.",
        "2130706433",
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
        address,
    ]


@pytest.mark.slow
def test_guard_applies_below_http_clients() -> None:
    """Mail, file transfer, HTTP, whatever stands on sockets."""
    out = run("""
        import ftplib, http.client, smtplib
        set_local_only(True)
        outcome(lambda: http.client.HTTPConnection("203.0.113.7", timeout=0.05).connect())
        outcome(lambda: ftplib.FTP("203.0.113.7", timeout=0.05))
        outcome(lambda: smtplib.SMTP("203.0.113.7", timeout=0.05))

        async def datagram():
            await asyncio.get_running_loop().create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=("203.0.113.7", 53)
            )

        outcome(lambda: asyncio.run(datagram()))
    """)
    assert out.splitlines() == ["refused 203.0.113.7"] * 4


@pytest.mark.slow
def test_guard_stays_after_second_caller_disables_it() -> None:
    """A pipeline opened without --local-only beside one with it."""
    out = run("""
        from epicrisis.pipeline.pipeline import Pipeline
        from epicrisis.settings.configuration import load_settings
        closed = {"cache": {"mode": "off"}, "strategy": "closed-book"}
        first = {"models": {"writer": {"name": "http://127.0.0.1:9/v1"}}, "local_only": True}
        second = {"models": {"writer": {"name": "http://203.0.113.7:9/v1"}}}
        Pipeline.open(load_settings({**closed, **first}), None)
        Pipeline.open(load_settings({**closed, **second}), None)
        outcome(lambda: connect(("203.0.113.7", 80)))
    """)
    assert out.split() == ["refused", "203.0.113.7"]


@pytest.mark.slow
def test_guard_allows_local_connections() -> None:
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


@pytest.mark.slow
def test_guard_allows_unix_sockets() -> None:
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


@pytest.mark.slow
def test_connections_without_guard_are_not_rejected() -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("first", ["httpx2", "epicrisis.system.local_only"])
def test_http_libraries_log_no_requests(first: str) -> None:
    code = f"""
import {first}, logging
from epicrisis.system.local_only import silence_dependency_logs
silence_dependency_logs()
import httpx2
for name in ("httpx2", "httpcore2.http11", "lancedb"):
    logging.getLogger(name).setLevel(logging.DEBUG)
    logging.getLogger(name).critical("a patient")
logging.getLogger("another").critical("somebody else")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "a patient" not in done.stdout + done.stderr
    assert "somebody else" in done.stderr


def test_custom_handler_of_library_is_kept() -> None:
    logger = logging.getLogger("lancedb")
    handler = logging.NullHandler()
    logger.addHandler(handler)
    try:
        silence_dependency_logs()
        assert handler in logger.handlers
    finally:
        logger.removeHandler(handler)


@pytest.mark.slow
def test_library_telemetry_is_disabled() -> None:
    """onnxruntime does, from native code, from its first moment on: the word is given when this package is loaded."""
    code = "import epicrisis.system.local_only, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


@pytest.mark.long
def test_modules_with_processes_and_loggers_are_listed() -> None:
    """Children do not pass the guard: pip, asked for its settings or refused, git, asked of the checkout, NVIDIA's
    driver, asked for its cards, readers of files, and an import, which turns the guard on itself. A second logger would
    not pass the list of what may be logged: that of the server states the type and place of a fault alone, that of
    telemetry the host of the collector, and the MCP server keeps its package from the root logger."""
    imported: dict[str, set[str]] = {"subprocess": set(), "logging": set(), "multiprocessing": set()}
    source = Path(epicrisis.__file__).parent
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in imported.keys() & set(names):
                imported[name].add(str(PurePosixPath(path.relative_to(source))))
    assert imported == {
        "subprocess": {
            "models/hardware.py",
            "models/model_files.py",
            "cli/doctor.py",
            "models/cluster.py",
            "corpus/documents/ocr.py",
            "corpus/sandbox.py",
            "evaluation/runs/run_folder.py",
            "server/work/import_process.py",
        },
        "logging": {
            "system/local_only.py",
            "system/logs.py",
            "cli/serve.py",
            "corpus/references/reference_entries.py",
            "library/object_storage/replica.py",
            "server/base/error_log.py",
            "server/api/mcp_server.py",
            "server/base/private_folder.py",
            "system/telemetry_export.py",
        },
        "multiprocessing": {"corpus/articles/pubmed.py"},
    }


# -- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:pass@host:80/v1#m", "http://host:80/v1#m"),
        ("http://key@host/v1", "http://host/v1"),
        ("HTTPS://user:pass@Host/v1", "https://Host/v1"),
        ("https://host/v1?key=secret&api-version=2024-10-21", "https://host/v1?key=...&api-version=2024-10-21"),
        ("https://host/v1?secret", "https://host/v1"),
        ("bedrock://us-east-1#m", "bedrock://us-east-1#m"),
        ("s3://key:secret@bucket/x", "s3://bucket/x"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://user:pa/ss@host/v1", "http://..."),
        ("http://user:12/ss@host/v1", "http://..."),
        ("http://user:pa#ss@host/v1", "http://..."),
        ("http://user:pa@#ss@host/v1", "http://..."),
        ("http://[::1", "http://..."),
        ("http://host/v1#@cf/model", "http://host/v1#@cf/model"),
        ("minilm", "minilm"),
        ("./models/a@b.gguf", "./models/a@b.gguf"),
        ("C:/models/a.gguf", "C:/models/a.gguf"),
        ("", ""),
    ],
)
def test_strip_secrets_removes_credentials_from_url(url: str, shown: str) -> None:
    assert strip_secrets(url) == shown


_SAFE = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8)


@pytest.mark.slow
@given(user=_SAFE, password=st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1), host=_SAFE)
def test_strip_secrets_removes_any_password(user: str, password: str, host: str) -> None:
    secret = f"Q{password}Q"
    shown = strip_secrets(f"http://{user}:{secret}@{host}.org/v1")
    assert secret not in shown
    assert "@" not in shown


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("minilm", None),
        ("./s3/model.gguf", None),
        ("http://127.0.0.1:8000/v1#m", None),
        ("http://LOCALHOST/v1", None),
        ("http://[::1]:8000", None),
        ("C:/models", None),
        ("http://host/v1", "host"),
        ("HTTP://Host/v1", "host"),
        ("http://user:secret@host/v1", "host"),
        ("http://127.0.0.1@host/v1", "host"),
        ("http://127.0.0.1.host/v1", "127.0.0.1.host"),
        ("http://localhost./v1", "localhost."),
        ("http:///v1", "http:///v1"),
        ("http://[::1", "http://..."),
        ("s3://key:secret@bucket/x", "s3://bucket"),
        ("hf://models/x", "hf://models"),
        ("az://box/x", "az://box"),
        ("bedrock://us-east-1#m", "bedrock://us-east-1"),
        ("\\\\server\\share\\x", "server"),
        (PurePosixPath("gs://bucket/x"), "gs://"),
        (PurePosixPath("/data/http:/x"), None),
    ],
)
def test_remote_host_returns_host_of_url(value: str | PurePosixPath, place: str | None) -> None:
    assert remote_host(value) == place


@pytest.mark.parametrize("path", ["s3://bucket/x", "gs://b", "az://b/x", "hf://m/x", "http://h/x", "file:///x"])
def test_local_path_rejects_urls(path: str) -> None:
    for written in (path, Path(path)):
        with pytest.raises(
            InputError, match=f"{path.split(':')[0]}:// is not a folder or file on this machine: copy it"
        ):
            local_path(written)


def test_local_path_expands_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    assert local_path("~/lib") == Path("/home/anna/lib")
    assert local_path(Path("a:b/c")) == Path("a:b/c")


@pytest.mark.slow
@given(st.text())
def test_remote_host_accepts_any_text(text: str) -> None:
    for url in (text, f"http://{text}"):
        assert parse_host(url) is None or isinstance(parse_host(url), str)
        assert isinstance(strip_secrets(url), str)
        assert remote_host(url) is None or isinstance(remote_host(url), str)


# -- files ----------------------------------------------------------------------------------------------------------


def test_private_files_have_owner_permissions(tmp_path: Path) -> None:
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    made, open_to_all = tmp_path / "new" / "made", tmp_path / "open"
    open_to_all.write_text("kept")
    open_to_all.chmod(0o644)
    before = os.umask(0)
    try:
        for path in (made, open_to_all):
            os.close(open_private(path, os.O_WRONLY | os.O_APPEND))
    finally:
        os.umask(before)
    assert (mode(made), mode(open_to_all), mode(made.parent)) == (0o600, 0o600, 0o700)
    assert open_to_all.read_text() == "kept"


def test_non_file_keeps_mode() -> None:
    before = Path("/dev/null").stat().st_mode
    os.close(open_private(Path("/dev/null"), os.O_WRONLY | os.O_APPEND))
    assert Path("/dev/null").stat().st_mode == before


def test_run_recipe_contains_no_secret() -> None:
    """It stands in every line of a run's records."""
    from epicrisis.pipeline.pipeline import Pipeline
    from epicrisis.settings.configuration import load_settings

    planted = "s3cr3t"
    name = f"http://user:{planted}@127.0.0.1:9/v1?key={planted}#m"
    settings = load_settings(
        {
            "models": {role: {"name": name} for role in ("writer", "map", "reduce")},
            "rerank": {"name": name},
            "cache": {"mode": "off"},
            "strategy": "closed-book",
        }
    )
    recipe = str(Pipeline.open(settings, None).recipe())
    assert "127.0.0.1:9/v1" in recipe
    assert planted not in recipe
