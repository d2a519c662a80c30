"""The HTTP client of one endpoint, restricted to what this package sends.

OpenAI's own client is not used: importing its types takes as long as a search. Redirects are not followed: a call may
contain a patient's record. Nothing from the environment is sent, except AWS's credentials to Bedrock.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from typing import Any

import httpx2

from epicrisis.core.errors import ModelMissing, ReplyInvalid
from epicrisis.models.chat.endpoints.endpoint import Endpoint
from epicrisis.models.chat.endpoints.failures import CredentialsMissing, RefusedCall, parse_error_body
from epicrisis.models.chat.endpoints.reply import STREAM_END
from epicrisis.system.local_only import make_tls_context, silence_dependency_logs
from epicrisis.system.telemetry import make_trace_headers

CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 2.0
"""How long connections to other machines stay open for the next call."""
DRAIN_SECONDS = 1.0
"""How long to wait for the end of a stream after its last event, so that its connection can be used again."""
OPENING_SECONDS, OPENING_BURST = 0.004, 3
"""The pause between two new connections to this machine, and how many are opened without it."""
MAX_REPLY_BYTES = 32 * 2**20
"""Limit of a reply, or of one event of a stream: three times the largest possible, the tokens of a long prompt."""
MAX_ERROR_BYTES = 2**20


class OpeningPace:
    """Spreads connections that are opened at the same moment.

    Many servers queue five at most (llama.cpp, Python's), and the system tries the others again after a whole second.
    """

    def __init__(self) -> None:
        self._next = 0.0

    def reserve(self, now: float) -> float:
        """Return the seconds to wait before a connection that is wanted `now`."""
        self._next = max(self._next, now - (OPENING_BURST - 1) * OPENING_SECONDS)
        wait = max(0.0, self._next - now)
        self._next += OPENING_SECONDS
        return wait


class Connection:
    """The client of one endpoint for one event loop.

    Raises ModelMissing if Bedrock or a proxy needs a package that is missing, and SettingsError if the environment
    names certificates that cannot be read.
    """

    def __init__(self, endpoint: Endpoint, key: str | None, timeout: float | None, concurrency: int) -> None:
        silence_dependency_logs()
        self._host = endpoint.host
        self._is_local = endpoint.local
        self._pace = OpeningPace()
        headers = {
            "Accept": "application/json",
            # A small compressed reply could unpack to more than the memory holds.
            "Accept-Encoding": "identity",
            "User-Agent": "epicrisis",
        }
        if endpoint.local:
            # A server may close an idle connection just when it is used again (llama.cpp and vLLM do after 5 s), and
            # some servers use one thread per connection. On this machine each call has its own connection.
            headers["Connection"] = "close"
        signature: _AwsSignature | None = None
        if endpoint.kind == "bedrock" and not key:
            signature = _AwsSignature(endpoint)
        elif endpoint.login is not None:
            login = ":".join(endpoint.login).encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        elif endpoint.kind != "azure":
            headers["Authorization"] = f"Bearer {key or 'none'}"
        elif key:
            headers["api-key"] = key
        keepalive = 0 if endpoint.local else KEEPALIVE_SECONDS
        try:
            self._client = httpx2.AsyncClient(
                base_url=endpoint.base_url,
                headers=headers,
                params=dict(endpoint.query),
                auth=signature,
                timeout=httpx2.Timeout(timeout, connect=min(timeout or CONNECT_SECONDS, CONNECT_SECONDS)),
                limits=httpx2.Limits(max_connections=max(1000, 2 * concurrency), keepalive_expiry=keepalive),
                # A proxy of another machine may be reached over TLS.
                verify=make_tls_context(secure=endpoint.base_url.startswith("https:") or not endpoint.local),
                # A proxy for the outside world must not see calls to this machine.
                trust_env=not endpoint.local,
            )
        except ImportError:
            raise ModelMissing(
                "the environment names a SOCKS proxy (ALL_PROXY or HTTPS_PROXY), which needs another package: "
                "pip install 'httpx2[socks]'"
            ) from None

    async def get(self, path: str) -> object:
        """Return the JSON at this URL, or at this path below the base URL."""
        async with self._send("GET", path) as response:
            return json.loads(await self._read(response, MAX_REPLY_BYTES))

    async def post(self, path: str, body: Mapping[str, Any]) -> object:
        """Return the JSON of the reply."""
        async with self._send("POST", path, body) as response:
            return json.loads(await self._read(response, MAX_REPLY_BYTES))

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[object, None]:
        """Yield the JSON of each event and `STREAM_END`, or that of a whole reply. Closing it ends the work."""
        async with self._send("POST", path, body) as response:
            if response.headers.get("content-type", "").startswith("application/json"):
                yield json.loads(await self._read(response, MAX_REPLY_BYTES))
                return
            # Not every server says that its stream is one.
            response.headers["content-type"] = "text/event-stream"
            # A stream may begin with a byte order mark, which is not part of its first event.
            response.encoding = "utf-8-sig"
            events = aiter(httpx2.EventSource(response, max_event_size=MAX_REPLY_BYTES))
            try:
                async for event in events:
                    if event.data.startswith(STREAM_END):
                        yield STREAM_END
                        break
                    # An event without data (`retry: 3000`) says nothing about the reply.
                    if event.data:
                        yield event.json()
            except httpx2.SSEError:
                raise self._make_size_error() from None
            with suppress(TimeoutError, httpx2.HTTPError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    async for _ in events:
                        pass

    async def close(self) -> None:
        """Close the client. A second call does nothing."""
        await self._client.aclose()

    @asynccontextmanager
    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """Yield the response, whose content is still to be read. Raise RefusedCall for a refusal or a redirect."""
        # Other machines are not told which calls belong to one question.
        headers = make_trace_headers() if self._is_local else None
        if self._is_local and (wait := self._pace.reserve(asyncio.get_running_loop().time())):
            await asyncio.sleep(wait)
        async with self._client.stream(method, path, json=body, headers=headers) as response:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise ReplyInvalid(f"{self._host} compresses its replies against the request: check its proxy")
            if not response.is_success:
                content: object = ""
                # Status and headers say enough if the server does not complete its message.
                with suppress(httpx2.NetworkError, httpx2.RemoteProtocolError):
                    content = (await self._read(response, MAX_ERROR_BYTES)).decode(errors="replace").strip()
                with suppress(ValueError, RecursionError):
                    content = json.loads(str(content))
                raise RefusedCall(parse_error_body(content, response.status_code, response.headers))
            yield response

    async def _read(self, response: httpx2.Response, limit: int) -> bytes:
        """Return the content. Raise ReplyInvalid if it exceeds `limit` bytes."""
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > limit:
                raise self._make_size_error()
        return bytes(content)

    def _make_size_error(self) -> ReplyInvalid:
        return ReplyInvalid(f"{self._host} sends more than a chat reply can contain: is it a chat endpoint?")


class _AwsSignature(httpx2.Auth):
    """Signs each request with the AWS credentials of the environment (signature version 4)."""

    def __init__(self, endpoint: Endpoint) -> None:
        if find_spec("botocore") is None:
            raise ModelMissing(
                "Bedrock needs a key (set api_key_file, or the variable that api_key_env names) or, for AWS "
                "credentials, another package: pip install 'epicrisis[bedrock]'"
            )
        from botocore.session import Session

        self._service = "bedrock-mantle" if "bedrock-mantle" in endpoint.host else "bedrock"
        self._region = endpoint.region
        self._session = Session()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request with its signature. Raise CredentialsMissing."""
        # The credentials may come from a file or from another service.
        await asyncio.to_thread(self._sign, request)
        yield request

    def _sign(self, request: httpx2.Request) -> None:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        try:
            credentials = self._session.get_credentials()
            frozen = credentials and credentials.get_frozen_credentials()
        except Exception:  # noqa: BLE001 - files, processes and services that provide credentials fail in many ways
            raise CredentialsMissing from None
        if frozen is None:
            raise CredentialsMissing
        signed = AWSRequest(request.method, str(request.url), dict(request.headers), request.content)
        SigV4Auth(frozen, self._service, self._region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
