"""A scripted model behind a real HTTP server on loopback, for commands that are given an endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from epicrisis.core.protocols import ChatModel, ChatRequest, Message
from tests.support.hostile import HostileServer


@contextmanager
def served(model: ChatModel) -> Iterator[HostileServer]:
    """The server at whose `url` this model answers; it keeps its requests."""
    with ThreadPoolExecutor(1) as thread:

        def reply(body: dict[str, Any]) -> str:
            asked = ChatRequest(
                tuple(Message(each["role"], each["content"]) for each in body["messages"]),
                max_tokens=body.get("max_tokens") or 512,
                seed=body.get("seed") or 0,
                schema=body.get("response_format", {}).get("json_schema", {}).get("schema"),
            )
            # The server's own loop is running in this thread.
            return thread.submit(asyncio.run, model.complete(asked)).result().text

        with HostileServer(reply, keep_bodies=True) as server:
            yield server
