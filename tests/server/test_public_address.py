"""Links, cookies and origins of a server that clients reach under a public name, by TLS or through a proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from epicrisis.server.api.guards import GuardOptions
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.public_address import PublicAddress
from epicrisis.server.base.users import USERS_FILE, UserStore
from tests.support.servers import QUESTION, connect, open_library, open_resources

PUBLIC = "https://answers.example.org"
CHAT = {"model": "epicrisis/rag", "messages": [{"role": "user", "content": QUESTION}]}
FORGED = {"x-forwarded-host": "evil.example", "x-forwarded-proto": "http", "forwarded": "host=evil.example;proto=http"}
HOSTS = frozenset({"127.0.0.1", "answers.example.org", "second.example.org"})


def send(folder: Path, address: PublicAddress, method: str, path: str, **more: Any) -> httpx2.Response:
    """Return the response of a server with one user to a request of that user."""
    key = UserStore(folder / "server" / USERS_FILE).add("maria", "literature-reader")
    options = ServerOptions(folder=folder / "server", guard=GuardOptions(HOSTS, address=address))
    app = create_app(open_resources(open_library(folder / "lib")), options)

    async def request() -> httpx2.Response:
        async with connect(app) as client:
            more["headers"] = {"authorization": f"Bearer {key}", **more.get("headers", {})}
            if path == "/sign-in":
                more["content"] = f"key={key}"
            return await client.request(method, path, **more)

    return asyncio.run(request())


def find_links(response: httpx2.Response) -> list[str]:
    body = response.json()
    annotations = body["choices"][0]["message"]["annotations"]
    return [body["epicrisis"]["page"], *(annotation["url_citation"]["url"] for annotation in annotations)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "host", "base"),
    [
        ("answers.example.org", "answers.example.org", PUBLIC),
        ("answers.example.org", "answers.example.org:8080", PUBLIC),
        # A proxy that puts the address of the server into the header.
        ("answers.example.org", "127.0.0.1:8080", PUBLIC),
        ("answers.example.org:8443", "answers.example.org:8443", f"{PUBLIC}:8443"),
        ("answers.example.org:8443", "127.0.0.1:8080", f"{PUBLIC}:8443"),
        ("answers.example.org", "second.example.org", "https://second.example.org"),
    ],
)
def test_links_behind_proxy_begin_with_public_name(name: str, host: str, base: str, tmp_path: Path) -> None:
    address = PublicAddress((name, "second.example.org"), behind_proxy=True)
    response = send(tmp_path, address, "POST", "/v1/chat/completions", json=CHAT, headers={"host": host, **FORGED})
    links = find_links(response)
    assert len(links) >= 2
    assert all(link.startswith(f"{base}/answers/") for link in links), links


@pytest.mark.slow
def test_forwarded_headers_change_no_link_without_proxy(tmp_path: Path) -> None:
    response = send(tmp_path, PublicAddress(), "POST", "/v1/chat/completions", json=CHAT, headers=FORGED)
    assert all(link.startswith("http://127.0.0.1:8080/answers/") for link in find_links(response))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "is_secure"),
    [
        (PublicAddress(("answers.example.org",), behind_proxy=True), True),
        (PublicAddress(("answers.example.org",), has_tls=True), True),
        (PublicAddress(), False),
    ],
)
def test_cookie_of_key_is_secure_where_browsers_use_https(
    address: PublicAddress, is_secure: bool, tmp_path: Path
) -> None:
    response = send(tmp_path, address, "POST", "/sign-in", headers={"host": "127.0.0.1:8080"})
    assert response.status_code == 303
    assert ("Secure" in response.headers["set-cookie"]) == is_secure


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("answers.example.org", PUBLIC, 303),
        ("127.0.0.1:8080", PUBLIC, 303),
        ("127.0.0.1:8080", "http://127.0.0.1:8080", 303),
        ("answers.example.org", "http://answers.example.org", 421),
        ("127.0.0.1:8080", "http://answers.example.org", 421),
        ("answers.example.org", "https://evil.example", 421),
        ("answers.example.org", f"{PUBLIC}.evil.example", 421),
        ("answers.example.org", f"{PUBLIC}:8443", 421),
        ("evil.example", PUBLIC, 421),
    ],
)
def test_form_behind_proxy_is_accepted_from_own_pages_only(host: str, origin: str, status: int, tmp_path: Path) -> None:
    address = PublicAddress(("answers.example.org",), behind_proxy=True)
    response = send(tmp_path, address, "POST", "/sign-in", headers={"host": host, "origin": origin})
    assert response.status_code == status
