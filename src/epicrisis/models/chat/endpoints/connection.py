"""The HTTP client of one endpoint: OpenAI's, told to send what we say and nothing of its own.

The only module that imports `openai` when it is itself imported, which takes most of a second. Knows no chat.

No redirect is followed: a call may hold a patient's record and goes where the settings say. Nothing of the environment
is sent but AWS's credentials to Bedrock. Replies are bounded, whoever sends them.
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
"""What does not even accept a connection in this time is not there."""

KEPT_SECONDS = 2.0
"""Connections to other machines are kept open this long for the next call."""

MOST_BYTES = 32 * 2**20
"""Of a reply, or of one line of a stream. The largest there can be, the tokens of a long prompt, is a third of that."""

MOST_ERROR_BYTES = 2**20
"""Of a reply whose status says that it is an error."""

Headers: TypeAlias = dict[str, str | Omit]


class Connection:
    """Belongs to the event loop it is first used in. Foreign errors leave it as they are.

    Raises ModelMissing where Bedrock needs a package that is not installed.
    """

    def __init__(self, endpoint: Endpoint, key: str | None, timeout: float | None, concurrency: int) -> None:
        silence_dependency_logs()
        # A kept connection can be closed by the server in the very moment it is used again (llama.cpp and vLLM close
        # after 5 s), and some servers lend a thread to each: on this machine each call has its own.
        limits = httpx2.Limits(
            max_connections=max(1000, 2 * concurrency), keepalive_expiry=0 if endpoint.local else KEPT_SECONDS
        )
        # A proxy for the outside world must not see what goes to this machine.
        tls = endpoint.base_url.startswith("https:") or not endpoint.local
        http = _Http(endpoint.host, trust_env=not endpoint.local, limits=limits, verify=tls)
        signs = endpoint.kind == "bedrock" and key is None
        self._headers: Headers = {} if signs else _authorization(endpoint, key)
        self._client = _Client(
            headers={"Connection": "close"} if endpoint.local else {},
            timeout=Timeout(timeout, connect=min(timeout or CONNECT_SECONDS, CONNECT_SECONDS)),
            max_retries=0,
            default_query=dict(endpoint.query),
            http_client=http,
            **(_signing(endpoint) if signs else {"base_url": endpoint.base_url, "api_key": "none"}),
        )

    async def get(self, path: str) -> object:
        """The JSON at this path below the base URL, or at this URL."""
        return await self._client.get(path, cast_to=object, options={"headers": self._headers})

    async def post(self, path: str, body: Mapping[str, Any]) -> object:
        """The JSON that answers."""
        return await self._client.post(path, cast_to=object, body=body, options={"headers": self._headers})

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[object, None]:
        """The JSON of each event of a stream, or of the one whole reply where the endpoint does not stream. Closing
        the iterator closes the connection, which ends the work at the server."""
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
        """Idempotent."""
        await self._client.close()


class _Client(AsyncOpenAI):
    """OpenAI's, without the headers it takes from the environment (organization, project, whatever a variable says)
    and those that describe this machine."""

    def __init__(self, *, headers: Mapping[str, str], **more: Any) -> None:
        self._ours = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": "epicrisis"}
        # A small reply can be packed so that it unpacks to more than there is memory.
        self._ours |= {"Accept-Encoding": "identity", **headers}
        super().__init__(**more)

    @property
    def default_headers(self) -> dict[str, str | Omit]:
        return dict(self._ours)


class _Http(DefaultAioHttpClient):
    """Bounds what it reads."""

    def __init__(self, host: str, **more: Any) -> None:
        super().__init__(follow_redirects=False, **more)
        self._host = host

    async def send(self, request: httpx2.Request, *, stream: bool = False, **more: Any) -> httpx2.Response:
        response = await super().send(request, stream=True, **more)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise ReplyInvalid(f"{self._host} packs its replies though it was asked not to: see its proxy")
            lines = response.headers.get("content-type", "").startswith("text/event-stream")
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            most = MOST_BYTES if response.status_code < 400 else MOST_ERROR_BYTES
            response.stream = _Bounded(response.stream, self._host, most, lines=lines)
            if not stream:
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response


class _Bounded(httpx2.AsyncByteStream):
    """Ends in ReplyInvalid where a body, or with `lines` a line of it, has more than `most` bytes."""

    def __init__(self, inner: httpx2.AsyncByteStream, host: str, most: int, *, lines: bool) -> None:
        self._inner = inner
        self._host = host
        self._most = most
        self._lines = lines

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for chunk in self._inner:
            end = chunk.rfind(b"\n") if self._lines else -1
            read = len(chunk) - end - 1 if end >= 0 else read + len(chunk)
            if read > self._most:
                raise ReplyInvalid(f"{self._host} sends more than any reply can hold: is it a chat endpoint?")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _authorization(endpoint: Endpoint, key: str | None) -> Headers:
    if endpoint.login is not None:
        login = ":".join(endpoint.login).encode()
        return {"Authorization": f"Basic {base64.b64encode(login).decode()}"}
    if endpoint.kind == "azure":
        return {"Authorization": Omit(), "api-key": key or Omit()}
    return {"Authorization": f"Bearer {key or 'none'}"}


def _signing(endpoint: Endpoint) -> dict[str, Any]:
    """Bedrock without a key of ours: AWS's own, from where its tools find it."""
    if not os.environ.get("AWS_BEARER_TOKEN_BEDROCK") and find_spec("botocore") is None:
        raise ModelMissing(
            "Bedrock needs a key of its own (api_key_file, or the variable that api_key_env names) or, to sign with "
            "credentials of AWS, a package more: pip install 'epicrisis[bedrock]'"
        )
    family: Any = "mantle" if "bedrock-mantle" in endpoint.host else "runtime"
    return {"provider": bedrock(endpoint=family, region=endpoint.region, base_url=endpoint.base_url)}
