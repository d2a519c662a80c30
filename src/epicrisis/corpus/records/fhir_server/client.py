"""Requests to a FHIR server with an access token of SMART Backend Services.

    with FhirClient("https://fhir.example.org/r4", read_credentials(path)) as client:
        bundle = client.get_json("Patient?_count=100")

It contacts the origin of the server (scheme, host and port), the origins that the user named, and the token endpoint
that the credentials name, whatever addresses the server gives. The token goes to the server's own origin only.
"""

from __future__ import annotations

import json
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urljoin, urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from epicrisis.core.errors import InputError, NetworkRefused, UserError
from epicrisis.core.printable import printable
from epicrisis.system.local_only import HAS_OWNERS, is_local

if TYPE_CHECKING:
    import httpx2

_INSTALL = 'signing in to a FHIR server needs the extra `oidc`: pip install "epicrisis[oidc]"'
_TIMEOUT_SECONDS = 120.0
_ASSERTION_SECONDS = 240
_BUSY = frozenset((408, 425, 429, 500, 502, 503, 504))
_TRIES = 6
_MAX_WAIT_SECONDS = 300.0
MAX_RESPONSE_BYTES = 256 * 2**20
"""Of one response that is kept in memory. Files of an export are written to the disk instead."""
_OF_TRANSFER = frozenset(("content-encoding", "content-length", "transfer-encoding"))
_FHIR_JSON = "application/fhir+json"


class FhirServerFailed(UserError):
    """A FHIR server gave no usable response. The message has no query, which may name patients."""


class FhirCredentials(BaseModel):
    """The content of a file of credentials, as the server's administrator registered them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    client_id: str
    private_key: Path
    """A file with a private key as JWK or PEM, relative to the folder of the credentials."""
    key_id: str = ""
    algorithm: str = "ES384"
    scope: str = "system/*.read"
    token_url: str = ""
    """Empty: the server says it in its `.well-known/smart-configuration`."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """Credentials with the key itself."""

    credentials: FhirCredentials
    key: Any = field(repr=False)


def read_credentials(path: Path) -> SigningKey:
    """Return the credentials of a file and its key, both readable by their owner alone. Raises InputError."""
    try:
        credentials = FhirCredentials.model_validate_json(_read_private(path))
    except ValidationError as error:
        names = ", ".join(sorted({str(item["loc"][0]) for item in error.errors() if item["loc"]})) or "the file"
        raise InputError(
            f"{path}: not credentials of a FHIR server ({names}): write JSON with client_id and private_key"
        ) from None
    if credentials.algorithm not in ("ES384", "RS384"):
        raise InputError(f"{path}: the algorithm must be ES384 or RS384, as SMART Backend Services require")
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from joserfc import jwk
        from joserfc.errors import JoseError
    except ImportError as error:
        raise InputError(_INSTALL) from error
    key_path = path.parent / credentials.private_key
    text = _read_private(key_path)
    kind: Any = "EC" if credentials.algorithm == "ES384" else "RSA"
    curve = "P-384" if kind == "EC" else None
    try:
        key = jwk.import_key(json.loads(text) if text.lstrip().startswith("{") else text, kind)
        if not key.is_private or getattr(key, "curve_name", None) != curve:
            raise ValueError
    except (JoseError, UnsupportedAlgorithm, LookupError, TypeError, ValueError) as error:
        raise InputError(f"{key_path}: not a private key for {credentials.algorithm} as JWK or PEM") from error
    return SigningKey(credentials, key)


def _read_private(path: Path) -> str:
    """Return the text of a file that its owner alone can read. Raises InputError."""
    try:
        if HAS_OWNERS and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise InputError(f"{path}: others can read it, and it holds a secret: chmod 600 {path}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "not text"
        raise InputError(f"{path}: {reason}; name the file of credentials of the FHIR server") from error


class FhirClient:
    """Sends requests to one server. Use it as a context manager."""

    def __init__(
        self,
        base: str,
        signing: SigningKey | None = None,
        sleep: Callable[[float], None] = time.sleep,
        origins: Iterable[str] = (),
    ) -> None:
        """Create a client. Without `signing`, no token is sent.

        `origins` are addresses of other servers that this one may name for its files and its tokens. Raises
        InputError for an address that is none.
        """
        import httpx2

        self.base = base.rstrip("/") + "/"
        self._origin = _check_origin("--fhir-server", self.base)
        self._origins = {self._origin, *(_check_origin("--fhir-origin", address) for address in origins)}
        self.host = urlsplit(self.base).netloc.lower()
        self.sleep = sleep
        self._signing = signing
        self._token = ""
        # Cookies would go to every port of a host.
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
        self._client = httpx2.Client(timeout=_TIMEOUT_SECONDS, follow_redirects=False, cookies=no_cookies)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get_json(self, address: str) -> dict[str, Any]:
        """Return the JSON object at an address, relative to the server's. Raises FhirServerFailed."""
        return parse_object(self.request("GET", address))

    def request(
        self, method: str, address: str, headers: Mapping[str, str] | None = None, accept: str = _FHIR_JSON
    ) -> httpx2.Response:
        """Return the response to a request, which may have a status of 4xx. Tries again while the server is busy.

        Raises FhirServerFailed if the server does not answer or refuses the token, or the address is of an origin that
        the user did not name.
        """
        url = self.locate(address)
        response: httpx2.Response | None = None
        for attempt in range(_TRIES):
            response = self._send(method, url, {"Accept": accept, **(headers or {})}, renew=attempt == 0)
            if response is not None and response.status_code not in _BUSY:
                return response
            if attempt + 1 < _TRIES:
                self.sleep(retry_after(response, 2.0**attempt))
        status = f"status {response.status_code}" if response is not None else "no response"
        raise FhirServerFailed(f"{self.host}: {status} after {_TRIES} tries; run the same command again later")

    def is_own(self, url: str) -> bool:
        """Return whether an address has the server's own scheme, host and port, so that it may see the token."""
        return _find_origin(self.base, url) == self._origin

    def locate(self, address: str) -> str:
        """Return the whole of an address that the server gave.

        Raises FhirServerFailed if its origin is neither the server's nor one that the user named.
        """
        import httpx2

        if (origin := _find_origin(self.base, address)) in self._origins:
            url = urljoin(self.base, address)
            try:
                httpx2.URL(url)
            except httpx2.InvalidURL:
                origin = None
            else:
                return url
        if origin is None:
            raise FhirServerFailed(f"{self.host}: gave an address that cannot be asked; tell its administrator")
        name = "{}://{}:{}".format(*origin)
        raise FhirServerFailed(
            f"{self.host}: sends this program to {printable(name)}, which is not asked; if it belongs to the server, "
            f"name it with --fhir-origin"
        )

    def authorize(self, url: str) -> dict[str, str]:
        """Return the header with the token for an address at the server's own origin, fetched if there is none."""
        if self._signing is None or not self.is_own(url):
            return {}
        if not self._token:
            self._token = self._fetch_token(self._signing)
        return {"Authorization": f"Bearer {self._token}"}

    def forget_token(self) -> None:
        """Fetch a new token at the next request."""
        self._token = ""

    def stream(self, url: str, headers: Mapping[str, str]) -> Any:
        """Return the context manager of a GET request to an address of `locate`. It may raise errors of httpx2."""
        return self._client.stream("GET", url, headers=headers)

    def _send(self, method: str, url: str, headers: Mapping[str, str], *, renew: bool) -> httpx2.Response | None:
        """Return the response, or None without one. A refused token is fetched again once."""
        import httpx2

        try:
            response = self._read(method, url, headers)
            if response.status_code == 401 and self._token and renew:
                self.forget_token()
                response = self._read(method, url, headers)
        except NetworkRefused:
            raise
        except httpx2.TransportError:
            return None
        if response.status_code in (401, 403):
            cure = "check the client's registration and scope" if self._signing else "pass --fhir-credentials FILE"
            raise FhirServerFailed(f"{self.host}: access refused (status {response.status_code}): {cure}")
        return response

    def _read(self, method: str, url: str, headers: Mapping[str, str]) -> httpx2.Response:
        """Return the response with its content. Raises FhirServerFailed if it is too large, also when unpacked."""
        import httpx2

        with self._client.stream(method, url, headers={**headers, **self.authorize(url)}) as response:
            content = bytearray()
            for block in response.iter_bytes():
                content += block
                if len(content) > MAX_RESPONSE_BYTES:
                    raise FhirServerFailed(
                        f"{self.host}: sends over {MAX_RESPONSE_BYTES // 2**20} MB in one response; ask its "
                        "administrator for smaller pages"
                    )
            fields = [(name, value) for name, value in response.headers.items() if name.lower() not in _OF_TRANSFER]
            return httpx2.Response(
                response.status_code, headers=fields, content=bytes(content), request=response.request
            )

    def _fetch_token(self, signing: SigningKey) -> str:
        """Return a new access token. Raises FhirServerFailed with one line."""
        import httpx2
        from joserfc import jwt

        credentials = signing.credentials
        url = credentials.token_url
        try:
            if not url:
                reply = self._client.get(
                    urljoin(self.base, ".well-known/smart-configuration"), headers={"Accept": "application/json"}
                )
                url = str(parse_object(reply).get("token_endpoint") or "")
                if not url:
                    raise FhirServerFailed(
                        f"{self.host}: names no token endpoint; write token_url into the credentials"
                    )
                url = self.locate(url)
            header = {"alg": credentials.algorithm, "typ": "JWT"}
            if credentials.key_id or getattr(signing.key, "kid", None):
                header["kid"] = credentials.key_id or signing.key.kid
            now = int(time.time())
            claims = {"iss": credentials.client_id, "sub": credentials.client_id, "aud": url, "jti": str(uuid.uuid4())}
            times = {"iat": now, "exp": now + _ASSERTION_SECONDS}
            assertion = jwt.encode(header, {**claims, **times}, signing.key, algorithms=[credentials.algorithm])
            form = {
                "grant_type": "client_credentials",
                "scope": credentials.scope,
                "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                "client_assertion": assertion,
            }
            response = self._client.post(url, data=form)
        except httpx2.TransportError as error:
            raise FhirServerFailed(f"{self.host}: its token endpoint cannot be reached; check the address") from error
        token = parse_object(response).get("access_token") if response.status_code == 200 else None
        if not token:
            raise FhirServerFailed(
                f"{self.host}: the token endpoint refused the key of client {credentials.client_id!a} (status "
                f"{response.status_code}): check client_id, private_key and key_id in the credentials"
            )
        return str(token)


def _find_origin(base: str, address: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an address on a page; None for one that cannot be asked or names a user."""
    try:
        parts = urlsplit(urljoin(base, address))
        port = parts.port
    except ValueError:
        return None
    default = {"http": 80, "https": 443}.get(parts.scheme)
    if default is None or not parts.hostname or "@" in parts.netloc:
        return None
    return parts.scheme, parts.hostname, default if port is None else port


def _check_origin(option: str, address: str) -> tuple[str, str, int]:
    """Return the origin of an address that the user gave. Raises InputError."""
    origin = _find_origin("", address)
    if origin is None or urlsplit(address).query:
        raise InputError(f"{option} takes the address of a server, such as https://fhir.example.org/r4")
    if origin[0] == "http" and not is_local(origin[1]):
        raise InputError(f"{option}: http sends patients' records unencrypted; write https://")
    return origin


def retry_after(response: httpx2.Response | None, default: float) -> float:
    """Return the seconds that a server asks to wait, within bounds."""
    text = response.headers.get("Retry-After", "") if response is not None else ""
    seconds = float(text) if text.isascii() and text.isdecimal() else default
    return min(seconds, _MAX_WAIT_SECONDS)


def parse_object(response: httpx2.Response) -> dict[str, Any]:
    """Return the JSON object of a response. Raises FhirServerFailed."""
    try:
        value = response.json()
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise FhirServerFailed(
            f"{response.url.host}: status {response.status_code} without a JSON object; check the address of the server"
        )
    return value
