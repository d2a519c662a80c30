"""An identity provider on loopback: OpenID Connect with discovery, authorization code and PKCE, and rotating keys."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from html import escape
from typing import Any
from urllib.parse import parse_qsl, urlencode

from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.support.servers import running

CLIENT_ID = "epicrisis"
SECRET = "a secret of this test"
AUDIENCE = "epicrisis-api"
_PAGE = """<!doctype html><html lang="en"><head><title>Hospital</title>
<link rel="icon" href="data:,"></head><body><main><h1>Hospital sign-in</h1>
<form method="post"><input type="hidden" name="query" value="{query}"><label for="user">User</label>
<input id="user" name="user"><button type="submit">Continue</button></form></main></body></html>"""


@cache
def make_key(_: str) -> RSAKey:
    """Return the key of this name, made once for all tests."""
    return RSAKey.generate_key(2048, {"use": "sig"}, auto_kid=True)


@dataclass
class HospitalProvider:
    """The provider of a hospital with one client. Its users have the claims of `people`."""

    people: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            "maria": {"name": "Maria Weber", "roles": ["staff", "clinic-doctor"], "patients": ["1"]},
            "tom": {"preferred_username": "tom", "roles": ["clinic-student"]},
            "guest": {"name": "A Guest", "roles": ["staff"]},
            "nobody": {"name": "No Claim"},
        }
    )
    address: str = ""
    is_down: bool = False
    change_metadata: Callable[[dict[str, Any]], Any] = lambda metadata: metadata
    change_claims: Callable[[dict[str, Any]], Any] = lambda claims: claims
    sign: Callable[[dict[str, Any]], str] | None = None
    """How ID tokens are signed. None: with the current key."""
    change_reply: Callable[[dict[str, Any]], Any] = lambda reply: reply
    asked: list[str] = field(default_factory=list)
    """The paths of the requests."""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: make_key("first"))

    def rotate(self) -> None:
        """Sign with a new key, and publish no other."""
        self.key = make_key("second")

    def make_token(self, user: str = "maria", key: RSAKey | None = None, **claims: Any) -> str:
        """Return an access token for the API, with other claims if given. None removes a claim."""
        now = int(time.time())
        values = {"iss": self.address, "sub": f"id-{user}", "aud": AUDIENCE, "iat": now, "exp": now + 300, "scope": "x"}
        values |= self.people[user] | claims
        return self.encode({name: value for name, value in values.items() if value is not None}, key)

    def encode(self, claims: dict[str, Any], key: RSAKey | None = None, **header: str) -> str:
        """Return the signed claims."""
        chosen = key or self.key
        return jwt.encode({"alg": "RS256", "kid": chosen.kid, **header}, claims, chosen)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[HospitalProvider]:
        """Serve the provider on a free port of loopback."""
        app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._discover),
                Route("/keys", self._list_keys),
                Route("/authorize", self._authorize, methods=["GET", "POST"]),
                Route("/token", self._give_token, methods=["POST"]),
                Route("/end", self._end),
            ]
        )
        async with running(app) as address:
            self.address = address
            yield self

    async def _discover(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        if self.is_down:
            return Response("down", 500)
        metadata = {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "jwks_uri": f"{self.address}/keys",
            "end_session_endpoint": f"{self.address}/end",
            "id_token_signing_alg_values_supported": ["none", "HS256", "RS256"],
            "timeout": 0.000001,
        }
        return JSONResponse(self.change_metadata(metadata))

    async def _list_keys(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        if self.is_down:
            return Response("down", 500)
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def _authorize(self, request: Request) -> Response:
        if request.method == "GET" and "user" not in request.query_params:
            return HTMLResponse(_PAGE.format(query=escape(request.url.query)))
        if request.method == "POST":
            form = dict(parse_qsl((await request.body()).decode()))
            values = dict(parse_qsl(form["query"])) | {"user": form["user"]}
        else:
            values = dict(request.query_params)
        assert values["response_type"] == "code"
        assert values["client_id"] == CLIENT_ID
        assert values["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(8)
        self._codes[code] = values
        query = urlencode({"code": code, "state": values["state"]})
        return RedirectResponse(f"{values['redirect_uri']}?{query}", 303)

    async def _give_token(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        if self.is_down:
            return Response("down", 500)
        form = dict(parse_qsl((await request.body()).decode()))
        expected = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {expected}":
            return JSONResponse({"error": "invalid_client"}, 401)
        started = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        is_right = started is not None and started["code_challenge"] == challenge
        if started is None or not is_right or started["redirect_uri"] != form.get("redirect_uri"):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        user = started["user"]
        claims = {"iss": self.address, "sub": f"id-{user}", "aud": CLIENT_ID, "iat": now, "exp": now + 300}
        claims |= {"nonce": started["nonce"], **self.people[user]}
        claims = self.change_claims(claims)
        id_token = self.sign(claims) if self.sign is not None else self.encode(claims)
        reply = {"access_token": "opaque", "token_type": "Bearer", "expires_in": 300, "id_token": id_token}
        return JSONResponse(self.change_reply(reply))

    async def _end(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        return RedirectResponse(request.query_params["post_logout_redirect_uri"], 303)


def encode_part(value: object) -> str:
    """Return a part of a token as base64."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
