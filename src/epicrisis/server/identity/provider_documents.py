"""What the identity provider publishes: its endpoints (OpenID Connect Discovery) and its public keys (JWKS).

Both are kept and renewed. Only the host of the issuer is contacted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from epicrisis.server.base.http_errors import ProviderFailed
from epicrisis.server.identity.identity_provider_settings import IdentityProviderSettings
from epicrisis.system.local_only import permit_host

DISCOVERY_PATH = "/.well-known/openid-configuration"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
"""Signatures with a private key of the provider. With `none` and `HS256` everybody could sign."""
TIMEOUT_SECONDS = 10.0
RENEW_SECONDS = 60 * 60.0
"""Age at which a document is fetched again."""
KEEP_SECONDS = 24 * 60 * 60.0
"""How long a document is used while the provider cannot be reached."""
RETRY_SECONDS = 30.0
"""The shortest time between two fetches. Tokens with invented keys would otherwise flood the provider."""
FAILURE_SECONDS = 5.0
"""The shortest time until a provider that failed is asked again."""
MAX_BYTES = 1_000_000
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_CONTACTED = ("token_endpoint", "jwks_uri")
_KEPT = ("issuer", *_ENDPOINTS, "end_session_endpoint")

Document = Mapping[str, Any]


class DocumentCache:
    """A document of the provider, fetched when it is needed and old."""

    def __init__(self, fetch: Callable[[], Awaitable[Document]], clock: Callable[[], float]) -> None:
        self._fetch = fetch
        self._clock = clock
        self._content: Document | None = None
        self._fetched_at = 0.0
        self._tried_at: float | None = None
        self._failure: str | None = None

    async def read(self, *, renew: bool = False) -> Document:
        """Return the document; `renew`: a new one, unless one was just fetched. Raises ProviderFailed."""
        now = self._clock()
        age = now - self._fetched_at
        usable = self._content if age < KEEP_SECONDS else None
        pause = RETRY_SECONDS if self._failure is None else FAILURE_SECONDS
        may_fetch = self._tried_at is None or now - self._tried_at >= pause
        if may_fetch and (usable is None or renew or age >= RENEW_SECONDS):
            self._tried_at = now
            try:
                usable = self._content = await self._fetch()
                self._fetched_at, self._failure = now, None
            except ProviderFailed as error:
                self._failure = error.message
        if usable is None:
            # Requests would otherwise wait one after the other for a provider that does not answer.
            raise ProviderFailed(self._failure or "the identity provider was not asked yet")
        return usable


class ProviderDocuments:
    """The endpoints and keys of one provider."""

    def __init__(self, settings: IdentityProviderSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._lock = asyncio.Lock()
        self._metadata = DocumentCache(self._fetch_metadata, clock)
        self._keys = DocumentCache(self._fetch_keys, clock)

    async def read_metadata(self) -> Document:
        """Return the endpoints of the provider. Raises ProviderFailed."""
        async with self._lock:
            return await self._metadata.read()

    async def read_keys(self, *, renew: bool = False) -> Document:
        """Return the public keys of the provider as a JWK set. Raises ProviderFailed."""
        async with self._lock:
            return await self._keys.read(renew=renew)

    async def _fetch_metadata(self) -> Document:
        issuer = self._settings.issuer
        content = await self._fetch(issuer.removesuffix("/") + DISCOVERY_PATH)
        if content.get("issuer") != issuer:
            raise ProviderFailed(f"{issuer} describes another issuer: set issuer to the one in its description")
        metadata = {name: content[name] for name in _KEPT if isinstance(content.get(name), str)}
        missing = [name for name in _ENDPOINTS if name not in metadata]
        if missing:
            raise ProviderFailed(f"the description of {issuer} has no {missing[0]}")
        for name in _CONTACTED:
            if _find_origin(metadata[name]) != _find_origin(issuer):
                raise ProviderFailed(f"the {name} of {issuer} is on another host, which is not contacted")
        if urlsplit(metadata["authorization_endpoint"]).scheme not in ("https", urlsplit(issuer).scheme):
            raise ProviderFailed(f"the authorization_endpoint of {issuer} is not encrypted")
        metadata["id_token_signing_alg_values_supported"] = list(ALGORITHMS)
        return metadata

    async def _fetch_keys(self) -> Document:
        metadata = await self._metadata.read()
        content = await self._fetch(metadata["jwks_uri"])
        if not isinstance(content.get("keys"), list):
            raise ProviderFailed(f"the keys of {self._settings.issuer} are no JWK set")
        return content

    async def _fetch(self, url: str) -> Document:
        """Return the JSON object at an address of the provider. Redirections are not followed."""
        import httpx2

        name = self._settings.issuer
        try:
            with permit_host(self._settings.host):
                async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
                    response = await client.get(url)
            if response.status_code != 200 or len(response.content) > MAX_BYTES:
                raise ProviderFailed(f"{name} answers with status {response.status_code} in place of a description")
            content = response.json()
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise ProviderFailed(f"{name} cannot be reached: {type(error).__name__}") from None
        except ValueError:
            raise ProviderFailed(f"{name} answers with something else than JSON") from None
        if not isinstance(content, dict):
            raise ProviderFailed(f"{name} answers with something else than a JSON object")
        return content


def _find_origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of an address. Raises ProviderFailed."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        raise ProviderFailed("the identity provider names an address that cannot be read") from None
