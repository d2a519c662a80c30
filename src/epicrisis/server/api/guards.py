"""Checks of every request before it reaches a route: its host and origin, the size and speed of its body, its key, and
how many requests its sender makes.

`RequestGuard` is the outermost layer. What it refuses is never parsed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from epicrisis.core.errors import EpicrisisError
from epicrisis.server.api.error_handlers import send_error
from epicrisis.server.base.error_log import log_fault
from epicrisis.server.base.http_errors import (
    BodyTooLarge,
    BodyTooSlow,
    HostRefused,
    KeyRequired,
    TooManyRequests,
    describe_error,
)
from epicrisis.server.base.public_address import PublicAddress, split_port
from epicrisis.server.base.users import LOCAL, Caller, UserStore

if TYPE_CHECKING:
    from epicrisis.server.identity.identity_provider import IdentityProvider
    from epicrisis.server.state.sessions import Sessions

MAX_BODY_BYTES = 1_000_000
BODY_SECONDS = 10.0
"""The longest time for a body to arrive."""
UPLOAD_SECONDS = 1_800.0
"""The longest time for an upload to arrive."""
UPLOAD_PAUSE_SECONDS = 30.0
"""The longest pause in it."""
WRONG_KEYS_PER_MINUTE = 20
"""Wrong keys from one address, after which it must wait."""
MAX_ADDRESSES = 10_000
"""Senders whose rates are remembered. The one seen least recently is forgotten first."""
SIGN_IN_PATH = "/sign-in"
RETURN_FIELD = "next"
"""The field of the sign-in with the path of the page to open after it."""
_MAX_RETURN_PATH = 1_000
_OWN_PATH = re.compile(r"/(?!sign-(?:in|out))(?:[!-.0-\[\]-~][!-\[\]-~]*)?")
"""A path of visible ASCII characters. A second slash, a backslash or white space could name another host."""
PUBLIC_PATHS = frozenset({"/healthz", "/readyz", SIGN_IN_PATH, "/sign-out"})
"""Paths without a key. They tell nothing of libraries."""
PUBLIC_PREFIXES = ("/static/", f"{SIGN_IN_PATH}/")
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SESSION_COOKIE = "epicrisis_session"
"""The name of the cookie with the id of a session, without what binds it to an origin (`name_cookie`)."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_DOTS_OF_TOKEN = 2
_UPLOAD_PATH = re.compile(r"/api/v1/libraries/[^/]+/documents|/libraries/[^/]+/uploads")


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """What requests may be."""

    hosts: frozenset[str] = LOOPBACK
    """Names, without port, under which the server may be addressed."""
    max_body_bytes: int = MAX_BODY_BYTES
    body_seconds: float = BODY_SECONDS
    requires_key: bool = False
    """Refuse requests without a key even if there is no user yet."""
    upload_bytes: int = 0
    """The largest body of an upload. It reaches its route while it arrives. 0: there are no uploads."""
    address: PublicAddress = field(default_factory=PublicAddress)


class RateLimiter:
    """Limits how often something may happen, for each sender: a token bucket that fills within a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, sender: str, per_minute: int) -> None:
        """Count one event. Raises TooManyRequests if the sender exceeds `per_minute`."""
        now = self._clock()
        tokens, last = self._buckets.pop(sender, (float(per_minute), now))
        tokens = min(float(per_minute), tokens + (now - last) * per_minute / 60)
        is_allowed = tokens >= 1
        self._buckets[sender] = (tokens - 1 if is_allowed else tokens, now)
        while len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        if not is_allowed:
            wait = (1 - tokens) * 60 / per_minute
            raise TooManyRequests(f"more than {per_minute} requests in a minute", retry_after=max(1, round(wait)))


class RequestGuard:
    """The outermost layer of the application: refuses unsafe requests, and identifies the caller for the others."""

    def __init__(
        self,
        app: ASGIApp,
        options: GuardOptions | None = None,
        users: UserStore | None = None,
        provider: IdentityProvider | None = None,
        sessions: Sessions | None = None,
        hide: Callable[[str], str] = str,
    ) -> None:
        """`sessions` are those that began with a key. `hide` removes paths of the server from messages."""
        self._app = app
        self._options = options or GuardOptions()
        self._users = users
        self._provider = provider
        self._sessions = sessions
        self._hide = hide
        self._requests = RateLimiter()
        self._wrong_keys = RateLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or send a problem. A fault of the program becomes a problem without its message."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _add_headers(message)
            await send(message)

        try:
            headers = Headers(scope=scope)
            check_host(headers, self._options.hosts, self._options.address)
            self._options.address.correct(scope)
            caller = await self._identify(scope, headers)
            scope["epicrisis.caller"] = caller
            if caller is not None:
                self._requests.check(caller.owner, caller.requests_per_minute)
            is_file = self._options.upload_bytes and is_upload(scope, headers)
            receive = self._limit_upload(headers, receive) if is_file else await self._read_body(headers, receive)
            await self._app(scope, receive, send_guarded)
        except KeyRequired as error:
            is_page = asks_for_page(scope, headers)
            response = RedirectResponse(find_sign_in(scope, headers), 303) if is_page else self._refuse(scope, error)
            await response(scope, receive, send_guarded)
        except EpicrisisError as error:
            await self._refuse(scope, error)(scope, receive, send_guarded)
        except Exception as error:  # noqa: BLE001 - the message of a fault may hold text of a record
            log_fault(error)
            if started:
                raise ConnectionAbortedError("the response was cut off by a fault of the server") from None
            fault = EpicrisisError("a fault of the program; its place is in the log of the server")
            await self._refuse(scope, fault)(scope, receive, send_guarded)

    def _refuse(self, scope: Scope, error: EpicrisisError) -> Response:
        return send_error(scope["path"], describe_error(error, self._hide))

    async def _identify(self, scope: Scope, headers: Headers) -> Caller | None:
        """Return the caller, or None for a public path. Raises KeyRequired, and TooManyRequests for guesses."""
        users = self._users
        needs_key = self._options.requires_key or (users is not None and users.has_users())
        if not needs_key:
            return LOCAL
        path = scope["path"]
        if path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIXES):
            # A browser sends an old cookie with each of them.
            return None
        key = find_bearer(headers)
        try:
            return await self._find_caller(headers, key)
        except KeyRequired:
            if key is not None:
                address = (scope.get("client") or ("unknown", 0))[0]
                self._wrong_keys.check(str(address), WRONG_KEYS_PER_MINUTE)
            raise

    async def _find_caller(self, headers: Headers, key: str | None) -> Caller:
        """Return the user of a key, an access token or a session. Raises KeyRequired, and as `check_token` does."""
        caller = None if key is None or self._users is None else await self._users.identify(key)
        if caller is None and key is not None and self._provider is not None and key.count(".") == _DOTS_OF_TOKEN:
            return await self._provider.check_token(key)
        if key is None and (cookie := find_cookie(headers, name_cookie(headers, self._options.address))):
            caller = await self._find_session(cookie)
        if caller is None:
            raise KeyRequired("the request has no key, or an unknown one")
        return caller

    async def _find_session(self, cookie: str) -> Caller | None:
        """Return the user of a session, with the rights that the key of the session has now."""
        for sessions in (self._sessions, None if self._provider is None else self._provider.sessions):
            caller = None if sessions is None else await sessions.identify(cookie)
            if caller is not None and not caller.key_sha256:
                return caller
            if caller is not None and self._users is not None:
                return await self._users.renew(caller)
        return None

    async def _read_body(self, headers: Headers, receive: Receive) -> Receive:
        """Return a `receive` with the whole body. Raises BodyTooLarge and BodyTooSlow."""
        limit = self._options.max_body_bytes
        too_large = BodyTooLarge(f"the body is larger than {limit} bytes")
        if states_more(headers, limit):
            raise too_large
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._options.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return _replay(message, receive)
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > limit:
                        raise too_large
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise BodyTooSlow(f"the body did not arrive within {self._options.body_seconds:g} seconds") from None
        return _replay({"type": "http.request", "body": b"".join(chunks), "more_body": False}, receive)

    def _limit_upload(self, headers: Headers, receive: Receive) -> Receive:
        """Return a `receive` that raises BodyTooLarge and BodyTooSlow while the body of an upload arrives."""
        limit = self._options.upload_bytes
        too_large = BodyTooLarge(f"the upload is larger than {limit // 1_000_000:,} MB: send it in several parts")
        if states_more(headers, limit):
            raise too_large
        size, has_arrived = 0, False
        end = time.monotonic() + UPLOAD_SECONDS

        async def receive_piece() -> Message:
            nonlocal size, has_arrived
            if has_arrived:
                return await receive()
            try:
                async with asyncio.timeout(min(UPLOAD_PAUSE_SECONDS, end - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise BodyTooSlow("the upload pauses for too long, or takes too long in all") from None
            size += len(message.get("body", b""))
            has_arrived = not message.get("more_body", False)
            if size > limit:
                raise too_large
            return message

        return receive_piece


def states_more(headers: Headers, limit: int) -> bool:
    """Return whether the headers state a body of more bytes than the limit, or no number of bytes."""
    length = headers.get("content-length", "0")
    return not length.isascii() or not length.isdecimal() or int(length[:20]) > limit


def is_upload(scope: Scope, headers: Headers) -> bool:
    """Return whether a request sends files to a library."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_form = scope["method"] == "POST" and media_type == "multipart/form-data"
    return is_form and _UPLOAD_PATH.fullmatch(scope["path"]) is not None


def asks_for_page(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser opens a page, which is then led to the page for signing in."""
    return scope["method"] == "GET" and "text/html" in headers.get("accept", "")


def find_sign_in(scope: Scope, headers: Headers) -> str:
    """Return the address of the sign-in, with the path of the page that the browser asked for."""
    path = (scope.get("raw_path") or b"").decode("ascii", "replace")
    query = scope.get("query_string", b"").decode("ascii", "replace")
    place = find_own_path(f"{path}?{query}" if query else path)
    if place == "/" or "hx-request" in headers:
        return SIGN_IN_PATH
    return f"{SIGN_IN_PATH}?{urlencode({RETURN_FIELD: place})}"


def find_own_path(value: object) -> str:
    """Return the path if it is one of a page of this server, else `/`. Never leads to another site."""
    is_own = isinstance(value, str) and len(value) <= _MAX_RETURN_PATH and _OWN_PATH.fullmatch(value) is not None
    return str(value) if is_own else "/"


def find_bearer(headers: Headers) -> str | None:
    """Return the key or the access token of the header Authorization, or None."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" and value.strip() else None


def name_cookie(headers: Headers, address: PublicAddress) -> str:
    """Return the name of the session's cookie, which binds it to the origin of the request.

    Browsers send a cookie to all ports of a host, and subdomains may set it. `__Host-` allows neither without TLS; on
    loopback, where other programs have other ports, the name has the port.
    """
    host, port = split_port(headers.get("host", ""))
    is_encrypted = address.is_encrypted or host not in LOOPBACK
    return f"__Host-{SESSION_COOKIE}" if is_encrypted else f"{SESSION_COOKIE}_{port or 80}"


def find_cookie(headers: Headers, cookie_name: str) -> str | None:
    """Return the value of a cookie, or None without it."""
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie_name and value:
            return value
    return None


def check_host(headers: Headers, hosts: frozenset[str], address: PublicAddress) -> None:
    """Raise HostRefused unless the request is addressed to this server, by its own pages or by none.

    A page of another site whose name was pointed at this address (DNS rebinding) sends its own name as the host. One
    that addresses this server openly sends another origin.
    """
    host_headers = headers.getlist("host")
    name, port = split_port(host_headers[0] if len(host_headers) == 1 else "")
    # The links of a reply begin with this header, so nothing else may stand in it.
    if name not in hosts or not (port.isascii() and (port.isdecimal() or not port)):
        raise HostRefused("the header Host does not name this server")
    origins = headers.getlist("origin")
    if not origins:
        return
    scheme, separator, place = origins[0].partition("://")
    is_own = separator and scheme in address.find_schemes(name) and place.lower() == host_headers[0].lower()
    is_public = origins[0].lower() in address.origins
    if len(origins) != 1 or not (is_own or is_public):
        raise HostRefused("the header Origin names another site")


def _replay(first: Message, receive: Receive) -> Receive:
    """Return a `receive` with this message first, and then the following ones."""
    messages = [first]

    async def receive_next() -> Message:
        return messages.pop() if messages else await receive()

    return receive_next


def _add_headers(message: Message) -> None:
    present = {name.lower() for name, _ in message["headers"]}
    added = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
    message["headers"] = [*message["headers"], *(header for header in added if header[0] not in present)]
