"""Sign in with an identity provider on loopback: the page, access tokens, and everything that may be wrong."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from fastapi import FastAPI
from joserfc import jwt

from epicrisis.core.types import Document
from epicrisis.server.api.guards import GuardOptions
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.public_address import PublicAddress
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.identity.identity_provider import IdentityProvider
from epicrisis.server.identity.identity_provider_settings import IdentityProviderSettings
from tests.support.hospital_provider import AUDIENCE, CLIENT_ID, SECRET, HospitalProvider, encode_part, make_key
from tests.support.pages import Page
from tests.support.reviews import OURS, RIVAL, make_two_runs
from tests.support.servers import BASE, connect, open_library, open_resources, read_access_log

ROLES = {"clinic-doctor": "patient-reader", "clinic-student": "literature-reader", "clinic-admin": "administrator"}
NOTES = [Document(f"note:{id_}", "Aspirin was given.", date="2150-01", patient=id_) for id_ in ("1", "2")]
LIBRARIES = "/api/v1/libraries"
COOKIE = f"epicrisis_session_{urlsplit(BASE).port or 80}"


class Clinic:
    """A server of one library with an identity provider."""

    def __init__(self, folder: Path, hospital: HospitalProvider, **changes: Any) -> None:
        self.hospital = hospital
        self.folder = folder / "server"
        self.seconds = 0.0
        options = {"issuer": hospital.address, "client_id": CLIENT_ID, "roles": ROLES, "audience": AUDIENCE, **changes}
        guard = options.pop("guard", GuardOptions())
        documents, self.runs = options.pop("documents", None), options.pop("runs", None)
        settings = IdentityProviderSettings.model_validate(options)
        self.provider = IdentityProvider(settings, SECRET, clock=lambda: self.seconds)
        self.resources = open_resources(open_library(folder / "lib", documents=documents))
        self.app = self.make_app(guard)

    def make_app(self, guard: GuardOptions) -> FastAPI:
        """Return the application with these checks of requests."""
        return create_app(
            self.resources, ServerOptions(folder=self.folder, guard=guard, provider=self.provider, runs=self.runs)
        )

    async def start(self, client: httpx2.AsyncClient, user: str, address: str = "/sign-in/provider") -> str:
        """Start a sign-in and pass the provider. Return the address of the callback."""
        response = await client.get(address)
        assert response.status_code == 302, response.text
        async with httpx2.AsyncClient() as browser:
            passed = await browser.get(f"{response.headers['location']}&user={user}")
        assert passed.status_code == 303, passed.text
        return str(passed.headers["location"])

    async def sign_in(self, client: httpx2.AsyncClient, user: str = "maria") -> httpx2.Response:
        """Return the response of the callback."""
        return await client.get(await self.start(client, user))


def run(
    folder: Path, steps: Callable[[Clinic, httpx2.AsyncClient], Awaitable[None]], **changes: Any
) -> HospitalProvider:
    """Run the steps of a test with a server, its provider and a browser."""
    hospital = HospitalProvider()

    async def run_steps() -> None:
        async with hospital.serve():
            clinic = Clinic(folder, hospital, **changes)
            async with connect(clinic.app) as client:
                await steps(clinic, client)

    asyncio.run(run_steps())
    return hospital


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.slow
def test_user_of_provider_reads_after_sign_in_and_not_after_sign_out(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        assert (await client.get(LIBRARIES)).status_code == 401
        page = await client.get("/", headers={"accept": "text/html"}, follow_redirects=True)
        assert "/sign-in/provider" in page.text
        assert "127.0.0.1" in page.text
        response = await clinic.sign_in(client)
        assert response.status_code == 303
        assert response.headers["location"] == "/"
        assert (await client.get(LIBRARIES)).status_code == 200
        home = await client.get("/")
        assert "Maria Weber" in home.text
        assert "Host for signing in" in home.text
        cookie = client.cookies[COOKIE]
        signed_out = await client.post("/sign-out")
        assert f"{clinic.hospital.address}/end?" in signed_out.text
        assert COOKIE not in client.cookies
        stolen = await client.get(LIBRARIES, headers={"cookie": f"{COOKIE}={cookie}"})
        assert stolen.status_code == 401

    run(tmp_path, steps)


@pytest.mark.slow
def test_sign_in_leads_back_to_the_page_that_was_asked_for(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        page = await client.get("/libraries?x=1", headers={"accept": "text/html"}, follow_redirects=True)
        start = Page(page.text).one("a", "primary").attributes["href"]
        location = await clinic.start(client, "maria", start)
        assert (await client.get(location)).headers["location"] == "/libraries?x=1"
        # The page of an earlier sign-in is forgotten.
        await client.post("/sign-out")
        assert (await clinic.sign_in(client)).headers["location"] == "/"

    run(tmp_path, steps)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["https://evil.example/", "//evil.example", "/\\evil.example", "/\t/evil.example"])
def test_sign_in_leads_to_no_other_site(place: str, tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        location = await clinic.start(client, "maria", f"/sign-in/provider?{urlencode({'next': place})}")
        assert (await client.get(location)).headers["location"] == "/"

    run(tmp_path, steps)


@pytest.mark.slow
def test_session_cookie_holds_no_token_and_is_read_by_no_script(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        started = await client.get("/sign-in/provider")
        state_cookie = started.headers["set-cookie"].lower()
        assert "httponly" in state_cookie
        assert "samesite=lax" in state_cookie
        assert "path=/sign-in" in state_cookie
        response = await clinic.sign_in(client)
        cookies = [value for value in response.headers.get_list("set-cookie") if value.startswith(f"{COOKIE}=")]
        (cookie,) = cookies
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert "Max-Age=3600" in cookie
        assert "Secure" not in cookie
        assert "eyJ" not in cookie
        assert len(cookie) < 300

    run(tmp_path, steps)


@pytest.mark.slow
def test_authorization_request_has_challenge_state_and_nonce(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        first = parse_qs(urlsplit((await client.get("/sign-in/provider")).headers["location"]).query)
        second = parse_qs(urlsplit((await client.get("/sign-in/provider")).headers["location"]).query)
        assert first["code_challenge_method"] == ["S256"]
        assert first["redirect_uri"] == [f"{BASE}/sign-in/callback"]
        for name in ("state", "nonce", "code_challenge"):
            assert len(first[name][0]) >= 20
            assert first[name] != second[name]

    run(tmp_path, steps)


@pytest.mark.slow
@pytest.mark.parametrize("forge", [lambda id_: f"x{id_[1:]}", lambda id_: id_[:-1], lambda id_: "ключ"])
def test_forged_session_cookie_is_refused(forge: Callable[[str], str], tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        await clinic.sign_in(client)
        forged = forge(client.cookies[COOKIE])
        client.cookies.clear()
        response = await client.get(LIBRARIES, headers=[(b"cookie", f"{COOKIE}={forged}".encode())])
        assert response.status_code == 401

    run(tmp_path, steps)


@pytest.mark.slow
def test_session_ends_after_its_minutes(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        await clinic.sign_in(client)
        clinic.seconds += 5 * 60 - 1
        assert (await client.get(LIBRARIES)).status_code == 200
        clinic.seconds += 2
        assert (await client.get(LIBRARIES)).status_code == 401

    run(tmp_path, steps, session_minutes=5)


@pytest.mark.slow
def test_callback_that_the_browser_did_not_start_is_refused(tmp_path: Path) -> None:
    """A forged state: the link of an attacker would sign the victim in as the attacker."""

    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        link = await clinic.start(client, "maria")
        client.cookies.clear()
        response = await client.get(link)
        assert response.status_code == 403
        assert "This browser did not start this sign-in" in response.text
        assert COOKIE not in client.cookies
        await clinic.start(client, "maria")
        for query in ("", "?code=x", "?state=x", "?code=x&state=forged", "?state=x&error=access_denied"):
            response = await client.get(f"/sign-in/callback{query}")
            assert response.status_code == 403, query
            assert response.headers["content-type"].startswith("text/html")
        response = await client.get("/sign-in/callback?code=x&state=x&iss=https://evil.example")
        assert "another identity provider" in response.text

    run(tmp_path, steps)


@pytest.mark.slow
def test_callback_is_good_for_one_sign_in(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        link = await clinic.start(client, "maria")
        assert (await client.get(link)).status_code == 303
        assert (await client.get(link)).status_code == 403

    run(tmp_path, steps)


@pytest.mark.slow
def test_text_of_error_link_is_not_shown(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        link = "/sign-in/callback?error=Call+0123+<b>now</b>&error_description=Call+0123"
        response = await client.get(link)
        assert response.status_code == 403
        assert "0123" not in response.text

    run(tmp_path, steps)


def sign_with_public_key(hospital: HospitalProvider, claims: dict[str, Any]) -> str:
    """Return a token whose HMAC has the public key as its secret, which everybody knows."""
    head = encode_part({"alg": "HS256", "typ": "JWT", "kid": hospital.key.kid})
    text = f"{head}.{encode_part(claims)}"
    digest = hmac.new(hospital.key.as_pem(private=False), text.encode(), hashlib.sha256).digest()
    return f"{text}.{encode_bytes(digest)}"


def encode_bytes(value: bytes) -> str:
    """Return bytes as a part of a token."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def sign_with_nothing(hospital: HospitalProvider, claims: dict[str, Any]) -> str:
    """Return a token without a signature."""
    return f"{encode_part({'alg': 'none', 'typ': 'JWT', 'kid': hospital.key.kid})}.{encode_part(claims)}."


def sign_with_other_key(_: HospitalProvider, claims: dict[str, Any]) -> str:
    """Return a token signed by another provider."""
    return HospitalProvider(key=make_key("other")).encode(claims)


def sign_with_same_kid(hospital: HospitalProvider, claims: dict[str, Any]) -> str:
    """Return a token with another key under the name of the right one."""
    from joserfc import jwt

    return jwt.encode({"alg": "RS256", "kid": hospital.key.kid}, claims, make_key("other"))


FORGERIES = [sign_with_public_key, sign_with_nothing, sign_with_other_key, sign_with_same_kid]


@pytest.mark.long
@pytest.mark.parametrize("forge", FORGERIES)
def test_forged_id_token_is_refused(forge: Callable[[HospitalProvider, dict[str, Any]], str], tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        clinic.hospital.sign = lambda claims: forge(clinic.hospital, claims)
        response = await clinic.sign_in(client)
        assert response.status_code == 403
        assert "it is not signed by the identity provider" in response.text
        assert COOKIE not in client.cookies

    run(tmp_path, steps)


@pytest.mark.slow
@pytest.mark.parametrize("forge", FORGERIES)
def test_forged_access_token_is_refused(
    forge: Callable[[HospitalProvider, dict[str, Any]], str], tmp_path: Path
) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        right = clinic.hospital.make_token()
        assert (await client.get(LIBRARIES, headers=bearer(right))).status_code == 200
        part = right.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        response = await client.get(LIBRARIES, headers=bearer(forge(clinic.hospital, claims)))
        assert response.status_code == 401
        assert response.json()["kind"] == "TokenRefused"
        assert response.headers["www-authenticate"] == "Bearer"

    run(tmp_path, steps)


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"aud": "another-client"}, "another program"),
        ({"aud": "another-client", "azp": CLIENT_ID}, "another program"),
        ({"aud": [CLIENT_ID, "x"], "azp": "x"}, "another program"),
        ({"nonce": "forged"}, "does not belong to this sign-in"),
        ({"nonce": None}, "is missing"),
        ({"exp": 1_000_000_000}, "expired"),
        ({"exp": None}, "is missing"),
        ({"exp": "soon"}, "expired"),
        ({"iat": 4_000_000_000}, "clocks"),
        ({"nbf": 4_000_000_000}, "clocks"),
        ({"sub": None}, "is missing"),
        ({"sub": 17}, "no text"),
        ({"sub": ""}, "no subject"),
        ({"sub": "with blank"}, "no subject"),
        ({"roles": None}, "sends no claim roles"),
        ({"roles": ["staff"]}, "holds no role of this server"),
        ({"roles": {"a": 1}}, "neither a text nor a list"),
        ({"roles": [["clinic-doctor"]]}, "holds no role"),
        ({"patients": "1, 2", "roles": "clinic-doctor"}, ""),
        ({"patients": [1]}, "no list of patient ids"),
    ],
)
def test_wrong_claim_of_id_token_is_one_clear_page(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        def change(claims: dict[str, Any]) -> dict[str, Any]:
            changed = claims | changes
            return {name: value for name, value in changed.items() if value is not None}

        clinic.hospital.change_claims = change
        response = await clinic.sign_in(client)
        if not reason:
            assert response.status_code == 303
            return
        assert response.status_code == 403
        assert reason in response.text
        assert "Back to the sign-in" in response.text
        assert COOKIE not in client.cookies

    run(tmp_path, steps, patient_claim="patients")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 200),
        ({"iss": "https://evil.example"}, 401),
        ({"aud": CLIENT_ID}, 401),
        ({"aud": [AUDIENCE, "other"]}, 200),
        ({"aud": None}, 401),
        ({"exp": 1_000_000_000}, 401),
        ({"exp": None}, 401),
        ({"exp": "NaN"}, 401),
        ({"nbf": 4_000_000_000}, 401),
        ({"sub": None}, 401),
        ({"sub": ["x"]}, 401),
        ({"roles": None}, 403),
        ({"roles": []}, 403),
        ({"at_hash": "x"}, 401),
        ({"typ": "ID"}, 401),
        ({"nonce": "x", "scope": None}, 401),
        ({"nonce": "x"}, 200),
    ],
)
def test_access_token_is_accepted_only_with_right_claims(changes: dict[str, Any], status: int, tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        response = await client.get(LIBRARIES, headers=bearer(clinic.hospital.make_token(**changes)))
        assert response.status_code == status, response.text
        if status != 200:
            assert response.headers["content-type"] == "application/problem+json"

    run(tmp_path, steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("at+jwt", 200),
        ("application/at+JWT", 200),
        ("JWT", 200),
        ("logout+jwt", 401),
        ("dpop+jwt", 401),
        ("it+jwt", 401),
    ],
)
def test_access_token_is_accepted_only_with_right_type(kind: str, status: int, tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        hospital = clinic.hospital
        claims = jwt.decode(hospital.make_token(), hospital.key).claims
        response = await client.get(LIBRARIES, headers=bearer(hospital.encode(claims, typ=kind)))
        assert response.status_code == status, response.text

    run(tmp_path, steps)


@pytest.mark.slow
def test_clock_skew_of_a_minute_is_accepted(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        now = int(time.time())
        make = clinic.hospital.make_token
        tokens = ((make(exp=now - 50), 200), (make(exp=now - 70), 401), (make(nbf=now + 50), 200))
        for token, status in tokens:
            response = await client.get(LIBRARIES, headers=bearer(token))
            assert response.status_code == status

    run(tmp_path, steps)


@pytest.mark.slow
def test_access_token_is_refused_without_audience(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        response = await client.get(LIBRARIES, headers=bearer(clinic.hospital.make_token(aud=CLIENT_ID)))
        assert response.status_code == 401
        assert "accepts no access tokens" in response.text

    run(tmp_path, steps, audience=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "token", ["a.b.c", "..", "e30.e30.e30", "é.é.é", "eyJhbGciOiJSUzI1NiJ9.W10.AA", "x" * 5000 + ".y.z"]
)
def test_malformed_token_is_no_fault(token: str, tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        response = await client.get(LIBRARIES, headers=[(b"authorization", f"Bearer {token}".encode())])
        assert response.status_code == 401
        assert response.json()["kind"] == "TokenRefused"

    run(tmp_path, steps)


@pytest.mark.slow
def test_new_key_of_provider_is_fetched_and_old_one_forgotten(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        hospital = clinic.hospital
        old = hospital.make_token()
        assert (await client.get(LIBRARIES, headers=bearer(old))).status_code == 200
        hospital.rotate()
        new = hospital.make_token()
        clinic.seconds += 31
        assert (await client.get(LIBRARIES, headers=bearer(new))).status_code == 200
        assert (await client.get(LIBRARIES, headers=bearer(old))).status_code == 401
        fetched = hospital.asked.count("/keys")
        for _ in range(10):
            await client.get(LIBRARIES, headers=bearer(sign_with_other_key(hospital, {})))
        assert hospital.asked.count("/keys") == fetched
        assert (await clinic.sign_in(client)).status_code == 303

    run(tmp_path, steps)


@pytest.mark.slow
def test_keys_are_renewed_every_hour(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        hospital = clinic.hospital
        old = hospital.make_token()
        await client.get(LIBRARIES, headers=bearer(old))
        hospital.rotate()
        assert (await client.get(LIBRARIES, headers=bearer(old))).status_code == 200
        clinic.seconds += 3601
        assert (await client.get(LIBRARIES, headers=bearer(old))).status_code == 401

    run(tmp_path, steps)


@pytest.mark.slow
def test_tokens_are_checked_for_a_day_while_provider_is_down(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        token = clinic.hospital.make_token()
        await client.get(LIBRARIES, headers=bearer(token))
        clinic.hospital.is_down = True
        clinic.seconds += 3601
        assert (await client.get(LIBRARIES, headers=bearer(token))).status_code == 200
        clinic.seconds += 24 * 3600
        fetched = len(clinic.hospital.asked)
        for _ in range(3):
            response = await client.get(LIBRARIES, headers=bearer(token))
            assert response.status_code == 503
            assert response.json()["kind"] == "ProviderFailed"
        assert len(clinic.hospital.asked) <= fetched + 2
        clinic.hospital.is_down = False
        clinic.seconds += 6
        assert (await client.get(LIBRARIES, headers=bearer(token))).status_code == 200

    run(tmp_path, steps)


@pytest.mark.slow
def test_provider_that_is_down_is_one_clear_page(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        clinic.hospital.is_down = True
        response = await client.get("/sign-in/provider")
        assert response.status_code == 503
        assert "The identity provider cannot be used" in response.text
        assert (await client.get("/sign-in")).status_code == 200
        assert (await client.get("/healthz")).status_code == 200
        clinic.hospital.is_down = False
        clinic.seconds += 31
        link = await clinic.start(client, "maria")
        clinic.hospital.is_down = True
        response = await client.get(link)
        assert response.status_code in (403, 503)
        assert response.headers["content-type"].startswith("text/html")

    run(tmp_path, steps)


@pytest.mark.slow
def test_provider_nobody_listens_for_is_one_clear_page(tmp_path: Path) -> None:
    async def steps() -> None:
        hospital = HospitalProvider(address="http://127.0.0.1:9")
        clinic = Clinic(tmp_path, hospital)
        async with connect(clinic.app) as client:
            response = await client.get("/sign-in/provider")
            assert response.status_code == 503
            assert "cannot be reached" in response.text
            token = await client.get(LIBRARIES, headers=bearer(hospital.make_token()))
            assert token.status_code == 503

    asyncio.run(steps())


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("issuer", "http://127.0.0.1:9", "describes another issuer"),
        ("token_endpoint", "http://127.0.0.1:9/token", "on another host"),
        ("jwks_uri", "https://evil.example/keys", "on another host"),
        ("jwks_uri", "http://[", "cannot be read"),
        ("token_endpoint", None, "has no token_endpoint"),
        ("authorization_endpoint", 7, "has no authorization_endpoint"),
        ("authorization_endpoint", "javascript:alert(1)", "not encrypted"),
    ],
)
def test_wrong_description_of_provider_is_one_clear_page(name: str, value: Any, reason: str, tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        clinic.hospital.change_metadata = lambda metadata: metadata | {name: value}
        response = await client.get("/sign-in/provider")
        assert response.status_code == 503
        assert reason in response.text

    run(tmp_path, steps)


@pytest.mark.slow
@pytest.mark.parametrize("reply", [[], "text", {"error": "invalid_grant"}, {"access_token": "x"}, {"id_token": 7}, {}])
def test_strange_reply_of_token_endpoint_is_one_clear_page(reply: Any, tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        clinic.hospital.change_reply = lambda _: reply
        response = await clinic.sign_in(client)
        assert response.status_code in (403, 503)
        assert response.headers["content-type"].startswith("text/html")
        assert "fault of the program" not in response.text

    run(tmp_path, steps)


@pytest.mark.slow
def test_wrong_secret_is_one_clear_page(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        clinic.provider = IdentityProvider(clinic.provider.settings, "another secret")
        clinic.app = clinic.make_app(GuardOptions())
        async with connect(clinic.app) as other:
            response = await clinic.sign_in(other)
        assert response.status_code == 403
        assert "invalid_client" in response.text

    run(tmp_path, steps)


@pytest.mark.slow
def test_roles_of_provider_decide_what_is_read(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        student = bearer(clinic.hospital.make_token("tom"))
        doctor = bearer(clinic.hospital.make_token())
        own = {"patient": "1"}
        other = {"patient": "2"}
        assert (await client.post("/api/v1/patient", json=own, headers=student)).status_code == 403
        assert (await client.post("/api/v1/patient", json=own, headers=doctor)).status_code == 200
        assert (await client.post("/api/v1/patient", json=other, headers=doctor)).status_code == 403
        reason = {**other, "break_glass": "cardiac arrest on arrival"}
        assert (await client.post("/api/v1/patient", json=reason, headers=doctor)).status_code == 200
        entries = read_access_log(clinic.folder)
        opened = [entry for entry in entries if entry["patient"] == "2" and entry["documents"]]
        assert opened[-1]["user"] == f"{clinic.hospital.address}#id-maria Maria Weber"

    run(tmp_path, steps, documents=NOTES, patient_claim="patients")


@pytest.mark.slow
def test_local_user_of_same_name_owns_nothing_of_a_user_of_the_provider(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        key = UserStore(clinic.folder / USERS_FILE).add("tom", "administrator")
        provider_user = bearer(clinic.hospital.make_token("tom"))
        namesake = bearer(clinic.hospital.make_token("tom", sub="id-other"))
        body = {"questions": [{"question": "Which drug was given?"}], "settings": {"strategy": "evidence"}}
        job = (await client.post("/api/v1/jobs", json=body, headers=provider_user)).json()["id"]
        form = {"question": "Which drug was given?", "strategy": "evidence"}
        answer = await client.post("/ask", data=form, headers={**provider_user, "origin": BASE})
        place = str(answer.headers["location"])
        for headers, status in ((provider_user, 200), (bearer(key), 404), (namesake, 404)):
            assert (await client.get(f"/api/v1/jobs/{job}", headers=headers)).status_code == status
            assert (await client.get(place, headers=headers)).status_code == status

    run(tmp_path, steps)


@pytest.mark.slow
def test_limits_of_provider_users_hold_for_each(tmp_path: Path) -> None:
    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        maria, tom = bearer(clinic.hospital.make_token()), bearer(clinic.hospital.make_token("tom"))
        statuses = [(await client.get(LIBRARIES, headers=maria)).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        assert (await client.get(LIBRARIES, headers=tom)).status_code == 200

    run(tmp_path, steps, requests_per_minute=3)


@pytest.mark.slow
def test_job_of_provider_user_waits_for_a_sign_in_after_restart(tmp_path: Path) -> None:
    """The rights of a user of the provider are on no disk."""
    body = {"questions": [{"question": "Which drug was given?"}], "settings": {"strategy": "evidence"}}

    async def wait(client: httpx2.AsyncClient, id_: str, token: dict[str, str]) -> dict[str, Any]:
        status: dict[str, Any] = {"state": "running"}
        while status["state"] == "running":
            await asyncio.sleep(0.02)
            status = (await client.get(f"/api/v1/jobs/{id_}", headers=token)).json()
        return status

    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        token = bearer(clinic.hospital.make_token())
        async with clinic.app.router.lifespan_context(clinic.app):
            id_ = (await client.post("/api/v1/jobs", json=body, headers=token)).json()["id"]
            assert (await wait(client, id_, token))["answers"] == {"answered": 1}
        path = clinic.folder / "jobs" / id_ / "job.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "state": "running"}))
        clinic.provider = IdentityProvider(clinic.provider.settings, SECRET)
        app = clinic.make_app(GuardOptions())
        async with app.router.lifespan_context(app), connect(app) as again:
            await asyncio.sleep(0.1)
            stopped = await wait(again, id_, token)
            assert stopped["state"] == "stopped"
            assert "sign in, and resume the job" in stopped["problem"]
            await again.post(f"/api/v1/jobs/{id_}/resume", headers=token)
            assert (await wait(again, id_, token))["state"] == "done"

    run(tmp_path, steps)


@pytest.mark.slow
def test_public_name_is_in_redirect_and_cookies_are_secure_behind_proxy(tmp_path: Path) -> None:
    address = PublicAddress(("answers.example.org",), behind_proxy=True)
    hosts = frozenset({"127.0.0.1", "answers.example.org"})

    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        forwarded = {"x-forwarded-host": "evil.example", "x-forwarded-proto": "http", "forwarded": "host=evil.example"}
        started = await client.get("/sign-in/provider", headers=forwarded)
        query = parse_qs(urlsplit(started.headers["location"]).query)
        assert query["redirect_uri"] == ["https://answers.example.org/sign-in/callback"]
        assert "secure" in started.headers["set-cookie"].lower()

    run(tmp_path, steps, guard=GuardOptions(hosts, address=address))


@pytest.mark.long
def test_users_of_provider_are_listed_as_reviewers_for_a_day(tmp_path: Path) -> None:
    runs = make_two_runs(tmp_path)

    async def steps(clinic: Clinic, client: httpx2.AsyncClient) -> None:
        clinic.hospital.people["boss"] = {"name": "Boss", "roles": ["clinic-admin"]}
        await clinic.sign_in(client)
        await clinic.sign_in(client, "boss")
        form = Page((await client.get("/reviews/new")).text)
        choices = [field.attributes["value"] for field in form.all("input") if field.attributes["name"] == "reviewer"]
        assert "Maria Weber" in form.one("main").text
        fields = {"ours": OURS, "rival": RIVAL, "reviewer": choices[0]}
        started = await client.post("/reviews", data=fields)
        assert started.status_code == 303, started.text
        assert "Maria Weber" in (await client.get(started.headers["location"])).text
        clinic.seconds += 24 * 3600 + 1
        await clinic.sign_in(client, "boss")
        assert "Maria Weber" not in (await client.get("/reviews/new")).text
        assert (await client.post("/reviews", data=fields)).status_code == 422

    run(tmp_path / "clinic", steps, runs=runs)
