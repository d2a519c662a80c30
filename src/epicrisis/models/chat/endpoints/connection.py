"""The HTTP client of one endpoint: OpenAI's client, restricted to what this package sends.

Importing this module imports `openai`, which takes most of a second. Redirects are not followed: a call may contain a
patient's record. Nothing from the environment is sent, except AWS's credentials to Bedrock.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from importlib.util import find_spec
from typing import Any, TypeAlias

import httpx2
from openai import AsyncOpenAI, AsyncStream, DefaultAioHttpClient, Omit, Timeout
from openai.providers import bedrock

from epicrisis.errors import ModelMissing, ReplyInvalid
from epicrisis.models.chat.endpoints.endpoint import Endpoint
from epicrisis.privacy import silence_dependency_logs

CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 2.0
"""How long connections to other machines stay open for the next call."""
MAX_REPLY_BYTES = 32 * 2**20
"""Limit of a reply, or of one line of a stream: three times the largest possible, the tokens of a long prompt."""
MAX_ERROR_BYTES = 2**20
Headers: TypeAlias = dict[str, str | Omit]


class Connection:
    """The client of one endpoint for one event loop. Raises ModelMissing if Bedrock needs a package that is missing."""

    def __init__(self, endpoint: Endpoint, key: str | None, timeout: float | None, concurrency: int) -> None:
        silence_dependency_logs()
        # A server may close an idle connection just when it is used again (llama.cpp and vLLM do after 5 s), and some
        # servers use one thread per connection. On this machine each call has its own connection.
        limits = httpx2.Limits(
            max_connections=max(1000, 2 * concurrency), keepalive_expiry=0 if endpoint.local else KEEPALIVE_SECONDS
        )
        # A proxy for the outside world must not see calls to this machine.
        tls = endpoint.base_url.startswith("https:") or not endpoint.local
        http = _HttpClient(endpoint.host, trust_env=not endpoint.local, limits=limits, verify=tls)
        options: dict[str, Any] = {"base_url": endpoint.base_url, "api_key": "none"}
        self._headers: Headers = {"Authorization": f"Bearer {key or 'none'}"}
        if endpoint.kind == "bedrock" and key is None:
            # The AWS credentials of the environment sign each call.
            if not os.environ.get("AWS_BEARER_TOKEN_BEDROCK") and find_spec("botocore") is None:
                raise ModelMissing(
                    "Bedrock needs a key (set api_key_file, or the variable that api_key_env names) or, for AWS "
                    "credentials, another package: pip install 'epicrisis[bedrock]'"
                )
            family: Any = "mantle" if "bedrock-mantle" in endpoint.host else "runtime"
            options = {"provider": bedrock(endpoint=family, region=endpoint.region, base_url=endpoint.base_url)}
            self._headers = {}
        elif endpoint.login is not None:
            login = ":".join(endpoint.login).encode()
            self._headers = {"Authorization": f"Basic {base64.b64encode(login).decode()}"}
        elif endpoint.kind == "azure":
            self._headers = {"Authorization": Omit(), "api-key": key or Omit()}
        self._client = _OpenAIClient(
            headers={"Connection": "close"} if endpoint.local else {},
            timeout=Timeout(timeout, connect=min(timeout or CONNECT_SECONDS, CONNECT_SECONDS)),
            max_retries=0,
            default_query=dict(endpoint.query),
            http_client=http,
            **options,
        )

    async def get(self, path: str) -> object:
        """Return the JSON at this URL, or at this path below the base URL."""
        return await self._client.get(path, cast_to=object, options={"headers": self._headers})

    async def post(self, path: str, body: Mapping[str, Any]) -> object:
        """Return the JSON of the reply."""
        return await self._client.post(path, cast_to=object, body=body, options={"headers": self._headers})

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[object, None]:
        """Yield the JSON of each event, or of a whole reply. Closing the iterator ends the server's work."""
        stream = await self._client.post(
            path,
            cast_to=object,
            body=body,
            options={"headers": self._headers},
            stream=True,
            stream_cls=AsyncStream[object],
        )
        async with stream:
            if stream.response.headers.get("content-type", "").startswith("application/json"):
                yield json.loads(await stream.response.aread())
                return
            async for event in stream:
                yield event

    async def close(self) -> None:
        """Close the client. A second call does nothing."""
        await self._client.close()


class _OpenAIClient(AsyncOpenAI):
    """OpenAI's client without the headers it takes from the environment or that describe this machine."""

    def __init__(self, *, headers: Mapping[str, str], **options: Any) -> None:
        self._fixed_headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": "epicrisis",
            # A small compressed reply could unpack to more than the memory holds.
            "Accept-Encoding": "identity",
            **headers,
        }
        super().__init__(**options)

    @property
    def default_headers(self) -> dict[str, str | Omit]:
        return dict(self._fixed_headers)


class _HttpClient(DefaultAioHttpClient):
    """An HTTP client that limits the size of replies."""

    def __init__(self, host: str, **options: Any) -> None:
        super().__init__(follow_redirects=False, **options)
        self._host = host

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        response = await super().send(request, stream=True, **options)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise ReplyInvalid(f"{self._host} compresses its replies against the request: check its proxy")
            by_line = response.headers.get("content-type", "").startswith("text/event-stream")
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            limit = MAX_REPLY_BYTES if response.status_code < 400 else MAX_ERROR_BYTES
            response.stream = _LimitedStream(response.stream, self._host, limit, by_line=by_line)
            if not stream:
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response


class _LimitedStream(httpx2.AsyncByteStream):
    """A byte stream that raises ReplyInvalid if it, or one of its lines with `by_line`, exceeds `limit` bytes."""

    def __init__(self, inner: httpx2.AsyncByteStream, host: str, limit: int, *, by_line: bool) -> None:
        self._inner = inner
        self._host = host
        self._limit = limit
        self._by_line = by_line

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            end = chunk.rfind(b"\n") if self._by_line else -1
            size = len(chunk) - end - 1 if end >= 0 else size + len(chunk)
            if size > self._limit:
                raise ReplyInvalid(f"{self._host} sends more than a chat reply can contain: is it a chat endpoint?")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
