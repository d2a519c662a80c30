"""A reranker over HTTP: the `/v1/rerank` of Jina, Cohere, vLLM, llama.cpp and others.

Each question is one call without retries. The server's message is never quoted, since it may repeat the texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError

from epicrisis.errors import (
    EndpointBusy,
    EndpointRejected,
    EndpointTimeout,
    EndpointUnreachable,
    EpicrisisError,
    NetworkRefused,
    ReplyInvalid,
)
from epicrisis.models.chat.endpoints.failures import walk_causes
from epicrisis.privacy import is_local

CONNECT_SECONDS = 10.0


class _Result(BaseModel):
    index: int
    relevance_score: float


class _Reply(BaseModel):
    results: list[_Result]


class HttpReranker:
    """A Reranker at an endpoint. `url` ends in `/rerank`, or in `/v1`, or has no path and gets `/v1/rerank`.

    Raises EndpointUnreachable, EndpointTimeout, EndpointBusy, EndpointRejected or ReplyInvalid, and NetworkRefused
    under --local-only.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        api_key: Callable[[], str | None] | None = None,
        timeout_seconds: float = 120.0,
    ) -> None:
        parts = urlsplit(url)
        path = parts.path.rstrip("/") or "/v1"
        self._url = parts._replace(path=path if path.endswith("/rerank") else f"{path}/rerank").geturl()
        self._host = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._local = is_local(parts.hostname)
        self._model = model
        self._api_key = api_key or (lambda: None)
        self._timeout = timeout_seconds

    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        if not passages:
            return np.zeros(0, dtype=np.float32)
        body: dict[str, object] = {"query": query, "documents": list(passages), "top_n": len(passages)}
        if self._model:
            body["model"] = self._model
        raw = self._post(body)
        try:
            results = _Reply.model_validate_json(raw).results
        except ValidationError:
            raise ReplyInvalid(
                f"{self._host} did not send a ranking: is its URL right (does it end in /rerank)?"
            ) from None
        scores = {result.index: result.relevance_score for result in results}
        if len(results) != len(passages) or scores.keys() != set(range(len(passages))):
            raise ReplyInvalid(f"{self._host} does not score each of {len(passages)} passages once: try again")
        if not all(map(math.isfinite, scores.values())):
            raise ReplyInvalid(f"{self._host} returns a score that is no number: try again, or use another model")
        return np.array([scores[index] for index in range(len(passages))], dtype=np.float32)

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        """Return no notes: an endpoint does not report its window."""
        return ()

    def _post(self, body: dict[str, object]) -> bytes:
        import httpx2

        key = self._api_key()
        timeout = httpx2.Timeout(self._timeout, connect=min(self._timeout, CONNECT_SECONDS))
        try:
            # A proxy for the outside world must not see calls to this machine.
            with httpx2.Client(timeout=timeout, trust_env=not self._local) as client:
                reply = client.post(self._url, json=body, headers={"Authorization": f"Bearer {key}"} if key else {})
        except (httpx2.HTTPError, httpx2.InvalidURL, NetworkRefused) as error:
            raise self._map_error(error) from None
        if reply.status_code != 200:
            raise self._map_status(reply.status_code)
        return reply.content

    def _map_error(self, error: Exception) -> EpicrisisError:
        import httpx2

        for cause in walk_causes(error):
            if isinstance(cause, NetworkRefused):
                return cause
        if isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
            return EndpointTimeout(f"no answer from {self._host} in {self._timeout:g} s: is it overloaded?")
        if isinstance(error, httpx2.TransportError):
            return EndpointUnreachable(f"nothing answers at {self._host}: is the server running, is the URL right?")
        return ReplyInvalid(f"the reply of {self._host} cannot be read: is its URL right?")

    def _map_status(self, status: int) -> EpicrisisError:
        if status == 429 or status >= 500:
            return EndpointBusy(f"{self._host} failed ({status}): wait and try again, or see its log")
        if status in (401, 403):
            return EndpointRejected(f"{self._host} rejects the key ({status}): check the variable that holds it")
        if status == 404:
            return EndpointRejected(f"{self._host} has no such path or model (404): check the URL and #model-name")
        return EndpointRejected(
            f"{self._host} rejects the request ({status}): check #model-name, or rerank fewer passages"
        )
