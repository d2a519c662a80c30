"""Sign in to the page with a key, on a server that has users. The key becomes a cookie that no script can read."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from epicrisis.server.guards import SESSION_COOKIE, SIGN_IN_PATH, WRONG_KEYS_PER_MINUTE, RateLimiter
from epicrisis.server.page.page_route import PageRoute
from epicrisis.server.page.rendering import html_response, render
from epicrisis.server.users import UserStore

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_MAX_FORM = 1_000
"""Bytes of the form. A longer one holds no key, and reading it would take time from others."""
_WRONG_KEY = "This key belongs to nobody. Copy all of it, as `epicrisis users add` printed it."


def make_sign_in_routes(users: UserStore | None) -> APIRouter:
    """Return the routes that set and clear the cookie of the page. Guesses of keys are limited for each address."""
    router = APIRouter(route_class=PageRoute, include_in_schema=False, default_response_class=Response)
    guesses = RateLimiter()

    @router.get(SIGN_IN_PATH)
    async def sign_in_page() -> Response:
        return html_response(render("sign_in", fault=""))

    @router.post(SIGN_IN_PATH)
    async def sign_in(request: Request) -> Response:
        body = (await request.body()).decode("ascii", "replace")
        fields = dict(parse_qsl(body)) if len(body) <= _MAX_FORM else {}
        key = fields.get("key", "").strip()
        if users is None or await asyncio.to_thread(users.find, key) is None:
            # Only wrong keys count. Behind a proxy all senders have one address, and nobody may lock out the others.
            guesses.check(request.client.host if request.client else "unknown", WRONG_KEYS_PER_MINUTE)
            return html_response(render("sign_in", fault=_WRONG_KEY), 401)
        response = RedirectResponse("/", status_code=303)
        # Lax: a link to an answer works from elsewhere, and no other site can send a form with the cookie.
        is_encrypted = request.url.hostname not in _LOOPBACK
        response.set_cookie(SESSION_COOKIE, key, httponly=True, samesite="lax", secure=is_encrypted)
        return response

    @router.post("/sign-out")
    async def sign_out() -> Response:
        response = RedirectResponse(SIGN_IN_PATH, status_code=303)
        response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="lax")
        return response

    return router
