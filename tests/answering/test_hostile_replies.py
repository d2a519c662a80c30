"""Replies that were written to hang, blow up or end the program, through the real client, the cache and a strategy."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from epicrisis.answering.reply_parsing import TextStream
from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Answer, Event, Notice
from epicrisis.core.protocols import ChatModel
from epicrisis.core.types import Hit, Passage, Question, Ranking, Scope
from epicrisis.models.chat.cache import ReplyCache
from epicrisis.models.chat.loading import add_layers, load_chat
from epicrisis.settings.settings import AnswerOptions, ModelSettings
from tests.support.hostile import HostileServer

MOST_CPU_SECONDS = 0.25
"""Of one turn of the event loop: 50 ms are promised, and this machine may be slow."""
SIZE = 200_000


def _found(text: str, **more: Any) -> str:
    return json.dumps({"result": {"found": True, "answer": text, "finding": text, "choice": "A", **more}})


HOSTILE = {
    "marker": _found("So it is [doc 1" + ", 2" * 40 + " and so on"),
    "long marker": _found("So it is [doc 1" + ", 2" * 1000 + " and so on"),
    "nested lists": "[" * SIZE,
    "nested objects": '{"a":' * SIZE,
    "braces": "{" * SIZE,
    "broken objects": '{"result" ' * (SIZE // 10),
    "many answers": _found("yes") * 1000,
    "blanks": "<" + " " * SIZE,
    "digits": '{"result": {"found": true, "answer": "yes", "choice": ' + "1" * SIZE + "}}",
    "many quotations": _found("yes", quotes=[{"doc": 1, "quote": "the risk was"}] * 10_000),
    "long quotation": _found("yes", quotes=[{"doc": 1, "quote": "In trial " * 20_000}]),
    "thinking": "<think></think>" * (SIZE // 15),
    "cues": "answer is " * (SIZE // 10),
    "half a pair": _found("yes \ud800 it is"),
    "half a pair as it is": "The answer is A. \udfff",
}


def _ranking() -> Ranking:
    text = "In trial 1 of the drug the risk was lower by 4 per cent. " * 20
    passages = [
        Passage(id=f"{number}#0", document_id=f"{number}", ordinal=0, start=0, end=len(text), text=text)
        for number in range(4)
    ]
    return Ranking(tuple(Hit(passage, 1.0, rank) for rank, passage in enumerate(passages)), "made")


async def _longest_turn(stop: asyncio.Event) -> float:
    """Return the most CPU seconds that this thread took in one turn of the loop; waiting for a core does not count."""
    longest, last = 0.0, time.thread_time()
    while not stop.is_set():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    return longest


async def _answer(model: ChatModel, events: list[Event]) -> tuple[Answer, float]:
    async def retrieve(question: Question) -> Ranking:
        return _ranking()

    context = Context(
        options=AnswerOptions(citing="quotes", describe_sources=False),
        models=dict.fromkeys(("writer", "map", "reduce"), model),
        scope=Scope(),
        emit=events.append,
        retrieve=retrieve,
    )
    question = Question("Is the risk lower?", options={"A": "yes", "B": "no"}, form="choice", id="1")
    stop = asyncio.Event()
    turns = asyncio.create_task(_longest_turn(stop))
    try:
        answer = await brief_context(question, context)
    finally:
        stop.set()
        longest = await turns
        await model.aclose()
    return answer, longest


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_reply_gives_state_without_blocking_loop(name: str, tmp_path: Path) -> None:
    def run(events: list[Event]) -> tuple[Answer, float]:
        settings = ModelSettings(name=f"{server.url}#hostile", tries=1)
        cache = ReplyCache(tmp_path / "replies.sqlite")
        try:
            return asyncio.run(_answer(add_layers(load_chat(settings, Path()), settings, cache=cache), events))
        finally:
            cache.close()

    with HostileServer(lambda body: HOSTILE[name]) as server:
        events: list[Event] = []
        asyncio.run(_warm_up())
        first, longest = run(events)
        again, longest_again = run([])
        for _ in range(3):
            # A busy machine can make one turn slow; a reply that blocks the loop is slow every time.
            longest_again = min(longest_again, run([])[1])
        if longest >= MOST_CPU_SECONDS:
            (tmp_path / "replies.sqlite").unlink()
            _, longest = run([])
    assert first.state in ("answered", "abstained", "unparsed", "failed")
    assert (again.state, again.choice, again.text) == (first.state, first.choice, first.text)
    assert max(longest, longest_again) < MOST_CPU_SECONDS
    json.dumps(first.text, ensure_ascii=False).encode()
    if "half a pair" in name:
        assert first.state == "answered"
        assert any(isinstance(event, Notice) and "lone surrogate" in event.message for event in events)


async def _warm_up() -> None:
    """Import what the first call imports."""
    import httpx2  # noqa: F401


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 7])
def test_streamed_field_has_whole_characters_for_any_chunks(cut: int) -> None:
    stream = TextStream("answer")
    reply = json.dumps({"answer": 'a "b" \\ \U0001f600 é \ud800 c \udfff'})
    pieces = [reply[start : start + cut] for start in range(0, len(reply), cut)]
    shown = "".join(stream.feed(piece) for piece in pieces)
    assert shown == 'a "b" \\ \U0001f600 é � c �'


@pytest.mark.slow
def test_streamed_field_with_many_chunks_takes_linear_time() -> None:
    def seconds(size: int) -> float:
        stream, start = TextStream("answer"), time.thread_time()
        stream.feed('{"answer": "')
        for _ in range(size):
            stream.feed("ab c ")
        return time.thread_time() - start

    assert min(seconds(8000) for _ in range(3)) < 10 * min(seconds(2000) for _ in range(3)) + 0.05
