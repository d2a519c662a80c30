"""What the server refuses before a route sees it: hosts, origins, bodies, keys and rates."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import FastAPI
from starlette.datastructures import Headers

from epicrisis.server.api.guards import GuardOptions, RateLimiter, name_cookie
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.http_errors import TooManyRequests
from epicrisis.server.base.public_address import PublicAddress
from epicrisis.server.base.users import USERS_FILE, UserStore
from tests.support.servers import QUESTION, connect, open_library, open_resources, running

ASK = "/api/v1/ask"


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    """The server of four papers, without users."""
    return create_app(open_resources(open_library(tmp_path / "lib")))


@pytest.fixture
def guarded(tmp_path: Path) -> tuple[FastAPI, str]:
    """The server of four papers with one user, and the user's key."""
    key = UserStore(tmp_path / "server" / USERS_FILE).add("maria", "literature-reader")
    return create_app(open_resources(open_library(tmp_path / "lib")), ServerOptions(folder=tmp_path / "server")), key


async def request(app: FastAPI, method: str, path: str, **more: Any) -> httpx2.Response:
    async with connect(app) as client:
        return await client.request(method, path, **more)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:8080"}, 200),
        ({"host": "localhost:9"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:8080"}, 421),
        ({"host": "evil.example:8080", "origin": "http://evil.example:8080"}, 421),
        ({"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"}, 200),
        ({"host": "127.0.0.1:8080", "origin": "http://evil.example"}, 421),
        ({"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:3000"}, 421),
        ({"host": "127.0.0.1:8080", "origin": "null"}, 421),
        ({"host": ""}, 421),
        ({"host": "localhost."}, 421),
        ({"host": "127.0.0.1:@evil.example"}, 421),
        ({"host": "127.0.0.1:8080/evil"}, 421),
        ({"host": "[::1]evil"}, 421),
        ({"host": "[::1]"}, 200),
    ],
)
def test_request_from_rebound_name_is_refused(headers: dict[str, str], status: int, app: FastAPI) -> None:
    """DNS rebinding: a page of another site whose name points at this server."""
    body = {"question": QUESTION, "settings": {"strategy": "evidence"}}
    response = asyncio.run(request(app, "POST", ASK, json=body, headers=headers))
    assert response.status_code == status
    if status == 421:
        assert response.json()["kind"] == "HostRefused"


def test_form_of_another_site_is_refused(app: FastAPI) -> None:
    """A form can be posted across sites without a preflight request; JSON cannot."""
    content = b'{"question": "x"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        response = asyncio.run(request(app, "POST", ASK, content=content, headers={"content-type": kind}))
        assert response.status_code == 422


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/api/v1/libraries/lib/documents/../../../../etc/passwd",
        "/api/v1/libraries/lib/documents/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/api/v1/libraries/..%2f..%2fetc/documents/passwd",
        "/api/v1/libraries/lib/passages//etc/passwd",
        "/api/v1/libraries/%2fetc/patients",
        "/api/v1/libraries/lib%00/patients",
        "/static/../app.py",
    ],
)
def test_path_out_of_server_is_not_found(path: str, app: FastAPI) -> None:
    """Path traversal: ids are looked up in the library, never opened as files."""
    response = asyncio.run(request(app, "GET", path))
    assert response.status_code == 404
    assert "root:" not in response.text


@pytest.mark.slow
def test_line_break_in_id_adds_no_header(app: FastAPI) -> None:
    """Header injection: no header of a response repeats a part of the request."""
    path = "/api/v1/libraries/lib/documents/x%0d%0aSet-Cookie:%20stolen=1"
    response = asyncio.run(request(app, "GET", path))
    assert response.status_code == 404
    assert "set-cookie" not in response.headers
    body = {"question": QUESTION, "library": "lib\r\nSet-Cookie: stolen=1"}
    response = asyncio.run(request(app, "POST", ASK, json=body))
    assert response.status_code == 404
    assert "set-cookie" not in response.headers
    assert not any("stolen" in value for value in response.headers.values())


@pytest.mark.slow
def test_every_response_has_security_headers(app: FastAPI) -> None:
    for path in ("/healthz", "/nowhere", "/api/v1/libraries"):
        response = asyncio.run(request(app, "GET", path))
        assert response.headers["content-security-policy"].startswith("default-src 'self'")
        assert response.headers["x-content-type-options"] == "nosniff"


def test_body_over_limit_is_refused(app: FastAPI) -> None:
    response = asyncio.run(request(app, "POST", ASK, content=b" " * 1_000_001))
    assert response.status_code == 413


@pytest.mark.slow
def test_body_over_limit_without_length_is_refused(app: FastAPI) -> None:
    async def send() -> int:
        async def pieces() -> Any:
            for _ in range(30):
                yield b" " * 100_000

        async with running(app) as address, httpx2.AsyncClient(base_url=address) as client:
            return (await client.post(ASK, content=pieces())).status_code

    assert asyncio.run(send()) == 413


@pytest.mark.slow
def test_slow_body_is_refused_while_others_are_served(tmp_path: Path) -> None:
    async def send() -> tuple[bytes, int]:
        guard = GuardOptions(body_seconds=0.3)
        app = create_app(open_resources(open_library(tmp_path / "lib")), ServerOptions(guard=guard))
        async with running(app) as address, httpx2.AsyncClient(base_url=address) as client:
            place = urlsplit(address)
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            head = f"POST {ASK} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: 1000\r\n\r\n"
            writer.write(head.encode() + b'{"question"')
            await writer.drain()
            body = {"question": QUESTION, "settings": {"strategy": "evidence"}}
            other = await client.post(ASK, json=body)
            line = await asyncio.wait_for(reader.readline(), 5)
            writer.close()
        return line, other.status_code

    line, status = asyncio.run(send())
    assert b" 408 " in line
    assert status == 200


def test_malformed_body_returns_problem(app: FastAPI) -> None:
    for content in (b"{", b"[" * 5000, b"\xff\xfe", b'{"question": "\\ud800"}', b"null", b'"text"'):
        headers = {"content-type": "application/json"}
        response = asyncio.run(request(app, "POST", ASK, content=content, headers=headers))
        assert response.status_code in (400, 422), content
        assert response.json()["cure"]


@pytest.mark.parametrize("path", ["/api/v1/libraries", "/openapi.json", "/metrics", "/nowhere"])
def test_request_without_key_is_refused_if_there_are_users(path: str, guarded: tuple[FastAPI, str]) -> None:
    app, _ = guarded
    response = asyncio.run(request(app, "GET", path))
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"


def test_request_with_key_is_served(guarded: tuple[FastAPI, str]) -> None:
    app, key = guarded
    headers = {"authorization": f"Bearer {key}"}
    assert asyncio.run(request(app, "GET", "/api/v1/libraries", headers=headers)).status_code == 200


@pytest.mark.parametrize("name", ["epicrisis_key", "epicrisis_session", "epicrisis_session_80"])
def test_cookie_with_key_opens_nothing(name: str, guarded: tuple[FastAPI, str]) -> None:
    app, key = guarded
    headers = {"cookie": f"a=b; {name}={key}"}
    assert asyncio.run(request(app, "GET", "/api/v1/libraries", headers=headers)).status_code == 401


@pytest.mark.parametrize(
    ("host", "behind_proxy", "name"),
    [
        *(("127.0.0.1:8010", False, "epicrisis_session_8010"), ("[::1]:9", False, "epicrisis_session_9")),
        *(("localhost", False, "epicrisis_session_80"), ("localhost:8010", True, "__Host-epicrisis_session")),
        ("ward.example.org", False, "__Host-epicrisis_session"),
    ],
)
def test_cookie_is_bound_to_the_origin(host: str, behind_proxy: bool, name: str) -> None:
    assert name_cookie(Headers({"host": host}), PublicAddress(behind_proxy=behind_proxy)) == name


def test_key_guesses_are_slowed_and_right_key_still_works(guarded: tuple[FastAPI, str]) -> None:
    app, key = guarded

    async def guess() -> tuple[list[int], int]:
        async with connect(app) as client:
            statuses = []
            for number in range(30):
                headers = {"authorization": f"Bearer epicrisis-{number}"}
                statuses.append((await client.get("/api/v1/libraries", headers=headers)).status_code)
            right = await client.get("/api/v1/libraries", headers={"authorization": f"Bearer {key}"})
        return statuses, right.status_code

    statuses, right = asyncio.run(guess())
    assert statuses[:20] == [401] * 20
    assert statuses[25:] == [429] * 5
    assert right == 200


def test_part_of_key_and_its_hash_are_refused(guarded: tuple[FastAPI, str], tmp_path: Path) -> None:
    app, key = guarded
    stored = (tmp_path / "server" / USERS_FILE).read_text()
    assert key not in stored
    digest = stored.split('"key_sha256": "')[1].split('"')[0]
    for wrong in (key[:-1], key + "a", key.upper(), digest, "maria", "ключ"):
        headers = {"authorization": f"Bearer {wrong}".encode()}
        assert asyncio.run(request(app, "GET", "/api/v1/libraries", headers=headers)).status_code == 401


def test_removed_user_is_refused_at_once(guarded: tuple[FastAPI, str], tmp_path: Path) -> None:
    app, key = guarded
    store = UserStore(tmp_path / "server" / USERS_FILE)
    store.add("other", "administrator")
    store.remove("maria")
    headers = {"authorization": f"Bearer {key}"}
    assert asyncio.run(request(app, "GET", "/api/v1/libraries", headers=headers)).status_code == 401


def test_server_whose_last_user_was_removed_stays_closed(tmp_path: Path) -> None:
    store = UserStore(tmp_path / "server" / USERS_FILE)
    store.add("maria", "literature-reader")
    guard = GuardOptions(requires_key=True)
    options = ServerOptions(folder=tmp_path / "server", guard=guard)
    app = create_app(open_resources(open_library(tmp_path / "lib")), options)
    store.remove("maria")
    assert asyncio.run(request(app, "GET", "/api/v1/libraries")).status_code == 401


def test_damaged_file_of_users_lets_nobody_in(guarded: tuple[FastAPI, str], tmp_path: Path) -> None:
    app, key = guarded
    (tmp_path / "server" / USERS_FILE).write_text("{")
    response = asyncio.run(request(app, "GET", "/api/v1/libraries", headers={"authorization": f"Bearer {key}"}))
    assert response.status_code == 503
    assert str(tmp_path) not in response.text


def test_user_over_request_rate_waits(tmp_path: Path) -> None:
    clock = [0.0]
    limiter = RateLimiter(lambda: clock[0])
    for _ in range(60):
        limiter.check("maria", 60)
    with pytest.raises(TooManyRequests) as refused:
        limiter.check("maria", 60)
    assert refused.value.retry_after == 1
    limiter.check("otto", 60)
    clock[0] = 1.0
    limiter.check("maria", 60)


def test_fault_of_program_tells_nothing_of_its_text(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise ZeroDivisionError("Anna Schmidt has a secret")

    monkeypatch.setattr(app.state.questions, "prepare", fail)
    response = asyncio.run(request(app, "POST", ASK, json={"question": QUESTION}))
    assert response.status_code == 500
    assert "Anna" not in response.text


@pytest.mark.slow
def test_header_twice_is_refused(app: FastAPI) -> None:
    async def send() -> bytes:
        async with running(app) as address:
            place = urlsplit(address)
            assert place.port is not None
            with socket.create_connection((place.hostname or "", place.port)) as connection:
                connection.setblocking(False)
                loop = asyncio.get_running_loop()
                head = f"GET /healthz HTTP/1.1\r\nHost: {place.netloc}\r\nHost: evil.example\r\n\r\n"
                await loop.sock_sendall(connection, head.encode())
                return await asyncio.wait_for(loop.sock_recv(connection, 100), 5)

    line = asyncio.run(send()).splitlines()[0]
    assert b" 421 " in line or b" 400 " in line
