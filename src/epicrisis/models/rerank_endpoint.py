"""A reranker behind HTTP: the `/v1/rerank` of Jina, Cohere, vLLM, llama.cpp and others.

One call a question and no retry. What the server says is never passed on: it may repeat the texts it was sent.
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
        body = {"query": query, "documents": list(passages), "top_n": len(passages)}
        raw = self._post(body | ({"model": self._model} if self._model else {}))
        try:
            results = _Reply.model_validate_json(raw).results
        except ValidationError:
            raise ReplyInvalid(
                f"{self._host} answers with something that is no ranking: is its URL right (does it end in /rerank)?"
            ) from None
        if sorted(result.index for result in results) != list(range(len(passages))):
            raise ReplyInvalid(f"{self._host} does not score each of {len(passages)} passages once: try again")
        if not all(math.isfinite(result.relevance_score) for result in results):
            raise ReplyInvalid(f"{self._host} gives a score that is no number: try again, or use another model")
        scores = np.empty(len(passages), dtype=np.float32)
        scores[[result.index for result in results]] = [result.relevance_score for result in results]
        return scores

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        """None: an endpoint does not tell its window."""
        return ()

    def _post(self, body: dict[str, object]) -> bytes:
        import httpx2

        key = self._api_key()
        timeout = httpx2.Timeout(self._timeout, connect=min(self._timeout, CONNECT_SECONDS))
        try:
            # A proxy for the outside world must not see what goes to this machine.
            with httpx2.Client(timeout=timeout, trust_env=not self._local) as client:
                reply = client.post(self._url, json=body, headers={"Authorization": f"Bearer {key}"} if key else {})
        except (httpx2.HTTPError, httpx2.InvalidURL, NetworkRefused) as error:
            raise self._failure(error) from None
        if reply.status_code != 200:
            raise self._status(reply.status_code)
        return reply.content

    def _failure(self, error: Exception) -> EpicrisisError:
        import httpx2

        if refused := next((cause for cause in walk_causes(error) if isinstance(cause, NetworkRefused)), None):
            return refused
        if isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
            return EndpointTimeout(f"no answer from {self._host} in {self._timeout:g} s: is it overloaded?")
        if isinstance(error, httpx2.TransportError):
            return EndpointUnreachable(f"nothing answers at {self._host}: is the server running, is the URL right?")
        return ReplyInvalid(f"{self._host} gives no reply that can be read: is its URL right?")

    def _status(self, status: int) -> EpicrisisError:
        if status == 429 or status >= 500:
            return EndpointBusy(f"{self._host} failed ({status}): wait and try again, or see its log")
        if status in (401, 403):
            return EndpointRejected(f"{self._host} refuses the key ({status}): check the variable that holds it")
        if status == 404:
            return EndpointRejected(f"{self._host} knows no such path or model (404): check the URL and #model-name")
        return EndpointRejected(
            f"{self._host} refuses the request ({status}): check #model-name, or rerank fewer passages"
        )
