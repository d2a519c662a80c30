"""Requests to a literature service: as fast as it allows, tried again when it is busy, to no other host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Self

from epicrisis.models.chat.endpoints.failures import read_retry_after

MAX_RESPONSE_BYTES = 256 * 1024 * 1024
TRIES = 4
_TIMEOUT_SECONDS = 60.0
_MAX_WAIT_SECONDS = 120.0
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})


class ServiceFailed(Exception):
    """A service gave no usable response. The text says what happened, without key and query."""


class RequestRejected(ServiceFailed):
    """The service rejects the request (a status of 4xx). `body`: what it says."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"it answered with status {status}")
        self.status = status
        self.body = body


class WebClient:
    """Sends requests to one service. It contacts no other host, as it follows no redirect."""

    def __init__(
        self,
        base: str,
        per_second: float,
        secrets: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a client.

        `base`: the address before the name of a function. `secrets` are sent with every request and never shown.
        """
        import httpx2

        self.base = base.rstrip("/")
        self._secrets = dict(secrets or {})
        self._interval = 1 / per_second
        self._sleep, self._clock = sleep, clock
        self._next_start = 0.0
        agent = {"User-Agent": f"epicrisis/{version('epicrisis')}"}
        self._client = httpx2.Client(timeout=_TIMEOUT_SECONDS, follow_redirects=False, headers=agent)

    def get(self, function: str, parameters: Mapping[str, str]) -> bytes:
        """Return the body of the response to a GET request. Raises ServiceFailed, or RequestRejected."""
        return self._send("GET", function, {"params": {**parameters, **self._secrets}})

    def post(self, function: str, parameters: Mapping[str, str]) -> bytes:
        """Return the body of the response to a POST request, for lists too long for a URL. Raises ServiceFailed."""
        return self._send("POST", function, {"data": {**parameters, **self._secrets}})

    def _send(self, method: str, function: str, content: Mapping[str, Any]) -> bytes:
        import httpx2

        for number in range(1, TRIES + 1):
            self._wait_for_turn()
            wait: float | None = None
            try:
                response = self._client.request(method, f"{self.base}/{function}", **content)
            except httpx2.InvalidURL:
                raise ServiceFailed("its address in the settings is not a URL") from None
            except httpx2.HTTPError as error:
                failure = f"it cannot be reached ({type(error).__name__})"
            else:
                if response.status_code == 200 and len(response.content) <= MAX_RESPONSE_BYTES:
                    return bytes(response.content)
                failure = f"it answered with status {response.status_code}"
                if response.status_code not in _BUSY:
                    raise RequestRejected(response.status_code, response.content)
                with suppress(ValueError):
                    wait = read_retry_after(response.headers, limited=False)
            pause = 2.0 ** (number - 1) if wait is None else wait
            if number == TRIES or pause > _MAX_WAIT_SECONDS:
                break
            self._sleep(pause)
        raise ServiceFailed(f"{failure}, {number} times" if number > 1 else failure)

    def _wait_for_turn(self) -> None:
        """Wait until the rate limit allows the next request."""
        now = self._clock()
        if now < self._next_start:
            self._sleep(self._next_start - now)
        self._next_start = max(now, self._next_start) + self._interval

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
