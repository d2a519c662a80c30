"""Sign in to the page: with a key, or with the identity provider of a hospital. Cookies are read by no script.

The cookie is the id of a session in the server, which ends after its time or by signing out.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import RedirectResponse, Response

from epicrisis.server.api.guards import (
    RETURN_FIELD,
    SIGN_IN_PATH,
    WRONG_KEYS_PER_MINUTE,
    RateLimiter,
    find_cookie,
    find_own_path,
    name_cookie,
)
from epicrisis.server.base.http_errors import ProviderFailed
from epicrisis.server.base.public_address import PublicAddress
from epicrisis.server.base.users import Caller, UserStore, hash_key
from epicrisis.server.identity.identity_provider import CALLBACK_PATH, START_PATH, STATE_SECONDS, IdentityProvider
from epicrisis.server.page.page_route import PageRoute
from epicrisis.server.page.rendering import html_response, render
from epicrisis.server.state.sessions import Sessions

SIGN_OUT_PATH = "/sign-out"
STATE_COOKIE = "epicrisis_sign_in"
"""The signed cookie with state, nonce and verifier between the start of a sign-in and its end."""
_MAX_FORM = 10_000
"""Bytes of the form. A longer one holds no key, and reading it would take time from others."""
_WRONG_KEY = "This key belongs to nobody. Copy all of it, as `epicrisis users add` printed it."


def add_sign_in_state(app: FastAPI, address: PublicAddress, key: str) -> None:
    """Let the application keep the state of a running sign-in in a cookie signed with this key, for signing in only."""
    from starlette.middleware.sessions import SessionMiddleware

    app.add_middleware(
        SessionMiddleware,
        secret_key=key,
        session_cookie=STATE_COOKIE,
        max_age=STATE_SECONDS,
        path=SIGN_IN_PATH,
        same_site="lax",
        https_only=address.is_encrypted,
    )


def make_sign_in_routes(
    users: UserStore | None,
    provider: IdentityProvider | None = None,
    address: PublicAddress | None = None,
    sessions: Sessions | None = None,
) -> APIRouter:
    """Return the routes that set and clear the cookies of the page. Guesses of keys are limited for each address."""
    router = APIRouter(route_class=PageRoute, include_in_schema=False, default_response_class=Response)
    guesses = RateLimiter()
    browsers = _Browsers(address or PublicAddress(), sessions, None if provider is None else provider.sessions)
    host = "" if provider is None else provider.settings.host

    async def render_form(place: str, fault: str = "") -> str:
        has_keys = provider is None or (users is not None and await asyncio.to_thread(users.has_users))
        start = START_PATH if place == "/" else f"{START_PATH}?{urlencode({RETURN_FIELD: place})}"
        return render("sign_in", fault=fault, provider=host, start=start, has_keys=has_keys, place=place)

    @router.get(SIGN_IN_PATH)
    async def sign_in_page(request: Request) -> Response:
        return html_response(await render_form(find_own_path(request.query_params.get(RETURN_FIELD))))

    @router.post(SIGN_IN_PATH)
    async def sign_in(request: Request) -> Response:
        body = (await request.body()).decode("ascii", "replace")
        fields = dict(parse_qsl(body)) if len(body) <= _MAX_FORM else {}
        key, place = fields.get("key", "").strip(), find_own_path(fields.get(RETURN_FIELD))
        caller = None if users is None else await asyncio.to_thread(users.find, key)
        if caller is None or sessions is None:
            # Only wrong keys count. Behind a proxy all senders have one address, and nobody may lock out the others.
            guesses.check(request.client.host if request.client else "unknown", WRONG_KEYS_PER_MINUTE)
            return html_response(await render_form(place, _WRONG_KEY), 401)
        return await browsers.start(request, sessions, replace(caller, key_sha256=hash_key(key)), place)

    if provider is not None:
        _add_provider_routes(router, provider, browsers)
    _add_sign_out(router, provider, browsers)
    return router


class _Browsers:
    """Starts and ends the sessions of browsers, each of which has one at most."""

    def __init__(self, address: PublicAddress, *sessions: Sessions | None) -> None:
        self._address = address
        self._sessions = [some for some in sessions if some is not None]

    async def start(self, request: Request, sessions: Sessions, caller: Caller, place: str) -> Response:
        """Return the way to a page, with the cookie of a new session. The browser's earlier session has ended."""
        await self.end(request)
        response = RedirectResponse(place, status_code=303)
        name = name_cookie(request.headers, self._address)
        # Lax: a link to an answer works from elsewhere, a form of another site does not.
        response.set_cookie(
            name,
            await asyncio.to_thread(sessions.start, caller),
            max_age=sessions.seconds,
            httponly=True,
            samesite="lax",
            secure=name.startswith("__Host-"),
        )
        return response

    async def end(self, request: Request) -> Caller | None:
        """End the session of the browser. Return its user, or None if it has no session."""
        caller = None
        if cookie := find_cookie(request.headers, name_cookie(request.headers, self._address)):
            for sessions in self._sessions:
                caller = caller or await sessions.identify(cookie)
                await asyncio.to_thread(sessions.end, cookie)
        return caller

    def clear(self, request: Request, response: Response) -> None:
        """Remove the cookie from the browser."""
        name = name_cookie(request.headers, self._address)
        response.delete_cookie(name, httponly=True, samesite="lax", secure=name.startswith("__Host-"))


def _add_sign_out(router: APIRouter, provider: IdentityProvider | None, browsers: _Browsers) -> None:
    """Add the route that ends the session and clears its cookie."""

    @router.post(SIGN_OUT_PATH)
    async def sign_out(request: Request) -> Response:
        caller = await browsers.end(request)
        response: Response = RedirectResponse(SIGN_IN_PATH, status_code=303)
        if provider is not None and caller is not None and caller.account:
            try:
                place = await provider.make_sign_out_address(_make_address(request, SIGN_IN_PATH))
            except ProviderFailed:
                # The session here has ended all the same.
                place = None
            response = html_response(render("signed_out", provider=provider.settings.host, address=place))
        browsers.clear(request, response)
        return response


def _add_provider_routes(router: APIRouter, provider: IdentityProvider, browsers: _Browsers) -> None:
    """Add the start of a sign-in with the identity provider, and the address to which it sends the browser back."""

    @router.get(START_PATH)
    async def start(request: Request) -> Response:
        request.session[RETURN_FIELD] = find_own_path(request.query_params.get(RETURN_FIELD))
        return await provider.start_sign_in(request, _make_address(request, CALLBACK_PATH))

    @router.get(CALLBACK_PATH)
    async def finish(request: Request) -> Response:
        caller = await provider.finish_sign_in(request)
        place = find_own_path(request.session.get(RETURN_FIELD))
        # The state has done its work, whatever else the library keeps in its cookie.
        request.session.clear()
        return await browsers.start(request, provider.sessions, caller, place)


def _make_address(request: Request, path: str) -> str:
    """Return an address of this server, as browsers reach it."""
    return f"{request.base_url}{path.removeprefix('/')}"
