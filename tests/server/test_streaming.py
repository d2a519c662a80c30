"""Streams stay alive while nothing happens, and end with what they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from fastapi.sse import KEEPALIVE_COMMENT

from epicrisis.server.libraries import streaming
from epicrisis.server.libraries.streaming import keep_alive


def test_stream_without_news_sends_comments_until_the_next_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEPALIVE_SECONDS", 0.01)

    async def collect() -> list[bytes]:
        silence = asyncio.Event()

        async def pieces() -> AsyncGenerator[bytes, None]:
            yield b"first"
            await silence.wait()
            yield b"last"

        received: list[bytes] = []
        async for piece in keep_alive(pieces()):
            received.append(piece)
            if piece == KEEPALIVE_COMMENT:
                silence.set()
        return received

    received = asyncio.run(collect())
    assert received[0] == b"first"
    assert received[-1] == b"last"
    assert set(received[1:-1]) == {KEEPALIVE_COMMENT}


def test_closed_stream_closes_the_source_of_its_pieces() -> None:
    async def close() -> bool:
        closed = asyncio.Event()

        async def pieces() -> AsyncGenerator[bytes, None]:
            try:
                yield b"first"
                await asyncio.Event().wait()
            finally:
                closed.set()

        stream = keep_alive(pieces())
        assert await anext(stream) == b"first"
        await stream.aclose()
        return closed.is_set()

    assert asyncio.run(close())
